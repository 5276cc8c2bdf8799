//! Tables over bindings, requests over dispatches.

use condprog_conformance::input::Stream;
use condprog_core::{Dtype, Layout, Rate, ReferenceDecoder, Segment, Table};
use condprog_wgpu::{Options, WgpuDecoder};

use crate::support::{self, Random};

/// 300 MiB with WebGPU's own 128 MiB bindings: three parts.
#[test]
fn three_hundred_mebibytes() {
    let Some(gpu) = support::gpu(&Options::default()) else { return };
    let layout = Layout::new(256, Rate::TWO).unwrap();
    let rows = (300usize << 20).div_ceil(layout.record_bytes());
    // A repeated random block whose length shares no factor with the split: rows at any distance that could be mixed
    // up have different records.
    let block = Stream::new(1).bytes(1_000_003);
    let mut records = vec![0; rows * layout.record_bytes()];
    for chunk in records.chunks_mut(block.len()) {
        chunk.copy_from_slice(&block[..chunk.len()]);
    }
    let segments = [Segment { rows: rows as u64, layout, records: &records }];
    let table = Table::new(&segments).unwrap();
    let decoder = WgpuDecoder::new(&gpu, table).unwrap();

    // Rows on both sides of each split, the ends, and random ones.
    let part = (((128 << 20) - 12) / layout.record_bytes()) as i64;
    assert_eq!(rows as i64 / part, 2);
    let mut ids: Vec<i64> = [0, part, 2 * part, rows as i64].iter().flat_map(|&split| split - 3..split + 3).collect();
    let mut stream = Stream::new(2);
    ids.extend((0..2000).map(|_| i64::from(stream.below(rows as u32))));
    support::assert_exact(&decoder, table, &ids);
}

/// Bindings and dispatches far below the limits, so that a small table and request are split many times.
#[test]
fn many_parts_and_many_dispatches() {
    let mut options = Options::default();
    options.binding_bytes = Some(16 << 10);
    options.dispatch_bytes = Some(5000);
    let Some(gpu) = support::gpu(&options) else { return };
    for dim in [8, 36, 160, 256] {
        let segments = [(700, 8), (0, 6), (33, 16), (1, 12), (900, 4)]
            .map(|(rows, quarters)| Random::new(rows, dim, quarters.max(if dim == 8 { 8 } else { 4 }), rows));
        let segments: Vec<_> = segments.iter().map(Random::segment).collect();
        let table = Table::new(&segments).unwrap();
        let decoder = WgpuDecoder::new(&gpu, table).unwrap();
        let mut stream = Stream::new(dim);
        let ids: Vec<i64> = (0..1500).map(|_| i64::from(stream.below(1640)) - 3).collect();
        support::assert_exact(&decoder, table, &ids);
        let in_order: Vec<i64> = (0..table.shape().rows as i64).collect();
        support::assert_exact(&decoder, table, &in_order);
    }
}

/// More threads than 65,535 workgroups have, so the limit of a dispatch decides, not its bytes.
#[test]
fn more_rows_than_one_dispatch_takes() {
    let mut options = Options::default();
    options.dispatch_bytes = Some(128 << 20);
    let Some(gpu) = support::gpu(&options) else { return };
    let random = Random::new(5000, 4, 16, 1);
    let segments = [random.segment()];
    let table = Table::new(&segments).unwrap();
    let decoder = WgpuDecoder::new(&gpu, table).unwrap();
    let mut stream = Stream::new(3);
    let ids: Vec<i64> = (0..65_535 * 64 + 1000).map(|_| i64::from(stream.below(5000))).collect();
    let expected = support::bits(&ReferenceDecoder::new(table), &ids, Dtype::Bf16);
    assert!(support::bits(&decoder, &ids, Dtype::Bf16) == expected);
}

/// Every shape of a dispatch gives the same rows, the last thread's share of a row included.
#[test]
fn any_number_of_groups_per_thread() {
    let random = Random::new(50, 200, 7, 1);
    let segments = [random.segment()];
    let table = Table::new(&segments).unwrap();
    let ids: Vec<i64> = (-1..51).collect();
    for groups_per_thread in [1, 2, 3, 7, 24, 25, 26, u32::MAX] {
        let mut options = Options::default();
        options.groups_per_thread = Some(groups_per_thread);
        let Some(gpu) = support::gpu(&options) else { return };
        support::assert_exact(&WgpuDecoder::new(&gpu, table).unwrap(), table, &ids);
    }
}
