//! Rows of any bits: refused, or coded to the same record by every instruction set, and decoded to finite numbers.

#![no_main]

use condprog_core::encoder::{Outcome, ScaleRule, Search};
use condprog_core::{Decoder, Encoder, Job, Layout, Missing, Output, Rate, Scale, Segment, Table};
use condprog_cpu::{CpuDecoder, CpuEncoder, Isa};
use libfuzzer_sys::fuzz_target;

/// Wider rows show nothing new, and take long.
const MAX_DIM: usize = 24;

fuzz_target!(|bytes: &[u8]| {
    let Some((&[rate, rule, low, high, search], bytes)) = bytes.split_first_chunk() else { return };
    let rate = Rate::from_quarters(4 + u32::from(rate) % 13).expect("a rate");
    let values = bytes.chunks_exact(4).take(MAX_DIM).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let row: Vec<f32> = values.collect();
    let Ok(layout) = Layout::new(row.len() as u32, rate) else { return };
    let rule = match rule % 4 {
        0 => ScaleRule::Norm,
        1 => ScaleRule::Projection,
        2 => ScaleRule::LeastSquares,
        _ => ScaleRule::Global(Scale::from_bits(u16::from_le_bytes([low, high]))),
    };
    let search = Search::new(1 + search % 2, u32::from(search), search % 3).expect("variants that there are");
    let job = Job::new(layout, rule, search);
    let code = |isa| {
        let encoder = CpuEncoder::with_isa(job.clone(), isa).expect("an instruction set of this CPU");
        let (mut record, mut outcomes) = (vec![0xaa; layout.record_bytes()], [Ok(Outcome::Zero)]);
        encoder.encode(&row, &mut record, &mut outcomes).expect("a sound batch");
        (record, outcomes[0])
    };
    let (record, outcome) = code(Isa::best());
    let (portable, other) = code(Isa::Portable);
    // As text: a NaN in an error is not equal to itself.
    assert_eq!((&record, format!("{outcome:?}")), (&portable, format!("{other:?}")));
    let segments = [Segment { rows: 1, layout, records: &record }];
    let decoder = CpuDecoder::new(Table::new(&segments).expect("a record")).expect("an instruction set of this CPU");
    let mut out = vec![f32::NAN; row.len()];
    decoder.decode(&[0], Missing::Error, Output::F32(&mut out)).expect("a sound request");
    assert!(out.iter().all(|value| value.is_finite()));
    match outcome {
        Ok(Outcome::Zero | Outcome::Underflow) => assert!(out.iter().all(|&value| value == 0.0)),
        Ok(Outcome::Coded) => assert!(row.iter().all(|value| value.is_finite())),
        Err(error) => assert!(row.len() > error.column()),
    }
});
