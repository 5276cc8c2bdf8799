//! A device and queue that somebody else has opened.

use std::sync::{Arc, Mutex};

use condprog_core::{BackendError, Batch, Decoder, Dtype, ErrorKind, Missing, Table};
use condprog_wgpu::{Error, Gpu, Options, WgpuDecoder, wgpu};

use crate::support::{self, Random, Rows};

/// The device that the other tests would open, with these limits.
fn device(limits: wgpu::Limits) -> Option<(wgpu::Device, wgpu::Queue)> {
    let name = support::gpu(&Options::default())?.adapter().name.clone();
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle_from_env());
    pollster::block_on(async {
        let adapters = instance.enumerate_adapters(wgpu::Backends::all()).await;
        let adapter = adapters.into_iter().find(|adapter| adapter.get_info().name == name).unwrap();
        let descriptor = wgpu::DeviceDescriptor { required_limits: limits, ..Default::default() };
        Some(adapter.request_device(&descriptor).await.unwrap())
    })
}

#[test]
fn a_device_of_the_caller_decodes_beside_its_own_work() {
    let Some((device, queue)) = device(wgpu::Limits::default()) else { return };
    let reports = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&reports);
    device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| seen.lock().unwrap().push(error.to_string())));

    let gpu = Gpu::from_device(&device, &queue, &Options::default()).unwrap();
    assert_eq!(gpu.adapter().name, device.adapter_info().name);
    let random = Random::new(1000, 256, 8, 1);
    let segments = [random.segment()];
    let table = Table::new(&segments).unwrap();
    let decoder = WgpuDecoder::new(&gpu, table).unwrap();
    let ids: Vec<i64> = (-3..1003).rev().collect();
    support::assert_exact(&decoder, table, &ids);

    // A mistake of the owner goes to the owner's handler, and to no request.
    let _ = device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 16,
        usage: wgpu::BufferUsages::empty(),
        mapped_at_creation: false,
    });
    assert_eq!(reports.lock().unwrap().len(), 1);
    support::assert_exact(&decoder, table, &ids);

    // Nor does one of this crate's requests go to the handler.
    let error = WgpuDecoder::new(&gpu, Table::new(&[Random::new(1, 65_536, 16, 1).segment()]).unwrap());
    assert!(error.is_ok());
    assert_eq!(reports.lock().unwrap().len(), 1);
}

#[test]
fn small_limits_split_tables_and_requests() {
    let limits = wgpu::Limits {
        max_storage_buffer_binding_size: 256 << 10,
        max_buffer_size: 256 << 10,
        max_compute_workgroups_per_dimension: 128,
        ..wgpu::Limits::downlevel_defaults()
    };
    let Some((device, queue)) = device(limits) else { return };
    let gpu = Gpu::from_device(&device, &queue, &Options::default()).unwrap();
    let random = Random::new(9000, 256, 8, 1);
    let segments = [random.segment()];
    let table = Table::new(&segments).unwrap();
    let decoder = WgpuDecoder::new(&gpu, table).unwrap();
    let ids: Vec<i64> = (0..9000).step_by(7).collect();
    support::assert_exact(&decoder, table, &ids);
    // The widest row there is.
    let random = Random::new(3, 65_536, 16, 1);
    let segments = [random.segment()];
    let table = Table::new(&segments).unwrap();
    support::assert_exact(&WgpuDecoder::new(&gpu, table).unwrap(), table, &[2, -1, 0]);
}

#[test]
fn a_device_with_too_low_a_limit_is_refused() {
    let limits = wgpu::Limits { max_bind_groups: 1, ..Default::default() };
    let Some((device, queue)) = device(limits) else { return };
    let error = Gpu::from_device(&device, &queue, &Options::default()).unwrap_err();
    assert_eq!(error, Error::Limit { limit: "max_bind_groups", got: 1, expected: 2 });
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(error.to_string(), "device has the limit max_bind_groups of 1, expected at least 2");
}

#[test]
fn a_loss_shows_in_requests_or_is_passed_on() {
    let random = Random::new(100, 256, 8, 1);
    let segments = [random.segment()];
    let table = Table::new(&segments).unwrap();
    for reported in [false, true] {
        let Some((device, queue)) = device(wgpu::Limits::default()) else { return };
        let gpu = Gpu::from_device(&device, &queue, &Options::default()).unwrap();
        let decoder = WgpuDecoder::new(&gpu, table).unwrap();
        support::assert_exact(&decoder, table, &[5, 99]);
        device.destroy();
        if reported {
            gpu.report_lost("its owner destroyed it");
        }
        let mut rows = Rows::new(Dtype::Bf16, 2 * 256);
        let batch = Batch::new(decoder.shape(), &[1, 2], Missing::Error, rows.output()).unwrap();
        let error = decoder.decode_batch(batch).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
        assert_eq!(error.to_string().contains("its owner destroyed it"), reported, "{error}");
    }
}
