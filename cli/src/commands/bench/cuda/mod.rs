//! The benchmark of the CUDA backend: decoding against plain gathers and copies of the same bytes, on one device.
//!
//! Tables are filled with pseudo-random bytes, of which every one is a valid record, so that none needs to be read from
//! a file; rows of each table are compared with the reference before it is timed. Times are between events around each
//! launch, with the ids rotated over several random sets, so that neither ids nor rows stay in the cache; small
//! requests are timed as replays of a graph of many launches.

mod kit;
mod report;

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use condprog_conformance::Verdict;
use condprog_core::{Layout, Rate, reference};
use condprog_cuda::cudarc::driver::{CudaSlice, DeviceRepr, ValidAsZeroBits};
use condprog_cuda::plain::{PlainHost, PlainRow, PlainTable, content};
use condprog_cuda::{CudaDecoder, Device, DeviceIds, DeviceOutput, Placement};
use serde_json::json;

use crate::Outcome;
use crate::arguments::Bench as Arguments;
use crate::backend::cuda_error;
use crate::error::Error;
use crate::ui::Ui;
use kit::{Enqueue, Kit, doing};
use report::{Measurement, Report, What};

/// Values per row of the tables that are measured: 66-byte records at 2 bits.
const DIM: u32 = 256;
/// Sets of ids that the runs go through in turn.
const SETS: usize = 8;
/// Launches in a graph.
const GRAPH: usize = 32;
/// Rows of each table that are compared with the reference.
const CHECKED: usize = 512;
/// Requests up to this many tokens are replayed from a graph.
const SMALL: u32 = 1024;
/// After this time, with the conformance suite, no further measurement begins.
const WHOLE_TIME: Duration = Duration::from_secs(420);

/// What to measure.
#[derive(Clone, Debug, PartialEq)]
struct Options {
    /// Sizes of tables in bytes; what does not fit is made smaller, and the report says so.
    table_bytes: Vec<u64>,
    /// Tokens per request.
    tokens: Vec<u32>,
    /// Rows per token.
    rows_per_token: u32,
    /// Timed runs of each kind.
    runs: usize,
    /// Share of the rows in device memory where a table is split.
    device_share: f64,
    /// After this time no further measurement begins; the report says which were left out.
    time_limit: Duration,
}

impl Default for Options {
    /// Tables of 1 and 48 GiB, requests of 4096, 1024, 64, 8 and 1 tokens of 48 rows, 60 runs, five minutes.
    fn default() -> Options {
        Options {
            table_bytes: vec![1 << 30, 48 << 30],
            tokens: vec![4096, 1024, 64, 8, 1],
            rows_per_token: 48,
            runs: 60,
            device_share: 0.5,
            time_limit: Duration::from_secs(300),
        }
    }
}

/// The CUDA backend first shows that its bits are right, then is measured, beside plain gathers and copies, with tables
/// and requests of its own.
pub(super) fn run(arguments: &Arguments, ui: &Ui) -> Result<Outcome, Error> {
    let start = Instant::now();
    let mut verdicts = Vec::new();
    let mut options = Options::default();
    if arguments.small {
        options = Options { table_bytes: vec![1 << 20], tokens: vec![2, 1], runs: 3, ..options };
    } else {
        crate::suites::cuda::run(&mut |report| verdicts.push(report));
    }
    options.time_limit = options.time_limit.min(WHOLE_TIME.saturating_sub(start.elapsed()));
    let report = measure(&options, ui)?;
    if let Some(folder) = &arguments.save {
        save(&report, folder)?;
    }
    let exact = verdicts.iter().all(|verdict| verdict.verdict == Verdict::Exact) && report.exact();
    let conformance: Vec<_> = verdicts
        .iter()
        .map(|v| json!({ "backend": v.name, "exact": v.verdict == Verdict::Exact, "cases": v.cases }))
        .collect();
    ui.print("bench", json!({ "conformance": conformance, "cuda": report }), || {
        let lines: String = verdicts.iter().map(|verdict| format!("{verdict}\n")).collect();
        if lines.is_empty() { report.to_string() } else { format!("{lines}\n{report}") }
    })?;
    Ok(if exact { Outcome::Done } else { Outcome::Failed })
}

/// Writes the report as text and as JSON.
fn save(report: &Report, folder: &Path) -> Result<(), Error> {
    let json = serde_json::to_string_pretty(report).expect("a report is numbers and text, under keys of text");
    let failed = |action, path: &Path| {
        let path = path.to_owned();
        move |source| Error::Io { action, path, source }
    };
    fs::create_dir_all(folder).map_err(failed("make", folder))?;
    for (name, text) in [("bench.txt", report.to_string()), ("bench.json", json)] {
        let path = folder.join(name);
        fs::write(&path, text).map_err(failed("write", &path))?;
    }
    Ok(())
}

/// Measures on the first device. Too little memory is not an error: tables become smaller.
fn measure(options: &Options, ui: &Ui) -> Result<Report, Error> {
    let device = Device::open(0).map_err(cuda_error)?;
    let mut bench = Bench {
        kit: Kit::new(&device)?,
        report: Report::new(&device, options),
        end: Instant::now() + options.time_limit,
        device,
        options,
        ui,
    };
    bench.run()?;
    Ok(bench.report)
}

struct Bench<'a> {
    device: Device,
    kit: Kit,
    options: &'a Options,
    report: Report,
    end: Instant,
    ui: &'a Ui,
}

impl Bench<'_> {
    fn run(&mut self) -> Result<(), Error> {
        let layout = Layout::new(DIM, Rate::TWO)?;
        let record = layout.record_bytes() as u64;
        let largest = self.options.tokens.iter().max().copied().unwrap_or(0);
        for &wanted in &self.options.table_bytes {
            for placement in ["device", "host", "split"] {
                let share = match placement {
                    "device" => 1.0,
                    "host" => 0.0,
                    _ => self.options.device_share,
                };
                let what = format!("decode from {placement}, {} GiB", wanted >> 30);
                if !self.next(&what) {
                    continue;
                }
                // Smaller until both parts fit.
                let room = (self.device_room(largest)? as f64 / share).min(host_room() as f64 / (1.0 - share));
                let rows = (wanted.min(room as u64) / record).max(1);
                if wanted / record > rows {
                    self.report.note(format!("{what}: {} MiB fit", rows * record >> 20));
                }
                self.decode(layout, rows, share, placement)?;
            }
        }
        let rows = self.options.table_bytes.first().map_or(1, |bytes| bytes / record).max(1);
        self.gather(What::GatherBf16, PlainRow::Bf16, rows)?;
        self.gather(What::GatherFp8, PlainRow::Fp8, rows)?;
        self.copies(layout)
    }

    /// Whether there is time for one more.
    fn next(&mut self, what: &str) -> bool {
        let left = Instant::now() < self.end;
        if left {
            self.ui.note(&format!("measuring: {what}"));
        } else {
            self.report.note(format!("{what}: left out, the time is over"));
        }
        left
    }

    /// Bytes of device memory for a table, beside the largest request.
    fn device_room(&self, tokens: u32) -> Result<u64, Error> {
        self.kit.settle()?;
        let free = self.device.free_bytes().map_err(cuda_error)?;
        let ids = u64::from(tokens) * u64::from(self.options.rows_per_token);
        let request = ids * (u64::from(DIM) * 2 + 8 * SETS as u64);
        Ok(free.saturating_sub(request + free / 16).max(1 << 20))
    }

    /// Ids of all sets of a request, one set after the other, and how many a set has.
    fn ids(&self, tokens: u32, rows: u64) -> (Vec<i64>, usize) {
        let count = tokens as usize * self.options.rows_per_token as usize;
        let mut state = u64::from(tokens) | 1 << 32;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (u128::from(state ^ state >> 29) * u128::from(rows) >> 64) as i64
        };
        ((0..SETS * count).map(|_| random()).collect(), count)
    }

    /// Device memory of so many values.
    fn values<T: DeviceRepr + ValidAsZeroBits>(&self, count: usize) -> Result<CudaSlice<T>, Error> {
        self.kit.stream.alloc_zeros(count).map_err(doing("allocating device memory"))
    }

    /// The first values of device memory, once what was enqueued has run.
    fn download<T: DeviceRepr>(&self, memory: &CudaSlice<T>, count: usize) -> Result<Vec<T>, Error> {
        let got = self.kit.stream.clone_dtoh(&memory.slice(..count)).map_err(doing("copying to the host"))?;
        self.kit.settle()?;
        Ok(got)
    }

    /// Fills a table of `rows` records, of which a share lies on the device, and measures requests of every size.
    fn decode(&mut self, layout: Layout, rows: u64, device_share: f64, placement: &str) -> Result<(), Error> {
        let record = layout.record_bytes() as u64;
        let place = Placement::Split { device_share };
        let decoder = CudaDecoder::load(&self.device, &[(rows, layout)], place, |_, rows, records| {
            fill(records, rows.start * record);
            Ok(())
        })
        .map_err(cuda_error)?;
        for &tokens in &self.options.tokens {
            if !self.next(&format!("decode from {placement}, {tokens} tokens")) {
                continue;
            }
            let (host, count) = self.ids(tokens, rows);
            let stream = &self.kit.stream;
            let sets = stream.clone_htod(&host).map_err(doing("copying ids"))?;
            let mut out = self.values::<u16>(count * DIM as usize)?;
            let enqueue = |run: usize, out: &mut CudaSlice<u16>| {
                let (ids, out) = (DeviceIds::I64(sets.slice(set(run, count))), DeviceOutput::Bf16(out.as_view_mut()));
                decoder.enqueue(stream, ids, out, None).map_err(cuda_error)
            };
            enqueue(0, &mut out)?;
            let checked = count.min(CHECKED);
            let got = self.download(&out, checked * DIM as usize)?;
            let exact = host.iter().zip(got.chunks_exact(DIM as usize)).take(checked).all(|(&id, got)| {
                let mut bytes = vec![0; record as usize];
                content(id as u64 * record, &mut bytes);
                let mut values = [0u16; DIM as usize];
                reference::decode_bf16(layout, &bytes, &mut values);
                got == values
            });
            let ids = count as u64;
            let times = self.time(tokens, &mut |run| enqueue(run, &mut out))?;
            self.report.add(Measurement {
                what: What::Decode,
                placement: placement.to_owned(),
                table_bytes: rows * record,
                rows,
                tokens,
                ids,
                // What must move: ids, records, rows.
                bytes: ids * (8 + record + u64::from(DIM) * 2),
                exact: Some(exact),
                ..times
            });
        }
        Ok(())
    }

    /// Rows of as many bytes, copied as they are, from a table of the same number of rows or what fits.
    fn gather(&mut self, what: What, row: PlainRow, wanted: u64) -> Result<(), Error> {
        if !self.next(&what.to_string()) {
            return Ok(());
        }
        let row_bytes = row.bytes() as u64;
        let largest = self.options.tokens.iter().max().copied().unwrap_or(0);
        let rows = wanted.min(self.device_room(largest)? / row_bytes).max(1);
        if rows < wanted {
            self.report.note(format!("{what}: {rows} of {wanted} rows fit"));
        }
        let stream = &self.kit.stream;
        let table = PlainTable::new(&self.device, stream, row, rows).map_err(cuda_error)?;
        for &tokens in &self.options.tokens {
            let (host, count) = self.ids(tokens, rows);
            let sets = table.ids(stream, &host).map_err(cuda_error)?;
            let mut out = self.values::<u8>(count * row.bytes())?;
            let enqueue = |run: usize, out: &mut CudaSlice<u8>| {
                table.gather(stream, &sets, set(run, count), out).map_err(cuda_error)
            };
            enqueue(0, &mut out)?;
            let checked = count.min(CHECKED);
            let got = self.download(&out, checked * row.bytes())?;
            let exact = host.iter().zip(got.chunks_exact(row.bytes())).take(checked).all(|(&id, got)| {
                let mut expected = vec![0; row.bytes()];
                content(id as u64 * row_bytes, &mut expected);
                got == expected
            });
            let ids = count as u64;
            let times = self.time(tokens, &mut |run| enqueue(run, &mut out))?;
            self.report.add(Measurement {
                what,
                placement: "device".into(),
                table_bytes: rows * row_bytes,
                rows,
                tokens,
                ids,
                bytes: ids * (8 + 2 * row_bytes),
                exact: Some(exact),
                ..times
            });
        }
        Ok(())
    }

    /// Copies that move as many bytes as the largest request reads and writes.
    fn copies(&mut self, layout: Layout) -> Result<(), Error> {
        let Some(&tokens) = self.options.tokens.iter().max() else { return Ok(()) };
        let ids = u64::from(tokens) * u64::from(self.options.rows_per_token);
        let record = layout.record_bytes() as u64;
        if self.next("copy on the device") {
            // Half is read, half written.
            let bytes = ids * (record + u64::from(DIM) * 2) / 2;
            let (from, mut to) = (self.values::<u8>(bytes as usize)?, self.values::<u8>(bytes as usize)?);
            let stream = &self.kit.stream;
            let mut copy = |_| stream.memcpy_dtod(&from, &mut to).map_err(doing("copying on the device"));
            let times = self.kit.time(self.options.runs, &mut copy)?;
            let what = What::CopyOnDevice;
            self.report.add(Measurement { what, tokens, ids, bytes: 2 * bytes, placement: "device".into(), ..times });
        }
        if self.next("copy from host to device") {
            let bytes = ids * record;
            let from = PlainHost::new(&self.device, bytes as usize).map_err(cuda_error)?;
            let mut to = self.values::<u8>(bytes as usize)?;
            let mut copy = |_| from.copy(&self.kit.stream, &mut to).map_err(cuda_error);
            let times = self.kit.time(self.options.runs, &mut copy)?;
            let what = What::CopyFromHost;
            self.report.add(Measurement { what, tokens, ids, bytes, placement: "host".into(), ..times });
        }
        Ok(())
    }

    fn time(&self, tokens: u32, enqueue: &mut Enqueue<'_>) -> Result<Measurement, Error> {
        if tokens <= SMALL {
            self.kit.time_graph(self.options.runs, GRAPH, enqueue)
        } else {
            self.kit.time(self.options.runs, enqueue)
        }
    }
}

/// The ids of a run, among those of all sets.
fn set(run: usize, count: usize) -> Range<usize> {
    let first = run % SETS * count;
    first..first + count
}

/// Writes the contents from byte `at` on, with all processors.
fn fill(bytes: &mut [u8], at: u64) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let piece = bytes.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        for (index, bytes) in bytes.chunks_mut(piece).enumerate() {
            scope.spawn(move || content(at + (index * piece) as u64, bytes));
        }
    });
}

/// Bytes of host memory for a table: most of what the system says is available.
fn host_room() -> u64 {
    let available = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
    });
    available.map_or(1 << 30, |kib| kib * 1024 / 4 * 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_the_same_by_any_number_of_threads() {
        let mut whole = vec![0u8; 1001];
        content(7, &mut whole);
        let mut filled = vec![0u8; 1001];
        fill(&mut filled, 7);
        assert_eq!(filled, whole);
        fill(&mut [], 7);
    }
}
