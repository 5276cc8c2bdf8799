//! The backends behind one interface: the only place where the command knows what there is.

use condprog_core::{BackendError, DecodeError, Decoder, ErrorKind, Missing, Output, Table};
use condprog_cpu::{CpuDecoder, CpuError, Isa};

use crate::arguments::Backend;
use crate::error::Error;
use crate::measure::Stages;

/// A backend that is there.
pub(crate) trait Place {
    /// `cpu/avx2`, `wgpu`.
    fn name(&self) -> String;

    /// What it runs on, where the name does not say it.
    fn device(&self) -> Option<String> {
        None
    }

    /// Whether it works on the threads of the current pool.
    fn uses_threads(&self) -> bool {
        false
    }

    /// Makes a table ready for decoding.
    fn open<'t>(&self, table: Table<'t>) -> Result<Box<dyn AnyDecoder + 't>, Error>;
}

/// A decoder of any backend.
pub(crate) trait AnyDecoder: Sync {
    /// Decodes a request.
    fn decode(&self, ids: &[i64], missing: Missing, output: Output<'_>) -> Result<(), Error>;

    /// Decodes a request and says how long its stages took, where a backend has stages.
    fn decode_in_stages(&self, ids: &[i64], output: Output<'_>) -> Result<Option<Stages>, Error>;
}

/// A backend that cannot be had here, and why.
pub(crate) struct Absent {
    pub(crate) name: String,
    pub(crate) why: String,
}

/// A backend, if it can be had here.
pub(crate) type Found = Result<Box<dyn Place>, Absent>;

/// All that a backend of this build has here: the CPU with one instruction set, each GPU.
pub(crate) fn places(backend: Backend, isa: Option<Isa>) -> Result<Vec<Found>, Error> {
    match backend {
        Backend::Cpu => Ok(vec![Ok(place(backend, isa)?)]),
        #[cfg(feature = "wgpu")]
        Backend::Wgpu => wgpu::places(),
        #[cfg(feature = "cuda")]
        Backend::Cuda => cuda::places(),
    }
}

/// The one place of a backend to use.
pub(crate) fn place(backend: Backend, isa: Option<Isa>) -> Result<Box<dyn Place>, Error> {
    match backend {
        Backend::Cpu => Ok(Box::new(Cpu(isa.map_or_else(Isa::detect, Isa::supported)?))),
        #[cfg(feature = "wgpu")]
        Backend::Wgpu => wgpu::best(),
        #[cfg(feature = "cuda")]
        Backend::Cuda => cuda::first(),
    }
}

/// The CPU with an instruction set.
pub(crate) struct Cpu(pub(crate) Isa);

impl Place for Cpu {
    fn name(&self) -> String {
        format!("cpu/{}", self.0)
    }

    fn uses_threads(&self) -> bool {
        true
    }

    fn open<'t>(&self, table: Table<'t>) -> Result<Box<dyn AnyDecoder + 't>, Error> {
        Ok(Box::new(CpuDecoder::with_isa(table, self.0)?))
    }
}

impl AnyDecoder for CpuDecoder<Table<'_>> {
    fn decode(&self, ids: &[i64], missing: Missing, output: Output<'_>) -> Result<(), Error> {
        Decoder::decode(self, ids, missing, output).map_err(|error| decode_error("cpu", error))
    }

    fn decode_in_stages(&self, _: &[i64], _: Output<'_>) -> Result<Option<Stages>, Error> {
        Ok(None)
    }
}

impl From<CpuError> for Error {
    fn from(error: CpuError) -> Error {
        match error {
            CpuError::Isa(error) => error.into(),
            other => backend_error("cpu", other),
        }
    }
}

fn decode_error<E: BackendError>(backend: &str, error: DecodeError<E>) -> Error {
    match error {
        DecodeError::Batch(error) => error.into(),
        DecodeError::Backend(error) => backend_error(backend, error),
    }
}

fn backend_error(backend: &str, error: impl BackendError) -> Error {
    let (backend, message) = (backend.into(), error.to_string());
    match error.kind() {
        ErrorKind::Unavailable => Error::Unavailable { backend, message },
        _ => Error::Backend { backend, message },
    }
}

/// What is unavailable is absent; everything else is an error.
#[cfg(any(feature = "wgpu", feature = "cuda"))]
fn absent(name: String, error: impl BackendError) -> Result<Found, Error> {
    match backend_error(&name, error) {
        Error::Unavailable { backend, message } => Ok(Err(Absent { name: backend, why: message })),
        other => Err(other),
    }
}

/// The name of one device of several, or of the only one.
#[cfg(any(feature = "wgpu", feature = "cuda"))]
fn numbered(backend: &str, number: usize, count: usize) -> String {
    if count == 1 { backend.into() } else { format!("{backend}/{number}") }
}

#[cfg(feature = "wgpu")]
mod wgpu {
    use condprog_core::Batch;
    use condprog_wgpu::{Gpu, Options, WgpuDecoder, adapters};

    use super::*;

    /// Every GPU that gives a device.
    pub(super) fn places() -> Result<Vec<Found>, Error> {
        let mut places: Vec<Found> = Vec::new();
        // One adapter may be listed once for each API it is reached through.
        let mut names: Vec<_> = adapters().into_iter().map(|adapter| adapter.name).collect();
        let mut seen = std::collections::HashSet::new();
        names.retain(|name| seen.insert(name.clone()));
        for (number, name) in names.iter().enumerate() {
            let mut options = Options::default();
            options.adapter = Some(name.clone());
            let place = numbered("wgpu", number, names.len());
            places.push(match Gpu::open(&options) {
                Ok(gpu) => Ok(Box::new(Wgpu { name: place, gpu })),
                Err(error) => absent(place, error)?,
            });
        }
        if places.is_empty() {
            places.push(absent("wgpu".into(), condprog_wgpu::Error::NoAdapter { asked: None, found: vec![] })?);
        }
        Ok(places)
    }

    pub(super) fn best() -> Result<Box<dyn Place>, Error> {
        let gpu = Gpu::open(&Options::default()).map_err(|error| backend_error("wgpu", error))?;
        Ok(Box::new(Wgpu { name: "wgpu".into(), gpu }))
    }

    /// An open GPU, numbered where there are several.
    struct Wgpu {
        name: String,
        gpu: Gpu,
    }

    impl Place for Wgpu {
        fn name(&self) -> String {
            self.name.clone()
        }

        fn device(&self) -> Option<String> {
            Some(self.gpu.adapter().to_string())
        }

        fn open<'t>(&self, table: Table<'t>) -> Result<Box<dyn AnyDecoder + 't>, Error> {
            Ok(Box::new(WgpuDecoder::new(&self.gpu, table).map_err(|error| backend_error("wgpu", error))?))
        }
    }

    impl AnyDecoder for WgpuDecoder {
        fn decode(&self, ids: &[i64], missing: Missing, output: Output<'_>) -> Result<(), Error> {
            Decoder::decode(self, ids, missing, output).map_err(|error| decode_error("wgpu", error))
        }

        fn decode_in_stages(&self, ids: &[i64], output: Output<'_>) -> Result<Option<Stages>, Error> {
            let batch = Batch::new(self.shape(), ids, Missing::Zero, output)?;
            let stages = self.decode_timed(batch).map_err(|error| backend_error("wgpu", error))?;
            Ok(Some(Stages { upload: stages.upload, kernel: stages.kernel, readback: stages.readback }))
        }
    }
}

#[cfg(feature = "cuda")]
pub(crate) use cuda::cuda_error;

#[cfg(feature = "cuda")]
mod cuda {
    use condprog_cuda::{CudaDecoder, CudaError, Device, Placement, device_count};

    use super::*;

    /// Every device.
    pub(super) fn places() -> Result<Vec<Found>, Error> {
        let count = match device_count() {
            // Opening the first says that there is none.
            Ok(count) => count.max(1),
            Err(error) => return Ok(vec![absent("cuda".into(), error)?]),
        };
        let place = |ordinal| {
            let name = numbered("cuda", ordinal, count);
            match Device::open(ordinal) {
                Ok(device) => Ok(Ok(Box::new(Cuda { name, device }) as Box<dyn Place>)),
                Err(error) => absent(name, error),
            }
        };
        (0..count).map(place).collect()
    }

    pub(super) fn first() -> Result<Box<dyn Place>, Error> {
        let device = Device::open(0).map_err(cuda_error)?;
        Ok(Box::new(Cuda { name: "cuda".into(), device }))
    }

    /// What the CUDA backend refused.
    pub(crate) fn cuda_error(error: CudaError) -> Error {
        backend_error("cuda", error)
    }

    /// An open device, numbered where there are several.
    struct Cuda {
        name: String,
        device: Device,
    }

    impl Place for Cuda {
        fn name(&self) -> String {
            self.name.clone()
        }

        fn device(&self) -> Option<String> {
            let (major, minor) = self.device.compute_capability();
            Some(format!("{} (compute capability {major}.{minor})", self.device.name()))
        }

        fn open<'t>(&self, table: Table<'t>) -> Result<Box<dyn AnyDecoder + 't>, Error> {
            Ok(Box::new(CudaDecoder::new(&self.device, table, Placement::Device).map_err(cuda_error)?))
        }
    }

    impl AnyDecoder for CudaDecoder {
        fn decode(&self, ids: &[i64], missing: Missing, output: Output<'_>) -> Result<(), Error> {
            Decoder::decode(self, ids, missing, output).map_err(|error| decode_error("cuda", error))
        }

        fn decode_in_stages(&self, _: &[i64], _: Output<'_>) -> Result<Option<Stages>, Error> {
            Ok(None)
        }
    }
}
