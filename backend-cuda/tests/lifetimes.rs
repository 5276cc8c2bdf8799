//! In which order work is waited for and things are given back, and what becomes of them when the driver does not wait.
//!
//! Needs the driver without a GPU (`kernels/host-shim/cpp/driver.cpp`), which fails on demand and writes down what it is
//! asked to do; with a real one, or none, there is nothing to see. Each scenario runs in a process of its own.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use condprog_core::{BackendError, DecodeError, Decoder, Dtype, Layout, Missing, Output as Rows, Rate, Segment, Table};
use condprog_cuda::cudarc::driver::DevicePtr;
use condprog_cuda::cudarc::driver::result::DriverError;
use condprog_cuda::cudarc::driver::sys::CUresult;
use condprog_cuda::{CudaDecoder, CudaError, Device, IdWidth, MappedSegment, PinnedMapping, Placement, RawRequest};

const LOG: &str = "CONDPROG_DRIVER_LOG";
const FAIL: &str = "CONDPROG_DRIVER_FAIL";
const ROWS: u64 = 10;

fn layout() -> Layout {
    Layout::new(16, Rate::TWO).unwrap()
}

fn is_simulated() -> bool {
    let simulated = Device::open(0).is_ok_and(|device| device.name().contains("simulated"));
    if !simulated {
        eprintln!("not run: this driver does not say what it is asked to do");
    }
    simulated
}

/// Runs an ignored test of this file in a process of its own; gives what it printed and the driver's log.
fn run(scenario: &str, fail: &str) -> (Output, Vec<String>) {
    let name = format!("lifetimes-{}-{scenario}-{fail}.log", std::process::id());
    let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_file(&log);
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", scenario, "--ignored", "--nocapture", "--test-threads=1"])
        .env(LOG, &log)
        .env("CONDPROG_TEST_FAIL", fail)
        .env_remove(FAIL)
        .output()
        .unwrap();
    let lines = fs::read_to_string(&log).unwrap_or_default().lines().map(String::from).collect();
    let _ = fs::remove_file(&log);
    (output, lines)
}

/// From here on the driver fails as the test wants it.
fn fail_from_here() {
    let plan = std::env::var("CONDPROG_TEST_FAIL").unwrap();
    // SAFETY: of this process, which runs one test on one thread, nobody else reads the environment now.
    unsafe { std::env::set_var(FAIL, plan) }
}

/// Whether all that was page-locked is still mapped.
fn locked_is_mapped() -> bool {
    let log = fs::read_to_string(std::env::var(LOG).unwrap()).unwrap();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let ranges: Vec<(u64, u64)> = maps
        .lines()
        .filter_map(|line| line.split(' ').next()?.split_once('-'))
        .map(|(start, end)| (u64::from_str_radix(start, 16).unwrap(), u64::from_str_radix(end, 16).unwrap()))
        .collect();
    let locked = log.lines().filter_map(|line| line.strip_prefix("lock "));
    let mut starts = locked.map(|line| line.split(' ').next().unwrap().parse::<u64>().unwrap());
    starts.all(|start| ranges.iter().any(|&(from, to)| (from..to).contains(&start)))
}

/// Memory that says when it is dropped.
#[derive(Debug)]
struct Watched(Vec<u8>, Arc<AtomicBool>);

impl AsRef<[u8]> for Watched {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.1.store(true, Ordering::SeqCst);
    }
}

/// Two decoders with their last request still under way, dropped after the device they were made with.
fn drop_at_work(before_the_end: impl FnOnce(&Device)) {
    let device = Device::open(0).unwrap();
    let records = vec![0x5a; ROWS as usize * layout().record_bytes()];
    let segments = [Segment { rows: ROWS, layout: layout(), records: &records }];
    let table = Table::new(&segments).unwrap();
    let decoder = CudaDecoder::new(&device, table, Placement::Split { device_share: 0.5 }).unwrap();
    let dropped = Arc::new(AtomicBool::new(false));
    // SAFETY: a vector that is moved in and not touched again.
    let mapping = unsafe { PinnedMapping::new(&device, Watched(records.clone(), dropped.clone())) }.unwrap();
    let mapped = [MappedSegment { rows: ROWS, layout: layout(), offset: 0 }];
    let second = CudaDecoder::from_mapping(&device, Arc::new(mapping), &mapped).unwrap();

    let stream = device.cudarc_context().unwrap().default_stream();
    let ids = stream.clone_htod(&[1i64, 9]).unwrap();
    let out = stream.alloc_zeros::<u16>(32).unwrap();
    let request = RawRequest {
        ids: ids.device_ptr(&stream).0,
        id_width: IdWidth::I64,
        count: 2,
        out: out.device_ptr(&stream).0,
        dtype: Dtype::Bf16,
        missing: 0,
    };
    let mut rows = [0u16; 32];
    for decoder in [&decoder, &second] {
        decoder.decode(&[1, 9], Missing::Zero, Rows::Bf16(&mut rows)).unwrap();
        // SAFETY: live slices of these lengths, on the stream that wrote the ids.
        unsafe { decoder.enqueue_raw(stream.cu_stream().cast(), &request) }.unwrap();
    }
    // The owner of these would wait and free, which is not what is looked at.
    std::mem::forget((ids, out, stream));
    before_the_end(&device);
    drop(device);
    drop(decoder);
    drop(second);
    println!("ended: memory dropped {}, locked mapped {}", dropped.load(Ordering::SeqCst), locked_is_mapped());
}

#[test]
#[ignore = "a part of other tests"]
fn scenario_drop() {
    drop_at_work(|_| fail_from_here());
}

#[test]
#[ignore = "a part of other tests"]
fn scenario_drop_with_an_error_left_behind() {
    drop_at_work(|device| {
        device.cudarc_context().unwrap().record_err::<()>(Err(DriverError(CUresult::CUDA_ERROR_INVALID_VALUE)));
    });
}

#[test]
#[ignore = "a part of other tests"]
fn scenario_decode() {
    let device = Device::open(0).unwrap();
    let records = vec![0x5a; ROWS as usize * layout().record_bytes()];
    let segments = [Segment { rows: ROWS, layout: layout(), records: &records }];
    let decoder = CudaDecoder::new(&device, Table::new(&segments).unwrap(), Placement::Device).unwrap();
    fail_from_here();
    let mut rows = [0u16; 32];
    match decoder.decode(&[1, 9], Missing::Zero, Rows::Bf16(&mut rows)) {
        Ok(()) => println!("ended: decoded"),
        Err(DecodeError::Backend(error)) => println!("ended: {:?}: {error}", CudaError::kind(&error)),
        Err(DecodeError::Batch(error)) => println!("ended: {error}"),
    }
}

/// What happens to memory and code behind the last launch.
fn at_the_end(log: &[String]) -> Vec<&str> {
    let launch = log.iter().rposition(|line| line.starts_with("launch ")).expect("something was launched");
    let names = log[launch + 1..].iter().filter_map(|line| line.split(' ').next());
    names.filter(|name| ["wait-context", "free", "unlock", "unload"].contains(name)).collect()
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn memory_and_kernels_go_when_the_work_is_done() {
    if !is_simulated() {
        return;
    }
    for scenario in ["scenario_drop", "scenario_drop_with_an_error_left_behind"] {
        let (output, log) = run(scenario, "");
        let said = said(&output);
        assert!(said.contains("ended: memory dropped true"), "{scenario}: {said}");
        let end = at_the_end(&log);
        assert_eq!(end.first(), Some(&"wait-context"), "{scenario}: {end:?}");
        // Each is waited for, whatever went before it: two stagings of two, two segment tables and a share of the rows;
        // the other share and the mapping; the kernels, at last.
        let pairs: Vec<_> = end.as_chunks::<2>().0.iter().map(|[wait, what]| (*wait, *what)).collect();
        assert!(pairs.iter().all(|(wait, what)| *wait == "wait-context" && *what != "wait-context"), "{end:?}");
        let count = |name: &str| end.iter().filter(|what| **what == name).count();
        assert_eq!((count("free"), count("unlock"), count("unload"), end.len()), (7, 2, 1, 20), "{scenario}: {end:?}");
        assert_eq!(end.last(), Some(&"unload"), "{scenario}");
    }
}

#[test]
fn what_cannot_be_waited_for_is_leaked() {
    if !is_simulated() {
        return;
    }
    for code in [700, 900] {
        let (output, log) = run("scenario_drop", &format!("cuCtxSynchronize={code}"));
        let said = said(&output);
        assert!(said.contains("ended: memory dropped false, locked mapped true"), "{said}");
        assert_eq!(at_the_end(&log), [""; 0], "{code}");
    }
    // What stays page-locked stays mapped.
    let (output, log) = run("scenario_drop", "cuMemHostUnregister=1");
    let said = said(&output);
    assert!(said.contains("ended: memory dropped false, locked mapped true"), "{said}");
    assert!(!at_the_end(&log).contains(&"unlock"));
}

#[test]
fn a_request_that_cannot_be_waited_for_gives_nothing_back_to_its_caller() {
    if !is_simulated() {
        return;
    }
    for (fail, expected) in [
        ("", "decoded"),
        // Nothing is under way on a device that is lost, or in a context that has no work left.
        ("cuStreamSynchronize=719,cuCtxSynchronize=719", "DeviceLost: decoding"),
        ("cuStreamSynchronize=214,cuCtxSynchronize=214", "DeviceLost: decoding"),
        ("cuStreamSynchronize=400", "Other: decoding"),
    ] {
        let (output, _) = run("scenario_decode", fail);
        let said = said(&output);
        assert!(said.contains(&format!("ended: {expected}")), "{fail}: {said}");
    }
    let (output, _) = run("scenario_decode", "cuStreamSynchronize=400,cuCtxSynchronize=400");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("so this ends here"), "{output:?}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("ended:"));
}

/// The simulated driver itself: an upload from pageable memory has not landed when the call returns.
#[test]
fn the_simulated_driver_lets_uploads_land_late() {
    if !is_simulated() {
        return;
    }
    use condprog_cuda::cudarc::driver::result;
    let device = Device::open(0).unwrap();
    device.cudarc_context().unwrap().bind_to_thread().unwrap();
    let stream = device.cudarc_context().unwrap().new_stream().unwrap();
    let mut got = [0u8; 16];
    // SAFETY: an allocation of 16 bytes, which is freed at the end; the stream is not ordered with the default one.
    unsafe {
        let at = result::malloc_sync(16).unwrap();
        result::memcpy_htod_sync(at, &[7u8; 16]).unwrap();
        result::memcpy_dtoh_async(&mut got, at, stream.cu_stream()).unwrap();
        assert_ne!(got, [7; 16]);
        result::stream::synchronize(std::ptr::null_mut()).unwrap();
        result::memcpy_dtoh_async(&mut got, at, stream.cu_stream()).unwrap();
        assert_eq!(got, [7; 16]);
        result::free_sync(at).unwrap();
    }
}
