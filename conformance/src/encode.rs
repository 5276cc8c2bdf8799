//! The encoder suite: golden rows, and rows by formula compared with core's reference encoder, byte for byte.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use condprog_core::encoder::{EncodeBatch, EncodeError, Encoder, Job, Outcome, ScaleRule, Search};
use condprog_core::{BackendError, ErrorKind, Layout, Rate, Scale};

use crate::bits::to_hex;
use crate::cases;
use crate::input::{Kind, Row, Stream};
use crate::oracle::{outcome_text, reference};
use crate::report::{Report, Verdict};
use crate::vectors;

/// Cases of the suite, one per row.
pub const ENCODE_CASES: usize = 512;

/// Bytes on each side of the records that must stay as they were.
const GUARD: usize = 64;
/// What record buffers hold before.
const POISON: u8 = 0xa5;
/// What outcomes are before: nothing that comes of a row.
const UNTOUCHED: Result<Outcome, EncodeError> = Err(EncodeError::ScaleAbove { column: usize::MAX, value: 0.0 });

/// Rows that are coded in one call, and what has to come out.
struct Call {
    name: String,
    job: Job,
    rows: Vec<Row>,
    outcomes: Vec<String>,
    records: Vec<u8>,
}

/// The golden vectors; runs of rows with the same job are one call.
fn golden() -> Result<Vec<Call>, String> {
    let vectors = vectors::encode::load()?;
    let run = |a: &vectors::encode::RowVector, b: &vectors::encode::RowVector| {
        (a.dim, a.rate, a.effort, &a.rule) == (b.dim, b.rate, b.effort, &b.rule)
    };
    let mut calls = Vec::new();
    for run in vectors.rows.chunk_by(run) {
        let job = run[0].job()?;
        let mut records = Vec::new();
        for vector in run {
            records.extend(vector.bytes()?);
        }
        if records.len() != run.len() * job.layout.record_bytes() {
            return Err(format!(
                "golden records of {} bytes, expected {} each",
                records.len(),
                job.layout.record_bytes()
            ));
        }
        calls.push(Call {
            name: format!("golden, effort {}, {}", run[0].effort, run[0].rule),
            job,
            rows: run.iter().map(|vector| vector.row).collect(),
            outcomes: run.iter().map(|vector| vector.outcome.clone()).collect(),
            records,
        });
    }
    Ok(calls)
}

/// Rows by formula and what the reference makes of them.
fn seeded(seed: u32) -> Vec<Call> {
    let mut stream = Stream::new(seed);
    let mut calls = Vec::new();
    let mut add = |name: &str, job: Job, rows: Vec<Row>| {
        let values: Vec<f32> = rows.iter().flat_map(|row| row.values(job.layout.dim())).collect();
        let mut records = vec![0; rows.len() * job.layout.record_bytes()];
        let outcomes = reference(job.clone(), &values, &mut records).iter().map(outcome_text).collect();
        calls.push(Call { name: name.into(), job, rows, outcomes, records });
    };
    let layout = |dim, quarters| vectors::layout(dim, quarters).expect("the suite asks only for layouts there are");
    let effort = |layout, effort| Job::new(layout, ScaleRule::Norm, Search::effort(effort));
    add("no rows", effort(layout(32, 8), 0), vec![]);
    // Around the numbers of rows that encoders take at a time.
    for count in [1, 2, 15, 16, 17, 31, 32, 33, 65] {
        let rows = (0..count).map(|_| Row::gaussian(stream.next_u32())).collect();
        add(&format!("{count} rows"), effort(layout(8, 8), 0), rows);
    }
    // Rows of every kind and length side by side: none may disturb another.
    for (dim, quarters, level) in [(16, 8, 0), (20, 5, 1), (12, 11, 2)] {
        let rows = (0..44).map(|i| {
            let kind = Kind::ALL[i % Kind::ALL.len()];
            Row { kind, seed: stream.next_u32(), exponent: [-16, -70, -16, 60, 0][i % 5] }
        });
        add("mixed rows", effort(layout(dim, quarters), level), rows.collect());
    }
    for _ in 0..24 {
        let layout = loop {
            let (dim, quarters) = (4 + stream.below(44), 4 + stream.below(13));
            if let Ok(layout) = Rate::from_quarters(quarters).and_then(|rate| Layout::new(dim, rate)) {
                break layout;
            }
        };
        // A number that nothing depends on any more: the stream has to go on as it always has.
        stream.below(5);
        let (variants, window) = (1 + stream.below(3) as u8, 1 + stream.below(40));
        let search = Search::new(variants, window, stream.below(3) as u8).expect("1 to 3 variants");
        let scale = Scale::from_bits(38 << 6 | stream.below(64) as u16);
        let rules = [ScaleRule::Norm, ScaleRule::Projection, ScaleRule::LeastSquares, ScaleRule::Global(scale)];
        let job = Job::new(layout, rules[stream.below(4) as usize], search);
        let rows =
            (0..3).map(|_| Row { kind: Kind::ALL[stream.below(8) as usize], ..Row::gaussian(stream.next_u32()) });
        add("random job", job, rows.collect());
    }
    calls
}

/// Every call; made once, as the reference takes its time.
fn calls() -> &'static Result<(u32, Vec<Call>), String> {
    static CALLS: OnceLock<Result<(u32, Vec<Call>), String>> = OnceLock::new();
    CALLS.get_or_init(|| {
        let seed = cases::seed()?;
        let mut calls = seeded(seed);
        calls.extend(golden()?);
        Ok((seed, calls))
    })
}

/// Runs every case over the encoders that `make` makes of jobs. There is no way to leave one out.
///
/// An error of `make` of kind [`ErrorKind::Unavailable`] counts as "no device".
pub fn check_encoder<E: Encoder, R: BackendError>(name: &str, make: impl Fn(Job) -> Result<E, R>) -> Report {
    check(name, make, |_| false).close()
}

/// Runs cases until one fails, and gives that failure: to see that the suite notices a fault.
pub fn first_encoder_failure<E: Encoder, R: BackendError>(make: impl Fn(Job) -> Result<E, R>) -> Option<String> {
    match check("first failure", make, |report| matches!(report.verdict, Verdict::Failed(_))).verdict {
        Verdict::Failed(failures) => failures.into_iter().next(),
        _ => None,
    }
}

fn check<E: Encoder, R: BackendError>(
    name: &str,
    make: impl Fn(Job) -> Result<E, R>,
    is_enough: fn(&Report) -> bool,
) -> Report {
    let mut report = Report::new(name, "encode", ENCODE_CASES, 0);
    let (seed, calls) = match calls() {
        Ok((seed, calls)) => (*seed, calls),
        Err(error) => {
            report.fail(error.clone());
            return report;
        }
    };
    report.seed = seed;
    for (index, call) in calls.iter().enumerate() {
        // Records start at every alignment in turn.
        let run = catch_unwind(AssertUnwindSafe(|| run(call, &make, index % 7, &mut report)));
        if run.is_err() {
            report.fail(format!("{}, {:?}: the backend panicked", call.name, call.job));
        }
        if matches!(report.verdict, Verdict::NoDevice(_)) || is_enough(&report) {
            break;
        }
    }
    report
}

fn run<E: Encoder, R: BackendError>(call: &Call, make: impl Fn(Job) -> Result<E, R>, lead: usize, report: &mut Report) {
    let (layout, stride) = (call.job.layout, call.job.layout.record_bytes());
    let what = format!("{}, {} bits, width {}", call.name, layout.rate(), layout.dim());
    let encoder = match make(call.job.clone()) {
        Ok(encoder) => encoder,
        Err(error) if error.kind() == ErrorKind::Unavailable && report.cases == 0 => {
            report.verdict = Verdict::NoDevice(error.to_string());
            return;
        }
        Err(error) => {
            report.fail(format!("{what}: no encoder: {error}"));
            return;
        }
    };
    if *encoder.job() != call.job {
        report.fail(format!("{what}: job is {:?}, expected {:?}", encoder.job(), call.job));
    }
    if encoder.preferred_rows() == 0 {
        report.fail(format!("{what}: prefers batches of 0 rows, expected at least 1"));
    }
    if let Err(failure) = refuses_other_layouts(&encoder) {
        report.fail(format!("{what}: {failure}"));
    }
    let rows: Vec<f32> = call.rows.iter().flat_map(|row| row.values(layout.dim())).collect();
    let inside = GUARD + lead..GUARD + lead + call.records.len();
    let mut memory = vec![POISON; inside.end + GUARD];
    let mut outcomes = vec![UNTOUCHED; call.rows.len()];
    if let Err(error) = encoder.encode(&rows, &mut memory[inside.clone()], &mut outcomes) {
        report.fail(format!("{what}: failed: {error}"));
        return;
    }
    if memory[..inside.start].iter().chain(&memory[inside.end..]).any(|&byte| byte != POISON) {
        report.fail(format!("{what}: bytes outside the records were written to"));
    }
    let records = memory[inside].chunks_exact(stride).zip(call.records.chunks_exact(stride));
    for ((row, (got, expected)), (outcome, text)) in
        call.rows.iter().zip(records).zip(outcomes.iter().zip(&call.outcomes))
    {
        report.cases += 1;
        let outcome = outcome_text(outcome);
        if outcome != *text {
            report.fail(format!("{what}, {row:?}: outcome is \"{outcome}\", expected \"{text}\""));
        } else if let Some(at) = got.iter().zip(expected).position(|(a, b)| a != b) {
            let part = |record: &[u8]| to_hex(&record[at..stride.min(at + 8)]);
            let (got, expected) = (part(got), part(expected));
            report.fail(format!("{what}, {row:?}: record from byte {at} of {stride} on is {got}, expected {expected}"));
        }
    }
}

/// A batch of one row that was checked against another layout has to be an error.
fn refuses_other_layouts<E: Encoder>(encoder: &E) -> Result<(), String> {
    let dim = if encoder.job().layout.dim() == 16 { 32 } else { 16 };
    let other = vectors::layout(dim, 8)?;
    let (row, mut record) = (vec![0.0; dim as usize], vec![POISON; other.record_bytes()]);
    let mut outcomes = [UNTOUCHED];
    let batch = EncodeBatch::new(other, &row, &mut record, &mut outcomes).map_err(|error| error.to_string())?;
    match encoder.encode_batch(batch) {
        Err(error) if error.kind() == ErrorKind::ShapeMismatch => Ok(()),
        Err(error) => Err(format!(
            "a batch for another layout was refused with {:?} (\"{error}\"), expected a shape mismatch",
            error.kind()
        )),
        Ok(()) => Err("a batch for another layout was not refused, expected a shape mismatch".into()),
    }
}
