//! Records of any bytes at any layout: the best instruction set of this CPU gives the bits of the reference.

#![no_main]

use condprog_core::{Decoder, Layout, Missing, Output, Rate, ReferenceDecoder, Segment, Table};
use condprog_cpu::{CpuDecoder, Isa};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // Rate and width, then records of this layout, each a segment's row; what is left over gives the order of the ids.
    let Some((&[rate, low, high], bytes)) = bytes.split_first_chunk() else { return };
    let rate = Rate::from_quarters(u32::from(rate)).or(Rate::from_quarters(4 + u32::from(rate) % 13));
    let Ok(layout) = Layout::new(u32::from(u16::from_le_bytes([low, high])), rate.expect("a rate")) else { return };
    let (records, order) = bytes.split_at(bytes.len() - bytes.len() % layout.record_bytes());
    let rows = (records.len() / layout.record_bytes()) as u64;
    let segments = [Segment { rows, layout, records }];
    let table = Table::new(&segments).expect("whole records make a table");
    let ids: Vec<i64> = (0..rows as i64).take(64).chain(order.iter().take(64).map(|&id| i64::from(id as i8))).collect();
    let values = ids.len() * layout.dim() as usize;
    let best = CpuDecoder::with_isa(table, Isa::best()).expect("an instruction set of this CPU");
    let portable = CpuDecoder::with_isa(table, Isa::Portable).expect("any CPU has it");
    let reference = ReferenceDecoder::new(table);
    let (mut expected, mut got) = (vec![1; values], vec![2; values]);
    let halves: [fn(&mut [u16]) -> Output<'_>; 2] = [|out| Output::Bf16(out), |out| Output::F16(out)];
    for make in halves {
        reference.decode(&ids, Missing::Zero, make(&mut expected)).expect("a sound request");
        best.decode(&ids, Missing::Zero, make(&mut got)).expect("a sound request");
        assert!(got == expected, "{layout:?}");
        portable.decode(&ids, Missing::Zero, make(&mut got)).expect("a sound request");
        assert!(got == expected, "{layout:?}");
    }
    let (mut expected, mut got) = (vec![1.0; values], vec![2.0; values]);
    reference.decode(&ids, Missing::Zero, Output::F32(&mut expected)).expect("a sound request");
    assert!(expected.iter().all(|value| value.is_finite()), "{layout:?}");
    for decoder in [&best, &portable] {
        decoder.decode(&ids, Missing::Zero, Output::F32(&mut got)).expect("a sound request");
        assert!(got.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()), "{layout:?}");
    }
});
