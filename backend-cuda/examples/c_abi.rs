//! A shared library for hosts in C++ and Python: four functions over addresses and a stream's handle.
//!
//! `cargo build --release -p condprog-cuda --example c_abi` makes `target/release/examples/libc_abi.so`. `c_abi.cpp` and
//! `c_abi.py` beside this file call it. Functions return 0, or a number of [`Status`] after which
//! [`condprog_cuda_error`] has the text.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_void};

use condprog_core::{BackendError, Dtype, ErrorKind, Layout, Rate, Segment, Table};
use condprog_cuda::{CudaDecoder, Device, IdWidth, Placement, RawRequest};

/// What a function returns.
#[repr(i32)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// No driver or no device.
    Unavailable = 1,
    /// No room.
    OutOfMemory = 2,
    /// The context takes no more work.
    DeviceLost = 3,
    /// Anything else, wrong arguments too.
    Other = 4,
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

fn report(error: &dyn BackendError) -> Status {
    let text = CString::new(error.to_string().replace('\0', " ")).unwrap_or_default();
    LAST.with(|last| *last.borrow_mut() = text);
    match error.kind() {
        ErrorKind::Unavailable => Status::Unavailable,
        ErrorKind::OutOfMemory => Status::OutOfMemory,
        ErrorKind::DeviceLost => Status::DeviceLost,
        _ => Status::Other,
    }
}

fn refuse(text: &str) -> Status {
    LAST.with(|last| *last.borrow_mut() = CString::new(text).unwrap_or_default());
    Status::Other
}

/// Text of this thread's last error, until its next one.
#[unsafe(no_mangle)]
pub extern "C" fn condprog_cuda_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

/// Puts a table of one segment on a device: `rows` records of `dim` values at `rate` quarter bits. `device_share` of the
/// rows lie in device memory, the others in page-locked host memory. Gives a handle in `decoder`.
///
/// # Safety
/// `records` must be readable for `bytes` bytes; they are copied. `decoder` must be writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn condprog_cuda_open(
    ordinal: u32,
    records: *const u8,
    bytes: usize,
    rows: u64,
    dim: u32,
    rate: u32,
    device_share: f64,
    decoder: *mut *mut c_void,
) -> Status {
    let Ok(layout) = Rate::from_quarters(rate).and_then(|rate| Layout::new(dim, rate)) else {
        return refuse("no such width and rate");
    };
    let records: &[u8] = if bytes == 0 {
        &[]
    } else {
        // SAFETY: readable for so many bytes, as the caller promised.
        unsafe { std::slice::from_raw_parts(records, bytes) }
    };
    let segments = [Segment { rows, layout, records }];
    let table = match Table::new(&segments) {
        Ok(table) => table,
        Err(error) => return refuse(&error.to_string()),
    };
    let opened = Device::open(ordinal as usize)
        .and_then(|device| CudaDecoder::new(&device, table, Placement::Split { device_share }));
    match opened {
        Ok(opened) => {
            // SAFETY: writable, as the caller promised.
            unsafe { *decoder = Box::into_raw(Box::new(opened)).cast() };
            Status::Ok
        }
        Err(error) => report(&error),
    }
}

/// Enqueues a request on `stream` (a `CUstream` or `cudaStream_t`). `id_bytes` is 4 or 8; `dtype` is 0 for bf16, 1 for
/// f16, 2 for f32; `missing` may be null.
///
/// # Safety
/// `decoder` must be open; the rest is the contract of [`CudaDecoder::enqueue_raw`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn condprog_cuda_enqueue(
    decoder: *const c_void,
    stream: *mut c_void,
    ids: *const c_void,
    id_bytes: u32,
    count: u64,
    out: *mut c_void,
    dtype: u32,
    missing: *mut u64,
) -> Status {
    let id_width = match id_bytes {
        4 => IdWidth::I32,
        8 => IdWidth::I64,
        _ => return refuse("ids have 4 or 8 bytes"),
    };
    let Some(&dtype) = Dtype::ALL.get(dtype as usize) else {
        return refuse("dtype is 0 for bf16, 1 for f16 or 2 for f32");
    };
    let request = RawRequest {
        ids: ids.addr() as u64,
        id_width,
        count,
        out: out.addr() as u64,
        dtype,
        missing: missing.addr() as u64,
    };
    // SAFETY: a handle of `condprog_cuda_open`, not yet closed, as the caller promised, and the request's contract.
    match unsafe { (*decoder.cast::<CudaDecoder>()).enqueue_raw(stream.cast(), &request) } {
        Ok(()) => Status::Ok,
        Err(error) => report(&error),
    }
}

/// Waits for the device and frees the table. Null is allowed.
///
/// # Safety
/// `decoder` must be null or open, and is closed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn condprog_cuda_close(decoder: *mut c_void) {
    if !decoder.is_null() {
        // SAFETY: a handle of `condprog_cuda_open`, not yet closed, as the caller promised.
        drop(unsafe { Box::from_raw(decoder.cast::<CudaDecoder>()) });
    }
}
