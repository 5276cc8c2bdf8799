//! What can go wrong on a GPU.

use std::fmt;

use condprog_core::{BackendError, ErrorKind, ShapeMismatch};

/// An error of this backend.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// No adapter was found, or none of the name asked for.
    NoAdapter {
        /// The name asked for.
        asked: Option<String>,
        /// Adapters that were found.
        found: Vec<String>,
    },
    /// Adapters were found, but none gives a device with WebGPU's default limits.
    NoDevice {
        /// The adapter tried last.
        adapter: String,
        /// Why it gave none.
        reason: String,
    },
    /// A limit of the device is below what the kernel needs.
    Limit {
        /// Its name in WebGPU's limits, as wgpu writes it.
        limit: &'static str,
        /// The device's.
        got: u64,
        /// The least that is needed.
        expected: u64,
    },
    /// The table does not fit the device.
    TableTooLarge {
        /// Device memory that the table takes, in bytes.
        bytes: u64,
        /// Device memory that there was for it, in bytes.
        room: u64,
    },
    /// A record is longer than a binding can be.
    RecordTooLong {
        /// Length of a record, in bytes.
        record: usize,
        /// Longest record that a binding holds, in bytes.
        longest: usize,
    },
    /// The device or its driver ran out of memory in a request.
    OutOfMemory {
        /// What there was no memory for.
        what: &'static str,
    },
    /// The device was lost; all decoders on it are of no more use.
    DeviceLost {
        /// The driver's reason.
        reason: String,
    },
    /// The driver or the validation of WebGPU refused a call: a bug here, or in the driver.
    Refused {
        /// What was being done.
        what: &'static str,
        /// The message.
        message: String,
    },
    /// The request was checked against another table.
    Shape(ShapeMismatch),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoAdapter { asked: Some(name), found } if !found.is_empty() => {
                write!(f, "no GPU adapter is named {name:?}, expected one of: {}", found.join(", "))
            }
            Error::NoAdapter { .. } => f.write_str(
                "no GPU adapter found, expected one that Vulkan, Metal or Direct3D 12 lists (WGPU_BACKEND limits which)",
            ),
            Error::NoDevice { adapter, reason } => {
                write!(f, "adapter {adapter:?} gives no device with WebGPU's default limits: {reason}")
            }
            Error::Limit { limit, got, expected } => {
                write!(f, "device has the limit {limit} of {got}, expected at least {expected}")
            }
            Error::TableTooLarge { bytes, room } => {
                write!(f, "table takes {bytes} bytes of device memory, there is room for {room}")
            }
            Error::RecordTooLong { record, longest } => {
                write!(f, "record is {record} bytes, expected at most {longest} in one binding")
            }
            Error::OutOfMemory { what } => write!(f, "{what}: out of device memory"),
            Error::DeviceLost { reason } => write!(f, "device was lost: {reason}"),
            Error::Refused { what, message } => write!(f, "{what}: {message}"),
            Error::Shape(mismatch) => mismatch.fmt(f),
        }
    }
}

// What caused an error is in its text, and so is not given as its source.
impl std::error::Error for Error {}

impl From<ShapeMismatch> for Error {
    fn from(mismatch: ShapeMismatch) -> Error {
        Error::Shape(mismatch)
    }
}

impl BackendError for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Error::NoAdapter { .. } | Error::NoDevice { .. } => ErrorKind::Unavailable,
            Error::TableTooLarge { .. } | Error::OutOfMemory { .. } => ErrorKind::OutOfMemory,
            Error::Limit { .. } | Error::RecordTooLong { .. } => ErrorKind::Unsupported,
            Error::DeviceLost { .. } => ErrorKind::DeviceLost,
            Error::Refused { .. } => ErrorKind::Other,
            Error::Shape(_) => ErrorKind::ShapeMismatch,
        }
    }
}
