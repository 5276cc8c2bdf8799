//! `condprog bench`: speeds of this machine, medians, side by side.

#[cfg(feature = "cuda")]
mod cuda;

use std::num::NonZeroUsize;
use std::time::Duration;

use condprog_core::encoder::{self, ScaleRule, Search};
use condprog_core::{Encoder, Job, Layout, Missing, Output, Segment, Table};
use condprog_cpu::{CpuEncoder, CpuError, Isa};
use condprog_memory::HugeBuffer;
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use serde_json::{Value, json};

use crate::Outcome;
#[cfg(feature = "cuda")]
use crate::arguments::Backends;
use crate::arguments::{Backend, Bench};
use crate::backend::{self, Absent, Place};
use crate::error::Error;
use crate::measure::{Random, Stages, median, middle};
use crate::text::{bytes, columns, count, figure, speed};
use crate::ui::Ui;

/// Efforts that are measured: the fastest, the default, the best.
const EFFORTS: [u8; 3] = [0, 2, 4];

/// Records of the table that stays in the caches, in bytes.
const CACHED_BYTES: usize = 16 << 10;

/// Ids per request from that table: few enough that the rows stay in the caches too.
const CACHED_IDS: usize = 512;

/// Requests whose stages are taken apart.
const STAGED: usize = 5;

pub(crate) fn run(arguments: &Bench, ui: &Ui) -> Result<Outcome, Error> {
    let layout = Layout::new(arguments.dim, arguments.rate)?;
    if !(arguments.seconds.is_finite() && (0.0..=3600.0).contains(&arguments.seconds)) {
        return Err(Error::Usage(format!("seconds are {}, expected 0 to 3600", arguments.seconds)));
    }
    #[cfg(feature = "cuda")]
    if arguments.backend == Backends::Cuda {
        return cuda::run(arguments, ui);
    }
    #[cfg(feature = "cuda")]
    if arguments.save.is_some() {
        return Err(Error::Usage("--save is for the report of --backend cuda".into()));
    }
    let bench = Setup {
        layout,
        budget: Duration::from_secs_f64(arguments.seconds),
        ids: arguments.ids as usize,
        threads: thread_counts(arguments.threads.count),
    };
    let progress = ui.progress();
    let (mut encodings, mut decodings, mut absent) = (Vec::new(), Vec::new(), Vec::new());
    let backends = arguments.backend.list();
    if backends.contains(&Backend::Cpu) {
        progress.start("encoding", 0, 0);
        let isa = arguments.level.level.map_or_else(Isa::detect, Isa::supported)?;
        encodings = bench.encodings(isa)?;
    }
    progress.start("decoding", 0, 0);
    let cached = bench.table((CACHED_BYTES / layout.record_bytes()).max(1))?;
    let large = bench.table(arguments.rows as usize)?;
    for backend in backends {
        for place in backend::places(backend, arguments.level.level)? {
            match place {
                Ok(place) => {
                    // Every request to a device takes its rows through memory: there is nothing to be had from a cache.
                    if backend == Backend::Cpu {
                        bench.decodings(&*place, &cached, CACHED_IDS, &mut decodings)?;
                    }
                    bench.decodings(&*place, &large, bench.ids, &mut decodings)?;
                }
                Err(place) => absent.push(place),
            }
        }
    }
    drop(progress);
    let object = json!({
        "dim": arguments.dim,
        "rate": f64::from(arguments.rate.quarters()) / 4.0,
        "record_bytes": layout.record_bytes(),
        "ids": arguments.ids,
        "encode": encodings.iter().map(Encoding::object).collect::<Vec<_>>(),
        "decode": decodings.iter().map(Decoding::object).collect::<Vec<_>>(),
        "absent": absent.iter().map(|a| json!({ "backend": a.name, "why": a.why })).collect::<Vec<_>>(),
    });
    ui.print("bench", object, || text(&bench, &encodings, &decodings, &absent))?;
    Ok(Outcome::Done)
}

/// One thread, and all of them.
fn thread_counts(most: Option<NonZeroUsize>) -> Vec<usize> {
    let most = most.map_or_else(rayon::current_num_threads, NonZeroUsize::get);
    if most == 1 { vec![1] } else { vec![1, most] }
}

struct Setup {
    layout: Layout,
    budget: Duration,
    ids: usize,
    threads: Vec<usize>,
}

struct Encoding {
    backend: String,
    effort: u8,
    threads: usize,
    rows_per_second: f64,
}

impl Encoding {
    fn object(&self) -> Value {
        let Encoding { backend, effort, threads, rows_per_second } = self;
        json!({ "backend": backend, "effort": effort, "threads": threads, "rows_per_second": rows_per_second })
    }
}

struct Decoding {
    backend: String,
    device: Option<String>,
    rows: u64,
    threads: Option<usize>,
    /// Of a whole request.
    time: Duration,
    ids: usize,
    stages: Option<Stages>,
}

impl Decoding {
    fn rows_per_second(&self) -> f64 {
        self.ids as f64 / self.time.as_secs_f64()
    }

    fn object(&self) -> Value {
        let stages = self.stages.map(|stages| {
            json!({
                "upload_seconds": stages.upload.as_secs_f64(),
                "kernel_seconds": stages.kernel.as_secs_f64(),
                "readback_seconds": stages.readback.as_secs_f64(),
            })
        });
        json!({
            "backend": self.backend,
            "device": self.device,
            "table_rows": self.rows,
            "ids": self.ids,
            "threads": self.threads,
            "request_seconds": self.time.as_secs_f64(),
            "rows_per_second": self.rows_per_second(),
            "stages": stages,
        })
    }
}

/// Records of random bytes: every one is valid, and random ids take no notice of what is in them.
struct Records {
    rows: usize,
    records: HugeBuffer<u8>,
    layout: Layout,
}

impl Setup {
    fn pool(threads: usize) -> Result<ThreadPool, Error> {
        Ok(ThreadPoolBuilder::new().num_threads(threads).build()?)
    }

    fn encodings(&self, isa: Isa) -> Result<Vec<Encoding>, Error> {
        let mut encodings = Vec::new();
        for effort in EFFORTS {
            let job = Job::new(self.layout, ScaleRule::Norm, Search::effort(effort));
            let encoder = CpuEncoder::with_isa(job, isa)?;
            for &threads in &self.threads {
                let rows = encoder.block_rows() * threads;
                let values = Random::new(2).gaussian(rows * self.layout.dim() as usize);
                let mut records = vec![0; rows * self.layout.record_bytes()];
                let mut outcomes = vec![Ok(encoder::Outcome::Zero); rows];
                let pool = Self::pool(threads)?;
                let time = median(self.budget, || {
                    let encoded = pool.install(|| encoder.encode(&values, &mut records, &mut outcomes));
                    Ok(encoded.map_err(CpuError::from)?)
                })?;
                let rows_per_second = rows as f64 / time.as_secs_f64();
                encodings.push(Encoding { backend: format!("cpu/{isa}"), effort, threads, rows_per_second });
            }
        }
        Ok(encodings)
    }

    /// A table, on huge pages where the system gives them.
    fn table(&self, rows: usize) -> Result<Records, Error> {
        let length = rows * self.layout.record_bytes();
        let no_memory = |source| Error::Io { action: "make a table of", path: bytes(length as u64).into(), source };
        let mut records = HugeBuffer::zeroed(length).map_err(no_memory)?;
        records.par_chunks_mut(1 << 20).enumerate().for_each(|(part, bytes)| Random::new(part as u64).fill(bytes));
        Ok(Records { rows, records, layout: self.layout })
    }

    /// Decodes requests of random ids into bf16: on the CPU with each number of threads, on a device as it does.
    fn decodings(
        &self,
        place: &dyn Place,
        table: &Records,
        ids: usize,
        decodings: &mut Vec<Decoding>,
    ) -> Result<(), Error> {
        let segments = [Segment { rows: table.rows as u64, layout: table.layout, records: &table.records }];
        let decoder = place.open(Table::new(&segments).expect("records are as long as their rows"))?;
        let dim = self.layout.dim() as usize;
        // More than one request, so that a large table's rows are not in the caches from the request before.
        let mut random = Random::new(3);
        let requests: Vec<_> = (0..8).map(|_| random.ids(ids, table.rows as u64)).collect();
        let mut round = requests.iter().cycle();
        let mut out = vec![0; ids * dim];
        let mut decode = |out: &mut [u16]| {
            decoder.decode(round.next().expect("requests go round"), Missing::Error, Output::Bf16(out))
        };
        let mut push = |threads, time, stages| {
            let (backend, device, rows) = (place.name(), place.device(), table.rows as u64);
            decodings.push(Decoding { backend, device, rows, threads, time, ids, stages });
        };
        if place.uses_threads() {
            for &threads in &self.threads {
                let pool = Self::pool(threads)?;
                let time = median(self.budget, || pool.install(|| decode(&mut out)))?;
                push(Some(threads), time, None);
            }
            return Ok(());
        }
        let time = median(self.budget, || decode(&mut out))?;
        let mut staged = Vec::new();
        for ids in requests.iter().take(STAGED) {
            staged.extend(decoder.decode_in_stages(ids, Output::Bf16(&mut out))?);
        }
        let of = |stage: fn(&Stages) -> Duration| middle(&mut staged.iter().map(stage).collect::<Vec<_>>());
        let stages = (!staged.is_empty()).then(|| Stages {
            upload: of(|stages| stages.upload),
            kernel: of(|stages| stages.kernel),
            readback: of(|stages| stages.readback),
        });
        push(None, time, stages);
        Ok(())
    }
}

fn text(bench: &Setup, encodings: &[Encoding], decodings: &[Decoding], absent: &[Absent]) -> String {
    let layout = bench.layout;
    let mut text = format!(
        "rows of {} values at {} bits, records of {} bytes; medians\n",
        count(layout.dim().into()),
        layout.rate(),
        layout.record_bytes()
    );
    let line = |cells: &[&str]| cells.iter().map(|cell| cell.to_string()).collect::<Vec<_>>();
    if !encodings.is_empty() {
        let mut lines = vec![line(&["encode", "effort", "threads", "rows/s"])];
        for one in encodings {
            let cells = [&one.backend, &one.effort.to_string(), &one.threads.to_string(), &speed(one.rows_per_second)];
            lines.push(line(&cells.map(String::as_str)));
        }
        text += &format!("\n{}", columns(&lines));
    }
    if !decodings.is_empty() {
        let mut lines =
            vec![line(&["decode to bf16", "table", "ids", "threads", "rows/s", "ns/row", "upload, kernel, readback"])];
        for one in decodings {
            let table = bytes(one.rows * layout.record_bytes() as u64);
            let threads = one.threads.map_or("-".into(), |threads| threads.to_string());
            let nanos = figure(one.time.as_secs_f64() * 1e9 / one.ids as f64);
            let stages = one.stages.map_or(String::new(), |stages| {
                [stages.upload, stages.kernel, stages.readback]
                    .map(|time| format!("{} ms", figure(time.as_secs_f64() * 1e3)))
                    .join(", ")
            });
            lines.push(line(&[
                &one.backend,
                &table,
                &count(one.ids as u64),
                &threads,
                &speed(one.rows_per_second()),
                &nanos,
                &stages,
            ]));
        }
        text += &format!("\n{}Ids are random, so many in a request.\n", columns(&lines));
    }
    let mut devices: Vec<_> =
        decodings.iter().filter_map(|one| one.device.as_ref().map(|d| (&one.backend, d))).collect();
    devices.dedup();
    for (backend, device) in devices {
        text += &format!("{backend}: {device}\n");
    }
    for Absent { name, why } in absent {
        text += &format!("{name}: no device ({why})\n");
    }
    text
}
