//! The benchmark: decoding against plain gathers and copies of the same bytes, on one device.
//!
//! Tables are filled with pseudo-random bytes, of which every one is a valid record, so that none needs to be read from
//! a file; rows of each table are compared with the reference before it is timed. Times are between events around each
//! launch, with the ids rotated over several random sets, so that neither ids nor rows stay in the cache; small
//! requests are timed as replays of a graph of many launches.

mod kit;
mod report;

use std::time::{Duration, Instant};

use condprog_core::{Dtype, Layout, Rate, reference};
use condprog_kernels::cuda;

use crate::decoder::{CudaDecoder, IdWidth, RawRequest};
use crate::device::Device;
use crate::error::CudaError;
use crate::memory::{DeviceMemory, PinnedMemory};
use crate::placement::PlacedSegment;
use kit::Kit;
pub use report::{BenchReport, Measurement, What};

/// Values per row of the tables that are measured: 66-byte records at 2 bits.
pub const DIM: u32 = 256;
/// Sets of ids that the runs go through in turn.
const SETS: usize = 8;
/// Launches in a graph.
const GRAPH: usize = 32;
/// Rows of each table that are compared with the reference.
const CHECKED: usize = 512;
/// Requests up to this many tokens are replayed from a graph.
const SMALL: u32 = 1024;

/// What to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchOptions {
    /// Which device.
    pub ordinal: usize,
    /// Sizes of tables in bytes; what does not fit is made smaller, and the report says so.
    pub table_bytes: Vec<u64>,
    /// Tokens per request.
    pub tokens: Vec<u32>,
    /// Rows per token.
    pub rows_per_token: u32,
    /// Timed runs of each kind.
    pub runs: usize,
    /// Share of the rows in device memory where a table is split.
    pub device_share: f64,
    /// After this time no further measurement begins; the report says which were left out.
    pub time_limit: Duration,
}

impl Default for BenchOptions {
    /// Tables of 1 and 48 GiB, requests of 4096, 1024, 64, 8 and 1 tokens of 48 rows, 60 runs, five minutes.
    fn default() -> BenchOptions {
        BenchOptions {
            ordinal: 0,
            table_bytes: vec![1 << 30, 48 << 30],
            tokens: vec![4096, 1024, 64, 8, 1],
            rows_per_token: 48,
            runs: 60,
            device_share: 0.5,
            time_limit: Duration::from_secs(300),
        }
    }
}

/// Runs the benchmark; `progress` is told what comes next.
///
/// # Errors
/// When the device cannot be opened or a launch fails. Too little memory is not an error: tables become smaller.
pub fn run(options: &BenchOptions, progress: &mut dyn FnMut(&str)) -> Result<BenchReport, CudaError> {
    let device = Device::open(options.ordinal)?;
    let mut bench = Bench {
        kit: Kit::new(&device)?,
        report: BenchReport::new(&device, options),
        end: Instant::now() + options.time_limit,
        device,
        options,
        progress,
    };
    bench.run()?;
    Ok(bench.report)
}

struct Bench<'a> {
    device: Device,
    kit: Kit,
    options: &'a BenchOptions,
    report: BenchReport,
    end: Instant,
    progress: &'a mut dyn FnMut(&str),
}

/// Ids and rows in device memory.
struct Request {
    /// One after the other.
    sets: DeviceMemory,
    host: Vec<i64>,
    count: usize,
    out: DeviceMemory,
}

impl Request {
    fn ids(&self, set: usize) -> u64 {
        self.sets.address() + (set % SETS * self.count * 8) as u64
    }
}

impl Bench<'_> {
    fn run(&mut self) -> Result<(), CudaError> {
        let layout = Layout::new(DIM, Rate::TWO).map_err(|_| CudaError::Segment { segment: 0, problem: "layout" })?;
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
                let device_rows = (rows as f64 * share) as u64;
                if wanted / record > rows {
                    self.report.note(format!("{what}: {} MiB fit", rows * record >> 20));
                }
                self.decode(layout, rows, device_rows, placement)?;
            }
        }
        let rows = self.options.table_bytes.first().map_or(1, |bytes| bytes / record).max(1);
        self.gather(What::GatherBf16, 512, rows)?;
        self.gather(What::GatherFp8, 256, rows)?;
        self.copies(layout)
    }

    /// Whether there is time for one more.
    fn next(&mut self, what: &str) -> bool {
        let left = Instant::now() < self.end;
        if left {
            (self.progress)(what);
        } else {
            self.report.note(format!("{what}: left out, the time is over"));
        }
        left
    }

    /// Bytes of device memory for a table, beside the largest request.
    fn device_room(&self, tokens: u32) -> Result<u64, CudaError> {
        let (free, _) = self.device.context().mem_get_info().map_err(CudaError::doing("asking for the free memory"))?;
        let ids = u64::from(tokens) * u64::from(self.options.rows_per_token);
        let request = ids * (u64::from(DIM) * 2 + 8 * SETS as u64);
        Ok((free as u64).saturating_sub(request + (free as u64 / 16)).max(1 << 20))
    }

    fn request(&self, tokens: u32, rows: u64, row_bytes: u64) -> Result<Request, CudaError> {
        let count = tokens as usize * self.options.rows_per_token as usize;
        let mut state = u64::from(tokens) | 1 << 32;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (u128::from(state ^ state >> 29) * u128::from(rows) >> 64) as i64
        };
        let host: Vec<i64> = (0..SETS * count).map(|_| random()).collect();
        let bytes: Vec<u8> = host.iter().flat_map(|id| id.to_le_bytes()).collect();
        let mut sets = DeviceMemory::new(self.device.context(), bytes.len())?;
        sets.upload(0, &bytes)?;
        let out = DeviceMemory::new(self.device.context(), count * row_bytes as usize)?;
        Ok(Request { sets, host, count, out })
    }

    /// Fills a table of `rows` records, of which the first lie on the device, and measures requests of every size.
    fn decode(&mut self, layout: Layout, rows: u64, device_rows: u64, placement: &str) -> Result<(), CudaError> {
        let record = layout.record_bytes() as u64;
        let context = self.device.context().clone();
        // The host's part begins at a multiple of 4 bytes of the contents.
        let device_rows = if device_rows == rows { rows } else { device_rows / 2 * 2 };
        let mut segments = Vec::new();
        let on_device = match device_rows {
            0 => None,
            _ => Some(DeviceMemory::new(&context, (device_rows * record) as usize)?),
        };
        if let Some(part) = &on_device {
            self.kit.fill(part)?;
            segments.push(PlacedSegment { rows: device_rows, layout, records: part.address() });
        }
        let on_host = match rows - device_rows {
            0 => None,
            left => Some(PinnedMemory::new(&context, (left * record) as usize, |pages| {
                fill_on_host(pages, device_rows * record / 4);
            })?),
        };
        if let Some(part) = &on_host {
            segments.push(PlacedSegment { rows: rows - device_rows, layout, records: part.address() });
        }
        // SAFETY: both parts stay until the decoder, declared after them, is dropped at the end of this function.
        let decoder = unsafe { CudaDecoder::from_addresses(&self.device, &segments) }?;
        for &tokens in &self.options.tokens {
            if !self.next(&format!("decode from {placement}, {tokens} tokens")) {
                continue;
            }
            let request = self.request(tokens, rows, u64::from(DIM) * 2)?;
            let stream = self.kit.stream();
            let enqueue = |set: usize| {
                let raw = RawRequest {
                    ids: request.ids(set),
                    id_width: IdWidth::I64,
                    count: request.count as u64,
                    out: request.out.address(),
                    dtype: Dtype::Bf16,
                    missing: 0,
                };
                // SAFETY: the request's memory has this many ids and rows, and lives until the stream is waited for.
                unsafe { decoder.enqueue_raw(stream, &raw) }
            };
            enqueue(0)?;
            let exact = self.check(&request, 512, |row, out| {
                let bytes = bytes_at(row * record, record as usize);
                let mut values = [0u16; DIM as usize];
                reference::decode_bf16(layout, &bytes, &mut values);
                out.copy_from_slice(&values.map(u16::to_le_bytes).concat());
            })?;
            let ids = request.count as u64;
            let times = self.time(tokens, &enqueue)?;
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
    fn gather(&mut self, what: What, row_bytes: u64, wanted: u64) -> Result<(), CudaError> {
        if !self.next(&what.to_string()) {
            return Ok(());
        }
        let largest = self.options.tokens.iter().max().copied().unwrap_or(0);
        let rows = wanted.min(self.device_room(largest)? / row_bytes).max(1);
        if rows < wanted {
            self.report.note(format!("{what}: {rows} of {wanted} rows fit"));
        }
        let table = DeviceMemory::new(self.device.context(), (rows * row_bytes) as usize)?;
        self.kit.fill(&table)?;
        for &tokens in &self.options.tokens {
            let request = self.request(tokens, rows, row_bytes)?;
            let enqueue = |set: usize| {
                let (ids, count) = (request.ids(set), request.count as u64);
                // SAFETY: the sets have ids below the number of rows, and live until the stream is waited for.
                unsafe { self.kit.gather(&table, row_bytes, ids, &request.out, count) }
            };
            enqueue(0)?;
            let exact = self.check(&request, row_bytes as usize, |row, out| {
                out.copy_from_slice(&bytes_at(row * row_bytes, row_bytes as usize));
            })?;
            let ids = request.count as u64;
            let times = self.time(tokens, &enqueue)?;
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
    fn copies(&mut self, layout: Layout) -> Result<(), CudaError> {
        let Some(&tokens) = self.options.tokens.iter().max() else { return Ok(()) };
        let ids = u64::from(tokens) * u64::from(self.options.rows_per_token);
        let record = layout.record_bytes() as u64;
        let context = self.device.context().clone();
        if self.next("copy on the device") {
            // Half is read, half written.
            let bytes = ids * (record + u64::from(DIM) * 2) / 2;
            let (from, to) =
                (DeviceMemory::new(&context, bytes as usize)?, DeviceMemory::new(&context, bytes as usize)?);
            let times = self.kit.time(self.options.runs, &|_| self.kit.copy_on_device(&from, &to, bytes as usize))?;
            let what = What::CopyOnDevice;
            self.report.add(Measurement { what, tokens, ids, bytes: 2 * bytes, placement: "device".into(), ..times });
        }
        if self.next("copy from host to device") {
            let bytes = ids * record;
            let from = PinnedMemory::new(&context, bytes as usize, |pages| fill_on_host(pages, 0))?;
            let to = DeviceMemory::new(&context, bytes as usize)?;
            let times = self.kit.time(self.options.runs, &|_| self.kit.copy_from_host(&from, &to, bytes as usize))?;
            let what = What::CopyFromHost;
            self.report.add(Measurement { what, tokens, ids, bytes, placement: "host".into(), ..times });
        }
        Ok(())
    }

    fn time(&self, tokens: u32, enqueue: &dyn Fn(usize) -> Result<(), CudaError>) -> Result<Measurement, CudaError> {
        if tokens <= SMALL {
            self.kit.time_graph(self.options.runs, GRAPH, enqueue)
        } else {
            self.kit.time(self.options.runs, enqueue)
        }
    }

    /// Compares the first rows of set 0, which was just enqueued.
    fn check(&self, request: &Request, row_bytes: usize, expected: impl Fn(u64, &mut [u8])) -> Result<bool, CudaError> {
        let rows = request.count.min(CHECKED);
        let got = self.kit.download(&request.out, rows * row_bytes)?;
        let mut row = vec![0; row_bytes];
        Ok(request.host.iter().zip(got.chunks_exact(row_bytes)).take(rows).all(|(&id, got)| {
            expected(id as u64, &mut row);
            got == row
        }))
    }
}

/// Bytes `at..at + length` of the contents.
fn bytes_at(at: u64, length: usize) -> Vec<u8> {
    let words = at / 4..(at + length as u64).div_ceil(4);
    let bytes: Vec<u8> = words.flat_map(|word| cuda::content(word).to_le_bytes()).collect();
    bytes[(at % 4) as usize..][..length].to_vec()
}

/// Writes the contents from word `first` on, with all processors.
fn fill_on_host(pages: &mut [u8], first: u64) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let piece = pages.len().div_ceil(threads).next_multiple_of(4).max(4);
    std::thread::scope(|scope| {
        for (index, pages) in pages.chunks_mut(piece).enumerate() {
            scope.spawn(move || {
                for (word, bytes) in (first + (index * piece / 4) as u64..).zip(pages.chunks_mut(4)) {
                    bytes.copy_from_slice(&cuda::content(word).to_le_bytes()[..bytes.len()]);
                }
            });
        }
    });
}

/// Bytes of host memory for a table: most of what the system says is available.
fn host_room() -> u64 {
    let available = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
    });
    available.map_or(1 << 30, |kib| kib * 1024 / 4 * 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_the_same_from_any_place_and_by_any_number_of_threads() {
        let mut pages = vec![0u8; 1001];
        fill_on_host(&mut pages, 7);
        assert_eq!(pages, bytes_at(28, 1001));
        for at in [28, 29, 30, 31, 94] {
            assert_eq!(bytes_at(at, 66), pages[at as usize - 28..][..66]);
        }
    }
}
