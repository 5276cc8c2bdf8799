//! Requests from many threads and futures, and futures that are given up.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use condprog_core::{Batch, Decoder, Dtype, Missing, ReferenceDecoder, Table};
use condprog_wgpu::{Gpu, Options, WgpuDecoder};

use crate::support::{self, Random, Rows};

fn ids(seed: i64) -> Vec<i64> {
    (0..700).map(|i| (i * 37 + seed * 101) % 510 - 5).collect()
}

#[test]
fn threads_share_a_decoder() {
    let Some(gpu) = support::gpu(&Options::default()) else { return };
    let random = Random::new(500, 96, 7, 1);
    let segments = [random.segment()];
    let table = Table::new(&segments).unwrap();
    let decoder = WgpuDecoder::new(&gpu, table).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let decoder = &decoder;
            scope.spawn(move || {
                for request in 0..20 {
                    let ids = ids(thread * 20 + request);
                    let expected = support::bits(&ReferenceDecoder::new(table), &ids, Dtype::F16);
                    assert!(support::bits(decoder, &ids, Dtype::F16) == expected);
                }
            });
        }
    });
}

#[test]
fn futures_run_on_any_executor() {
    if support::gpu(&Options::default()).is_none() {
        return;
    }
    let random = Random::new(500, 96, 7, 1);
    let segments = [random.segment()];
    let table = Table::new(&segments).unwrap();
    let decoder = pollster::block_on(async {
        let gpu = Gpu::open_async(&Options::default()).await.unwrap();
        WgpuDecoder::new_async(&gpu, table).await.unwrap()
    });
    // As an executor with threads needs them.
    fn assert_send<T: Send>(value: T) -> T {
        value
    }
    let mut outputs: Vec<_> = (0..6).map(|_| Rows::new(Dtype::Bf16, 700 * 96)).collect();
    let requests: Vec<_> = (0..6).map(ids).collect();
    let mut futures: Vec<_> = requests
        .iter()
        .zip(&mut outputs)
        .map(|(ids, rows)| {
            let batch = Batch::new(decoder.shape(), ids, Missing::Zero, rows.output()).unwrap();
            Box::pin(assert_send(decoder.decode_batch_async(batch)))
        })
        .collect();
    // All are under way before the first is done; each is polled until it is.
    pollster::block_on(poll_fn(|context| {
        futures.retain_mut(|future| match future.as_mut().poll(context) {
            Poll::Ready(result) => {
                result.unwrap();
                false
            }
            Poll::Pending => true,
        });
        if futures.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }));
    drop(futures);
    for (ids, rows) in requests.iter().zip(&outputs) {
        assert!(rows.bits() == support::bits(&ReferenceDecoder::new(table), ids, Dtype::Bf16));
    }
}

#[test]
fn a_request_can_be_given_up() {
    let Some(gpu) = support::gpu(&Options::default()) else { return };
    let random = Random::new(500, 96, 7, 1);
    let segments = [random.segment()];
    let table = Table::new(&segments).unwrap();
    let decoder = WgpuDecoder::new(&gpu, table).unwrap();
    for request in 0..20 {
        let ids = ids(request);
        let mut rows = Rows::new(Dtype::Bf16, 700 * 96);
        let batch = Batch::new(decoder.shape(), &ids, Missing::Zero, rows.output()).unwrap();
        {
            let mut future = pin!(decoder.decode_batch_async(batch));
            let _ = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
        support::assert_exact(&decoder, table, &ids);
    }
}
