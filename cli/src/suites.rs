//! The conformance suites over the backends that this build has. Each has a module, and a line in [`NAMES`] and in [`run`].

use condprog_conformance::Report;

/// Names of the backends of this build, without what comes after a slash.
pub(crate) const NAMES: &[&str] = &[
    "cpu",
    #[cfg(feature = "cuda")]
    "cuda",
    #[cfg(feature = "wgpu")]
    "wgpu",
];

/// Runs every suite over every backend, and hands over each report when it is there.
pub(crate) fn run(done: &mut dyn FnMut(Report)) {
    cpu::run(done);
    #[cfg(feature = "cuda")]
    cuda::run(done);
    #[cfg(feature = "wgpu")]
    wgpu::run(done);
}

/// The CPU.
mod cpu {
    use condprog_conformance::{Backend, Report, check_decoder, check_encoder};
    use condprog_core::{BackendError, Decoder, Table};
    use condprog_cpu::{CpuDecoder, CpuEncoder, Isa};

    /// The CPU backend with an instruction set.
    struct Cpu(Isa);

    impl Backend for Cpu {
        fn decoder<'t>(&'t self, table: Table<'t>) -> Result<impl Decoder, impl BackendError> {
            CpuDecoder::with_isa(table, self.0)
        }
    }

    pub(super) fn run(done: &mut dyn FnMut(Report)) {
        for isa in Isa::ALL {
            let name = format!("cpu/{isa}");
            done(check_decoder(&name, &Cpu(isa)));
            done(check_encoder(&name, |job| CpuEncoder::with_isa(job, isa)));
        }
    }
}

/// CUDA.
#[cfg(feature = "cuda")]
pub(crate) mod cuda {
    use condprog_conformance::{Backend, Report, check_with_device};
    use condprog_core::{BackendError, Decoder, Table};
    use condprog_cuda::{CudaDecoder, Device, Placement};

    struct Cuda(Device, Placement);

    impl Backend for Cuda {
        fn decoder<'t>(&'t self, table: Table<'t>) -> Result<impl Decoder, impl BackendError> {
            CudaDecoder::new(&self.0, table, self.1)
        }
    }

    /// The decoding suite on the first device, with each placement of the table.
    pub(crate) fn run(done: &mut dyn FnMut(Report)) {
        for (name, placement) in [
            ("cuda/device", Placement::Device),
            ("cuda/host", Placement::Host),
            ("cuda/split", Placement::Split { device_share: 0.4 }),
        ] {
            done(check_with_device(name, Device::open(0).map(|device| Cuda(device, placement))));
        }
    }
}

#[cfg(feature = "wgpu")]
mod wgpu {
    use condprog_conformance::{Backend, Report, check_with_device};
    use condprog_core::{BackendError, Decoder, Table};
    use condprog_wgpu::{Gpu, Options, WgpuDecoder};

    struct Wgpu(Gpu);

    impl Backend for Wgpu {
        fn decoder<'t>(&'t self, table: Table<'t>) -> Result<impl Decoder, impl BackendError> {
            WgpuDecoder::new(&self.0, table)
        }
    }

    pub(super) fn run(done: &mut dyn FnMut(Report)) {
        done(check_with_device("wgpu", Gpu::open(&Options::default()).map(Wgpu)));
    }
}
