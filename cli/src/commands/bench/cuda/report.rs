//! What was measured, as data and as a table.

use std::fmt;

use condprog_cuda::Device;
use serde::Serialize;

use super::{DIM, Options};

/// What was timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum What {
    /// Rows decoded to bf16.
    #[default]
    Decode,
    /// Rows of 512 bytes copied as they are.
    GatherBf16,
    /// Rows of 256 bytes copied as they are, not converted.
    GatherFp8,
    /// One copy within device memory of as many bytes as the request reads and writes.
    CopyOnDevice,
    /// One copy from page-locked host memory of as many bytes as the request's records have.
    CopyFromHost,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            What::Decode => "decode",
            What::GatherBf16 => "gather bf16 rows",
            What::GatherFp8 => "gather fp8 rows",
            What::CopyOnDevice => "copy on device",
            What::CopyFromHost => "copy host to device",
        })
    }
}

/// One line of the report.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Measurement {
    /// What was timed.
    pub(super) what: What,
    /// "device", "host" or "split".
    pub(super) placement: String,
    /// Size of the table.
    pub(super) table_bytes: u64,
    /// Its rows.
    pub(super) rows: u64,
    /// Tokens of the request.
    pub(super) tokens: u32,
    /// Ids of the request.
    pub(super) ids: u64,
    /// Timed runs.
    pub(super) runs: usize,
    /// Launches in a run: 1, or those of a graph.
    pub(super) launches: usize,
    /// Median time of a launch in microseconds.
    pub(super) median_us: f64,
    /// The shortest.
    pub(super) best_us: f64,
    /// Nine of ten are shorter.
    pub(super) p90_us: f64,
    /// Bytes that a launch must move.
    pub(super) bytes: u64,
    /// Whether rows were those of the reference; `None` where there is nothing to compare.
    pub(super) exact: Option<bool>,
}

impl Measurement {
    /// Bytes over median time.
    pub(super) fn gigabytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.median_us / 1000.0
    }

    /// Times of a graph as times of one of its launches.
    pub(super) fn per_launch(self, launches: usize) -> Measurement {
        let each = launches as f64;
        Measurement {
            launches,
            median_us: self.median_us / each,
            best_us: self.best_us / each,
            p90_us: self.p90_us / each,
            ..self
        }
    }
}

/// Times in microseconds to a line that lacks the rest.
pub(super) fn summary(mut times: Vec<f64>, launches: usize) -> Measurement {
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times.get(((times.len().max(1) - 1) as f64 * share).round() as usize).copied();
    Measurement {
        runs: times.len(),
        launches,
        median_us: at(0.5).unwrap_or(f64::NAN),
        best_us: at(0.0).unwrap_or(f64::NAN),
        p90_us: at(0.9).unwrap_or(f64::NAN),
        ..Measurement::default()
    }
}

/// What the benchmark found. Written as a table by [`Display`](fmt::Display), as JSON by serde.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Report {
    /// Version of this structure.
    pub(super) schema: u32,
    /// The device's name.
    pub(super) device: String,
    /// Its compute capability.
    pub(super) compute_capability: (u32, u32),
    /// Its multiprocessors.
    pub(super) processors: u32,
    /// Values per row.
    pub(super) dim: u32,
    /// Bits per value.
    pub(super) bits: f64,
    /// Rows per token.
    pub(super) rows_per_token: u32,
    /// Share of the rows in device memory where a table is split.
    pub(super) device_share: f64,
    /// The lines.
    pub(super) measurements: Vec<Measurement>,
    /// What was left out or made smaller.
    pub(super) notes: Vec<String>,
}

impl Report {
    pub(super) fn new(device: &Device, options: &Options) -> Report {
        Report {
            schema: 1,
            device: device.name().to_owned(),
            compute_capability: device.compute_capability(),
            processors: device.processors(),
            dim: DIM,
            bits: 2.0,
            rows_per_token: options.rows_per_token,
            device_share: options.device_share,
            measurements: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, measurement: Measurement) {
        self.measurements.push(measurement);
    }

    pub(super) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Whether every row that was compared was the reference's.
    pub(super) fn exact(&self) -> bool {
        self.measurements.iter().all(|line| line.exact != Some(false))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.compute_capability;
        writeln!(f, "{}, compute capability {major}.{minor}, {} multiprocessors", self.device, self.processors)?;
        writeln!(
            f,
            "rows of {} values at {} bits to bf16, {} rows per token, {:.0} % of the rows on the device where split",
            self.dim,
            self.bits,
            self.rows_per_token,
            self.device_share * 100.0
        )?;
        writeln!(f)?;
        writeln!(
            f,
            "{:<20} {:<7} {:>9} {:>7} {:>8} {:>11} {:>10} {:>10} {:>8}  rows",
            "", "from", "table MiB", "tokens", "ids", "median us", "best us", "p90 us", "GB/s"
        )?;
        for line in &self.measurements {
            let exact = match line.exact {
                Some(true) => "exact",
                Some(false) => "WRONG",
                None => "-",
            };
            writeln!(
                f,
                "{:<20} {:<7} {:>9} {:>7} {:>8} {:>11.2} {:>10.2} {:>10.2} {:>8.1}  {exact}{}",
                line.what,
                line.placement,
                line.table_bytes >> 20,
                line.tokens,
                line.ids,
                line.median_us,
                line.best_us,
                line.p90_us,
                line.gigabytes_per_second(),
                if line.launches > 1 { ", graph" } else { "" }
            )?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_the_median_of_the_runs() {
        let times = summary(vec![5.0, 1.0, 3.0, 2.0, 4.0], 1);
        assert_eq!((times.runs, times.median_us, times.best_us, times.p90_us), (5, 3.0, 1.0, 5.0));
        let each = Measurement { bytes: 3000, ..times.per_launch(2) };
        assert_eq!((each.launches, each.median_us, each.gigabytes_per_second()), (2, 1.5, 2.0));
        assert!(summary(Vec::new(), 1).median_us.is_nan());
    }
}
