//! Instruction sets: what the CPU offers, and which one is used.

use std::fmt;
use std::str::FromStr;

use condprog_core::{BackendError, ErrorKind};

/// Environment variable that forces an instruction set: `portable`, `avx2` or `avx512`.
pub const ISA_VARIABLE: &str = "CONDPROG_CPU_LEVEL";

/// An instruction set. All give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Isa {
    /// No instruction beyond the compilation target's.
    Portable,
    /// AVX2 and F16C.
    Avx2,
    /// AVX-512 F, BW, VL, VBMI and VBMI2.
    Avx512,
}

impl Isa {
    /// Every instruction set, slowest first.
    pub const ALL: [Isa; 3] = [Isa::Portable, Isa::Avx2, Isa::Avx512];

    /// Short name, as [`ISA_VARIABLE`] takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
    }

    /// Whether this CPU can run it.
    pub fn is_supported(self) -> bool {
        match self {
            Isa::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c"),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vbmi")
                    && is_x86_feature_detected!("avx512vbmi2")
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// The best one of this CPU, or the one that [`ISA_VARIABLE`] names.
    ///
    /// # Errors
    /// [`UnsupportedIsa`] when the variable names none, or one that this CPU does not have.
    pub fn detect() -> Result<Isa, UnsupportedIsa> {
        match std::env::var(ISA_VARIABLE) {
            Ok(name) => name.parse::<Isa>().map_err(|_| UnsupportedIsa { name })?.supported(),
            Err(_) => Ok(Isa::best()),
        }
    }

    /// The best one of this CPU.
    pub fn best() -> Isa {
        Isa::ALL.into_iter().rev().find(|isa| isa.is_supported()).unwrap_or(Isa::Portable)
    }

    /// Itself, if this CPU can run it.
    ///
    /// # Errors
    /// [`UnsupportedIsa`] otherwise.
    pub fn supported(self) -> Result<Isa, UnsupportedIsa> {
        if self.is_supported() { Ok(self) } else { Err(UnsupportedIsa { name: self.name().into() }) }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Isa {
    type Err = UnsupportedIsa;

    fn from_str(name: &str) -> Result<Isa, UnsupportedIsa> {
        Isa::ALL.into_iter().find(|isa| isa.name() == name).ok_or_else(|| UnsupportedIsa { name: name.into() })
    }
}

/// An instruction set that does not exist or that this CPU cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupportedIsa {
    name: String,
}

impl fmt::Display for UnsupportedIsa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let have: Vec<_> = Isa::ALL.into_iter().filter(|isa| isa.is_supported()).map(Isa::name).collect();
        write!(f, "CPU level is \"{}\", expected one that this machine has: {}", self.name, have.join(", "))
    }
}

impl std::error::Error for UnsupportedIsa {}

/// To generic code, an instruction set that is not there is like a device that is not there.
impl BackendError for UnsupportedIsa {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Unavailable
    }
}
