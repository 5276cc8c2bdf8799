//! Block floating point: MXFP4, NVFP4, and FP8 with power-of-two scales.

use condprog_checkpoint::fp8;

use crate::rows::Rows;

/// Values that share a scale in MXFP4.
pub const MX_BLOCK: usize = 32;
/// Values that share a scale in NVFP4.
pub const NV_BLOCK: usize = 16;
/// Largest e2m1 number.
const E2M1_MAX: f64 = 6.0;

/// The number an e2m1 code of four bits stands for.
pub fn e2m1_to_f32(code: u8) -> f32 {
    const MAGNITUDES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let magnitude = MAGNITUDES[usize::from(code & 7)];
    if code & 8 != 0 { -magnitude } else { magnitude }
}

/// The nearest e2m1 code, ties to even, beyond 6 the largest.
pub fn e2m1_from_f64(value: f64) -> u8 {
    let sign = if value.is_sign_negative() { 8 } else { 0 };
    let magnitude = value.abs();
    // Units of the last place: a half below 2, one below 4, two above; codes ascend with the numbers.
    let code = match magnitude {
        m if m < 2.0 => (m * 2.0).round_ties_even(),
        m if m < 4.0 => m.round_ties_even() + 2.0,
        m => (m / 2.0).round_ties_even() + 4.0,
    };
    sign | code.min(7.0) as u8
}

/// MXFP4 as the OCP specification has it: blocks of 32 e2m1 values with the scale `2^(floor(log2 max) - 2)`; with
/// `search`, that exponent or the next one, whichever errs less. Scales are e8m0 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Mxfp4 {
    /// Try two exponents.
    pub search: bool,
}

impl Mxfp4 {
    /// The scale byte of a block, and its codes in `codes`.
    pub fn encode(self, block: &[f32], codes: &mut [u8]) -> u8 {
        let largest = largest(block);
        if largest == 0.0 {
            codes.fill(0);
            return 0;
        }
        let exponent = libm::ilogb(largest) - 2;
        let byte = |exponent: i32| (exponent + 127).clamp(0, 254) as u8;
        let error = |byte: u8| {
            let scale = f64::from(fp8::e8m0_to_f32(byte));
            block_error(block, scale, |v| f64::from(e2m1_to_f32(e2m1_from_f64(v / scale))))
        };
        let (low, high) = (byte(exponent), byte(exponent + 1));
        let chosen = if self.search && error(high) < error(low) { high } else { low };
        let scale = f64::from(fp8::e8m0_to_f32(chosen));
        quantize(block, scale, codes);
        chosen
    }

    pub(super) fn restore(self, rows: &Rows) -> Rows {
        rows.map(|row, out| {
            let mut codes = [0; MX_BLOCK];
            for (block, out) in row.chunks(MX_BLOCK).zip(out.chunks_mut(MX_BLOCK)) {
                let codes = &mut codes[..block.len()];
                let scale = fp8::e8m0_to_f32(self.encode(block, codes));
                for (out, &code) in out.iter_mut().zip(&*codes) {
                    *out = e2m1_to_f32(code) * scale;
                }
            }
        })
    }
}

/// NVFP4: blocks of 16 e2m1 values with an e4m3 scale, and one binary32 scale per table. With `search`, the block
/// scale of the smallest squared error; else the one that puts the largest magnitude on 6.
#[derive(Clone, Copy, Debug)]
pub struct Nvfp4 {
    /// The scale of the table: its largest magnitude over 6 * 448.
    pub global: f32,
    /// Try every block scale nearby.
    pub search: bool,
}

impl Nvfp4 {
    /// The format of a table with a given largest magnitude.
    pub fn of_largest(largest: f32, search: bool) -> Nvfp4 {
        let global = (f64::from(largest) / (E2M1_MAX * fp8::E4M3_MAX)) as f32;
        Nvfp4 { global: if global > 0.0 { global } else { 1.0 }, search }
    }

    /// The scale byte of a block, and its codes in `codes`.
    pub fn encode(self, block: &[f32], codes: &mut [u8]) -> u8 {
        let plain = fp8::e4m3_from_f64(largest(block) / E2M1_MAX / f64::from(self.global));
        let error = |byte: u8| match self.scale(byte) {
            0.0 => block.iter().map(|&v| f64::from(v).powi(2)).sum(),
            scale => block_error(block, scale, |v| f64::from(e2m1_to_f32(e2m1_from_f64(v / scale)))),
        };
        let chosen = if self.search {
            // From half of the plain scale to a third above it: one exponent down, a few mantissa steps up.
            let tried = plain.saturating_sub(8)..=plain.saturating_add(4).min(126);
            tried.min_by(|&a, &b| error(a).total_cmp(&error(b))).unwrap_or(plain)
        } else {
            plain
        };
        match self.scale(chosen) {
            0.0 => codes.fill(0),
            scale => quantize(block, scale, codes),
        }
        chosen
    }

    /// The scale a byte stands for: the binary32 product.
    fn scale(self, byte: u8) -> f64 {
        f64::from(fp8::e4m3_to_f32(byte) * self.global)
    }

    pub(super) fn restore(self, rows: &Rows) -> Rows {
        rows.map(|row, out| {
            let mut codes = [0; NV_BLOCK];
            for (block, out) in row.chunks(NV_BLOCK).zip(out.chunks_mut(NV_BLOCK)) {
                let codes = &mut codes[..block.len()];
                let byte = self.encode(block, codes);
                let scale = self.scale(byte);
                for (out, &code) in out.iter_mut().zip(&*codes) {
                    *out = (f64::from(e2m1_to_f32(code)) * scale) as f32;
                }
            }
        })
    }
}

/// FP8 e4m3 with an e8m0 scale per 32 values: the smallest power of two with which nothing is above 448.
pub(super) fn restore_fp8(rows: &Rows) -> Rows {
    rows.map(|row, out| {
        let mut elements = [0; fp8::GROUP];
        for (block, out) in row.chunks(fp8::GROUP).zip(out.chunks_mut(fp8::GROUP)) {
            let elements = &mut elements[..block.len()];
            let scale = fp8::e8m0_to_f32(fp8::encode_group(block, elements));
            for (out, &element) in out.iter_mut().zip(&*elements) {
                *out = fp8::e4m3_to_f32(element) * scale;
            }
        }
    })
}

fn largest(block: &[f32]) -> f64 {
    block.iter().fold(0.0, |largest, &value| f64::from(value).abs().max(largest))
}

fn quantize(block: &[f32], scale: f64, codes: &mut [u8]) {
    for (code, &value) in codes.iter_mut().zip(block) {
        *code = e2m1_from_f64(f64::from(value) / scale);
    }
}

fn block_error(block: &[f32], scale: f64, round: impl Fn(f64) -> f64) -> f64 {
    block.iter().map(|&value| (f64::from(value) - round(f64::from(value)) * scale).powi(2)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e2m1_rounds_to_nearest_ties_to_even() {
        for code in 0..16u8 {
            assert_eq!(e2m1_from_f64(f64::from(e2m1_to_f32(code))), code);
        }
        for code in 0..7u8 {
            let middle = (f64::from(e2m1_to_f32(code)) + f64::from(e2m1_to_f32(code + 1))) / 2.0;
            assert_eq!(e2m1_from_f64(middle), if code % 2 == 0 { code } else { code + 1 }, "{middle}");
            assert_eq!(e2m1_from_f64(middle * 0.999), code);
            assert_eq!(e2m1_from_f64(middle * 1.001), code + 1);
        }
        assert_eq!(e2m1_from_f64(1e9), 7);
        assert_eq!(e2m1_from_f64(-1e9), 15);
    }

    #[test]
    fn e4m3_takes_back_its_own_numbers() {
        for byte in 0..0x7f {
            assert_eq!(fp8::e4m3_from_f64(f64::from(fp8::e4m3_to_f32(byte))), byte);
        }
        assert_eq!(fp8::e4m3_from_f64(1e9), 0x7e);
    }

    #[test]
    fn blocks_of_representable_values_come_back() {
        let values: Vec<f32> = (0..32).map(|i| e2m1_to_f32(i as u8 % 16) * 0.25).collect();
        let rows = Rows::new(32, values);
        for search in [false, true] {
            assert_eq!(Mxfp4 { search }.restore(&rows), rows);
            assert_eq!(Nvfp4 { global: 0.25, search }.restore(&rows), rows);
        }
        assert_eq!(restore_fp8(&rows), rows);
        let zero = Rows::new(32, vec![0.0; 32]);
        assert_eq!(Mxfp4 { search: true }.restore(&zero), zero);
        assert_eq!(Nvfp4::of_largest(0.0, true).restore(&zero), zero);
    }
}
