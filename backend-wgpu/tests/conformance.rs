//! The conformance suite on the adapter that this environment offers.

use condprog_wgpu::{Gpu, Options, WgpuDecoder};

condprog_conformance::decoder_suite!(wgpu, "wgpu", Gpu = Gpu::open(&Options::default()), |gpu, table| {
    WgpuDecoder::new(gpu, table)
});
