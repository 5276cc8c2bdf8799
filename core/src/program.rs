//! The shared program `f`: one hash and one table of 128 magnitudes (SPEC section 3).

/// Number of codebooks a row can choose from; the variant is a 4-bit number.
pub const VARIANTS: u8 = 16;

/// The magnitudes, indexed by bits 14..8 of the hash.
///
/// `LEVELS[i] = max(1, round(127 * Q((i + 128.5) / 256) / Q(255.5 / 256)))`, `Q` the quantile function of the
/// normal distribution: the positive half of a 256-level Gaussian quantizer of equal probabilities. The table,
/// not the formula, is normative (SPEC section 3.1).
#[rustfmt::skip]
pub const LEVELS: [u8; 128] = [
    1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 5, 5, 6, 6, 7,
    7, 8, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 12, 13, 13, 14,
    14, 15, 15, 16, 16, 17, 17, 17, 18, 18, 19, 19, 20, 20, 21, 21,
    22, 22, 23, 23, 24, 24, 25, 25, 26, 26, 27, 27, 28, 28, 29, 29,
    30, 31, 31, 32, 32, 33, 33, 34, 34, 35, 36, 36, 37, 37, 38, 39,
    39, 40, 41, 41, 42, 43, 43, 44, 45, 46, 46, 47, 48, 49, 49, 50,
    51, 52, 53, 54, 55, 56, 57, 57, 59, 60, 61, 62, 63, 64, 65, 67,
    68, 70, 71, 73, 75, 77, 79, 81, 83, 86, 89, 93, 97, 103, 111, 127,
];

/// `h = (s * (2s + 1) + (v << 12)) mod 2^16` (SPEC section 3.2).
///
/// `state` is the 16-bit trellis state; of `variant` only the low four bits count. For a fixed variant this is a
/// permutation of the states.
#[inline]
pub const fn hash(state: u16, variant: u8) -> u16 {
    state.wrapping_mul(state.wrapping_mul(2).wrapping_add(1)).wrapping_add((variant as u16) << 12)
}

/// The signed level a hash stands for, in -127..=-1 and 1..=127: bit 15 is the sign, bits 14..8 the index into
/// [`LEVELS`] (SPEC section 3.3).
#[inline]
pub const fn level(hash: u16) -> i8 {
    let magnitude = LEVELS[(hash >> 8 & 0x7f) as usize] as i8;
    if hash & 0x8000 != 0 { -magnitude } else { magnitude }
}

/// `level(hash(state, variant))`: the value of one trellis state before scaling.
#[inline]
pub const fn value(state: u16, variant: u8) -> i8 {
    level(hash(state, variant))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_permutes_the_states_for_every_variant() {
        for variant in 0..VARIANTS {
            let mut seen = [false; 1 << 16];
            for state in 0..=u16::MAX {
                assert!(!core::mem::replace(&mut seen[hash(state, variant) as usize], true));
            }
        }
    }

    #[test]
    fn predecessors_of_a_survivor_are_one_coset_of_levels() {
        // What the encoders' branch-metric layout relies on: h(hi, j) - h(0, j) is a multiple of 2^(16 - K).
        for bits in 1..=4u32 {
            for j in 0..1u32 << (16 - bits) {
                let base = hash(j as u16, 0);
                for hi in 0..1u32 << bits {
                    let h = hash((hi << (16 - bits) | j) as u16, 0);
                    assert_eq!(h.wrapping_sub(base) & ((1u32 << (16 - bits)) - 1) as u16, 0);
                }
            }
        }
    }

    #[test]
    fn levels_are_positive_and_sorted() {
        assert!(LEVELS.is_sorted() && LEVELS[0] == 1 && LEVELS[127] == 127);
    }
}
