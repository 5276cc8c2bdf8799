//! What codes and restores rows for the jobs of this crate: any backend, through [`Codec`].

use std::fmt;

use condprog_core::encoder::{EncodeBatch, EncodeFailure};
use condprog_core::{BackendError, Batch, DecodeError, Decoder, Encoder, ErrorKind, Job, TableShape};
use condprog_table::TableRecords;

/// A backend, or two: one that codes and one that restores.
///
/// ```
/// use condprog_convert::{BoxDecoder, BoxEncoder, Codec, CodecError, erase_decoder, erase_encoder};
/// use condprog_core::Job;
/// use condprog_cpu::{CpuDecoder, CpuEncoder};
/// use condprog_table::TableRecords;
///
/// struct Cpu;
///
/// impl Codec for Cpu {
///     fn encoder(&self, job: Job) -> Result<BoxEncoder, CodecError> {
///         CpuEncoder::new(job).map(erase_encoder).map_err(CodecError::new)
///     }
///
///     fn decoder(&self, records: TableRecords) -> Result<BoxDecoder, CodecError> {
///         CpuDecoder::new(records).map(erase_decoder).map_err(CodecError::new)
///     }
/// }
/// ```
pub trait Codec: Sync {
    /// Makes a job ready. Cheap until rows are coded: it is also called to find out whether the backend is there.
    ///
    /// # Errors
    /// [`CodecError`] when the backend is not there or does not do such jobs.
    fn encoder(&self, job: Job) -> Result<BoxEncoder, CodecError>;

    /// Makes records ready for decoding: a block of rows, many times in a job.
    ///
    /// # Errors
    /// [`CodecError`] when the backend is not there or has no room for them.
    fn decoder(&self, records: TableRecords) -> Result<BoxDecoder, CodecError>;
}

/// An encoder of any backend.
pub type BoxEncoder = Box<dyn Encoder<Error = CodecError> + Send + Sync>;

/// A decoder of any backend.
pub type BoxDecoder = Box<dyn Decoder<Error = CodecError> + Send + Sync>;

/// The error of any backend.
#[derive(Debug)]
pub struct CodecError {
    kind: ErrorKind,
    error: Box<dyn std::error::Error + Send + Sync>,
}

impl CodecError {
    /// Of a backend's own error.
    pub fn new(error: impl BackendError + Send + Sync + 'static) -> CodecError {
        CodecError { kind: error.kind(), error: Box::new(error) }
    }
}

/// As the backend's own.
impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for CodecError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl BackendError for CodecError {
    fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl From<EncodeFailure<CodecError>> for CodecError {
    fn from(failure: EncodeFailure<CodecError>) -> CodecError {
        match failure {
            EncodeFailure::Batch(error) => CodecError { kind: ErrorKind::ShapeMismatch, error: Box::new(error) },
            EncodeFailure::Backend(error) => error,
        }
    }
}

impl From<DecodeError<CodecError>> for CodecError {
    fn from(failure: DecodeError<CodecError>) -> CodecError {
        match failure {
            DecodeError::Batch(error) => CodecError { kind: ErrorKind::ShapeMismatch, error: Box::new(error) },
            DecodeError::Backend(error) => error,
        }
    }
}

/// An encoder without its type.
pub fn erase_encoder(encoder: impl Encoder<Error: Send + Sync + 'static> + Send + Sync + 'static) -> BoxEncoder {
    Box::new(Erased(encoder))
}

/// A decoder without its type.
pub fn erase_decoder(decoder: impl Decoder<Error: Send + Sync + 'static> + Send + Sync + 'static) -> BoxDecoder {
    Box::new(Erased(decoder))
}

struct Erased<T>(T);

impl<E: Encoder<Error: Send + Sync + 'static>> Encoder for Erased<E> {
    type Error = CodecError;

    fn job(&self) -> &Job {
        self.0.job()
    }

    fn preferred_rows(&self) -> usize {
        self.0.preferred_rows()
    }

    fn encode_batch(&self, batch: EncodeBatch<'_>) -> Result<(), CodecError> {
        self.0.encode_batch(batch).map_err(CodecError::new)
    }
}

impl<D: Decoder<Error: Send + Sync + 'static>> Decoder for Erased<D> {
    type Error = CodecError;

    fn shape(&self) -> TableShape {
        self.0.shape()
    }

    fn decode_batch(&self, batch: Batch<'_>) -> Result<(), CodecError> {
        self.0.decode_batch(batch).map_err(CodecError::new)
    }
}
