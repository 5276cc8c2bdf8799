//! The shared program `f`: one hash and one table of 128 magnitudes (SPEC section 3).

use core::fmt;
use core::str::FromStr;

/// Number of codebooks a row can choose from; the variant is a 4-bit number.
pub const VARIANTS: u8 = 16;

/// What turns trellis states into levels. A part of every [`Layout`](crate::Layout): decoders and encoders ask it, so
/// that a format with another program adds a variant here and changes nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Program {
    /// Format version 1: the hash `s * (2s + 1)` and the levels of a Gaussian quantizer.
    #[default]
    V1,
}

/// `LEVELS[i] = max(1, round(127 * Q((i + 128.5) / 256) / Q(255.5 / 256)))`, `Q` the quantile function of the
/// normal distribution: the positive half of a 256-level Gaussian quantizer of equal probabilities. The table,
/// not the formula, is normative (SPEC section 3.1).
#[rustfmt::skip]
const V1_LEVELS: [u8; 128] = [
    1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 5, 5, 6, 6, 7,
    7, 8, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 12, 13, 13, 14,
    14, 15, 15, 16, 16, 17, 17, 17, 18, 18, 19, 19, 20, 20, 21, 21,
    22, 22, 23, 23, 24, 24, 25, 25, 26, 26, 27, 27, 28, 28, 29, 29,
    30, 31, 31, 32, 32, 33, 33, 34, 34, 35, 36, 36, 37, 37, 38, 39,
    39, 40, 41, 41, 42, 43, 43, 44, 45, 46, 46, 47, 48, 49, 49, 50,
    51, 52, 53, 54, 55, 56, 57, 57, 59, 60, 61, 62, 63, 64, 65, 67,
    68, 70, 71, 73, 75, 77, 79, 81, 83, 86, 89, 93, 97, 103, 111, 127,
];

impl Program {
    /// Every program.
    pub const ALL: [Program; 1] = [Program::V1];

    /// The name that table files store.
    pub const fn name(self) -> &'static str {
        match self {
            Program::V1 => "gaussian128-s2s1",
        }
    }

    /// The 128 magnitudes, ascending, indexed by bits 14..8 of the hash.
    #[inline]
    pub const fn levels(self) -> &'static [u8; 128] {
        match self {
            Program::V1 => &V1_LEVELS,
        }
    }

    /// `h = (s * (2s + 1) + (v << 12)) mod 2^16` (SPEC section 3.2).
    ///
    /// `state` is the 16-bit trellis state; of `variant` only the low four bits count. For a fixed variant this is a
    /// permutation of the states.
    #[inline]
    pub const fn hash(self, state: u16, variant: u8) -> u16 {
        match self {
            Program::V1 => {
                state.wrapping_mul(state.wrapping_mul(2).wrapping_add(1)).wrapping_add((variant as u16) << 12)
            }
        }
    }

    /// The signed level a hash stands for, in -127..=-1 and 1..=127: bit 15 is the sign, bits 14..8 the index into
    /// [`Program::levels`] (SPEC section 3.3).
    #[inline]
    pub const fn level(self, hash: u16) -> i8 {
        let magnitude = self.levels()[(hash >> 8 & 0x7f) as usize] as i8;
        if hash & 0x8000 != 0 { -magnitude } else { magnitude }
    }

    /// `level(hash(state, variant))`: the value of one trellis state before scaling.
    #[inline]
    pub const fn value(self, state: u16, variant: u8) -> i8 {
        self.level(self.hash(state, variant))
    }
}

/// Its [`name`](Program::name).
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Program {
    type Err = UnknownProgram;

    fn from_str(name: &str) -> Result<Program, UnknownProgram> {
        Program::ALL.into_iter().find(|program| program.name() == name).ok_or(UnknownProgram(()))
    }
}

/// The text names no program of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownProgram(());

impl fmt::Display for UnknownProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a program of this version: expected \"{}\"", Program::V1)
    }
}

impl core::error::Error for UnknownProgram {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn names_are_parsed_back() {
        for program in Program::ALL {
            assert_eq!(program.to_string().parse(), Ok(program));
        }
        assert!("".parse::<Program>().is_err() && "Gaussian128-s2s1".parse::<Program>().is_err());
    }

    #[test]
    fn hash_permutes_the_states_for_every_variant() {
        for variant in 0..VARIANTS {
            let mut seen = [false; 1 << 16];
            for state in (0..=u16::MAX).step_by(if cfg!(miri) { 4099 } else { 1 }) {
                let hash = Program::V1.hash(state, variant);
                assert!(!core::mem::replace(&mut seen[hash as usize], true));
            }
        }
    }

    #[test]
    fn predecessors_of_a_survivor_are_one_coset_of_levels() {
        // What the encoders' branch-metric layout relies on: h(hi, j) - h(0, j) is a multiple of 2^(16 - K).
        let hash = |state: u32| Program::V1.hash(state as u16, 0);
        for bits in 1..=4u32 {
            for j in (0..1u32 << (16 - bits)).step_by(if cfg!(miri) { 1021 } else { 1 }) {
                let base = hash(j);
                for hi in 0..1u32 << bits {
                    let h = hash(hi << (16 - bits) | j);
                    assert_eq!(h.wrapping_sub(base) & ((1u32 << (16 - bits)) - 1) as u16, 0);
                }
            }
        }
    }

    #[test]
    fn levels_are_positive_and_sorted() {
        let levels = Program::V1.levels();
        assert!(levels.is_sorted() && levels[0] == 1 && levels[127] == 127);
    }
}
