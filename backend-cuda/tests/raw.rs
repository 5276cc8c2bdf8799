//! Addresses and handles alone, as a host in C++ or Python has them: what needs no feature. Where there is a device.

use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use condprog_conformance::REQUIRE_VARIABLE;
use condprog_core::{
    BackendError, Decoder, Dtype, ErrorKind, Layout, Missing, Output, Rate, ReferenceDecoder, Segment, Table,
};
use condprog_cuda::{
    Code, CudaDecoder, CudaError, Device, IdWidth, MappedSegment, NONE_MISSING, PinnedMapping, Placement, RawRequest,
    device_count,
};
use cudarc::driver::result::{self, ctx, primary_ctx};
use cudarc::driver::sys::{self, CUcontext};

/// Whether there is a device, unless one is required; tests take turns, as the driver's log of one is not another's.
fn turn() -> Option<MutexGuard<'static, ()>> {
    static ONE: Mutex<()> = Mutex::new(());
    let turn = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let none = match device_count() {
        Ok(0) => "there is no device".to_owned(),
        Ok(_) => return Some(turn),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            error.to_string()
        }
    };
    let required = std::env::var(REQUIRE_VARIABLE).unwrap_or_default();
    assert!(!required.split(',').any(|name| name.trim() == "cuda"), "required, and not run: {none}");
    eprintln!("not run: {none}");
    None
}

const ROWS: u64 = 50;
const DIM: usize = 64;

fn layout() -> Layout {
    Layout::new(DIM as u32, Rate::TWO).unwrap()
}

fn records() -> Vec<u8> {
    (0..ROWS as usize * layout().record_bytes()).map(|i| (i * 7 + i * i / 11) as u8).collect()
}

fn expected(records: &[u8], ids: &[i64]) -> Vec<u16> {
    let segments = [Segment { rows: ROWS, layout: layout(), records }];
    let mut rows = vec![0; ids.len() * DIM];
    let table = Table::new(&segments).unwrap();
    ReferenceDecoder::new(table).decode(ids, Missing::Zero, Output::Bf16(&mut rows)).unwrap();
    rows
}

/// Decodes by addresses on a stream made here, and gives the rows and the first missing position.
///
/// # Safety
/// `context` must be the decoder's.
unsafe fn decode_raw(context: CUcontext, decoder: &CudaDecoder, ids: &[i64]) -> (Vec<u16>, u64) {
    let mut rows = vec![0u16; ids.len() * DIM];
    let mut missing = [0u64];
    // SAFETY: the context is live (the caller's promise); memory of these sizes is made, used and freed here, all on
    // one stream or after it was waited for.
    unsafe {
        sys::cuCtxPushCurrent_v2(context).result().unwrap();
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking).unwrap();
        let request = RawRequest {
            ids: result::malloc_sync(size_of_val(ids)).unwrap(),
            id_width: IdWidth::I64,
            count: ids.len() as u64,
            out: result::malloc_sync(size_of_val(&rows[..])).unwrap(),
            dtype: Dtype::Bf16,
            missing: result::malloc_sync(8).unwrap(),
        };
        result::memcpy_htod_async(request.ids, ids, stream).unwrap();
        result::memset_d8_async(request.missing, 0xff, 8, stream).unwrap();
        // Whatever is current now need not be what the decoder is in.
        sys::cuCtxPopCurrent_v2(&mut null_mut()).result().unwrap();
        leaves_the_context(|| decoder.enqueue_raw(stream.cast(), &request).unwrap());
        sys::cuCtxPushCurrent_v2(context).result().unwrap();
        result::memcpy_dtoh_async(&mut rows, request.out, stream).unwrap();
        result::memcpy_dtoh_async(&mut missing, request.missing, stream).unwrap();
        result::stream::synchronize(stream).unwrap();
        for address in [request.ids, request.out, request.missing] {
            result::free_sync(address).unwrap();
        }
        result::stream::destroy(stream).unwrap();
        sys::cuCtxPopCurrent_v2(&mut null_mut()).result().unwrap();
    }
    (rows, missing[0])
}

/// Runs a call and looks whether the current context is the one from before.
fn leaves_the_context<T>(call: impl FnOnce() -> T) -> T {
    let before = ctx::get_current().unwrap();
    let value = call();
    assert_eq!(ctx::get_current().unwrap(), before);
    value
}

/// All that a table goes through, with whatever context is current.
fn whole_life(open: impl FnOnce() -> Result<Device, CudaError>) {
    let records = records();
    let ids = [49i64, 0, -1, 25, 50, 7];
    let device = leaves_the_context(open).unwrap();
    let context: CUcontext = device.raw_context().cast();
    assert!(leaves_the_context(|| device.free_bytes()).unwrap() > 0);

    let segments = [Segment { rows: ROWS, layout: layout(), records: &records }];
    let table = Table::new(&segments).unwrap();
    let split = Placement::Split { device_share: 0.5 };
    let decoder = leaves_the_context(|| CudaDecoder::new(&device, table, split)).unwrap();
    // SAFETY: the context that the device of the decoder gave.
    assert_eq!(unsafe { decode_raw(context, &decoder, &ids) }, (expected(&records, &ids), 2));
    // SAFETY: as above.
    assert_eq!(unsafe { decode_raw(context, &decoder, &[3, 4]) }, (expected(&records, &[3, 4]), NONE_MISSING));
    let mut rows = vec![0u16; ids.len() * DIM];
    leaves_the_context(|| decoder.decode(&ids, Missing::Zero, Output::Bf16(&mut rows))).unwrap();
    assert_eq!(rows, expected(&records, &ids));

    // SAFETY: a vector that is moved in and not touched again.
    let mapping = leaves_the_context(|| unsafe { PinnedMapping::new(&device, records.clone()) }).unwrap();
    let mapped = [MappedSegment { rows: ROWS, layout: layout(), offset: 0 }];
    let mapped = leaves_the_context(|| CudaDecoder::from_mapping(&device, mapping.into(), &mapped)).unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { decode_raw(context, &mapped, &ids) }.0, expected(&records, &ids));
    leaves_the_context(|| drop((decoder, mapped, device)));
}

#[test]
fn calls_leave_the_current_context_as_it_was() {
    let Some(_turn) = turn() else { return };
    // Threads begin without one.
    assert_eq!(ctx::get_current().unwrap(), None);
    whole_life(|| Device::open(0));
    assert_eq!(ctx::get_current().unwrap(), None);

    // SAFETY: device 0 is there; the context is destroyed at the end, when nothing is left in it.
    unsafe {
        let other = ctx::create_v4(null_mut(), 0, result::device::get(0).unwrap()).unwrap();
        assert_eq!(ctx::get_current().unwrap(), Some(other));
        // In another context than the current one, and in the current one, which is the caller's.
        whole_life(|| Device::open(0));
        whole_life(|| Device::from_raw_context(other.cast(), Code::Carried));
        assert_eq!(ctx::get_current().unwrap(), Some(other));
        sys::cuCtxDestroy_v2(other).result().unwrap();
    }
}

#[test]
fn a_device_is_opened_in_a_context_of_the_caller() {
    let Some(_turn) = turn() else { return };
    // SAFETY: device 0 is there; retained until the device that was opened in the context is dropped.
    unsafe {
        let number = result::device::get(0).unwrap();
        let context = primary_ctx::retain(number).unwrap();
        whole_life(|| {
            let device = Device::from_raw_context(context.cast(), Code::Carried)?;
            assert_eq!(device.raw_context(), context.cast());
            Ok(device)
        });
        primary_ctx::release(number).unwrap();
    }
}

#[test]
fn records_are_asked_for_once_and_in_order() {
    let Some(_turn) = turn() else { return };
    let records = records();
    let record = layout().record_bytes();
    let device = Device::open(0).unwrap();
    for (placement, split) in
        [(Placement::Device, ROWS), (Placement::Host, 0), (Placement::Split { device_share: 0.4 }, 20)]
    {
        let mut asked = Vec::new();
        // The table twice, with a segment of no rows between.
        let segments = [(ROWS, layout()), (0, layout()), (ROWS, layout())];
        let decoder = CudaDecoder::load(&device, &segments, placement, |segment, rows, bytes| {
            bytes.copy_from_slice(&records[rows.start as usize * record..rows.end as usize * record]);
            asked.push((segment, rows));
            Ok::<_, CudaError>(())
        })
        .unwrap();
        let parts = |segment| [(segment, 0..split), (segment, split..ROWS)];
        let all = [parts(0), parts(2)].concat();
        assert_eq!(asked, all.into_iter().filter(|(_, rows)| !rows.is_empty()).collect::<Vec<_>>());
        let ids: Vec<i64> = (0..2 * ROWS as i64).collect();
        let mut rows = vec![0u16; ids.len() * DIM];
        decoder.decode(&ids, Missing::Error, Output::Bf16(&mut rows)).unwrap();
        let once = expected(&records, &ids[..ROWS as usize]);
        assert_eq!(rows, [&once[..], &once].concat());
    }

    // What the reader says is what the caller hears.
    #[derive(Debug, PartialEq)]
    enum Own {
        Cuda(CudaError),
        Reader(u64),
    }
    impl From<CudaError> for Own {
        fn from(error: CudaError) -> Own {
            Own::Cuda(error)
        }
    }
    for placement in [Placement::Device, Placement::Host] {
        let error = CudaDecoder::load(&device, &[(ROWS, layout())], placement, |_, rows, _| Err(Own::Reader(rows.end)));
        assert_eq!(error.err(), Some(Own::Reader(ROWS)));
    }
    let error = CudaDecoder::load(&device, &[], Placement::Device, |_, _, _| Err(Own::Reader(0)));
    assert!(matches!(error, Err(Own::Cuda(CudaError::Segment { segment: 0, .. }))));
}
