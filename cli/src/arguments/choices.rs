//! Options that are one of a few words.

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use condprog_convert::{NonFinite, RestoredDtype};
use condprog_core::encoder::ScaleRule;
use condprog_core::{Dtype, Missing};

/// Reads a scale rule by its name, and says in the help what each keeps.
pub(crate) fn scale_rule() -> impl TypedValueParser<Value = ScaleRule<()>> {
    let keeps = |rule| match rule {
        ScaleRule::Norm => "The length of the row",
        ScaleRule::Projection => "The row's projection on its source",
        ScaleRule::LeastSquares => "The smallest squared error",
        _ => "One scale for the whole table",
    };
    let rules = ScaleRule::ALL.map(|rule| PossibleValue::new(rule.name()).help(keeps(rule)));
    PossibleValuesParser::new(rules).try_map(|name| name.parse())
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OnNonFinite {
    /// Stop and name the value
    Error,
    /// Make them zero rows, and count them
    Zero,
}

impl From<OnNonFinite> for NonFinite {
    fn from(policy: OnNonFinite) -> NonFinite {
        match policy {
            OnNonFinite::Error => NonFinite::Error,
            OnNonFinite::Zero => NonFinite::Zero,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OnMissing {
    /// A row of zeros
    Zero,
    /// An error that names the id
    Error,
}

impl From<OnMissing> for Missing {
    fn from(missing: OnMissing) -> Missing {
        match missing {
            OnMissing::Zero => Missing::Zero,
            OnMissing::Error => Missing::Error,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RowsAs {
    Bf16,
    F16,
    F32,
}

impl From<RowsAs> for Dtype {
    fn from(dtype: RowsAs) -> Dtype {
        match dtype {
            RowsAs::Bf16 => Dtype::Bf16,
            RowsAs::F16 => Dtype::F16,
            RowsAs::F32 => Dtype::F32,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RestoredAs {
    Bf16,
    F16,
    F32,
    /// That of the source
    Source,
}

impl From<RestoredAs> for RestoredDtype {
    fn from(dtype: RestoredAs) -> RestoredDtype {
        match dtype {
            RestoredAs::Bf16 => RestoredDtype::Bf16,
            RestoredAs::F16 => RestoredDtype::F16,
            RestoredAs::F32 => RestoredDtype::F32,
            RestoredAs::Source => RestoredDtype::Source,
        }
    }
}

/// A backend of this build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// The CPU
    Cpu,
    /// A GPU through WebGPU; the environment variable WGPU_ADAPTER_NAME chooses which
    #[cfg(feature = "wgpu")]
    Wgpu,
    /// An NVIDIA GPU; the environment variable CUDA_VISIBLE_DEVICES chooses which
    #[cfg(feature = "cuda")]
    Cuda,
}

/// One backend, or all of this build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backends {
    /// Every backend of this build
    All,
    /// The CPU
    Cpu,
    /// The GPUs that WebGPU reaches
    #[cfg(feature = "wgpu")]
    Wgpu,
    /// The NVIDIA GPUs
    #[cfg(feature = "cuda")]
    Cuda,
}

impl Backends {
    /// The backends meant.
    pub(crate) fn list(self) -> Vec<Backend> {
        match self {
            Backends::All => Backend::value_variants().to_vec(),
            Backends::Cpu => vec![Backend::Cpu],
            #[cfg(feature = "wgpu")]
            Backends::Wgpu => vec![Backend::Wgpu],
            #[cfg(feature = "cuda")]
            Backends::Cuda => vec![Backend::Cuda],
        }
    }
}
