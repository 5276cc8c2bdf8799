//! Instruction-set levels: what the CPU offers, and which one is used.

use std::fmt;
use std::str::FromStr;

use condprog_core::{BackendError, ErrorKind};

/// Environment variable that forces a level: `portable`, `avx2` or `avx512`.
pub const LEVEL_VARIABLE: &str = "CONDPROG_CPU_LEVEL";

/// An instruction-set level. All give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// No instruction beyond the compilation target's.
    Portable,
    /// AVX2 and F16C.
    Avx2,
    /// AVX-512 F, BW, VL, VBMI and VBMI2.
    Avx512,
}

impl Level {
    /// Every level, slowest first.
    pub const ALL: [Level; 3] = [Level::Portable, Level::Avx2, Level::Avx512];

    /// Short name, as [`LEVEL_VARIABLE`] takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
        }
    }

    /// Whether this CPU can run it.
    pub fn is_supported(self) -> bool {
        match self {
            Level::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c"),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => {
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

    /// The best level of this CPU, or the one that [`LEVEL_VARIABLE`] names.
    ///
    /// # Errors
    /// [`UnsupportedLevel`] when the variable names no level, or one that this CPU does not have.
    pub fn detect() -> Result<Level, UnsupportedLevel> {
        match std::env::var(LEVEL_VARIABLE) {
            Ok(name) => name.parse::<Level>().map_err(|_| UnsupportedLevel { name })?.supported(),
            Err(_) => Ok(Level::best()),
        }
    }

    /// The best level of this CPU.
    pub fn best() -> Level {
        Level::ALL.into_iter().rev().find(|level| level.is_supported()).unwrap_or(Level::Portable)
    }

    /// Itself, if this CPU can run it.
    ///
    /// # Errors
    /// [`UnsupportedLevel`] otherwise.
    pub fn supported(self) -> Result<Level, UnsupportedLevel> {
        if self.is_supported() { Ok(self) } else { Err(UnsupportedLevel { name: self.name().into() }) }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Level {
    type Err = UnsupportedLevel;

    fn from_str(name: &str) -> Result<Level, UnsupportedLevel> {
        Level::ALL.into_iter().find(|level| level.name() == name).ok_or_else(|| UnsupportedLevel { name: name.into() })
    }
}

/// A level that does not exist or that this CPU cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupportedLevel {
    name: String,
}

impl fmt::Display for UnsupportedLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let have: Vec<_> = Level::ALL.into_iter().filter(|l| l.is_supported()).map(Level::name).collect();
        write!(f, "CPU level is \"{}\", expected one that this machine has: {}", self.name, have.join(", "))
    }
}

impl std::error::Error for UnsupportedLevel {}

/// To generic code, a level that is not there is like a device that is not there.
impl BackendError for UnsupportedLevel {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Unavailable
    }
}
