//! Scales of FP8 and INT8 tensors: where they are found, what they mean, and what is wrong with those that mean nothing.
//!
//! What a value is, is worked out here once more, from the bits.

use std::fs;

use crate::common::{Cpu, Folder, Tensor, bf16_bytes, compress, options, values, write};
use condprog_checkpoint::Checkpoint;
use condprog_table::source::ScaleKind;
use safetensors::tensor::Dtype;

/// What an 8-bit element is.
fn element(dtype: Dtype, byte: u8) -> f64 {
    if dtype == Dtype::I8 {
        return f64::from(byte) - if byte >= 128 { 256.0 } else { 0.0 };
    }
    let sign = if byte >= 128 { -1.0 } else { 1.0 };
    let (exponent, mantissa) = (i32::from(byte / 8 % 16), f64::from(byte % 8));
    match exponent {
        15 if byte % 8 == 7 => f64::NAN,
        0 => sign * mantissa / 512.0,
        _ => sign * (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7),
    }
}

/// What a scale is, by its bits.
fn number(dtype: Dtype, bits: u32) -> f64 {
    match dtype {
        Dtype::F32 => f32::from_bits(bits).into(),
        Dtype::BF16 => f32::from_bits(bits << 16).into(),
        Dtype::F8_E8M0 if bits == 255 => f64::NAN,
        Dtype::F8_E8M0 => 2f64.powi(bits as i32 - 127),
        _ => {
            let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
            let (exponent, mantissa) = (bits as i32 >> 10 & 31, f64::from(bits & 1023));
            match exponent {
                31 if mantissa > 0.0 => f64::NAN,
                31 => sign * f64::INFINITY,
                0 => sign * mantissa * 2f64.powi(-24),
                _ => sign * (1.0 + mantissa / 1024.0) * 2f64.powi(exponent - 15),
            }
        }
    }
}

fn bytes(dtype: Dtype, bits: u32) -> Vec<u8> {
    bits.to_le_bytes()[..dtype.bitsize() / 8].into()
}

/// The bits of a value: the product rounded to binary32, and that to bf16, ties to even both times.
fn expected(element: f64, scale: f64) -> Option<u32> {
    let product = (element * scale) as f32;
    let bits = product.to_bits();
    // A carry out of the largest numbers makes an infinity, as it should.
    (!product.is_nan()).then(|| (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
}

/// Numbers near the edges of each type, Qwen's scale, and what is no scale of a whole tensor: zeros, negative ones, NaN,
/// infinities.
const NUMBERS: [(Dtype, [u32; 10]); 3] = [
    (
        Dtype::F32,
        [
            0x3f80_0000,
            0x3950_ac2f,
            0x0000_0001,
            0x0080_0000,
            0x7f7f_ffff,
            0x3dcc_cccd,
            0x8000_0000,
            0xbf00_0000,
            0x7fc0_0000,
            0x7f80_0000,
        ],
    ),
    (Dtype::BF16, [0x3f80, 0x3951, 0x0001, 0x0080, 0x7f7f, 0x3dcd, 0x0000, 0xbf00, 0x7fc1, 0xff80]),
    (Dtype::F16, [0x3c00, 0x0a86, 0x0001, 0x0400, 0x7bff, 0x2e66, 0x8000, 0xb800, 0x7e00, 0x7c00]),
];

/// A table `x.weight` of eight rows of 32 elements, all 256 bytes, and its scales.
fn all_elements(dtype: Dtype, scale: Tensor) -> (Folder, Checkpoint) {
    let folder = Folder::new();
    write(&folder.path("in"), &[("x.weight", dtype, vec![8, 32], (0..=255).collect()), scale]);
    let checkpoint = Checkpoint::open(folder.path("in")).unwrap();
    (folder, checkpoint)
}

fn assert_values(dtype: Dtype, checkpoint: &Checkpoint, scale_of_row: impl Fn(usize) -> f64) {
    let got = values(&mut checkpoint.table("x.weight").unwrap());
    for (byte, value) in (0..=255u8).zip(got) {
        let scale = scale_of_row(usize::from(byte) / 32);
        let bits = (!value.is_nan()).then(|| value.to_bits());
        assert_eq!(bits, expected(element(dtype, byte), scale), "{dtype} {byte:#04x} by {scale:e}");
    }
}

#[test]
fn every_element_under_a_scale_of_its_row_is_the_rounded_product() {
    for dtype in [Dtype::F8_E4M3, Dtype::I8] {
        for (scale_dtype, list) in NUMBERS {
            for (turn, shape) in (0..list.len()).flat_map(|turn| [(turn, vec![8, 1]), (turn, vec![8])]) {
                let bits = |row: usize| list[(row + turn) % list.len()];
                let data = (0..8).flat_map(|row| bytes(scale_dtype, bits(row))).collect();
                let (_folder, checkpoint) = all_elements(dtype, ("x.weight_scale", scale_dtype, shape, data));
                let info = checkpoint.info("x.weight").unwrap();
                assert_eq!(info.parts[0].scale.as_ref().unwrap().kind(), ScaleKind::Rows);
                assert_eq!(info.row_bytes() as usize, 32 + scale_dtype.bitsize() / 8);
                assert_values(dtype, &checkpoint, |row| number(scale_dtype, bits(row)));
            }
        }
    }
}

#[test]
fn every_element_under_one_scale_is_the_rounded_product_and_what_is_no_scale_is_refused() {
    for (dtype, (scale_dtype, list)) in NUMBERS.into_iter().flat_map(|n| [(Dtype::F8_E4M3, n), (Dtype::I8, n)]) {
        for (bits, shape) in list.into_iter().flat_map(|bits| [(bits, vec![]), (bits, vec![1]), (bits, vec![1, 1])]) {
            let scale = ("x.weight_scale", scale_dtype, shape, bytes(scale_dtype, bits));
            let (folder, checkpoint) = all_elements(dtype, scale);
            let value = number(scale_dtype, bits);
            if value.is_finite() && value > 0.0 {
                let info = checkpoint.info("x.weight").unwrap();
                let scale = info.parts[0].scale.as_ref().unwrap();
                assert_eq!((scale.kind(), scale.value_bits), (ScaleKind::Global, Some((value as f32).to_bits())));
                assert_eq!(info.row_bytes(), 32);
                assert_values(dtype, &checkpoint, |_| value);
            } else {
                let error = compress(&folder.path("in"), &folder.path("out"), &options(4)).unwrap_err();
                assert_eq!(error.code(), "source-scale-value", "{error}");
                let says = "scale \"x.weight_scale\" of tensor \"x.weight\" is ";
                assert!(error.to_string().contains(says), "{error}");
                assert!(error.to_string().ends_with(", expected a positive number"), "{error}");
                assert_eq!(folder.list(), ["in"]);
            }
        }
    }
}

#[test]
fn every_element_under_a_scale_of_its_group_is_the_rounded_product() {
    for first in [0, 1, 2, 120, 126, 127, 247, 248] {
        let (_folder, checkpoint) =
            all_elements(Dtype::F8_E4M3, ("x.scale", Dtype::F8_E8M0, vec![8, 1], (first..=first + 7).collect()));
        assert_values(Dtype::F8_E4M3, &checkpoint, |row| number(Dtype::F8_E8M0, u32::from(first) + row as u32));
    }
}

#[test]
fn elements_and_scales_that_are_no_numbers_stop_a_run_at_their_row() {
    let one = 0x3f80u32.to_le_bytes()[..2].to_vec();
    let nan = 0x7fc0u32.to_le_bytes()[..2].to_vec();
    let rows = |bad: usize| (0..3).flat_map(|row| if row == bad { nan.clone() } else { one.clone() }).collect();
    let weight = |at: Option<usize>| -> Tensor {
        let data = (0..96).map(|i| if at == Some(i) { 0xff } else { 0x38 }).collect();
        ("x.weight", Dtype::F8_E4M3, vec![3, 32], data)
    };
    let cases: [(Tensor, Tensor, &str); 3] = [
        (weight(Some(70)), ("x.scale", Dtype::F8_E8M0, vec![3, 1], vec![127; 3]), "row 2: value in column 6 is NaN"),
        (weight(None), ("x.scale", Dtype::F8_E8M0, vec![3, 1], vec![127, 255, 127]), "row 1: value in column 0 is NaN"),
        (weight(None), ("x.scale", Dtype::BF16, vec![3, 1], rows(1)), "row 1: value in column 0 is NaN"),
    ];
    for (weight, scale, says) in cases {
        let folder = Folder::new();
        write(&folder.path("in"), &[weight, scale]);
        let error = compress(&folder.path("in"), &folder.path("out"), &options(4)).unwrap_err();
        assert_eq!(error.code(), "row");
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(folder.list(), ["in"]);
    }
}

/// The scales of `a.x.weight`, `F8_E4M3 [3, 64]`, among these tensors, or why there are none. Nothing may be written.
fn scales_among(weight: Dtype, tensors: &[(&'static str, Dtype, &[usize])]) -> Result<String, (&'static str, String)> {
    let folder = Folder::new();
    let mut all: Vec<Tensor> = vec![("a.x.weight", weight, vec![3, 64], vec![0x38; 192])];
    all.extend(tensors.iter().map(|(name, dtype, shape)| {
        let one: &[u8] = match dtype {
            Dtype::F32 => &[0, 0, 128, 63],
            Dtype::BF16 => &[128, 63],
            Dtype::F16 => &[0, 60],
            _ => &[127],
        };
        let bytes = shape.iter().product::<usize>() * dtype.bitsize() / 8;
        (*name, *dtype, shape.to_vec(), one.iter().copied().cycle().take(bytes).collect())
    }));
    write(&folder.path("in"), &all);
    let checkpoint = Checkpoint::open(folder.path("in")).unwrap();
    checkpoint.info("a.x.weight").map(|info| info.parts[0].scale.clone().unwrap().name).map_err(|error| {
        let output = folder.path("out");
        let again = condprog_convert::compress_file(
            folder.path("in"),
            &["a.x.weight".into()],
            output,
            &options(1),
            &Cpu,
            &condprog_convert::quiet,
        );
        assert_eq!(again.unwrap_err().to_string(), error.to_string());
        assert_eq!(folder.list(), ["in"]);
        (error.code(), error.to_string())
    })
}

#[test]
fn scales_are_found_by_name_wherever_they_are_kept() {
    let e8m0 = |name| (name, Dtype::F8_E8M0, &[3, 2][..]);
    let rows = |name| (name, Dtype::F32, &[3, 1][..]);
    let one = |name| (name, Dtype::BF16, &[1][..]);
    let cases = [
        e8m0("a.x.scale"),
        e8m0("a.x.weight_scale"),
        rows("a.x.weight_scale"),
        rows("a.x.weight_scale_inv"),
        one("a.x.weight_scale"),
        one("a.weight_scale"),
        one("a.scale"),
    ];
    for case in cases {
        assert_eq!(scales_among(Dtype::F8_E4M3, &[case]), Ok(case.0.into()));
    }
    // A matrix beside the tensor belongs to something else, and so does what has another name.
    let own = e8m0("a.x.scale");
    let others = [rows("a.scale"), e8m0("a.weight_scale"), one("scale"), one("b.x.scale"), one("a.x.scales")];
    for other in others {
        assert_eq!(scales_among(Dtype::F8_E4M3, &[other, own]), Ok("a.x.scale".into()));
        let (code, message) = scales_among(Dtype::F8_E4M3, &[other]).unwrap_err();
        assert_eq!(code, "source-missing-scale");
        for name in ["a.x.scale", "a.x.weight_scale", "a.scale", "a.weight_scale"] {
            assert!(message.contains(&format!("{name:?}")), "{message}");
        }
    }
}

/// Scales of `a.x.weight`, `F8_E4M3 [3, 64]`, each with its bytes.
fn scales_of(tensors: &[(&'static str, Dtype, &[usize], Vec<u8>)]) -> Result<String, (&'static str, String)> {
    let folder = Folder::new();
    let mut all: Vec<Tensor> = vec![("a.x.weight", Dtype::F8_E4M3, vec![3, 64], vec![0x38; 192])];
    all.extend(tensors.iter().map(|(name, dtype, shape, data)| (*name, *dtype, shape.to_vec(), data.clone())));
    write(&folder.path("in"), &all);
    let info = Checkpoint::open(folder.path("in")).unwrap().info("a.x.weight");
    info.map(|info| info.parts[0].scale.clone().unwrap().name).map_err(|error| (error.code(), error.to_string()))
}

#[test]
fn two_scales_are_refused_by_their_names() {
    let one = |name, value| (name, Dtype::BF16, &[1][..], bf16_bytes(&[value]));
    let rows = |name| (name, Dtype::BF16, &[3, 1][..], bf16_bytes(&[0.5; 3]));
    let groups = |name| (name, Dtype::F8_E8M0, &[3, 2][..], vec![127; 6]);
    for (first, second) in [
        (rows("a.x.scale"), one("a.x.weight_scale", 2.0)),
        (groups("a.x.scale"), one("a.x.weight_scale", 2.0)),
        (rows("a.x.weight_scale"), one("a.weight_scale", 0.5)),
        (rows("a.x.scale"), groups("a.x.weight_scale")),
        (one("a.x.scale", 0.5), one("a.x.weight_scale", 0.5)),
        (one("a.scale", 1.0), one("a.weight_scale", 1.0)),
        (one("a.scale", 2.0), one("a.weight_scale", 0.5)),
    ] {
        let (code, message) = scales_of(&[first.clone(), second.clone()]).unwrap_err();
        assert_eq!(code, "source-two-scales");
        let says = format!("has scales {:?} and {:?}, expected one of them", first.0, second.0);
        assert!(message.contains(&says), "{message}");
    }
}

#[test]
fn a_placeholder_gives_way_to_scales() {
    let one = |name, value| (name, Dtype::BF16, &[1][..], bf16_bytes(&[value]));
    let rows = |name| (name, Dtype::BF16, &[3, 1][..], bf16_bytes(&[1.0; 3]));
    let groups = |name| (name, Dtype::F8_E8M0, &[3, 2][..], vec![127; 6]);
    for (scales, placeholder) in [
        (rows("a.x.scale"), one("a.x.weight_scale", 1.0)),
        (rows("a.x.weight_scale"), one("a.weight_scale", 1.0)),
        (groups("a.x.scale"), one("a.scale", 1.0)),
        // One number that is not 1 is no placeholder.
        (one("a.x.scale", 0.5), one("a.x.weight_scale", 1.0)),
        (one("a.weight_scale", 0.5), one("a.x.weight_scale", 1.0)),
        // Of two that say the same, its own.
        (one("a.x.scale", 1.0), one("a.scale", 1.0)),
    ] {
        for tensors in [[scales.clone(), placeholder.clone()], [placeholder, scales.clone()]] {
            assert_eq!(scales_of(&tensors), Ok(scales.0.into()));
        }
    }
}

#[test]
fn placeholders_and_scales_of_other_shapes_and_types_are_refused() {
    let cases: [(Dtype, Dtype, &[usize]); 14] = [
        (Dtype::F8_E4M3, Dtype::F8_E8M0, &[1]),
        (Dtype::F8_E4M3, Dtype::F8_E8M0, &[]),
        (Dtype::F8_E4M3, Dtype::F8_E8M0, &[3, 1]),
        (Dtype::F8_E4M3, Dtype::F8_E8M0, &[2, 3]),
        (Dtype::F8_E4M3, Dtype::F8_E8M0, &[6]),
        (Dtype::F8_E4M3, Dtype::U8, &[3, 2]),
        (Dtype::F8_E4M3, Dtype::F32, &[0]),
        (Dtype::F8_E4M3, Dtype::F32, &[3, 2]),
        (Dtype::F8_E4M3, Dtype::F32, &[64]),
        (Dtype::F8_E4M3, Dtype::F32, &[1, 3]),
        (Dtype::F8_E4M3, Dtype::F64, &[1]),
        (Dtype::F8_E4M3, Dtype::I32, &[3, 1]),
        (Dtype::I8, Dtype::F8_E8M0, &[3, 2]),
        (Dtype::I8, Dtype::BF16, &[2, 1]),
    ];
    for (weight, dtype, shape) in cases {
        let (code, message) = scales_among(weight, &[("a.x.weight_scale", dtype, shape)]).unwrap_err();
        assert_eq!(code, "source-scale", "{dtype} {shape:?}");
        let says =
            format!("scales \"a.x.weight_scale\" of tensor \"a.x.weight\" have type {dtype} and shape {shape:?}");
        assert!(message.contains(&says) && message.contains("F32, BF16 or F16 and [3, 1] or [1]"), "{message}");
    }
}

#[test]
fn what_is_left_over_beside_a_float_tensor_is_not_looked_at() {
    for (shape, count) in [(vec![1], 1), (vec![3, 1], 3)] {
        let folder = Folder::new();
        let all: Vec<f32> = (0..48).map(|i| i as f32).collect();
        let scale = ("x.weight_scale", Dtype::F32, shape, [0, 0, 0, 64].repeat(count));
        write(&folder.path("in"), &[("x.weight", Dtype::BF16, vec![3, 16], bf16_bytes(&all)), scale]);
        let checkpoint = Checkpoint::open(folder.path("in")).unwrap();
        assert_eq!(checkpoint.info("x.weight").unwrap().parts[0].scale, None);
        assert_eq!(values(&mut checkpoint.table("x.weight").unwrap()), all);
    }
}

/// Checkpoints have shipped whose config says FP8 of tensors that are not, and nothing of those that are.
#[test]
fn what_a_config_says_changes_nothing() {
    let bf16: Vec<Tensor> = vec![("x.weight", Dtype::BF16, vec![3, 32], bf16_bytes(&[0.5; 96]))];
    let fp8: Vec<Tensor> = vec![
        ("x.weight", Dtype::F8_E4M3, vec![3, 32], vec![0x30; 96]),
        ("x.scale", Dtype::F8_E8M0, vec![3, 1], vec![128; 3]),
    ];
    let configs = [
        r#"{"torch_dtype": "bfloat16"}"#,
        r#"{"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}"#,
        "not JSON",
    ];
    for tensors in [bf16, fp8] {
        let folder = Folder::new();
        write(&folder.path("model.safetensors"), &tensors);
        let plain = Checkpoint::open(folder.path("")).unwrap();
        let (info, all) = (plain.info("x.weight").unwrap(), values(&mut plain.table("x.weight").unwrap()));
        for config in configs {
            fs::write(folder.path("config.json"), config).unwrap();
            let checkpoint = Checkpoint::open(folder.path("")).unwrap();
            assert_eq!(checkpoint.info("x.weight").unwrap(), info);
            assert_eq!(values(&mut checkpoint.table("x.weight").unwrap()), all);
        }
    }
}
