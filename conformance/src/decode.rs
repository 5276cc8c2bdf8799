//! The decoder suite: every case, over any [`Decoder`].

use std::panic::{AssertUnwindSafe, catch_unwind};

use condprog_core::{BackendError, Batch, DecodeError, Decoder, Dtype, ErrorKind, Segment, Table};

use crate::bits::Buffer;
use crate::cases::{self, Case, Expect, Request};
use crate::report::{Report, Verdict};

/// Cases of the suite: requests times number formats.
pub const DECODE_CASES: usize = 2550;

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
    check(name, backend, |_| false).close()
}

/// Runs cases until one fails, and gives that failure: to see that the suite notices a fault.
pub fn first_failure<B: Backend>(backend: &B) -> Option<String> {
    match check("first failure", backend, |report| matches!(report.verdict, Verdict::Failed(_))).verdict {
        Verdict::Failed(failures) => failures.into_iter().next(),
        _ => None,
    }
}

fn check<B: Backend>(name: &str, backend: &B, is_enough: fn(&Report) -> bool) -> Report {
    let mut report = Report::new(name, "decode", DECODE_CASES, 0);
    let (seed, cases) = match cases::all() {
        Ok((seed, cases)) => (*seed, cases),
        Err(error) => {
            report.fail(error.clone());
            return report;
        }
    };
    report.seed = seed;
    for group in cases.chunk_by(|_, next| next.beside_previous) {
        if catch_unwind(AssertUnwindSafe(|| run(group, backend, &mut report))).is_err() {
            report.fail(format!("{}: the backend panicked", group[0].name));
        }
        if matches!(report.verdict, Verdict::NoDevice(_)) || is_enough(&report) {
            break;
        }
    }
    report
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

/// Makes a decoder for each case of a group, then asks them in turn.
fn run<B: Backend>(group: &[Case], backend: &B, report: &mut Report) {
    let segments: Vec<Vec<Segment<'_>>> =
        group.iter().map(|case| case.parts.iter().map(|part| part.segment()).collect()).collect();
    let mut decoders = Vec::new();
    for (case, segments) in group.iter().zip(&segments) {
        let table = Table::new(segments).expect("the suite's tables are sound");
        match backend.decoder(table) {
            Ok(decoder) if decoder.shape() == table.shape() => decoders.push((case, table, decoder)),
            Ok(decoder) => {
                report.fail(format!("{}: shape is {:?}, expected {:?}", case.name, decoder.shape(), table.shape()));
            }
            Err(error) if error.kind() == ErrorKind::Unavailable && report.cases == 0 => {
                report.verdict = Verdict::NoDevice(error.to_string());
                return;
            }
            Err(error) => report.fail(format!("{}: no decoder: {error}", case.name)),
        }
    }
    let rounds = group.iter().map(|case| case.requests.len()).max().unwrap_or(0);
    for round in 0..rounds {
        for (case, table, decoder) in &decoders {
            let Some(request) = case.requests.get(round) else { continue };
            for dtype in Dtype::ALL {
                // Outputs start at every alignment in turn.
                let lead = report.cases % 17;
                report.cases += 1;
                if let Err(failure) = ask(decoder, *table, request, dtype, lead) {
                    report.fail(format!("{}; {}; {dtype}: {failure}", case.name, request.name));
                }
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
        Expect::Golden(_) | Expect::Digest(_) | Expect::Reference => {
            compare(decoder, request, dtype, lead, dim, request.expected(table, dtype)?)
        }
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
