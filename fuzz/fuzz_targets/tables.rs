//! A table file: what opens can be loaded, picked from, checked, inspected and decoded.

#![no_main]

use condprog_core::{Decoder, Missing, Output};
use condprog_cpu::CpuDecoder;
use condprog_table::{Tables, inspect};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let tables = match Tables::from_bytes("fuzz", bytes.to_vec()) {
        Ok(tables) => tables,
        Err(error) => return assert!(!error.to_string().is_empty() && !error.code().is_empty()),
    };
    assert_eq!(inspect(&tables).expect("bytes in memory can be read").len(), tables.tables().len());
    for table in tables.tables() {
        let ids = [0, table.rows as i64 - 1, -1, i64::MIN, i64::MAX, table.rows as i64];
        let rows = table.rows.min(3);
        let read = tables.read_rows(table, table.rows - rows..table.rows).expect("the rows are there");
        assert_eq!(read.segments().iter().map(|segment| segment.rows).sum::<u64>(), rows);

        let loaded = CpuDecoder::new(tables.load(&table.name).expect("the table is there")).expect("a table");
        assert_eq!((loaded.shape().rows, loaded.shape().dim), (table.rows, table.dim));
        let mut all = vec![1; ids.len() * table.dim as usize];
        loaded.decode(&ids, Missing::Zero, Output::Bf16(&mut all)).expect("a sound request");

        let picked = tables.pick(&table.name, &ids).expect("the table is there");
        let segments = picked.segments();
        let some = CpuDecoder::new(&segments[..]).expect("a table");
        let mut few = vec![2; all.len()];
        some.decode(picked.ids(), Missing::Zero, Output::Bf16(&mut few)).expect("a sound request");
        assert!(all == few, "rows that are picked differ from those that are loaded");

        for (index, segment) in table.segments.iter().enumerate() {
            let _ = tables.check_block(&table.name, index, 0);
            let _ = tables.check_block(&table.name, index, segment.blocks() - 1);
        }
    }
});
