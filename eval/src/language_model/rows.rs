//! Which rows a token asks for.

/// Rows per token: four heads of 2-grams, then four of 3-grams.
pub const HEADS_PER_TOKEN: usize = 8;

/// Row counts of the heads.
const PRIMES: [u64; HEADS_PER_TOKEN] = [32_749, 32_719, 32_717, 32_713, 32_707, 32_693, 32_687, 32_653];

/// Multipliers of the current token and the two before it; a 2-gram head leaves the third out.
const MULTIPLIERS: [[u64; 3]; HEADS_PER_TOKEN] = [
    [210_700_973, 399_813_167, 0],
    [405_916_865, 442_413_891, 0],
    [193_820_355, 418_741_607, 0],
    [531_750_611, 627_659_029, 0],
    [806_729_509, 205_208_151, 609_958_983],
    [244_628_953, 918_723_161, 98_356_621],
    [574_175_547, 978_862_785, 180_256_231],
    [268_061_223, 125_151_319, 988_793_007],
];

/// Row ids of consecutive tokens from the start of a window, eight per token.
pub fn row_ids(tokens: &[u32]) -> Vec<u64> {
    let at = |i: Option<usize>| i.map_or(0, |i| u64::from(tokens[i])) + 1;
    let mut ids = Vec::with_capacity(tokens.len() * HEADS_PER_TOKEN);
    for i in 0..tokens.len() {
        let mut offset = 0;
        for (prime, [m0, m1, m2]) in PRIMES.into_iter().zip(MULTIPLIERS) {
            let hash = at(Some(i)) * m0 ^ at(i.checked_sub(1)) * m1 ^ at(i.checked_sub(2)) * m2;
            ids.push(hash % prime + offset);
            offset += prime;
        }
    }
    ids
}
