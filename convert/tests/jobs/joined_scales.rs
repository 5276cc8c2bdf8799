//! Scales that are named for tables of several tensors: each tensor must get its own, in whatever form they are kept.

use std::fs;

use crate::common::{Cpu, Folder, Named, Seeded, bf16_bytes, f32_bytes, options, values, write};
use condprog_checkpoint::{Checkpoint, RowSource};
use condprog_convert::{
    DecompressOptions, PartOf, RestoredDtype, VerifyOptions, compress, decompress, join, quiet, verify,
};
use condprog_table::Tables;
use condprog_table::source::ScaleKind;
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;

/// Tensors of the table, rows of each, values of a row.
const PARTS: usize = 4;
const ROWS: usize = 8;
const DIM: usize = 160;

/// Finite e4m3 numbers of part of the table.
fn elements(part: usize) -> Vec<u8> {
    let mut random = Seeded(part as u64);
    (0..ROWS * DIM).map(|_| (random.next() >> 32) as u8 & 0xbf).collect()
}

/// Powers of two: products are exact in bf16. Those of different tensors are a thousand times apart.
fn scale(part: usize, row: usize) -> f32 {
    1024f32.powi(part as i32 - 2) * 2f32.powi(row as i32 % 3)
}

fn scales(part: usize) -> Vec<f32> {
    (0..ROWS).map(|row| scale(part, row)).collect()
}

/// The elements as they are with scales of 1.
fn unscaled() -> Vec<f32> {
    let folder = Folder::new();
    let mut tensors: Vec<Named> =
        (0..PARTS).map(|part| (format!("n.{part}"), Dtype::F8_E4M3, vec![ROWS, DIM], elements(part))).collect();
    tensors.push(("one".into(), Dtype::F32, vec![1], f32_bytes(&[1.0])));
    write(&folder.path("in"), &tensors);
    let checkpoint = Checkpoint::open(folder.path("in")).unwrap();
    values(&mut checkpoint.rows(checkpoint.join_matching("n", "n.*", Some("one")).unwrap()).unwrap())
}

fn expected() -> Vec<f32> {
    let scaled = |(i, value): (usize, f32)| value * scale(i / DIM / ROWS, i / DIM % ROWS);
    unscaled().into_iter().enumerate().map(scaled).collect()
}

/// The shards, and other tensors.
fn checkpoint(others: impl IntoIterator<Item = Named>) -> (Folder, Checkpoint) {
    let folder = Folder::new();
    let shard = |part| (format!("n.shard_{part}.weight"), Dtype::F8_E4M3, vec![ROWS, DIM], elements(part));
    let tensors: Vec<Named> = (0..PARTS).map(shard).chain(others).collect();
    write(&folder.path("in"), &tensors);
    let checkpoint = Checkpoint::open(folder.path("in")).unwrap();
    (folder, checkpoint)
}

fn own_scales(name: &str) -> Vec<Named> {
    let own = |part| (format!("n.shard_{part}.{name}"), Dtype::F32, vec![ROWS, 1], f32_bytes(&scales(part)));
    (0..PARTS).map(own).collect()
}

fn placeholder(name: &str) -> Named {
    (name.into(), Dtype::F32, vec![1], f32_bytes(&[1.0]))
}

/// Scales of all rows in one tensor.
fn all_scales(shape: Vec<usize>) -> Named {
    let all: Vec<f32> = (0..PARTS).flat_map(scales).collect();
    ("all".into(), Dtype::F32, shape, f32_bytes(&all))
}

fn joined(checkpoint: &Checkpoint, scale: Option<&str>) -> Result<Vec<f32>, (&'static str, String)> {
    let info = checkpoint.join_matching("n", "n.shard_*.weight", scale);
    let info = info.map_err(|error| (error.code(), error.to_string()))?;
    Ok(values(&mut checkpoint.rows(info).unwrap()))
}

#[test]
fn each_tensor_has_its_own_scales_by_name_by_pattern_or_from_one_tensor() {
    let own = own_scales("weight_scale");
    // By name, whatever placeholder is beside them.
    for others in
        [vec![], vec![placeholder("n.weight_scale")], vec![placeholder("n.scale"), placeholder("n.weight_scale")]]
    {
        let (_folder, checkpoint) = checkpoint(own.iter().cloned().chain(others));
        assert_eq!(joined(&checkpoint, None).unwrap(), expected());
    }
    // By a pattern, where the names do not tell; eleven are in order of their numbers, not of their letters.
    let (_folder, told) = checkpoint(own_scales("unit"));
    assert_eq!(joined(&told, Some("n.shard_*.unit")).unwrap(), expected());
    assert_eq!(joined(&told, Some("n.shard_{0..3}.unit")).unwrap(), expected());
    // From one tensor with those of all rows.
    for shape in [vec![PARTS * ROWS, 1], vec![PARTS * ROWS]] {
        let (_folder, checkpoint) = checkpoint([all_scales(shape)]);
        assert_eq!(joined(&checkpoint, Some("all")).unwrap(), expected());
    }
    let groups = |scale: u8| (0..PARTS * ROWS * DIM / 32).map(|i| scale + (i / (DIM / 32)) as u8 % 5).collect();
    let (_folder, grouped) = checkpoint([("all".into(), Dtype::F8_E8M0, vec![PARTS * ROWS, DIM / 32], groups(125))]);
    let info = grouped.join_matching("n", "n.shard_*.weight", Some("all")).unwrap();
    assert_eq!(info.parts[3].scale.as_ref().unwrap().kind(), ScaleKind::Groups);
    let unscaled = unscaled();
    let all: Vec<f32> = (0..unscaled.len()).map(|i| unscaled[i] * 2f32.powi((i / DIM % 5) as i32 - 2)).collect();
    assert_eq!(values(&mut grouped.rows(info).unwrap()), all);
}

#[test]
fn scales_of_one_tensor_are_not_those_of_the_others() {
    let refused = |others: Vec<Named>, scale: &str, code, says: &str| {
        let (_folder, checkpoint) = checkpoint(others);
        let (got, message) = joined(&checkpoint, Some(scale)).unwrap_err();
        assert!(got == code && message.contains(says), "{message}");
    };
    let own = || own_scales("weight_scale");
    let says = "scales \"n.shard_2.weight_scale\" have shape [8, 1], expected those of all 32 rows that table \"n\" has in 4 \
                tensors, one number for all, or a pattern that matches the scales of each tensor";
    refused(own(), "n.shard_2.weight_scale", "source-joined-scale", says);
    refused(vec![all_scales(vec![1, PARTS * ROWS])], "all", "source-joined-scale", "have shape [1, 32]");
    refused(
        own()[..3].to_vec(),
        "n.shard_*.weight_scale",
        "source-scale-count",
        "matches 3 tensors, expected the scales",
    );
    refused(own(), "n.*.unit", "source-no-match", "\"n.*.unit\" matches no tensor");
    refused(own(), "n.shard_{0..4}.weight_scale", "source-scale-count", "matches 5 tensors");
    // One number too many: the fourth has a shape of its own, or the first is missing and a fifth is there.
    let mut wrong = own();
    wrong[3].2 = vec![ROWS / 2, 2];
    refused(
        wrong,
        "n.shard_*.weight_scale",
        "source-scale",
        "\"n.shard_3.weight_scale\" of tensor \"n.shard_3.weight\"",
    );
    let mut shifted = own();
    shifted.iter_mut().enumerate().for_each(|(part, tensor)| tensor.0 = format!("n.shard_{}.unit", part + 1));
    let says = "\"n.shard_1.unit\" would be those of tensor \"n.shard_0.weight\", which has another number";
    refused(shifted, "n.shard_*.unit", "source-scale-number", says);
    // Tables of their own that share scales of rows.
    let (_folder, checkpoint) = checkpoint(own());
    let tables: Vec<_> = ["n.shard_0.weight", "n.shard_1.weight"]
        .map(|name| checkpoint.join(name, &[name.into()], Some("n.shard_0.weight_scale")).unwrap())
        .into();
    let error = checkpoint.refuse_shared_scales(&tables).unwrap_err();
    assert_eq!(error.code(), "source-shared-scale");
    let says = "would be those of the rows of tensor \"n.shard_0.weight\" and of tensor \"n.shard_1.weight\"";
    assert!(error.to_string().contains(says), "{error}");
    checkpoint.refuse_shared_scales(&tables[..1]).unwrap();
}

/// What the table says of its scales is enough to compare with the source and to restore it, whole and in parts.
#[test]
fn scales_of_all_rows_are_verified_and_restored() {
    let restore = |file: &Tables, folder: &Folder, name: &str| {
        let options = DecompressOptions { dtype: RestoredDtype::Source, ..Default::default() };
        decompress(file, folder.path(name), &options, &Cpu, &quiet).unwrap();
        fs::read(folder.path(name)).unwrap()
    };
    let own = own_scales("weight_scale");
    let (own_folder, own) = checkpoint(own);
    let (folder, spanning) = checkpoint([all_scales(vec![PARTS * ROWS, 1])]);
    let compressed = |checkpoint: &Checkpoint, folder: &Folder, scale, name: &str, part| {
        let info = checkpoint.join_matching("n", "n.shard_*.weight", scale).unwrap();
        let mut sources: Vec<Box<dyn RowSource>> = vec![Box::new(checkpoint.rows(info).unwrap())];
        let options = condprog_convert::CompressOptions { part, ..options(3) };
        compress(&mut sources, folder.path(name), &options, &Cpu, &quiet).unwrap();
        Tables::open(folder.path(name)).unwrap()
    };
    let file = compressed(&spanning, &folder, Some("all"), "out", None);
    let first_rows: Vec<_> =
        file.tables()[0].source.parts.iter().map(|part| part.scale.as_ref().unwrap().first_row).collect();
    assert_eq!(first_rows, [Some(0), Some(8), Some(16), Some(24)]);
    let report = verify(&file, Some(&spanning), &VerifyOptions::default(), &Cpu, &quiet).unwrap();
    assert!(report.is_whole() && report.tables[0].relative_mse.unwrap() < 0.1, "{report:?}");

    // The same elements and scales as from tensors with scales of their own.
    let restored = restore(&file, &folder, "restored");
    let tensors = SafeTensors::deserialize(&restored).unwrap();
    let other = restore(&compressed(&own, &own_folder, None, "out", None), &own_folder, "restored");
    let others = SafeTensors::deserialize(&other).unwrap();
    assert_eq!(tensors.names().len(), PARTS + 1);
    let all = tensors.tensor("all").unwrap();
    assert_eq!((all.shape(), all.dtype()), (&[PARTS * ROWS, 1][..], Dtype::F32));
    for part in 0..PARTS {
        let (name, scale) = (format!("n.shard_{part}.weight"), format!("n.shard_{part}.weight_scale"));
        assert_eq!(tensors.tensor(&name).unwrap().data(), others.tensor(&name).unwrap().data());
        let size = 4 * ROWS;
        assert_eq!(&all.data()[part * size..(part + 1) * size], others.tensor(&scale).unwrap().data());
    }
    // A part of the rows has their scales.
    let parts: Vec<_> = (0..2)
        .map(|index| {
            let name = format!("part{index}");
            let part = compressed(&spanning, &folder, Some("all"), &name, Some(PartOf::Share { index, of: 2 }));
            let restored = restore(&part, &folder, &format!("restored{index}"));
            let restored = SafeTensors::deserialize(&restored).unwrap();
            let rows =
                part.tables()[0].first_row as usize..(part.tables()[0].first_row + part.tables()[0].rows) as usize;
            assert_eq!(restored.tensor("all").unwrap().data(), &all.data()[4 * rows.start..4 * rows.end]);
            folder.path(&name)
        })
        .collect();
    join(&parts, folder.path("joined"), &Default::default(), &quiet).unwrap();
    assert_eq!(fs::read(folder.path("joined")).unwrap(), fs::read(folder.path("out")).unwrap());
}

#[test]
fn numbers_of_more_digits_come_after_those_of_fewer() {
    let folder = Folder::new();
    let tensors: Vec<Named> = (0..11)
        .flat_map(|part| {
            let scale = (format!("s{part}"), Dtype::BF16, vec![1, 1], bf16_bytes(&[2f32.powi(part)]));
            [(format!("t{part}"), Dtype::I8, vec![1, 16], vec![1; 16]), scale]
        })
        .collect();
    write(&folder.path("in"), &tensors);
    let checkpoint = Checkpoint::open(folder.path("in")).unwrap();
    let info = checkpoint.join_matching("t", "t*", Some("s*")).unwrap();
    let all: Vec<f32> = (0..11 * 16).map(|i| 2f32.powi(i / 16)).collect();
    assert_eq!(values(&mut checkpoint.rows(info).unwrap()), all);
}
