//! The decoder suite: every case, over any [`Decoder`].

use std::panic::{AssertUnwindSafe, catch_unwind};

use condprog_core::{BackendError, Batch, DecodeError, Decoder, Dtype, ErrorKind, Segment, Table};

use crate::bits::{Buffer, reference_bits, sha256};
use crate::cases::{self, Case, Expect, Request};
use crate::report::{Report, Verdict};

/// Cases of the suite: requests times number formats.
pub const DECODE_CASES: usize = 2442;

/// A backend under test: a way to make decoders.
pub trait Backend {
    /// A decoder of this backend for a table.
    ///
    /// # Errors
    /// The backend's own; [`ErrorKind::Unavailable`] counts as "no device".
    fn decoder<'t>(&'t self, table: Table<'t>) -> Result<impl Decoder, impl BackendError>;
}

/// Runs every case. There is no way to leave one out.
pub fn check_decoder<B: Backend>(name: &str, backend: &B) -> Report {
    let (seed, cases) = match cases::seed().and_then(|seed| Ok((seed, cases::all(seed)?))) {
        Ok(ready) => ready,
        Err(error) => {
            let mut report = Report::new(name, "decode", DECODE_CASES, 0);
            report.fail(error);
            return report;
        }
    };
    let mut report = Report::new(name, "decode", DECODE_CASES, seed);
    for case in &cases {
        let run = catch_unwind(AssertUnwindSafe(|| run(case, backend, &mut report)));
        if run.is_err() {
            report.fail(format!("{}: the backend panicked", case.name));
        }
        if matches!(report.verdict, Verdict::NoDevice(_)) {
            break;
        }
    }
    report.close()
}

/// [`check_decoder`] of a backend whose device may be missing.
pub fn check_with_device<B: Backend, E: BackendError>(name: &str, backend: Result<B, E>) -> Report {
    let mut report = Report::new(name, "decode", DECODE_CASES, 0);
    match backend {
        Ok(backend) => return check_decoder(name, &backend),
        Err(error) if error.kind() == ErrorKind::Unavailable => report.verdict = Verdict::NoDevice(error.to_string()),
        Err(error) => report.fail(format!("no device: {error}")),
    }
    report
}

fn run<B: Backend>(case: &Case, backend: &B, report: &mut Report) {
    let segments: Vec<Segment<'_>> = case.parts.iter().map(|part| part.segment()).collect();
    let table = Table::new(&segments).expect("the suite's tables are sound");
    let decoder = match backend.decoder(table) {
        Ok(decoder) => decoder,
        Err(error) if error.kind() == ErrorKind::Unavailable && report.cases == 0 => {
            report.verdict = Verdict::NoDevice(error.to_string());
            return;
        }
        Err(error) => {
            report.fail(format!("{}: no decoder: {error}", case.name));
            return;
        }
    };
    if decoder.shape() != table.shape() {
        report.fail(format!("{}: shape is {:?}, expected {:?}", case.name, decoder.shape(), table.shape()));
    }
    for request in &case.requests {
        for dtype in Dtype::ALL {
            // Outputs start at every alignment in turn.
            let lead = report.cases % 17;
            report.cases += 1;
            if let Err(failure) = ask(&decoder, table, request, dtype, lead) {
                report.fail(format!("{}; {}; {dtype}: {failure}", case.name, request.name));
            }
        }
    }
}

/// One request, checked bit for bit.
fn ask<D: Decoder>(decoder: &D, table: Table<'_>, request: &Request, dtype: Dtype, lead: usize) -> Result<(), String> {
    let dim = table.shape().dim as usize;
    let room = |longer: isize| (request.ids.len() * dim).saturating_add_signed(longer);
    match &request.expect {
        Expect::Refusal { longer, error } => {
            let mut buffer = Buffer::new(dtype, room(*longer), lead);
            match decoder.decode(&request.ids, request.missing, buffer.output()) {
                Err(DecodeError::Batch(got)) if got == *error => {}
                Err(got) => return Err(format!("refused with \"{got}\", expected \"{error}\"")),
                Ok(()) => return Err(format!("not refused, expected \"{error}\"")),
            }
            if !buffer.is_untouched() {
                return Err("refused, but the output was written to".into());
            }
            Ok(())
        }
        Expect::Mismatch(shape) => {
            let mut buffer = Buffer::new(dtype, request.ids.len() * shape.dim as usize, lead);
            let batch = Batch::new(*shape, &request.ids, request.missing, buffer.output())
                .expect("the suite's request fits the other shape");
            match decoder.decode_batch(batch) {
                Err(got) if got.kind() == ErrorKind::ShapeMismatch => {}
                Err(got) => {
                    return Err(format!("refused with {:?} (\"{got}\"), expected a shape mismatch", got.kind()));
                }
                Ok(()) => return Err("not refused, expected a shape mismatch".into()),
            }
            match buffer.damaged_guards() {
                0 => Ok(()),
                damaged => Err(format!("{damaged} values outside the output were written to")),
            }
        }
        Expect::Golden(bits) => {
            let index = Dtype::ALL.iter().position(|&d| d == dtype).unwrap_or(0);
            compare(decoder, request, dtype, lead, dim, &bits[index])
        }
        Expect::Digest(digests) => {
            let expected = reference_bits(table, &request.ids, dtype);
            let (got, golden) = (sha256(&expected, dtype), digests.of(dtype));
            if got != golden {
                return Err(format!("the reference decoder's rows have SHA-256 {got}, expected {golden}"));
            }
            compare(decoder, request, dtype, lead, dim, &expected)
        }
        Expect::Reference => compare(decoder, request, dtype, lead, dim, &reference_bits(table, &request.ids, dtype)),
    }
}

/// Decodes into a guarded buffer and compares every bit.
fn compare<D: Decoder>(
    decoder: &D,
    request: &Request,
    dtype: Dtype,
    lead: usize,
    dim: usize,
    expected: &[u32],
) -> Result<(), String> {
    let mut buffer = Buffer::new(dtype, request.ids.len() * dim, lead);
    decoder.decode(&request.ids, request.missing, buffer.output()).map_err(|error| format!("failed: {error}"))?;
    let got = buffer.bits();
    let wrong = got.iter().zip(expected).filter(|(a, b)| a != b).count();
    if got.len() != expected.len() {
        return Err(format!("{} values are expected, but {} were asked for", expected.len(), got.len()));
    }
    if let Some(at) = got.iter().zip(expected).position(|(a, b)| a != b) {
        let (row, column, digits) = (at / dim, at % dim, 2 * dtype.size());
        return Err(format!(
            "{wrong} of {} values differ, first at position {row} (id {}), column {column}: {:#0width$x}, expected {:#0width$x}",
            got.len(),
            request.ids[row],
            got[at],
            expected[at],
            width = digits + 2,
        ));
    }
    match buffer.damaged_guards() {
        0 => Ok(()),
        damaged => Err(format!("{damaged} values outside the output were written to")),
    }
}
