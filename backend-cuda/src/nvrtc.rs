//! Compiling the kernels with NVRTC, for devices that the PTX does not cover.

use std::sync::OnceLock;

use condprog_kernels::cuda;
use cudarc::nvrtc::{self, CompileError, CompileOptions};

use crate::error::CudaError;

/// PTX of a kernel's source, as text.
///
/// `architecture` is a virtual one, such as "compute_90". Needs libnvrtc (of CUDA 12), and neither a driver nor a
/// device.
///
/// # Errors
/// [`CudaError::NoNvrtc`] and [`CudaError::Compile`].
pub fn compile(source: &str, architecture: &'static str) -> Result<String, CudaError> {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    // SAFETY: opens a library and closes it again; its constructors, which run then, are NVIDIA's.
    if !*PRESENT.get_or_init(|| unsafe { nvrtc::sys::is_culib_present() }) {
        return Err(CudaError::NoNvrtc);
    }
    if source.contains('\0') {
        return Err(CudaError::Compile("the source has a zero byte".into()));
    }
    let options = CompileOptions {
        arch: Some(architecture),
        name: Some("condprog.cu".into()),
        options: cuda::NVRTC_OPTIONS.map(str::to_owned).into(),
        ..CompileOptions::default()
    };
    let ptx = nvrtc::compile_ptx_with_opts(source, options).map_err(|error| {
        CudaError::Compile(match error {
            CompileError::CompileError { log, .. } => log.to_string_lossy().into_owned(),
            other => format!("{other:?}"),
        })
    })?;
    // What a compilation gives is an image: text that ends in a zero byte.
    let text = ptx.as_bytes().unwrap_or_default();
    let text = text.strip_suffix(&[0]).unwrap_or(text);
    String::from_utf8(text.to_vec()).map_err(|_| CudaError::Compile("NVRTC gave something else than text".into()))
}
