//! 8-bit elements and their scales: `F8_E4M3` and `I8` values, `F8_E8M0` scales for groups of columns.

use condprog_core::scale::power_of_two;
pub use condprog_table::source::GROUP;

/// Largest integer that restored elements have, as other writers have it: -128 is not used.
pub const I8_MAX: f64 = 127.0;
/// Largest finite e4m3 value.
pub const E4M3_MAX: f64 = 448.0;
/// Largest scale byte that is a number.
const E8M0_MAX: i32 = 254;
/// Bias of the scale byte.
const E8M0_BIAS: i32 = 127;

/// The number an e4m3 byte stands for; 0x7f and 0xff are NaN, and there are no infinities.
pub fn e4m3_to_f32(byte: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
    let magnitude = match (exponent, byte & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa * power_of_two(-9) as f32,
        _ => (8.0 + mantissa) * power_of_two(exponent - 10) as f32,
    };
    if byte & 0x80 != 0 { -magnitude } else { magnitude }
}

/// The number a scale byte stands for: `2^(byte - 127)`. Byte 0 is 2^-127, a subnormal binary32 number and not zero;
/// byte 255 is NaN.
pub fn e8m0_to_f32(byte: u8) -> f32 {
    match byte {
        255 => f32::NAN,
        _ => power_of_two(i32::from(byte) - E8M0_BIAS) as f32,
    }
}

/// Codes one group: the smallest power of two with which the largest magnitude is at most 448, and the values divided
/// by it, rounded to the nearest e4m3 number, ties to even. A group of zeros has scale 1, byte 127.
///
/// # Panics
/// When `values` and `elements` differ in length.
pub fn encode_group(values: &[f32], elements: &mut [u8]) -> u8 {
    assert_eq!(values.len(), elements.len(), "group length");
    let largest = values.iter().fold(0.0f64, |largest, &value| largest.max(f64::from(value).abs()));
    let mut exponent = 0;
    if largest > 0.0 {
        // Of log2(max / 448) the exponent field gives a value at most one too small.
        let ratio = largest / E4M3_MAX;
        exponent = (ratio.to_bits() >> 52) as i32 - 1023;
        if ratio > power_of_two(exponent) {
            exponent += 1;
        }
    }
    let byte = (exponent + E8M0_BIAS).clamp(0, E8M0_MAX);
    let unit = power_of_two(E8M0_BIAS - byte);
    for (element, &value) in elements.iter_mut().zip(values) {
        *element = e4m3_from_f64(f64::from(value) * unit);
    }
    byte as u8
}

/// The nearest e4m3 number, ties to even; beyond 448 the largest one, NaN stays NaN.
pub fn e4m3_from_f64(value: f64) -> u8 {
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let magnitude = value.abs();
    if magnitude.is_nan() {
        return sign | 0x7f;
    }
    let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(-6);
    // In units of the last place; the product is exact, the rounding the only one.
    let units = (magnitude * power_of_two(3 - exponent)).round_ties_even();
    // The exponent field starts at 1 for 2^-6 and eight units; a carry moves into it by itself.
    let code = f64::from((exponent + 6) * 8) + units;
    sign | code.min(126.0) as u8
}

/// The nearest 8-bit integer, ties to even, within ±127; NaN is 0.
pub fn i8_from_f64(value: f64) -> u8 {
    value.round_ties_even().clamp(-I8_MAX, I8_MAX) as i8 as u8
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    /// The value of an element, as [`crate::source::RawRows::to_f32`] has it.
    fn value(element: u8, scale: f32) -> f32 {
        bf16::from_f32(e4m3_to_f32(element) * scale).to_f32()
    }

    #[test]
    fn e4m3_has_its_landmarks() {
        let cases =
            [(0x00, 0.0), (0x01, 0.001953125), (0x07, 0.013671875), (0x08, 0.015625), (0x38, 1.0), (0x7e, 448.0)];
        for (byte, value) in cases {
            assert_eq!(e4m3_to_f32(byte), value);
            assert_eq!(e4m3_to_f32(byte | 0x80), -value);
        }
        assert!(e4m3_to_f32(0x80).is_sign_negative());
        assert!(e4m3_to_f32(0x7f).is_nan() && e4m3_to_f32(0xff).is_nan());
    }

    #[test]
    fn e4m3_ascends_with_its_bytes_and_rounds_to_itself_and_ties_to_even() {
        for byte in 0..0x7eu8 {
            let (low, high) = (f64::from(e4m3_to_f32(byte)), f64::from(e4m3_to_f32(byte + 1)));
            assert!(low < high);
            assert_eq!(e4m3_from_f64(low), byte);
            assert_eq!(e4m3_from_f64(-low), byte | 0x80);
            let middle = (low + high) / 2.0;
            assert_eq!(e4m3_from_f64(middle), if byte % 2 == 0 { byte } else { byte + 1 });
            assert_eq!(e4m3_from_f64(middle * 0.9999), byte);
            assert_eq!(e4m3_from_f64(middle * 1.0001), byte + 1);
        }
        assert_eq!(e4m3_from_f64(1e9), 0x7e);
        assert_eq!(e4m3_from_f64(f64::NAN), 0x7f);
    }

    #[test]
    fn scale_byte_0_is_a_number_and_255_is_none() {
        assert_eq!(f64::from(e8m0_to_f32(0)), 2f64.powi(-127));
        assert_eq!(e8m0_to_f32(1), f32::MIN_POSITIVE);
        assert_eq!(e8m0_to_f32(127), 1.0);
        assert_eq!(f64::from(e8m0_to_f32(254)), 2f64.powi(127));
        assert!(e8m0_to_f32(255).is_nan());
        // The smallest bf16 is 2^-133: 2^-9 * 2^-127 is below half of it, and 15 * 2^-9 * 2^-127 nearly two of it.
        assert_eq!(value(0x01, e8m0_to_f32(0)), 0.0);
        assert_eq!(f64::from(value(0x0f, e8m0_to_f32(0))), 2.0 * 2f64.powi(-133));
        assert_eq!(value(0x7e, e8m0_to_f32(254)), f32::INFINITY);
        assert!(value(0x7f, 1.0).is_nan() && value(0x38, f32::NAN).is_nan());
    }

    #[test]
    fn groups_take_the_smallest_scale_that_holds_them() {
        let mut elements = [0; 4];
        assert_eq!(encode_group(&[448.0, -1.0, 0.0, 0.5], &mut elements), 127);
        assert_eq!(elements, [0x7e, 0xb8, 0x00, 0x30]);
        assert_eq!(encode_group(&[448.1, 0.0, 0.0, 0.0], &mut elements), 128);
        assert_eq!(encode_group(&[224.0, 0.0, 0.0, 0.0], &mut elements), 126);
        assert_eq!(encode_group(&[0.0; 4], &mut elements), 127);
        assert_eq!(elements, [0; 4]);
        assert_eq!(encode_group(&[f32::MAX, 0.0, 0.0, 0.0], &mut elements), 127 + 120);
        assert_eq!(encode_group(&[1e-45, 0.0, 0.0, 0.0], &mut elements), 0);
    }

    #[test]
    fn what_a_group_stands_for_is_coded_without_loss() {
        for byte in 100..140u8 {
            let elements: Vec<u8> =
                (0..32).map(|i| if i == 0 { 0x7e } else { (i * 7) as u8 | 0x80 * (i as u8 & 1) }).collect();
            let values: Vec<f32> = elements.iter().map(|&e| value(e, e8m0_to_f32(byte))).collect();
            let mut again = vec![0; 32];
            assert_eq!(encode_group(&values, &mut again), byte);
            assert_eq!(again, elements);
        }
    }
}
