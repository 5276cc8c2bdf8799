//! What quantised tensors have beside them: it is never taken for a table, and never passed over where it changes values.

use crate::common::{Folder, Named, bf16_bytes, compress, f32_bytes, options, values, write};
use condprog_checkpoint::{Checkpoint, Role};
use safetensors::tensor::Dtype;

const ROWS: usize = 6;
const DIM: usize = 64;

/// Bytes of an element of a type.
fn number(dtype: Dtype, value: i32) -> Vec<u8> {
    match dtype {
        Dtype::F32 => (value as f32).to_le_bytes().into(),
        Dtype::BF16 => bf16_bytes(&[value as f32]),
        Dtype::F16 => half::f16::from_f32(value as f32).to_le_bytes().into(),
        Dtype::I64 | Dtype::U64 => i64::from(value).to_le_bytes().into(),
        Dtype::F64 => f64::from(value).to_le_bytes().into(),
        _ => value.to_le_bytes()[..dtype.bitsize() / 8].into(),
    }
}

fn filled(name: &str, dtype: Dtype, shape: &[usize], value: i32) -> Named {
    let count = shape.iter().product();
    (name.into(), dtype, shape.into(), number(dtype, value).repeat(count))
}

fn open(tensors: &[Named]) -> (Folder, Checkpoint) {
    let folder = Folder::new();
    write(&folder.path("in"), tensors);
    let checkpoint = Checkpoint::open(folder.path("in")).unwrap();
    (folder, checkpoint)
}

/// An I8 tensor with a scale for each row, and what is beside it.
fn scaled(others: &[Named]) -> Result<Vec<f32>, (&'static str, String)> {
    let weight = ("a.x.weight".into(), Dtype::I8, vec![ROWS, DIM], (0..ROWS * DIM).map(|i| i as u8).collect());
    let scale = ("a.x.weight_scale".into(), Dtype::F32, vec![ROWS, 1], f32_bytes(&[0.5; ROWS]));
    let (_folder, checkpoint) = open(&[&[weight, scale], others].concat());
    let table = checkpoint.table("a.x.weight").map_err(|error| (error.code(), error.to_string()));
    table.map(|mut table| values(&mut table))
}

#[test]
fn zero_points_that_are_not_zero_are_refused_by_name_and_value() {
    let plain = scaled(&[]).unwrap();
    let dtypes = [
        Dtype::I8,
        Dtype::U8,
        Dtype::I16,
        Dtype::U16,
        Dtype::I32,
        Dtype::U32,
        Dtype::I64,
        Dtype::U64,
        Dtype::F16,
        Dtype::BF16,
        Dtype::F32,
        Dtype::F64,
    ];
    let names = [
        "a.x.weight_zero_point",
        "a.x.zero_point",
        "a.x.zero_points",
        "a.x.zeros",
        "a.x.biases",
        "a.x.weight_zp",
        "a.x.qzeros",
        "a.x.weight.zero_point",
    ];
    for dtype in dtypes {
        for name in names {
            let mut zeros = filled(name, dtype, &[ROWS, 1], 0);
            assert_eq!(scaled(std::slice::from_ref(&zeros)).unwrap(), plain, "{name}");
            let size = dtype.bitsize() / 8;
            zeros.3[4 * size..5 * size].copy_from_slice(&number(dtype, 60));
            let (code, message) = scaled(&[zeros]).unwrap_err();
            assert_eq!(code, "source-zero-point", "{message}");
            let says = format!(
                "tensor \"a.x.weight\" has zero points {name:?}, of which element 4 is 60, expected zeros only: nothing \
                 but scales is applied, so compress the checkpoint that it was quantised from"
            );
            assert!(message.contains(&says), "{message}");
        }
    }
    // One for all that lie beside each other.
    assert_eq!(scaled(&[filled("a.zero_point", Dtype::I8, &[1], 60)]).unwrap_err().0, "source-zero-point");
    assert_eq!(scaled(&[filled("a.zero_point", Dtype::I8, &[1], 0)]).unwrap(), plain);
    // Minus zero is zero; a type that is not read is not passed over; others' zero points are.
    let minus = ("a.x.zero_point".to_string(), Dtype::F32, vec![1], f32_bytes(&[-0.0]));
    assert_eq!(scaled(&[minus]).unwrap(), plain);
    let unread = ("a.x.zero_point".to_string(), Dtype::F8_E5M2, vec![1], vec![0]);
    assert_eq!(scaled(&[unread]).unwrap_err().0, "source-companion-dtype");
    assert_eq!(scaled(&[filled("b.x.zero_point", Dtype::I8, &[1], 60)]).unwrap(), plain);
    assert_eq!(scaled(&[filled("a.x.bias", Dtype::F32, &[DIM], 60)]).unwrap(), plain);
    // A second factor of the scales.
    for (value, is_refused) in [(1, false), (2, true)] {
        let factor = filled("a.x.weight_scale_2", Dtype::F32, &[1], value);
        assert_eq!(scaled(&[factor]).is_err_and(|(code, _)| code == "source-zero-point"), is_refused);
    }
    // Beyond the first piece that is read.
    let rows = 1 << 20;
    let mut points = filled("z.zero_point", Dtype::I8, &[rows + 9, 1], 0);
    points.3[rows + 7] = 0xff;
    let weight = ("z.weight".into(), Dtype::I8, vec![rows + 9, 1], vec![0; rows + 9]);
    let (_folder, checkpoint) = open(&[weight, filled("z.scale", Dtype::F32, &[1], 1), points]);
    let message = checkpoint.info("z.weight").unwrap_err().to_string();
    assert!(message.contains("of which element 1048583 is -1, expected zeros only"), "{message}");
}

#[test]
fn zero_points_beside_scales_that_are_named_are_found() {
    let tensors = |value| {
        [
            filled("t", Dtype::I8, &[ROWS, DIM], 3),
            filled("other.scale_of_t", Dtype::F32, &[ROWS, 1], 1),
            filled("other.zero_point_of_t", Dtype::I8, &[ROWS, 1], value),
        ]
    };
    for (value, is_refused) in [(0, false), (60, true)] {
        let (_folder, checkpoint) = open(&tensors(value));
        let joined = checkpoint.join("t", &["t".into()], Some("other.scale_of_t"));
        assert_eq!(joined.is_err_and(|error| error.code() == "source-zero-point"), is_refused);
    }
}

/// Packed weights and what they have beside them, as the tools name them.
fn packed() -> Vec<(&'static str, Vec<Named>)> {
    let f = |name: &str, dtype, shape: &[usize]| filled(name, dtype, shape, 1);
    vec![
        (
            "x.weight",
            vec![
                f("x.weight", Dtype::U32, &[ROWS, DIM / 8]),
                f("x.scales", Dtype::BF16, &[ROWS, 2]),
                f("x.biases", Dtype::BF16, &[ROWS, 2]),
            ],
        ),
        (
            "x.qweight",
            vec![
                f("x.qweight", Dtype::I32, &[DIM / 8, ROWS]),
                f("x.qzeros", Dtype::I32, &[2, 1]),
                f("x.scales", Dtype::F16, &[2, ROWS]),
                f("x.g_idx", Dtype::I32, &[DIM]),
            ],
        ),
        (
            "x.weight_packed",
            vec![
                f("x.weight_packed", Dtype::I32, &[ROWS, DIM / 8]),
                f("x.weight_scale", Dtype::BF16, &[ROWS, 2]),
                f("x.weight_shape", Dtype::I64, &[2]),
                f("x.weight_zero_point", Dtype::I8, &[ROWS, 2]),
            ],
        ),
        (
            "x.weight",
            vec![
                f("x.weight", Dtype::U8, &[ROWS, DIM / 2]),
                f("x.weight_scale", Dtype::F8_E4M3, &[ROWS, DIM / 16]),
                f("x.weight_scale_2", Dtype::F32, &[]),
            ],
        ),
        ("x.weight", vec![f("x.weight", Dtype::U8, &[ROWS, DIM]), f("x.weight.absmax", Dtype::F32, &[ROWS, 2])]),
        ("x_blocks", vec![f("x_blocks", Dtype::U8, &[2, ROWS, 2, 16]), f("x_scales", Dtype::U8, &[2, ROWS, 2])]),
        ("x.weight_packed", vec![f("x.weight_packed", Dtype::I8, &[ROWS, DIM]), f("x.scale", Dtype::F32, &[ROWS, 1])]),
        ("x_packed", vec![f("x_packed", Dtype::U8, &[ROWS, DIM])]),
    ]
}

#[test]
fn packed_weights_are_refused_by_name_and_their_companions_are_no_tables() {
    for (weight, tensors) in packed() {
        let (folder, checkpoint) = open(&tensors);
        // By default, by a pattern, by name: in any case nothing else is taken in its place.
        for patterns in [&[][..], &["*"], &["x*"], &[weight]] {
            let patterns: Vec<_> = patterns.iter().map(|pattern| pattern.to_string()).collect();
            let error = checkpoint.select(&patterns).unwrap_err();
            assert_eq!(error.code(), "source-packed", "{patterns:?}: {error}");
            let dtype = tensors[0].1.to_string();
            assert!(error.to_string().contains(&format!("tensor {weight:?} of type {dtype} is packed")), "{error}");
            assert!(tensors[1..].iter().all(|(name, ..)| error.to_string().contains(&format!("{name:?}"))), "{error}");
        }
        assert_eq!(compress(&folder.path("in"), &folder.path("out"), &options(4)).unwrap_err().code(), "source-packed");
        assert_eq!(folder.list(), ["in"]);
        let roles: Vec<_> =
            checkpoint.list(&[]).unwrap().into_iter().map(|tensor| (tensor.name, tensor.role)).collect();
        for (name, role) in roles {
            match role {
                Role::None { code, .. } => assert_eq!((name.as_str(), code), (weight, "source-packed")),
                Role::Companion { of, .. } => assert_eq!(of.as_deref(), Some(weight), "{name}"),
                other => panic!("{name} is taken for {other:?}"),
            }
        }
        // Nor are they taken where they are named themselves.
        for (name, ..) in tensors[1..].iter().filter(|(_, dtype, shape, _)| *dtype != Dtype::U8 && shape.len() == 2) {
            let error = checkpoint.select(std::slice::from_ref(name)).unwrap_err();
            assert!(matches!(error.code(), "source-companion" | "source-dtype"), "{name}: {error}");
        }
    }
}

#[test]
fn companions_whose_weights_are_elsewhere_are_no_tables() {
    let names = ["a.scales", "b.weight_scale", "c.qzeros", "d.g_idx", "e.weight_zero_point", "f.weight_scale_inv"];
    let mut tensors: Vec<_> = names.iter().map(|name| filled(name, Dtype::F32, &[ROWS, DIM], 1)).collect();
    let (_folder, checkpoint) = open(&tensors);
    assert_eq!(checkpoint.select(&[]).unwrap_err().code(), "source-no-tables");
    for name in names {
        let pattern = format!("{}*", &name[..3]);
        let error = checkpoint.select(&[pattern]).unwrap_err();
        assert_eq!(error.code(), "source-companion", "{error}");
        assert!(error.to_string().contains(&format!("tensor {name:?} holds ")), "{error}");
    }
    // Words that other tensors end in too say nothing alone.
    let others = ["g.biases", "h.zeros", "my_scale", "scale", "i.blocks"];
    tensors.extend(others.map(|name| filled(name, Dtype::F32, &[ROWS, DIM], 1)));
    let (_folder, checkpoint) = open(&tensors);
    let found: Vec<_> = checkpoint.select(&[]).unwrap().into_iter().map(|info| info.name).collect();
    assert_eq!(found.len(), others.len(), "{found:?}");
    assert!(others.iter().all(|name| found.iter().any(|found| found == name)), "{found:?}");
    // A float tensor's leftovers are not taken either, and do not hold it up.
    let (_folder, checkpoint) =
        open(&[filled("t.weight", Dtype::BF16, &[ROWS, DIM], 1), filled("t.weight_scale", Dtype::F32, &[ROWS, 1], 1)]);
    assert_eq!(checkpoint.select(&[]).unwrap().len(), 1);
}
