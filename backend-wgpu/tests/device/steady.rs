//! Steady state: requests pass through buffers that are used again.

use condprog_conformance::input::Stream;
use condprog_core::{Batch, Decoder, Dtype, Missing, Table};
use condprog_wgpu::{Options, WgpuDecoder};

use crate::support::{self, Random, Rows};

#[test]
fn a_thousand_requests_allocate_nothing_after_the_first_ten() {
    let Some(gpu) = support::gpu(&Options::default()) else { return };
    let random = [Random::new(3000, 256, 8, 1), Random::new(3000, 256, 6, 2)];
    let segments = [random[0].segment(), random[1].segment()];
    let decoder = WgpuDecoder::new(&gpu, Table::new(&segments).unwrap()).unwrap();
    let mut stream = Stream::new(1);
    // Our own count of buffers made, and wgpu's of what lives: buffers, their memory, bind groups and pipelines.
    let state = || {
        let hal = gpu.counters().hal;
        let live = [&hal.buffers, &hal.buffer_memory, &hal.bind_groups, &hal.compute_pipelines].map(|c| c.read());
        assert!(live.iter().all(|&count| count > 0), "wgpu counts nothing: {live:?}");
        (gpu.buffers_created(), live)
    };
    let mut settled = None;
    for request in 0..1000 {
        let ids: Vec<i64> = (0..48).map(|_| i64::from(stream.below(6000))).collect();
        let mut rows = Rows::new(Dtype::ALL[request % 3], 48 * 256);
        decoder.decode(&ids, Missing::Error, rows.output()).unwrap();
        if request == 9 {
            settled = Some(state());
        }
    }
    assert_eq!(Some(state()), settled);
}

#[test]
fn large_requests_settle_too() {
    let Some(gpu) = support::gpu(&Options::default()) else { return };
    let random = Random::new(3000, 64, 8, 1);
    let segments = [random.segment()];
    let decoder = WgpuDecoder::new(&gpu, Table::new(&segments).unwrap()).unwrap();
    let ids: Vec<i64> = (0..200_000).map(|i| i % 3000).collect();
    let mut rows = Rows::new(Dtype::F32, ids.len() * 64);
    decoder.decode(&ids, Missing::Error, rows.output()).unwrap();
    let settled = gpu.buffers_created();
    for count in [200_000, 1, 70_000, 48, 0, 199_999] {
        let mut rows = Rows::new(Dtype::F32, count * 64);
        decoder.decode(&ids[..count], Missing::Error, rows.output()).unwrap();
    }
    assert_eq!(gpu.buffers_created(), settled);
}

#[test]
fn stages_are_timed_and_exact() {
    let Some(gpu) = support::gpu(&Options::default()) else { return };
    let random = Random::new(300, 100, 9, 1);
    let segments = [random.segment()];
    let table = Table::new(&segments).unwrap();
    let decoder = WgpuDecoder::new(&gpu, table).unwrap();
    let ids: Vec<i64> = (-1..301).collect();
    for dtype in Dtype::ALL {
        let mut rows = Rows::new(dtype, ids.len() * 100);
        let batch = Batch::new(decoder.shape(), &ids, Missing::Zero, rows.output()).unwrap();
        let stages = decoder.decode_timed(batch).unwrap();
        assert!(!stages.upload.is_zero() && !stages.kernel.is_zero() && !stages.readback.is_zero());
        assert_eq!(rows.bits(), support::bits(&decoder, &ids, dtype));
    }
}
