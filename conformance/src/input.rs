//! Inputs by formula: the same numbers on every machine and in every language, from 32-bit integer arithmetic.

use condprog_core::scale::power_of_two;
use condprog_core::{Layout, Scale, record};
use serde::{Deserialize, Serialize};

/// A stream of numbers: xorshift32. The state `s` starts at `seed * 2654435769 mod 2^32`, or 1 if that is 0; each step
/// does `s ^= s << 13`, `s ^= s >> 17`, `s ^= s << 5` and gives `s`.
#[derive(Clone, Debug)]
pub struct Stream(u32);

impl Stream {
    /// The stream of a seed.
    pub fn new(seed: u32) -> Stream {
        Stream(seed.wrapping_mul(2_654_435_769).max(1))
    }

    /// The next number.
    pub fn next_u32(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }

    /// A number in `0..bound`: the high word of the next one times `bound`.
    pub fn below(&mut self, bound: u32) -> u32 {
        (u64::from(self.next_u32()) * u64::from(bound) >> 32) as u32
    }

    /// Bytes: the top byte of each number.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| (self.next_u32() >> 24) as u8).collect()
    }
}

/// Records of random bytes, scale fields and padding bits too: every bit pattern is a valid record.
pub fn random_records(layout: Layout, rows: u32, seed: u32) -> Vec<u8> {
    Stream::new(seed).bytes(rows as usize * layout.record_bytes())
}

/// One record of a random code with zero padding, and a given scale field.
pub fn random_record(layout: Layout, scale: Scale, seed: u32) -> Vec<u8> {
    let mut code = Stream::new(seed).bytes(layout.code_bytes());
    clear_padding(layout, &mut code);
    join(layout, &code, scale)
}

/// The record of a code and a scale field.
pub fn join(layout: Layout, code: &[u8], scale: Scale) -> Vec<u8> {
    let mut bytes = vec![0; layout.record_bytes()];
    record::write(layout, code, scale, &mut bytes);
    bytes
}

/// Zeroes the padding bits of a code.
pub fn clear_padding(layout: Layout, code: &mut [u8]) {
    if let (used @ 1.., Some(last)) = (layout.code_bits() % 8, code.last_mut()) {
        *last &= !(0xff >> used);
    }
}

/// What the values of a row are like. All are integers of at most 24 bits times a power of two, so they are the same
/// binary32 numbers everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The sum of twelve 16-bit numbers (the top halves of the stream's) less 393,210: nearly normal, deviation 65,536.
    Gaussian,
    /// The top 24 bits of a number, less 2^23.
    Uniform,
    /// A gaussian value shifted right by 11 and cubed.
    Heavy,
    /// Gaussian where a number before it is below 2^29 (one in eight), else 0.
    Sparse,
    /// Gaussian, with the value in column `seed mod dim` times 64.
    Outlier,
    /// 65,536 in column `seed mod dim`, negative for an odd `seed / dim`, else 0.
    OneHot,
    /// 65,536 everywhere.
    Constant,
    /// 4,096 times the column less half the width.
    Ramp,
    /// Zero everywhere.
    Zero,
    /// Gaussian, with a NaN in column `seed mod dim`.
    Nan,
    /// Gaussian, with minus infinity in column `seed mod dim`.
    Infinity,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 11] = [
        Kind::Gaussian,
        Kind::Uniform,
        Kind::Heavy,
        Kind::Sparse,
        Kind::Outlier,
        Kind::OneHot,
        Kind::Constant,
        Kind::Ramp,
        Kind::Zero,
        Kind::Nan,
        Kind::Infinity,
    ];
}

/// A row by formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// What its values are like.
    pub kind: Kind,
    /// Seed of its stream.
    pub seed: u32,
    /// Its values are integers times two to this power; with -16 gaussian values have a deviation of 1.
    pub exponent: i32,
}

impl Row {
    /// A nearly normal row of deviation 1.
    pub fn gaussian(seed: u32) -> Row {
        Row { kind: Kind::Gaussian, seed, exponent: -16 }
    }

    /// The values.
    pub fn values(self, dim: u32) -> Vec<f32> {
        let mut stream = Stream::new(self.seed);
        let gaussian = |stream: &mut Stream| (0..12).map(|_| (stream.next_u32() >> 16) as i32).sum::<i32>() - 393_210;
        let marked = self.seed % dim;
        let unit = power_of_two(self.exponent);
        (0..dim)
            .map(|column| {
                let integer = match self.kind {
                    Kind::Gaussian => gaussian(&mut stream),
                    Kind::Uniform => (stream.next_u32() >> 8) as i32 - (1 << 23),
                    Kind::Heavy => (gaussian(&mut stream) >> 11).pow(3),
                    Kind::Sparse if stream.next_u32() < 1 << 29 => gaussian(&mut stream),
                    Kind::Outlier => gaussian(&mut stream) * if column == marked { 64 } else { 1 },
                    Kind::OneHot if column == marked => 65_536 - (((self.seed / dim) % 2) as i32) * 131_072,
                    Kind::Constant => 65_536,
                    Kind::Ramp => 4096 * (column as i32 - (dim / 2) as i32),
                    Kind::Zero | Kind::Sparse | Kind::OneHot => 0,
                    Kind::Nan | Kind::Infinity => {
                        let value = gaussian(&mut stream);
                        if column == marked {
                            return if self.kind == Kind::Nan { f32::NAN } else { f32::NEG_INFINITY };
                        }
                        value
                    }
                };
                (f64::from(integer) * unit) as f32
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_is_xorshift32() {
        // The first three numbers from state 1, by hand.
        let mut stream = Stream::new(0);
        assert_eq!([stream.next_u32(), stream.next_u32(), stream.next_u32()], [270_369, 67_634_689, 2_647_435_461]);
        let mut stream = Stream::new(340_573_321); // the inverse of the multiplier
        assert_eq!(stream.next_u32(), 270_369);
    }

    #[test]
    fn rows_are_exact_numbers() {
        for kind in Kind::ALL.into_iter().filter(|kind| !matches!(kind, Kind::Nan | Kind::Infinity)) {
            for exponent in [-149, -16, 80] {
                let values = Row { kind, seed: 9, exponent }.values(64);
                for value in values {
                    let integer = f64::from(value) * power_of_two(-exponent);
                    assert_eq!(integer, integer.trunc(), "{kind:?} {exponent}");
                    assert!(integer.abs() < power_of_two(25));
                }
            }
        }
    }

    #[test]
    fn gaussian_rows_have_deviation_one() {
        let values = Row::gaussian(3).values(65_536);
        let mean = values.iter().sum::<f32>() / 65_536.0;
        let energy = values.iter().map(|v| v * v).sum::<f32>() / 65_536.0;
        assert!(mean.abs() < 0.02 && (energy - 1.0).abs() < 0.02, "{mean} {energy}");
    }
}
