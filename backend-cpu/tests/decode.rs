//! Every instruction set decodes every record to the bits of the reference decoder.

use condprog_core::{Decoder, Layout, Missing, Output, Rate, ReferenceDecoder, Segment, Table};
use condprog_cpu::{CpuDecoder, Isa};

fn bytes(count: usize, mut seed: u64) -> Vec<u8> {
    (0..count)
        .map(|_| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed >> 32) as u8
        })
        .collect()
}

/// Random records: any bytes are valid ones, every scale and padding bit included.
fn check(layouts: &[Layout], rows: u64) {
    // Miri takes a second for a few rows.
    let (rows, more) = if cfg!(miri) { (1, 3) } else { (rows, 700) };
    let records: Vec<Vec<u8>> =
        (1..).zip(layouts).map(|(seed, layout)| bytes(rows as usize * layout.record_bytes(), seed)).collect();
    let segments: Vec<_> =
        layouts.iter().zip(&records).map(|(&layout, records)| Segment { rows, layout, records }).collect();
    let table = Table::new(&segments).unwrap();
    let total = rows as i64 * layouts.len() as i64;
    let ids: Vec<i64> =
        (-1..=total).chain([i64::MIN, i64::MAX, 0, 0]).chain((0..more).map(|i| i * 37 % total)).collect();
    let values = ids.len() * layouts[0].dim() as usize;
    let reference = ReferenceDecoder::new(table);
    let (mut bf16, mut f16, mut f32s) = (vec![1; values], vec![1; values], vec![1.0; values]);
    reference.decode(&ids, Missing::Zero, Output::Bf16(&mut bf16)).unwrap();
    reference.decode(&ids, Missing::Zero, Output::F16(&mut f16)).unwrap();
    reference.decode(&ids, Missing::Zero, Output::F32(&mut f32s)).unwrap();
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_supported()) {
        let decoder = CpuDecoder::with_isa(table, isa).unwrap();
        assert_eq!(decoder.isa(), isa);
        let (mut half, mut single) = (vec![1; values], vec![1.0; values]);
        decoder.decode(&ids, Missing::Zero, Output::Bf16(&mut half)).unwrap();
        assert!(half == bf16, "{isa} bf16 {layouts:?}");
        decoder.decode(&ids, Missing::Zero, Output::F16(&mut half)).unwrap();
        assert!(half == f16, "{isa} f16 {layouts:?}");
        decoder.decode(&ids, Missing::Zero, Output::F32(&mut single)).unwrap();
        assert!(bits(&single) == bits(&f32s), "{isa} f32 {layouts:?}");
    }
}

#[test]
fn every_rate_and_many_widths() {
    for rate in Rate::all().step_by(if cfg!(miri) { 6 } else { 1 }) {
        let dims = [4, 8, 16, 20, 31, 32, 33, 36, 64, 96, 100, 128, 160, 250, 256, 384, 512, 1024];
        for &dim in if cfg!(miri) { &dims[3..4] } else { &dims[..] } {
            if let Ok(layout) = Layout::new(dim, rate) {
                check(&[layout], 19);
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "minutes")]
fn wide_rows() {
    check(&[Layout::new(8192, Rate::MAX).unwrap()], 2);
}

#[test]
#[cfg_attr(miri, ignore = "minutes")]
fn segments_of_different_rates() {
    let layouts: Vec<_> = Rate::all().map(|rate| Layout::new(160, rate).unwrap()).collect();
    check(&layouts, 7);
}

#[test]
#[cfg_attr(miri, ignore = "hours")]
fn requests_too_large_for_the_caches_give_the_same_bits() {
    let layouts = [Layout::new(256, Rate::TWO).unwrap(), Layout::new(256, Rate::MAX).unwrap()];
    let records = layouts.map(|layout| bytes(50 * layout.record_bytes(), 3));
    let segments: Vec<_> =
        layouts.iter().zip(&records).map(|(&layout, records)| Segment { rows: 50, layout, records }).collect();
    let table = Table::new(&segments).unwrap();
    let ids: Vec<i64> = (0..40_000).map(|i| i * 7 % 101).collect();
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_supported()) {
        let decoder = CpuDecoder::with_isa(table, isa).unwrap();
        // One value further on, so that rows do not start where cache lines do.
        let (mut large, mut small) = (vec![1; ids.len() * 256 + 1], vec![1; ids.len() * 256]);
        decoder.decode(&ids, Missing::Zero, Output::Bf16(&mut large[1..])).unwrap();
        for (ids, out) in ids.chunks(100).zip(small.chunks_mut(100 * 256)) {
            decoder.decode(ids, Missing::Zero, Output::Bf16(out)).unwrap();
        }
        assert!(large[0] == 1 && large[1..] == small, "{isa}");
    }
}
