//! Names of tensors, one a line: which model family they are of, and the tables that they make.

#![no_main]

use condprog_checkpoint::family::Family;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = Family::detect(text.lines());
    for family in Family::ALL {
        for parts in [None, Some(0), Some(2), Some(u64::MAX)] {
            let Ok(tables) = family.tables(text.lines(), parts) else { continue };
            for table in tables {
                assert!(table.parts.iter().all(|tensor| text.lines().any(|line| line == tensor)));
                for rows in [0, 1, 1 << 20, u64::MAX] {
                    let rows = vec![rows; table.parts.len()];
                    let _ = (family.head_rows(&table, &rows), family.orders(&table, &rows));
                }
            }
        }
    }
});
