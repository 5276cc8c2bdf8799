//! The quality table is what the encoder does, and it is as good as the format promises.

#[path = "../examples/quality.rs"]
#[allow(missing_docs)]
mod quality;

use quality::{CHECK_ROWS, Case, HEADER};

const TABLE: &str = include_str!("../quality.csv");

fn line(case: &Case) -> Vec<&'static str> {
    let prefix = format!("{},", case.key());
    let line = TABLE.lines().find(|line| line.starts_with(&prefix));
    line.unwrap_or_else(|| panic!("quality.csv has no line {prefix}")).split(',').collect()
}

#[test]
fn the_table_is_reproduced_to_the_last_digit() {
    assert_eq!(TABLE.lines().next(), Some(HEADER));
    for dim in [256, 160] {
        for quarters in [4, 6, 8, 10, 12, 14, 16] {
            let case = Case { dim, quarters, effort: 0 };
            assert_eq!(case.check(&case.errors(CHECK_ROWS)), line(&case)[5], "{}", case.key());
        }
        let case = Case { dim, quarters: 8, effort: 2 };
        assert_eq!(case.check(&case.errors(CHECK_ROWS)), line(&case)[5], "{}", case.key());
    }
}

#[test]
fn restored_rows_are_as_close_as_promised() {
    let mse = |dim, quarters, effort| -> f64 { line(&Case { dim, quarters, effort })[3].parse().unwrap() };
    for (quarters, wide, narrow) in [
        (4, 0.2883, 0.2929),
        (6, 0.1386, 0.1402),
        (8, 0.0683, 0.0687),
        (10, 0.0343, 0.0344),
        (12, 0.0172, 0.0173),
        (14, 0.0088, 0.0088),
        (16, 0.0045, 0.0045),
    ] {
        assert!(mse(256, quarters, 0) <= wide * 1.01, "256, {quarters} quarter bits");
        assert!(mse(160, quarters, 0) <= narrow * 1.01, "160, {quarters} quarter bits");
    }
    assert!(mse(256, 8, 0) <= 0.0685 && mse(160, 8, 0) <= 0.0690);
    assert!(mse(256, 8, 4) <= 0.0657 && mse(160, 8, 4) <= 0.0652);
    for effort in 1..=4 {
        assert!(mse(256, 8, effort) < mse(256, 8, effort - 1) && mse(160, 8, effort) < mse(160, 8, effort - 1));
    }
}
