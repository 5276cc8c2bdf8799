//! Requests on streams, by slices and by addresses, in graphs, from mappings: where there is a device.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use condprog_conformance::REQUIRE_VARIABLE;
use condprog_core::{
    BackendError, Decoder, Dtype, ErrorKind, Layout, Missing, Output, Rate, ReferenceDecoder, Segment, Table,
};
use condprog_cuda::cudarc::driver::DevicePtr;
use condprog_cuda::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use condprog_cuda::{
    Code, CudaDecoder, CudaError, Device, DeviceIds, DeviceOutput, IdWidth, MappedSegment, NONE_MISSING, PinnedMapping,
    PlacedSegment, Placement, RawRequest,
};

/// The device, or `None` where there is none, unless one is required. One test at a time has it: freeing memory
/// waits for the context, which a stream that is capturing in another thread would not survive.
fn device() -> Option<(Device, MutexGuard<'static, ()>)> {
    static ONE: Mutex<()> = Mutex::new(());
    let turn = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    match Device::open(0) {
        Ok(device) => Some((device, turn)),
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            let required = std::env::var(REQUIRE_VARIABLE).unwrap_or_default();
            assert!(!required.split(',').any(|name| name.trim() == "cuda"), "required, and not run: {error}");
            eprintln!("not run: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn layout(dim: u32, quarters: u32) -> Layout {
    Layout::new(dim, Rate::from_quarters(quarters).unwrap()).unwrap()
}

fn records(layout: Layout, rows: usize) -> Vec<u8> {
    (0..rows * layout.record_bytes()).map(|i| (i * 7 + i * i / 11) as u8).collect()
}

fn expected(table: Table<'_>, ids: &[i64]) -> Vec<u16> {
    let mut rows = vec![0; ids.len() * table.shape().dim as usize];
    ReferenceDecoder::new(table).decode(ids, Missing::Zero, Output::Bf16(&mut rows)).unwrap();
    rows
}

#[test]
fn slices_on_a_stream_with_the_first_missing_position() {
    let Some((device, _turn)) = device() else { return };
    let layout = layout(160, 8);
    let records = records(layout, 50);
    let segments = [Segment { rows: 50, layout, records: &records }];
    let table = Table::new(&segments).unwrap();
    let decoder = CudaDecoder::new(&device, table, Placement::Split { device_share: 0.5 }).unwrap();
    let stream = device.cudarc_context().unwrap().new_stream().unwrap();

    let ids = [49i64, 0, 24, 25, -1, 50, 7];
    let mut missing = stream.clone_htod(&[NONE_MISSING]).unwrap();
    let mut out = stream.alloc_zeros::<u16>(ids.len() * 160).unwrap();
    let wide = stream.clone_htod(&ids).unwrap();
    let output = DeviceOutput::Bf16(out.as_view_mut());
    decoder.enqueue(&stream, DeviceIds::I64(wide.as_view()), output, Some(missing.as_view_mut())).unwrap();
    assert_eq!(stream.clone_dtoh(&out).unwrap(), expected(table, &ids));
    assert_eq!(stream.clone_dtoh(&missing).unwrap(), [4]);

    // 32-bit ids, a part of a slice that is not at a multiple of 16 bytes, and nothing missing.
    let narrow = stream.clone_htod(&[9i32, 3, 8]).unwrap();
    let mut out = stream.alloc_zeros::<u16>(3 + 2 * 160).unwrap();
    let mut missing = stream.clone_htod(&[NONE_MISSING]).unwrap();
    let output = DeviceOutput::Bf16(out.slice_mut(3..));
    decoder.enqueue(&stream, DeviceIds::I32(narrow.slice(1..)), output, Some(missing.as_view_mut())).unwrap();
    let got = stream.clone_dtoh(&out).unwrap();
    assert_eq!(got[..3], [0; 3]);
    assert_eq!(got[3..], expected(table, &[3, 8]));
    assert_eq!(stream.clone_dtoh(&missing).unwrap(), [NONE_MISSING]);
}

#[test]
fn requests_that_do_not_fit_are_refused() {
    let Some((device, _turn)) = device() else { return };
    let layout = layout(16, 8);
    let records = records(layout, 4);
    let segments = [Segment { rows: 4, layout, records: &records }];
    let decoder = CudaDecoder::new(&device, Table::new(&segments).unwrap(), Placement::Device).unwrap();
    let stream = device.cudarc_context().unwrap().default_stream();
    let ids = stream.clone_htod(&[1i32, 2]).unwrap();
    let mut out = stream.alloc_zeros::<f32>(31).unwrap();
    let error = decoder
        .enqueue(&stream, DeviceIds::I32(ids.as_view()), DeviceOutput::F32(out.as_view_mut()), None)
        .unwrap_err();
    assert_eq!(error.to_string(), "output holds 31 values, expected 32 (ids times row width)");
    assert!(matches!(
        CudaDecoder::new(&device, Table::new(&segments).unwrap(), Placement::Split { device_share: 2.0 }),
        Err(CudaError::Share { .. })
    ));
    assert!(matches!(Device::open(1 << 20), Err(CudaError::NoDevice { .. })));
}

#[test]
fn a_graph_replays_with_other_ids() {
    let Some((device, _turn)) = device() else { return };
    let layout = layout(256, 8);
    let records = records(layout, 100);
    let segments = [Segment { rows: 100, layout, records: &records }];
    let table = Table::new(&segments).unwrap();
    let decoder = CudaDecoder::new(&device, table, Placement::Device).unwrap();
    // SAFETY: the slices are used on one stream and freed in its order.
    unsafe { device.cudarc_context().unwrap().disable_event_tracking() };
    let stream = device.cudarc_context().unwrap().new_stream().unwrap();
    let mut ids = stream.clone_htod(&[0i64; 5]).unwrap();
    let mut out = stream.alloc_zeros::<u16>(5 * 256).unwrap();
    decoder.enqueue(&stream, DeviceIds::I64(ids.as_view()), DeviceOutput::Bf16(out.as_view_mut()), None).unwrap();
    stream.synchronize().unwrap();

    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    decoder.enqueue(&stream, DeviceIds::I64(ids.as_view()), DeviceOutput::Bf16(out.as_view_mut()), None).unwrap();
    let graph = stream.end_capture(CUgraphInstantiate_flags(0)).unwrap().unwrap();
    for step in 0..3 {
        let now = [99 - step, step, -1, 50, step];
        stream.memcpy_htod(&now, &mut ids).unwrap();
        graph.launch().unwrap();
        assert_eq!(stream.clone_dtoh(&out).unwrap(), expected(table, &now));
    }
    // SAFETY: back to what other tests of this context rely on; the slices made here are not used any more.
    unsafe { device.cudarc_context().unwrap().enable_event_tracking() };
}

#[test]
fn mappings_and_addresses_hold_segments_at_any_offset() {
    let Some((device, _turn)) = device() else { return };
    let (first, second) = (layout(64, 9), layout(64, 16));
    let (first_records, second_records) = (records(first, 30), records(second, 20));
    // A header, then segments at odd offsets, as in a file.
    let mut file = vec![0xffu8; 13];
    file.extend_from_slice(&first_records);
    file.push(0xff);
    let at = file.len();
    file.extend_from_slice(&second_records);
    let segments = [
        Segment { rows: 30, layout: first, records: &first_records },
        Segment { rows: 20, layout: second, records: &second_records },
    ];
    let table = Table::new(&segments).unwrap();
    let ids: Vec<i64> = (-2..53).rev().collect();

    // SAFETY: a vector that is moved in and not touched again.
    let mapping = Arc::new(unsafe { PinnedMapping::new(&device, file) }.unwrap());
    let mapped =
        [MappedSegment { rows: 30, layout: first, offset: 13 }, MappedSegment { rows: 20, layout: second, offset: at }];
    let too_long = [MappedSegment { rows: 31, layout: second, offset: at }];
    let refused = CudaDecoder::from_mapping(&device, mapping.clone(), &too_long).unwrap_err();
    assert_eq!(refused.to_string(), "segment 0: its records reach beyond the mapping");
    let decoder = CudaDecoder::from_mapping(&device, mapping.clone(), &mapped).unwrap();
    let mut rows = vec![0u16; ids.len() * 64];
    decoder.decode(&ids, Missing::Zero, Output::Bf16(&mut rows)).unwrap();
    assert_eq!(rows, expected(table, &ids));

    // The same by address; the mapping outlives the decoder.
    let placed = mapped.map(|segment| PlacedSegment {
        rows: segment.rows,
        layout: segment.layout,
        records: mapping.address() + segment.offset as u64,
    });
    // SAFETY: the addresses are within the mapping, which lives until the end of this test.
    let decoder = unsafe { CudaDecoder::from_addresses(&device, &placed) }.unwrap();
    rows.fill(1);
    decoder.decode(&ids, Missing::Zero, Output::Bf16(&mut rows)).unwrap();
    assert_eq!(rows, expected(table, &ids));
}

#[test]
fn kernels_compiled_by_nvrtc_give_the_same() {
    let Some((device, _turn)) = device() else { return };
    let device = match Device::from_context(device.cudarc_context().unwrap(), Code::Compiled) {
        Err(CudaError::NoNvrtc) => return eprintln!("not run: there is no NVRTC"),
        other => other.unwrap(),
    };
    let layout = layout(256, 10);
    let records = records(layout, 10);
    let segments = [Segment { rows: 10, layout, records: &records }];
    let table = Table::new(&segments).unwrap();
    let decoder = CudaDecoder::new(&device, table, Placement::Device).unwrap();
    let mut rows = vec![0u16; 4 * 256];
    decoder.decode(&[9, 0, -1, 5], Missing::Zero, Output::Bf16(&mut rows)).unwrap();
    assert_eq!(rows, expected(table, &[9, 0, -1, 5]));
}

#[test]
fn raw_requests_on_a_raw_stream() {
    let Some((device, _turn)) = device() else { return };
    let layout = layout(256, 12);
    let records = records(layout, 10);
    let segments = [Segment { rows: 10, layout, records: &records }];
    let table = Table::new(&segments).unwrap();
    let decoder = CudaDecoder::new(&device, table, Placement::Host).unwrap();
    let stream = device.cudarc_context().unwrap().default_stream();
    let ids = stream.clone_htod(&[3i32, 11, 9]).unwrap();
    let out = stream.alloc_zeros::<u16>(3 * 256).unwrap();
    let request = RawRequest {
        ids: ids.device_ptr(&stream).0,
        id_width: IdWidth::I32,
        count: 3,
        out: out.device_ptr(&stream).0,
        dtype: Dtype::Bf16,
        missing: 0,
    };
    // SAFETY: addresses of live slices of these lengths, which are used on this stream only.
    unsafe { decoder.enqueue_raw(stream.cu_stream().cast(), &request) }.unwrap();
    // SAFETY: as above; no ids, so nothing is looked at.
    unsafe { decoder.enqueue_raw(stream.cu_stream().cast(), &RawRequest { count: 0, ..request }) }.unwrap();
    assert_eq!(stream.clone_dtoh(&out).unwrap(), expected(table, &[3, 11, 9]));
}

#[test]
fn requests_of_several_threads_and_of_many_pieces() {
    let Some((device, _turn)) = device() else { return };
    let layout = layout(1024, 4);
    let records = records(layout, 40);
    let segments = [Segment { rows: 40, layout, records: &records }];
    let table = Table::new(&segments).unwrap();
    let decoder = CudaDecoder::new(&device, table, Placement::Device).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3i64 {
            let decoder = &decoder;
            scope.spawn(move || {
                let ids: Vec<i64> = (0..60).map(|i| (i * (thread + 3)) % 45).collect();
                let mut rows = vec![0u16; ids.len() * 1024];
                decoder.decode(&ids, Missing::Zero, Output::Bf16(&mut rows)).unwrap();
                assert_eq!(rows, expected(table, &ids));
            });
        }
    });
    // More rows than are copied back at a time.
    let ids = vec![-1i64; 40_000];
    let mut rows = vec![1u16; ids.len() * 1024];
    decoder.decode(&ids, Missing::Zero, Output::Bf16(&mut rows)).unwrap();
    assert!(rows.iter().all(|&value| value == 0));
}
