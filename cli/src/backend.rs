//! The backends behind one interface: the only place where the command knows what there is.

use condprog_core::{BackendError, DecodeError, Decoder, ErrorKind, Missing, Output, Table};
use condprog_cpu::{CpuDecoder, Level};

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

/// All that a backend of this build has here: the CPU at one level, each GPU.
pub(crate) fn places(backend: Backend, level: Option<Level>) -> Result<Vec<Found>, Error> {
    match backend {
        Backend::Cpu => {
            let level = level.map_or_else(Level::detect, Level::supported)?;
            Ok(vec![Ok(Box::new(Cpu(level)))])
        }
        #[cfg(feature = "wgpu")]
        Backend::Wgpu => wgpu::places(),
    }
}

/// The best place of a backend.
pub(crate) fn place(backend: Backend, level: Option<Level>) -> Result<Box<dyn Place>, Error> {
    match backend {
        Backend::Cpu => {}
        #[cfg(feature = "wgpu")]
        Backend::Wgpu => return wgpu::best(),
    }
    match places(backend, level)?.swap_remove(0) {
        Ok(place) => Ok(place),
        Err(Absent { name, why }) => Err(Error::Unavailable { backend: name, message: why }),
    }
}

/// The CPU at a level.
pub(crate) struct Cpu(pub(crate) Level);

impl Place for Cpu {
    fn name(&self) -> String {
        format!("cpu/{}", self.0)
    }

    fn open<'t>(&self, table: Table<'t>) -> Result<Box<dyn AnyDecoder + 't>, Error> {
        Ok(Box::new(CpuDecoder::with_level(table, self.0)?))
    }
}

impl AnyDecoder for CpuDecoder<'_> {
    fn decode(&self, ids: &[i64], missing: Missing, output: Output<'_>) -> Result<(), Error> {
        Decoder::decode(self, ids, missing, output).map_err(|error| decode_error("cpu", error))
    }

    fn decode_in_stages(&self, _: &[i64], _: Output<'_>) -> Result<Option<Stages>, Error> {
        Ok(None)
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
        for (number, name) in (1..).zip(&names) {
            let mut options = Options::default();
            options.adapter = Some(name.clone());
            let place = if names.len() == 1 { "wgpu".into() } else { format!("wgpu/{number}") };
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

    fn absent(name: String, error: condprog_wgpu::Error) -> Result<Found, Error> {
        match backend_error(&name, error) {
            Error::Unavailable { backend, message } => Ok(Err(Absent { name: backend, why: message })),
            other => Err(other),
        }
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
