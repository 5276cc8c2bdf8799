//! Requests on a stream and in a CUDA graph.
//!
//! A table of random records is put on the device; a request of 48 ids is enqueued once, then captured in a graph and
//! replayed with other ids, as a serving stack does for every token. The rows are compared with the reference decoder.

use std::error::Error;
use std::process::ExitCode;

use condprog_core::{
    BackendError, Decoder, ErrorKind, Layout, Missing, Output, Rate, ReferenceDecoder, Segment, Table,
};
use condprog_cuda::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use condprog_cuda::{CudaDecoder, Device, DeviceIds, DeviceOutput, Placement};

const ROWS: u64 = 1000;
const DIM: usize = 256;
const IDS: usize = 48;

fn main() -> ExitCode {
    let device = match Device::open(0) {
        Ok(device) => device,
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            println!("not run: {error}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    match run(&device) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(device: &Device) -> Result<(), Box<dyn Error>> {
    println!("device: {}", device.name());
    let layout = Layout::new(DIM as u32, Rate::TWO)?;
    let records: Vec<u8> = (0..ROWS as usize * layout.record_bytes()).map(|i| (i * i / 7 + i) as u8).collect();
    let segments = [Segment { rows: ROWS, layout, records: &records }];
    let table = Table::new(&segments)?;
    let decoder = CudaDecoder::new(device, table, Placement::Device)?;

    // The slices of this example are used on one stream only, so cudarc need not order streams by events; a graph could
    // not capture waiting for them.
    // SAFETY: there is one stream, and the slices are freed in its order.
    unsafe { device.cudarc_context()?.disable_event_tracking() };
    let stream = device.cudarc_context()?.new_stream()?;
    let mut ids = stream.clone_htod(&request(0))?;
    let mut out = stream.alloc_zeros::<u16>(IDS * DIM)?;

    decoder.enqueue(&stream, DeviceIds::I64(ids.as_view()), DeviceOutput::Bf16(out.as_view_mut()), None)?;
    compare(table, &request(0), &stream.clone_dtoh(&out)?)?;
    println!("enqueued: {IDS} rows as the reference gives them");

    // Captured once, with these addresses and this number of ids.
    stream.synchronize()?;
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    let enqueued = decoder.enqueue(&stream, DeviceIds::I64(ids.as_view()), DeviceOutput::Bf16(out.as_view_mut()), None);
    let graph = stream.end_capture(CUgraphInstantiate_flags(0))?.ok_or("nothing was captured")?;
    enqueued?;
    for step in 1..4 {
        stream.memcpy_htod(&request(step), &mut ids)?;
        graph.launch()?;
        compare(table, &request(step), &stream.clone_dtoh(&out)?)?;
    }
    println!("replayed: 3 times with other ids, the same");
    Ok(())
}

/// Ids of a step, one of them padding.
fn request(step: i64) -> Vec<i64> {
    (0..IDS as i64).map(|i| if i == 7 { -1 } else { (i * 131 + step * 17) % ROWS as i64 }).collect()
}

fn compare(table: Table<'_>, ids: &[i64], got: &[u16]) -> Result<(), Box<dyn Error>> {
    let mut expected = vec![0u16; IDS * DIM];
    ReferenceDecoder::new(table).decode(ids, Missing::Zero, Output::Bf16(&mut expected))?;
    if got == expected { Ok(()) } else { Err("rows differ from the reference".into()) }
}
