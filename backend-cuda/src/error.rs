//! What can go wrong, and what to do about it.

use std::fmt;

use condprog_core::{BackendError, BatchError, ErrorKind, ShapeMismatch};
use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;

/// An error of the CUDA backend.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CudaError {
    /// The driver's library (libcuda, nvcuda) is not on this machine.
    NoDriver,
    /// There is no such device.
    NoDevice {
        /// Got.
        ordinal: usize,
        /// Devices there are.
        count: usize,
    },
    /// The device is of an older architecture than the kernels.
    Architecture {
        /// The device's name.
        name: String,
        /// Its compute capability.
        got: (u32, u32),
        /// The least that is needed.
        expected: (u32, u32),
    },
    /// NVRTC was asked for and is not on this machine.
    NoNvrtc,
    /// NVRTC refused the kernels.
    Compile(String),
    /// Device or page-locked host memory is full.
    OutOfMemory {
        /// "device memory" or "page-locked host memory".
        what: &'static str,
        /// Bytes asked for.
        bytes: u64,
        /// Bytes free on the device, where that is the question and known.
        free: Option<u64>,
    },
    /// The driver refused something else.
    Driver {
        /// What it was asked to do.
        doing: &'static str,
        /// Its answer.
        code: DriverCode,
    },
    /// The stream or the memory belongs to another context than the table.
    Context,
    /// The share of rows for device memory is not between 0 and 1.
    Share {
        /// Got.
        got: f64,
    },
    /// The batch was made for a table of another shape.
    Shape(ShapeMismatch),
    /// The request does not fit the table.
    Request(BatchError),
    /// A segment that was given by address does not fit the others or its memory.
    Segment {
        /// Its index.
        segment: usize,
        /// What is wrong.
        problem: &'static str,
    },
}

/// What the driver answered: a `CUresult` other than success. Its text is the name that the driver's documentation has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DriverCode(CUresult);

impl DriverCode {
    /// The number, as the driver's documentation has it.
    pub fn number(self) -> u32 {
        self.0 as u32
    }
}

impl fmt::Display for DriverCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not through the driver's own texts: asking for them where there is no driver would panic.
        write!(f, "{:?}", self.0)
    }
}

/// Codes after which a context takes no more work.
const LOST: &[CUresult] = &[
    CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
    CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
    CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE,
    CUresult::CUDA_ERROR_INVALID_PC,
    CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR,
    CUresult::CUDA_ERROR_LAUNCH_FAILED,
    CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
    CUresult::CUDA_ERROR_ECC_UNCORRECTABLE,
    CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE,
    CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED,
    CUresult::CUDA_ERROR_DEINITIALIZED,
];

/// Codes that say that this machine or process has no usable device.
const UNAVAILABLE: &[CUresult] = &[
    CUresult::CUDA_ERROR_NO_DEVICE,
    CUresult::CUDA_ERROR_INVALID_DEVICE,
    CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE,
    CUresult::CUDA_ERROR_DEVICE_NOT_LICENSED,
    CUresult::CUDA_ERROR_STUB_LIBRARY,
    CUresult::CUDA_ERROR_NOT_INITIALIZED,
    CUresult::CUDA_ERROR_SYSTEM_NOT_READY,
    CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
    CUresult::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,
    CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
    CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU,
    CUresult::CUDA_ERROR_UNKNOWN,
];

impl CudaError {
    /// For `map_err`: what the driver was asked to do when it answered so.
    pub(crate) fn doing(doing: &'static str) -> impl Fn(DriverError) -> CudaError {
        move |error| CudaError::Driver { doing, code: DriverCode(error.0) }
    }

    /// What to do about an answer of the driver.
    fn advice(code: CUresult) -> &'static str {
        match code {
            CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION | CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU => {
                "install driver 520 or later"
            }
            CUresult::CUDA_ERROR_STUB_LIBRARY => "the library found is the toolkit's stub; put the driver's first",
            CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => "library and kernel module differ; reboot or reinstall",
            CUresult::CUDA_ERROR_NO_DEVICE => "see nvidia-smi and CUDA_VISIBLE_DEVICES",
            CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE => "another process has the device to itself",
            CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED => "register a mapping once and share it",
            CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED | CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED => {
                "only the calls that enqueue a request can be captured"
            }
            code if LOST.contains(&code) => "this context is lost; end the process or use another device",
            _ => "see the CUDA driver API's list of errors",
        }
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CudaError::NoDriver => {
                f.write_str("no CUDA driver: libcuda is not found; install the NVIDIA driver or use another backend")
            }
            CudaError::NoDevice { ordinal, count } => {
                write!(f, "no CUDA device {ordinal}: there are {count}; see nvidia-smi and CUDA_VISIBLE_DEVICES")
            }
            CudaError::Architecture { name, got, expected } => write!(
                f,
                "{name} has compute capability {}.{}, expected {}.{} or later",
                got.0, got.1, expected.0, expected.1
            ),
            CudaError::NoNvrtc => f.write_str(
                "no NVRTC: libnvrtc is not found; install it or open the device without it, with the PTX made before",
            ),
            CudaError::Compile(log) => write!(f, "NVRTC refused the kernels: {log}"),
            CudaError::OutOfMemory { what, bytes, free } => {
                write!(f, "out of {what}: {bytes} bytes asked for")?;
                match free {
                    Some(free) => write!(f, ", {free} are free; keep a smaller share of the rows there"),
                    None => f.write_str("; keep a smaller share of the rows there"),
                }
            }
            CudaError::Driver { doing, code } => {
                write!(f, "{doing}: the driver says {code}; {}", CudaError::advice(code.0))
            }
            CudaError::Context => f.write_str("stream or memory is of another context than the table"),
            CudaError::Share { got } => write!(f, "share of rows in device memory is {got}, expected 0 to 1"),
            CudaError::Shape(error) => error.fmt(f),
            CudaError::Request(error) => error.fmt(f),
            CudaError::Segment { segment, problem } => write!(f, "segment {segment}: {problem}"),
        }
    }
}

// What caused an error is in its text, and so is not given as its source.
impl std::error::Error for CudaError {}

impl BackendError for CudaError {
    fn kind(&self) -> ErrorKind {
        match self {
            CudaError::NoDriver | CudaError::NoDevice { .. } | CudaError::Architecture { .. } | CudaError::NoNvrtc => {
                ErrorKind::Unavailable
            }
            CudaError::OutOfMemory { .. } => ErrorKind::OutOfMemory,
            CudaError::Shape(_) => ErrorKind::ShapeMismatch,
            CudaError::Driver { code, .. } if code.0 == CUresult::CUDA_ERROR_OUT_OF_MEMORY => ErrorKind::OutOfMemory,
            CudaError::Driver { code, .. } if LOST.contains(&code.0) => ErrorKind::DeviceLost,
            CudaError::Driver { code, .. } if UNAVAILABLE.contains(&code.0) => ErrorKind::Unavailable,
            CudaError::Compile(_)
            | CudaError::Driver { .. }
            | CudaError::Context
            | CudaError::Share { .. }
            | CudaError::Request(_)
            | CudaError::Segment { .. } => ErrorKind::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_a_kind_and_says_what_to_do_without_a_driver() {
        let driver = |code| CudaError::doing("launching")(DriverError(code));
        for (error, kind, says) in [
            (CudaError::NoDriver, ErrorKind::Unavailable, "install"),
            (CudaError::NoDevice { ordinal: 3, count: 1 }, ErrorKind::Unavailable, "device 3"),
            (
                CudaError::Architecture { name: "Old".into(), got: (7, 5), expected: (9, 0) },
                ErrorKind::Unavailable,
                "7.5, expected 9.0",
            ),
            (CudaError::NoNvrtc, ErrorKind::Unavailable, "libnvrtc"),
            (
                CudaError::OutOfMemory { what: "device memory", bytes: 7, free: Some(5) },
                ErrorKind::OutOfMemory,
                "7 bytes asked for, 5 are free",
            ),
            (driver(CUresult::CUDA_ERROR_OUT_OF_MEMORY), ErrorKind::OutOfMemory, "OUT_OF_MEMORY"),
            (driver(CUresult::CUDA_ERROR_LAUNCH_FAILED), ErrorKind::DeviceLost, "context is lost"),
            (driver(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS), ErrorKind::DeviceLost, "launching"),
            (driver(CUresult::CUDA_ERROR_NO_DEVICE), ErrorKind::Unavailable, "nvidia-smi"),
            (driver(CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION), ErrorKind::Unavailable, "driver 520"),
            (driver(CUresult::CUDA_ERROR_INVALID_VALUE), ErrorKind::Other, "INVALID_VALUE"),
            (CudaError::Share { got: 1.5 }, ErrorKind::Other, "1.5, expected 0 to 1"),
        ] {
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
