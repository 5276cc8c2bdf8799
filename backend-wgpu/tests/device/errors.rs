//! What goes wrong is an error with a kind, never a panic.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use condprog_core::{BackendError, Batch, Decoder, Dtype, ErrorKind, Missing, Table, TableShape};
use condprog_wgpu::{Error, Gpu, Options, WgpuDecoder, adapters};

use crate::support::{self, Random, Rows};

#[test]
fn an_adapter_that_is_not_there_is_unavailable() {
    let mut options = Options::default();
    options.adapter = Some("no adapter has this name".into());
    let error = Gpu::open(&options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let listed = adapters();
    assert_eq!(listed.is_empty(), !error.to_string().contains("no adapter has this name"), "{error}");
    assert!(listed.iter().all(|adapter| error.to_string().contains(&adapter.name)), "{error}");
}

#[test]
fn an_adapter_is_found_by_a_part_of_its_name() {
    for adapter in adapters() {
        let mut options = Options::default();
        options.adapter = Some(adapter.name[..adapter.name.len() / 2].to_uppercase());
        let Some(gpu) = support::gpu(&options) else { return };
        assert!(!gpu.adapter().name.is_empty() && gpu.adapter().to_string().contains("vulkan"), "{}", gpu.adapter());
    }
}

#[test]
fn a_kernel_that_does_not_compile_is_refused() {
    if support::gpu(&Options::default()).is_none() {
        return;
    }
    for source in ["not WGSL", "@compute @workgroup_size(1) fn decode_bf16() {}"] {
        let error = pollster::block_on(Gpu::with_kernel(&Options::default(), source)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Other, "{error}");
        assert!(matches!(&error, Error::Refused { what: "compiling the kernel", .. }), "{error}");
    }
}

#[test]
fn a_table_that_does_not_fit_names_both_sizes() {
    let mut options = Options::default();
    options.table_bytes = Some(10_000);
    let Some(gpu) = support::gpu(&options) else { return };
    let random = Random::new(1000, 256, 8, 1);
    let segments = [random.segment()];
    let error = WgpuDecoder::new(&gpu, Table::new(&segments).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert_eq!(error.to_string(), "table takes 66012 bytes of device memory, there is room for 10000");
}

#[test]
fn a_record_longer_than_a_binding_is_unsupported() {
    let mut options = Options::default();
    options.binding_bytes = Some(4096);
    let Some(gpu) = support::gpu(&options) else { return };
    let random = Random::new(3, 16_384, 8, 1);
    let segments = [random.segment()];
    let error = WgpuDecoder::new(&gpu, Table::new(&segments).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(error.to_string(), "record is 4098 bytes, expected at most 4084 in one binding");
}

#[test]
fn a_batch_for_another_table_is_a_mismatch() {
    let Some(gpu) = support::gpu(&Options::default()) else { return };
    let random = Random::new(10, 16, 8, 1);
    let segments = [random.segment()];
    let decoder = WgpuDecoder::new(&gpu, Table::new(&segments).unwrap()).unwrap();
    let other = TableShape { rows: 11, dim: 16 };
    let mut rows = Rows::new(Dtype::Bf16, 16);
    let batch = Batch::new(other, &[10], Missing::Error, rows.output()).unwrap();
    assert_eq!(decoder.decode_batch(batch).unwrap_err().kind(), ErrorKind::ShapeMismatch);
}

#[test]
fn a_lost_device_is_an_error_ever_after() {
    let Some(gpu) = support::gpu(&Options::default()) else { return };
    let random = Random::new(100, 256, 8, 1);
    let segments = [random.segment()];
    let table = Table::new(&segments).unwrap();
    let decoder = WgpuDecoder::new(&gpu, table).unwrap();
    let ids: Vec<i64> = (0..100).collect();
    support::assert_exact(&decoder, table, &ids);

    // One request is under way when the device goes.
    let mut rows = Rows::new(Dtype::F32, 100 * 256);
    let batch = Batch::new(decoder.shape(), &ids, Missing::Error, rows.output()).unwrap();
    let mut pending = pin!(decoder.decode_batch_async(batch));
    let _ = pending.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    gpu.destroy();
    // It may have been fast enough.
    match pollster::block_on(pending) {
        Ok(()) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}"),
    }

    for _ in 0..2 {
        let mut rows = Rows::new(Dtype::Bf16, 100 * 256);
        let batch = Batch::new(decoder.shape(), &ids, Missing::Error, rows.output()).unwrap();
        assert_eq!(decoder.decode_batch(batch).unwrap_err().kind(), ErrorKind::DeviceLost);
        let batch = Batch::new(decoder.shape(), &ids, Missing::Error, rows.output()).unwrap();
        assert_eq!(decoder.decode_timed(batch).unwrap_err().kind(), ErrorKind::DeviceLost);
        assert_eq!(WgpuDecoder::new(&gpu, table).unwrap_err().kind(), ErrorKind::DeviceLost);
    }
}
