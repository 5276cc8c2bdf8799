//! What a caller sees when there is no driver, and when a driver refuses: errors with a kind, never a panic.
//!
//! Refusals come from the driver without a GPU (`kernels/host-shim/cpp/driver.cpp`), which fails on demand; with a real
//! one, or none, only the first test has something to say.

use std::process::Command;

use condprog_core::{BackendError, Decoder, ErrorKind, Layout, Missing, Output, Rate, Segment, Table};
use condprog_cuda::{CudaDecoder, CudaError, Device, Placement, device_count};

#[test]
fn without_a_driver_or_a_device_everything_is_unavailable() {
    match device_count() {
        Ok(0) => assert!(matches!(Device::open(0), Err(CudaError::NoDevice { ordinal: 0, count: 0 }))),
        Ok(count) => assert!(matches!(Device::open(count), Err(CudaError::NoDevice { .. }))),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert_eq!(Device::open(0).unwrap_err().kind(), ErrorKind::Unavailable);
        }
    }
    match condprog_cuda::compile("extern \"C\" __global__ void nothing() {}", "compute_90") {
        Ok(ptx) => assert!(ptx.contains(".entry nothing")),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
    }
}

/// Opens, places and decodes, and says how that ended. Run by the next test in a process of its own.
#[test]
#[ignore = "a part of the next test"]
fn one_decode() {
    let decode = || -> Result<(), CudaError> {
        let device = Device::open(0)?;
        let layout = Layout::new(16, Rate::TWO).unwrap();
        let records = [0x5a; 60];
        let segments = [Segment { rows: 10, layout, records: &records }];
        let decoder =
            CudaDecoder::new(&device, Table::new(&segments).unwrap(), Placement::Split { device_share: 0.5 })?;
        let mut rows = [0u16; 32];
        decoder.decode(&[1, 9], Missing::Zero, Output::Bf16(&mut rows)).map_err(|error| match error {
            condprog_core::DecodeError::Backend(error) => error,
            condprog_core::DecodeError::Batch(error) => CudaError::Request(error),
        })
    };
    match decode() {
        Ok(()) => println!("ended: decoded"),
        Err(error) => println!("ended: {:?}: {error}", error.kind()),
    }
}

#[test]
fn every_refusal_of_the_driver_is_an_error_with_a_kind() {
    match Device::open(0) {
        Ok(device) if device.name().contains("simulated") => {}
        _ => return eprintln!("not run: this driver does not fail on demand"),
    }
    for (fail, capability, expected) in [
        ("", "90", "decoded"),
        ("", "75", "Unavailable: no GPU: driver simulated on the CPU has compute capability 7.5, expected 9.0"),
        ("cuInit=100", "90", "Unavailable: no CUDA device 0: there are 0"),
        ("cuInit=34", "90", "Unavailable: starting the driver"),
        ("cuDevicePrimaryCtxRetain=46", "90", "Unavailable: opening the device's context"),
        ("cuModuleLoadData=222", "90", "Unavailable: loading the kernels: the driver says CUDA_ERROR_UNSUPPORTED_PTX"),
        ("cuModuleGetFunction=500", "90", "Other: looking up a kernel"),
        ("cuMemAlloc_v2=2", "90", "OutOfMemory: out of device memory: 32 bytes asked for, 8589934592 are free"),
        ("cuMemHostRegister_v2=2", "90", "OutOfMemory: out of page-locked host memory"),
        ("cuMemHostRegister_v2=712", "90", "Other: page-locking host memory"),
        ("cuMemcpyHtoD_v2=700", "90", "DeviceLost: copying to the device"),
        ("cuStreamCreate=2", "90", "OutOfMemory: making a stream"),
        ("cuLaunchKernel=719", "90", "DeviceLost: launching the decoder"),
        ("cuLaunchKernel=701", "90", "Other: launching the decoder"),
        // Of requests: tests/lifetimes.rs.
        ("cuStreamSynchronize=719", "90", "DeviceLost: waiting for a copy to the device"),
        ("cuStreamSynchronize=214", "90", "DeviceLost: waiting for a copy to the device"),
    ] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "one_decode", "--ignored", "--nocapture"])
            .env("CONDPROG_DRIVER_FAIL", fail)
            .env("CONDPROG_DRIVER_CAPABILITY", capability)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains(&format!("ended: {expected}")), "{fail}: {said}");
    }
}
