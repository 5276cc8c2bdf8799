//! `condprog demo`: the whole way on a small real table that the program carries, with nothing to download.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use condprog_checkpoint::{Checkpoint, RowSource};
use condprog_convert::{CompressOptions, VerifyOptions, VerifyTable, compress_file, verify};
use condprog_core::encoder::{self, ScaleRule, Search};
use condprog_core::{Decoder, Dtype, Encoder, Job, Layout, Missing, Output, Rate, ReferenceDecoder, Table};
use condprog_cpu::{CpuEncoder, CpuError, Isa};
use condprog_table::Tables;
use rayon::ThreadPoolBuilder;
use serde_json::{Value, json};

use crate::Outcome;
use crate::arguments::{Backend, Demo};
use crate::backend::{self, Absent, AnyDecoder, Cpu, Place};
use crate::baseline;
use crate::error::Error;
use crate::measure::{Random, median};
use crate::text::{columns, count, figure, speed};
use crate::ui::Ui;

/// See `data/README.md`.
const TABLE: &[u8] = include_bytes!("../../data/demo.safetensors");

/// Ids of the request that is timed: a thousand tokens' worth.
const TIMED_IDS: usize = 1024 * 48;

/// Time for each figure.
const BUDGET: Duration = Duration::from_millis(300);

pub(crate) fn run(arguments: &Demo, ui: &Ui) -> Result<Outcome, Error> {
    let folder = tempfile::tempdir().map_err(|source| io("create a folder in", &std::env::temp_dir(), source))?;
    let (input, output) = (folder.path().join("demo.safetensors"), folder.path().join("demo-2bit.safetensors"));
    fs::write(&input, TABLE).map_err(|source| io("write", &input, source))?;

    let codec = condprog::Cpu::detect()?;
    let start = Instant::now();
    let progress = ui.progress();
    // The rule under which errors are compared; the default of `compress` has the larger error and the smaller effect.
    let options = CompressOptions { effort: arguments.effort, scale: ScaleRule::Norm, ..CompressOptions::default() };
    compress_file(&input, &[], &output, &options, &codec, &|update| progress.step(update))?;
    let seconds = start.elapsed().as_secs_f64();

    let (source, file) = (Checkpoint::open(&input)?, Tables::open(&output)?);
    let report = verify(&file, Some(&source), &VerifyOptions::default(), &codec, &|update| progress.step(update))?;
    let [verified] = report.tables.as_slice() else { unreachable!("the demo has one table") };
    let records = file.load(&verified.name)?;
    let segments = records.segments();
    let table = Table::new(&segments)?;
    let mut rows = vec![0.0; (verified.rows * u64::from(verified.dim)) as usize];
    let raw = source.table(&verified.name)?.read(0, verified.rows as usize)?;
    raw.to_f32(0..raw.rows(), &mut rows);

    let methods = methods(&rows, verified);
    let places = places(arguments)?;
    progress.start("decoding", places.len() as u64, 0);
    let mut results = Vec::new();
    for place in places {
        results.push(match place {
            Ok((place, isa)) => {
                let encode = isa.map(|isa| encode(&rows, table, arguments.effort, isa)).transpose()?;
                measured(&*place, table, encode)?
            }
            Err(Absent { name, why }) => {
                Measured { name, device: None, verdict: Verdict::Absent(why), encode: None, decode: None }
            }
        });
    }
    drop(progress);

    let exact = results.iter().all(|result| !matches!(result.verdict, Verdict::Differs(_)));
    let object = json!({
        "rows": verified.rows,
        "dim": verified.dim,
        "rate": verified.rate,
        "effort": arguments.effort,
        "compress_seconds": seconds,
        "whole": report.is_whole(),
        "exact": exact,
        "methods": methods.iter().map(Method::object).collect::<Vec<_>>(),
        "backends": results.iter().map(Measured::object).collect::<Vec<_>>(),
        "verify": verified,
    });
    ui.print("demo", object, || text(verified, &methods, &results, seconds))?;
    Ok(if exact && report.is_whole() { Outcome::Done } else { Outcome::Failed })
}

fn io(action: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::Io { action, path: path.into(), source }
}

/// A way to store the rows, and what it costs.
struct Method {
    name: String,
    bytes_per_row: u64,
    dim: u64,
    relative_mse: f64,
}

impl Method {
    /// Size by that of the rows in bf16.
    fn share(&self) -> f64 {
        self.bytes_per_row as f64 / (2 * self.dim) as f64
    }

    fn object(&self) -> Value {
        let (name, bytes, mse) = (&self.name, self.bytes_per_row, self.relative_mse);
        json!({ "method": name, "bytes_per_row": bytes, "share_of_bf16": self.share(), "relative_mse": mse })
    }
}

fn methods(rows: &[f32], verified: &VerifyTable) -> Vec<Method> {
    let dim = u64::from(verified.dim);
    let method =
        |name: &str, bytes_per_row, relative_mse| Method { name: name.into(), bytes_per_row, dim, relative_mse };
    let nearest = |bits| {
        let (bytes, mse) = (baseline::row_bytes(dim as usize, bits), baseline::relative_mse(rows, dim as usize, bits));
        method(&format!("round to nearest, {bits} bits"), bytes as u64, mse)
    };
    vec![
        method("bf16", 2 * dim, 0.0),
        method("source: FP8, one scale for 32 values", verified.source_bytes / verified.rows, 0.0),
        nearest(4),
        nearest(2),
        method(
            "Conditional Program, 2 bits",
            verified.table_bytes / verified.rows,
            verified.relative_mse.unwrap_or(f64::NAN),
        ),
    ]
}

/// A backend and, for the CPU, its instruction set.
type Shown = Result<(Box<dyn Place>, Option<Isa>), Absent>;

/// Every place that the user wants to see: the CPU with each instruction set it has, or the one asked for, and each GPU.
fn places(arguments: &Demo) -> Result<Vec<Shown>, Error> {
    let mut found: Vec<Shown> = Vec::new();
    for backend in arguments.backend.list() {
        if backend == Backend::Cpu {
            let sets = match arguments.level.level {
                Some(isa) => vec![isa.supported()?],
                None => Isa::ALL.into_iter().filter(|isa| isa.is_supported()).collect(),
            };
            found.extend(sets.into_iter().map(|isa| Ok((Box::new(Cpu(isa)) as Box<dyn Place>, Some(isa)))));
        } else {
            let places = backend::places(backend, None)?;
            found.extend(places.into_iter().map(|place| place.map(|place| (place, None))));
        }
    }
    Ok(found)
}

/// Whether a backend gave the right bits.
enum Verdict {
    Exact,
    Differs(String),
    Absent(String),
}

struct Measured {
    name: String,
    device: Option<String>,
    verdict: Verdict,
    /// Rows per second.
    encode: Option<f64>,
    decode: Option<f64>,
}

impl Measured {
    fn object(&self) -> Value {
        let (verdict, why) = match &self.verdict {
            Verdict::Exact => ("exact", None),
            Verdict::Differs(what) => ("differs", Some(what)),
            Verdict::Absent(why) => ("absent", Some(why)),
        };
        json!({
            "backend": self.name,
            "device": self.device,
            "verdict": verdict,
            "why": why,
            "encode_rows_per_second": self.encode,
            "decode_rows_per_second": self.decode,
        })
    }
}

/// Encodes rows with one instruction set on one thread for a while: rows per second, or nothing where the records are not those of
/// the table.
fn encode(rows: &[f32], table: Table<'_>, effort: u8, isa: Isa) -> Result<Result<f64, String>, Error> {
    let layout = Layout::new(table.shape().dim, Rate::TWO)?;
    let encoder = CpuEncoder::with_isa(Job::new(layout, ScaleRule::Norm, Search::effort(effort)), isa)?;
    let (dim, stride) = (layout.dim() as usize, layout.record_bytes());
    let mut records = vec![0; encoder.block_rows() * stride];
    let mut outcomes = vec![Ok(encoder::Outcome::Zero); encoder.block_rows()];
    let pool = ThreadPoolBuilder::new().num_threads(1).build()?;
    // The first block warms up.
    let (mut coded, mut timed, mut start) = (0, 0, Instant::now());
    for (index, block) in rows.chunks_exact(encoder.block_rows() * dim).enumerate() {
        if index == 1 {
            (timed, start) = (0, Instant::now());
        } else if index > 1 && start.elapsed() > BUDGET {
            break;
        }
        pool.install(|| encoder.encode(block, &mut records, &mut outcomes)).map_err(CpuError::from)?;
        for record in records.chunks_exact(stride) {
            if table.record(coded).map(|(_, expected)| expected) != Some(record) {
                return Ok(Err(format!("the record of row {coded} is not that of the table file")));
            }
            coded += 1;
        }
        timed += encoder.block_rows();
    }
    Ok(Ok(timed as f64 / start.elapsed().as_secs_f64()))
}

/// Decodes every row on a backend in every format, compares the bits with the reference's, and takes the time.
fn measured(place: &dyn Place, table: Table<'_>, encode: Option<Result<f64, String>>) -> Result<Measured, Error> {
    let decoder = place.open(table)?;
    let (encode, fault) = match encode {
        Some(Ok(speed)) => (Some(speed), None),
        Some(Err(fault)) => (None, Some(fault)),
        None => (None, None),
    };
    let fault = match fault {
        Some(fault) => Some(fault),
        None => difference(&*decoder, table)?,
    };
    let ids = Random::new(1).ids(TIMED_IDS, table.shape().rows);
    let mut out = vec![0; ids.len() * table.shape().dim as usize];
    let pool = ThreadPoolBuilder::new().num_threads(1).build()?;
    let time = pool.install(|| median(BUDGET, || decoder.decode(&ids, Missing::Error, Output::Bf16(&mut out))))?;
    Ok(Measured {
        name: place.name(),
        device: place.device(),
        verdict: fault.map_or(Verdict::Exact, Verdict::Differs),
        encode,
        decode: Some(ids.len() as f64 / time.as_secs_f64()),
    })
}

/// Where a decoder's bits are not the reference's, if anywhere. Asks for every row, out of order, and for padding.
fn difference(decoder: &(dyn AnyDecoder + '_), table: Table<'_>) -> Result<Option<String>, Error> {
    let (rows, dim) = (table.shape().rows as i64, table.shape().dim as usize);
    let mut ids: Vec<i64> = (0..rows).rev().collect();
    ids.extend([-1, rows, i64::MAX, 0, 0]);
    let reference = ReferenceDecoder::new(table);
    for dtype in Dtype::ALL {
        // Poisoned, so that what is not written shows.
        let (mut got, mut expected) = (vec![u32::MAX; ids.len() * dim], vec![0; ids.len() * dim]);
        decode_bits(&ids, dtype, &mut got, |output| decoder.decode(&ids, Missing::Zero, output))?;
        decode_bits(&ids, dtype, &mut expected, |output| {
            let decoded = Decoder::decode(&reference, &ids, Missing::Zero, output);
            decoded.map_err(|error| Error::Backend { backend: "reference".into(), message: error.to_string() })
        })?;
        if let Some(at) = got.iter().zip(&expected).position(|(got, expected)| got != expected) {
            let (id, column, got, expected) = (ids[at / dim], at % dim, got[at], expected[at]);
            let what = format!("row {id}, column {column} in {dtype}: bits {got:#x}, expected {expected:#x}");
            return Ok(Some(what));
        }
    }
    Ok(None)
}

fn decode_bits(
    ids: &[i64],
    dtype: Dtype,
    bits: &mut [u32],
    decode: impl FnOnce(Output<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    debug_assert_eq!(bits.len() % ids.len(), 0);
    if dtype == Dtype::F32 {
        let mut values = vec![f32::NAN; bits.len()];
        decode(Output::F32(&mut values))?;
        bits.iter_mut().zip(values).for_each(|(bits, value)| *bits = value.to_bits());
    } else {
        let mut halves = vec![u16::MAX; bits.len()];
        decode(if dtype == Dtype::Bf16 { Output::Bf16(&mut halves) } else { Output::F16(&mut halves) })?;
        bits.iter_mut().zip(halves).for_each(|(bits, half)| *bits = half.into());
    }
    Ok(())
}

fn text(verified: &VerifyTable, methods: &[Method], results: &[Measured], seconds: f64) -> String {
    let line = |cells: &[&str]| cells.iter().map(|cell| cell.to_string()).collect::<Vec<_>>();
    let mut lines = vec![line(&["", "bytes", "of", "relative", "encode", "decode", "right"])];
    lines.push(line(&["", "per row", "bf16", "error", "rows/s", "rows/s", "bits"]));
    for method in methods {
        let share = format!("{:.1} %", 100.0 * method.share());
        lines.push(line(&[&method.name, &count(method.bytes_per_row), &share, &figure(method.relative_mse)]));
    }
    let mut notes = String::new();
    for result in results {
        let rate = |rows: Option<f64>| rows.map_or("-".into(), speed);
        let bits = match &result.verdict {
            Verdict::Exact => "yes",
            Verdict::Differs(what) => {
                notes += &format!("{} gives WRONG BITS: {what}\n", result.name);
                "NO"
            }
            Verdict::Absent(why) => {
                notes += &format!("{}: no device ({why})\n", result.name);
                "-"
            }
        };
        if let Some(device) = &result.device {
            notes += &format!("{}: {device}\n", result.name);
        }
        lines.push(line(&[
            &format!("  on {}", result.name),
            "",
            "",
            "",
            &rate(result.encode),
            &rate(result.decode),
            bits,
        ]));
    }
    let (rows, dim) = (count(verified.rows), count(verified.dim.into()));
    let exact = results.iter().filter(|result| matches!(result.verdict, Verdict::Exact)).count();
    format!(
        "{rows} rows of {dim} values from the n-gram table of a small language model, which this program carries\n\n\
         {}\n{notes}\
         Relative error: sum of squared errors by sum of squares of the source; 0 is exact, 1 is as good as zeros.\n\
         Speeds are those of one CPU thread, or of a GPU with all copies. Decoding is into bf16, in requests of {} ids.\n\
         Compressed in {} s, verified: checksums {}, worst row {} with relative error {}.\n\
         {exact} of {} backends gave the reference's bits in bf16, f16 and f32{}.\n\n\
         Your own: condprog compress IN.safetensors -o OUT.safetensors",
        columns(&lines),
        count(TIMED_IDS as u64),
        figure(seconds),
        if verified.damage.is_empty() { "right" } else { "WRONG" },
        verified.worst_row.unwrap_or_default(),
        figure(verified.worst_relative_mse.unwrap_or_default()),
        results.len(),
        if exact == results.len() { "" } else { "; see above for the others" },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_bit_is_found_and_named() {
        let records: Vec<u8> = Random::new(7).ids(8 * 66, 256).into_iter().map(|byte| byte as u8).collect();
        let mut other = records.clone();
        other[3 * 66 + 10] ^= 1;
        let layout = Layout::new(256, Rate::TWO).unwrap();
        let segment = |records| [condprog_core::Segment { rows: 8, layout, records }];
        let (right, wrong) = (segment(&records), segment(&other));
        let (right, wrong) = (Table::new(&right).unwrap(), Table::new(&wrong).unwrap());
        let decoder = Cpu(Isa::best()).open(right).unwrap();
        assert_eq!(difference(&*decoder, right).unwrap(), None);
        let difference = difference(&*decoder, wrong).unwrap().unwrap();
        assert!(difference.starts_with("row 3, column "), "{difference}");
    }
}
