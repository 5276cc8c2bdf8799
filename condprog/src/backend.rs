//! Where tables are decoded, and the one type of decoder that hides it.

use std::fmt;

use condprog_convert::{BoxDecoder, CodecError, erase_decoder};
use condprog_core::{Batch, Decoder, Segments, TableShape};
use condprog_cpu::CpuDecoder;
use condprog_table::TableRecords;

use crate::error::Error;

/// Where a table is decoded.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Backend {
    /// On the CPU, from records in memory: with the best instruction set, or the one that the environment variable
    /// `CONDPROG_CPU_LEVEL` names; large requests on the threads of the current rayon pool.
    #[default]
    Cpu,
    /// On an NVIDIA GPU.
    #[cfg(feature = "cuda")]
    Cuda {
        /// Number of the device, from 0.
        device: usize,
        /// Where the records lie: in its memory, in page-locked host memory, or in both.
        placement: condprog_cuda::Placement,
    },
    /// On a GPU through WebGPU.
    #[cfg(feature = "wgpu")]
    Wgpu(condprog_wgpu::Options),
}

impl Backend {
    /// Its name: `cpu`, `cuda` or `wgpu`.
    pub const fn name(&self) -> &'static str {
        match self {
            Backend::Cpu => "cpu",
            #[cfg(feature = "cuda")]
            Backend::Cuda { .. } => "cuda",
            #[cfg(feature = "wgpu")]
            Backend::Wgpu(_) => "wgpu",
        }
    }
}

/// A table made ready for decoding, on whatever backend. It owns or keeps alive what it reads; any number of threads may
/// use it at once.
///
/// Rows are asked for through [`Decoder`]. Those who want them on their own CUDA stream, without a copy through the host,
/// use `condprog-cuda` itself.
pub struct TableDecoder {
    backend: &'static str,
    decoder: BoxDecoder,
}

impl TableDecoder {
    /// A decoder over records in memory.
    ///
    /// # Errors
    /// [`Error::Backend`] when the backend is not there or has no room for them.
    pub fn new(records: TableRecords, backend: &Backend) -> Result<TableDecoder, Error> {
        let decoder = match backend {
            Backend::Cpu => return TableDecoder::on_cpu(records),
            #[cfg(feature = "cuda")]
            Backend::Cuda { device, placement } => {
                let fail = |error| Error::backend("cuda", error);
                let device = condprog_cuda::Device::open(*device).map_err(fail)?;
                let segments = records.segments();
                let table = condprog_core::Table::new(&segments)?;
                erase_decoder(condprog_cuda::CudaDecoder::new(&device, table, *placement).map_err(fail)?)
            }
            #[cfg(feature = "wgpu")]
            Backend::Wgpu(options) => {
                let fail = |error| Error::backend("wgpu", error);
                let gpu = condprog_wgpu::Gpu::open(options).map_err(fail)?;
                let segments = records.segments();
                let table = condprog_core::Table::new(&segments)?;
                erase_decoder(condprog_wgpu::WgpuDecoder::new(&gpu, table).map_err(fail)?)
            }
        };
        #[cfg(any(feature = "cuda", feature = "wgpu"))]
        Ok(TableDecoder { backend: backend.name(), decoder })
    }

    /// A decoder on the CPU over whatever holds records.
    ///
    /// # Errors
    /// [`Error::Backend`] when they do not make a table, or the environment asks for an instruction set that is not there.
    pub fn on_cpu(records: impl Segments + Send + Sync + 'static) -> Result<TableDecoder, Error> {
        let decoder = CpuDecoder::new(records).map_err(|error| Error::backend("cpu", error))?;
        Ok(TableDecoder { backend: "cpu", decoder: erase_decoder(decoder) })
    }

    /// Name of the backend: `cpu`, `cuda` or `wgpu`.
    pub fn backend(&self) -> &'static str {
        self.backend
    }
}

impl fmt::Debug for TableDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableDecoder").field("backend", &self.backend).field("shape", &self.shape()).finish()
    }
}

impl Decoder for TableDecoder {
    type Error = CodecError;

    fn shape(&self) -> TableShape {
        self.decoder.shape()
    }

    fn decode_batch(&self, batch: Batch<'_>) -> Result<(), CodecError> {
        self.decoder.decode_batch(batch)
    }
}
