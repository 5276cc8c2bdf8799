//! What tables take before and after compression, and what that frees on a machine.

use std::num::{NonZeroU32, NonZeroU64};

use condprog_core::Layout;
use condprog_table::SegmentPlan;

use crate::error::Error;

/// Bytes of tables before and after compression: of the rows, without headers and checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// As the source has them, with its scales.
    pub before: u64,
    /// As records.
    pub after: u64,
}

/// The same tables on several GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnGpus {
    /// On one of them; where rows do not divide evenly, on the one that has most.
    pub per_gpu: Footprint,
    /// On all of them together.
    pub in_all: Footprint,
}

impl Footprint {
    /// What a table takes: runs of rows of `dim` values, each with its rate, that have `row_bytes` bytes per row in
    /// the source. Errors name it as `table`.
    ///
    /// # Errors
    /// [`Error::Width`] when a rate does not allow the width, [`Error::TooLarge`].
    pub fn of_table(table: &str, dim: u32, runs: &[SegmentPlan], row_bytes: u64) -> Result<Footprint, Error> {
        let too_large = || Error::TooLarge { what: format!("table {table:?}") };
        let mut sum = Footprint::default();
        for &SegmentPlan { rows, rate } in runs {
            let layout = Layout::new(dim, rate).map_err(|source| Error::Width { tensor: table.into(), source })?;
            let bytes = |per_row| rows.checked_mul(per_row);
            let run = bytes(row_bytes).zip(bytes(layout.record_bytes() as u64));
            let run = run.map(|(before, after)| Footprint { before, after });
            sum = run.and_then(|run| sum.plus(run)).ok_or_else(too_large)?;
        }
        Ok(sum)
    }

    /// What several tables take.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub fn sum(tables: impl IntoIterator<Item = Footprint>) -> Result<Footprint, Error> {
        let sum = tables.into_iter().try_fold(Footprint::default(), Footprint::plus);
        sum.ok_or_else(|| Error::TooLarge { what: "all tables".into() })
    }

    fn plus(self, other: Footprint) -> Option<Footprint> {
        let (before, after) = self.before.checked_add(other.before).zip(self.after.checked_add(other.after))?;
        Some(Footprint { before, after })
    }

    /// Bytes that compression frees; 0 where it takes more than it saves.
    pub fn freed(self) -> u64 {
        self.before.saturating_sub(self.after)
    }

    /// How many things of `bytes` bytes, such as a token's keys and values, fit in what is freed.
    pub fn room_for(self, bytes: NonZeroU64) -> u64 {
        self.freed() / bytes
    }

    /// Each GPU has an equal part of the rows.
    pub fn split_over(self, gpus: NonZeroU32) -> OnGpus {
        let part = |bytes: u64| bytes.div_ceil(u64::from(gpus.get()));
        OnGpus { per_gpu: Footprint { before: part(self.before), after: part(self.after) }, in_all: self }
    }

    /// Each GPU has all rows.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub fn copied_to(self, gpus: NonZeroU32) -> Result<OnGpus, Error> {
        let times = |bytes: u64| bytes.checked_mul(gpus.get().into());
        let (before, after) = times(self.before)
            .zip(times(self.after))
            .ok_or_else(|| Error::TooLarge { what: format!("a copy on each of {gpus} GPUs") })?;
        Ok(OnGpus { per_gpu: self, in_all: Footprint { before, after } })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use condprog_core::Rate;

    use super::*;
    use condprog_checkpoint::family::Family;

    fn published(family: Family, by_order: &[(u32, u32)]) -> Footprint {
        let rate = |quarters| Rate::from_quarters(quarters).unwrap();
        let by_order: BTreeMap<_, _> = by_order.iter().map(|(order, quarters)| (*order, rate(*quarters))).collect();
        let tables = family.published().into_iter().map(|table| {
            let runs = family.rates(&table.table, &table.part_rows, rate(8), &by_order).unwrap();
            Footprint::of_table(&table.table.name, table.dim, &runs, table.row_bytes).unwrap()
        });
        Footprint::sum(tables).unwrap()
    }

    /// GB to as many digits as they are published with.
    fn gb(bytes: u64, digits: usize) -> String {
        format!("{:.digits$}", bytes as f64 / 1e9)
    }

    #[test]
    fn published_figures_are_reproduced() {
        let deepseek = published(Family::DeepseekV41, &[]);
        assert_eq!((deepseek.before, deepseek.after), (202_758_032_400, 50_689_508_100));
        assert_eq!(gb(deepseek.after, 2), "50.69");
        let gpus = |count| NonZeroU32::new(count).unwrap();
        let four = deepseek.split_over(gpus(4));
        assert_eq!((gb(four.per_gpu.before, 2), gb(four.per_gpu.after, 2)), ("50.69".into(), "12.67".into()));
        assert_eq!((gb(four.per_gpu.before, 1), gb(four.per_gpu.after, 1)), ("50.7".into(), "12.7".into()));
        assert_eq!(four.in_all, deepseek);
        assert_eq!(gb(deepseek.split_over(gpus(8)).per_gpu.freed(), 1), "19.0");
        let copies = deepseek.copied_to(gpus(4)).unwrap();
        assert_eq!((copies.per_gpu, copies.in_all.after), (deepseek, 4 * deepseek.after));

        let qwen = published(Family::Qwen38, &[]);
        assert_eq!((gb(qwen.before, 1), gb(qwen.after, 2)), ("102.4".into(), "13.44".into()));
        let longcat = published(Family::LongcatFlash, &[]);
        assert_eq!((gb(longcat.before, 1), gb(longcat.after, 2)), ("62.8".into(), "8.10".into()));
    }

    #[test]
    fn each_order_counts_at_its_rate() {
        // Records of 98, 66 and 50 bytes for the 2-, 3- and 4-grams of both layers.
        let got = published(Family::DeepseekV41, &[(2, 12), (4, 6)]);
        let (first, second) = ([128_000_880, 128_002_054, 128_003_234], 384_016_682);
        let first: u64 = first.iter().zip([98, 66, 50]).map(|(rows, bytes)| rows * bytes).sum();
        let rest = got.after - first;
        assert!(rest > second * 71 && rest < second * 72, "about the mean of 98, 66 and 50");
        assert_eq!(got.before, 202_758_032_400);
    }

    #[test]
    fn rounding_and_limits() {
        let gpus = NonZeroU32::new(3).unwrap();
        let odd = Footprint { before: 10, after: 4 };
        assert_eq!(odd.split_over(gpus).per_gpu, Footprint { before: 4, after: 2 });
        assert_eq!((odd.room_for(NonZeroU64::new(4).unwrap()), Footprint { before: 1, after: 2 }.freed()), (1, 0));
        let run = |rows| [SegmentPlan { rows, rate: Rate::from_quarters(8).unwrap() }];
        let error = Footprint::of_table("t", 256, &run(u64::MAX), 1).unwrap_err();
        assert_eq!(error.to_string(), "table \"t\" would take 2^64 bytes or more");
        let large = Footprint { before: u64::MAX, after: 0 };
        assert!(matches!(Footprint::sum([large, odd]), Err(Error::TooLarge { .. })));
        let error = large.copied_to(gpus).unwrap_err();
        assert_eq!(error.to_string(), "a copy on each of 3 GPUs would take 2^64 bytes or more");
        assert!(matches!(Footprint::of_table("t", 0, &run(1), 1), Err(Error::Width { .. })));
    }
}
