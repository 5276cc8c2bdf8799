//! The model families at miniature size: true names, types, numbers of tensors and files.

use std::fs;

use crate::common::{Cpu, Folder, Named, Seeded, bf16_bytes, options, values, write_checkpoint};
use condprog_checkpoint::family::Family;
use condprog_checkpoint::{Checkpoint, RowSource};
use condprog_convert::{VerifyOptions, compress, quiet, verify};
use condprog_table::Tables;
use condprog_table::source::{ScaleKind, SourceDtype};
use safetensors::tensor::Dtype;

/// Random bytes that are finite e4m3 numbers.
fn elements(count: usize, seed: u64) -> Vec<u8> {
    let mut random = Seeded(seed);
    let numbers = std::iter::repeat_with(|| (random.next() >> 32) as u8).filter(|byte| byte & 0x7f != 0x7f);
    numbers.take(count).collect()
}

/// An e4m3 number.
fn e4m3(byte: u8) -> f32 {
    let sign = if byte >= 128 { -1.0 } else { 1.0 };
    let (exponent, mantissa) = (i32::from(byte / 8 % 16), f32::from(byte % 8));
    sign * if exponent == 0 { mantissa / 512.0 } else { (1.0 + mantissa / 8.0) * 2f32.powi(exponent - 7) }
}

/// The bf16 number nearest to one, ties to even.
fn rounded(value: f32) -> f32 {
    let bits = value.to_bits();
    f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
}

/// Opens a checkpoint, compresses its tables, verifies the file against it, and gives its tables and values.
fn tables_of(folder: &Folder, family: Family) -> Vec<(Tables, Vec<f32>)> {
    let checkpoint = Checkpoint::open(folder.path("")).unwrap();
    assert_eq!(checkpoint.family().unwrap(), Some(family));
    let tables = checkpoint.family_tables(family).unwrap();
    tables
        .into_iter()
        .map(|(_, info)| {
            let all = values(&mut checkpoint.rows(info.clone()).unwrap());
            let out = Folder::new();
            let mut sources: Vec<Box<dyn RowSource>> = vec![Box::new(checkpoint.rows(info.clone()).unwrap())];
            compress(&mut sources, out.path("out"), &options(16), &Cpu, &quiet).unwrap();
            let file = Tables::open(out.path("out")).unwrap();
            let report = verify(&file, Some(&checkpoint), &VerifyOptions::default(), &Cpu, &quiet).unwrap();
            assert!(report.is_whole() && report.tables[0].mean_cosine.unwrap() > 0.8, "{report:?}");
            assert_eq!(file.tables()[0].source.tensors(), info.parts);
            (file, all)
        })
        .collect()
}

/// What is wrong with the tables of a family.
fn refused(folder: &Folder, family: Family) -> condprog_checkpoint::Error {
    Checkpoint::open(folder.path("")).and_then(|checkpoint| checkpoint.family_tables(family)).unwrap_err()
}

/// Two layers, in three files; scales in other files than their tensors.
fn deepseek() -> [(&'static str, Vec<Named>); 3] {
    let weight = |layer: u64, rows: usize| -> Named {
        let name = format!("layers.{layer}.engram.embed.weight");
        (name, Dtype::F8_E4M3, vec![rows, 64], elements(rows * 64, layer))
    };
    let scale = |layer: u64, rows: usize| -> Named {
        let bytes = (0..rows * 2).map(|i| 116 + (i % 5) as u8).collect();
        (format!("layers.{layer}.engram.embed.scale"), Dtype::F8_E8M0, vec![rows, 2], bytes)
    };
    let other = ("layers.1.attn.wq.weight".to_string(), Dtype::BF16, vec![4, 4], bf16_bytes(&[1.0; 16]));
    [
        ("model-00001-of-00003.safetensors", vec![weight(14, 41), other]),
        ("model-00002-of-00003.safetensors", vec![scale(14, 41), weight(1, 37)]),
        ("model-00003-of-00003.safetensors", vec![scale(1, 37)]),
    ]
}

#[test]
fn deepseek_has_a_tensor_and_scales_of_groups_in_each_layer() {
    let folder = Folder::new();
    write_checkpoint(&folder, &deepseek());
    let found = tables_of(&folder, Family::DeepseekV41);
    for ((file, all), (layer, rows)) in found.iter().zip([(1, 37), (14, 41)]) {
        let table = &file.tables()[0];
        assert_eq!(table.name, format!("layers.{layer}.engram.embed.weight"));
        assert_eq!((table.rows, table.source.bytes, table.source.parts.len()), (rows, rows * 66, 0));
        let bytes = elements(rows as usize * 64, layer);
        let scale = |i: usize| 2f32.powi((i / 32 % 5) as i32 - 11);
        let expected: Vec<_> = bytes.iter().enumerate().map(|(i, &byte)| rounded(e4m3(byte) * scale(i))).collect();
        assert_eq!(*all, expected);
    }
    assert_eq!(found.len(), 2);
}

#[test]
fn deepseek_without_scales_of_groups_is_refused() {
    let replace = |scale: Option<(Dtype, Vec<usize>, Vec<u8>)>| {
        let folder = Folder::new();
        let mut files = deepseek();
        files[1].1.remove(0);
        files[1]
            .1
            .extend(scale.map(|(dtype, shape, data)| ("layers.14.engram.embed.scale".to_string(), dtype, shape, data)));
        write_checkpoint(&folder, &files);
        let error = refused(&folder, Family::DeepseekV41);
        assert!(error.to_string().contains("\"layers.14.engram.embed.weight\""), "{error}");
        error
    };
    let one = 1f32.to_le_bytes();
    assert_eq!(replace(None).code(), "source-missing-scale");
    assert_eq!(replace(Some((Dtype::F8_E8M0, vec![1], vec![127]))).code(), "source-scale");
    assert_eq!(replace(Some((Dtype::F8_E8M0, vec![0], vec![]))).code(), "source-scale");
    assert_eq!(replace(Some((Dtype::F8_E8M0, vec![37, 2], vec![127; 74]))).code(), "source-scale");
    // Numbers that would do for other tables are what other tools leave where they lost these scales.
    let placeholder = replace(Some((Dtype::F32, vec![], one.into())));
    assert_eq!(placeholder.code(), "source-scale-kind");
    assert!(placeholder.to_string().contains("they look like placeholders"), "{placeholder}");
    assert_eq!(replace(Some((Dtype::F32, vec![41, 1], one.repeat(41)))).code(), "source-scale-kind");
}

const QWEN: &str = "model.language_model.layers.1.ple.ple_embedding.ngram_embedding";

/// How Qwen's shards are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Store {
    Bf16,
    OneScale,
    RowScales,
}

/// Rows of a shard: the first and the last one have fewer, so that the one scale of their row might be one of a tensor.
fn qwen_rows(shard: u64) -> usize {
    if shard.is_multiple_of(127) { 1 } else { 2 }
}

/// 128 shards over three files, not in order, and the scales in a fourth.
fn qwen(store: Store) -> [(&'static str, Vec<Named>); 4] {
    let mut files = ["1", "2", "3", "4"].map(|number| (number, Vec::new()));
    for shard in 0..128u64 {
        let (name, rows) = (format!("{QWEN}.shard_{shard}"), qwen_rows(shard));
        let bytes = elements(rows * 32, shard);
        let file = &mut files[(shard * 5 % 3) as usize].1;
        let weight = format!("{name}.weight");
        match store {
            Store::Bf16 => {
                let values: Vec<_> = bytes.iter().map(|&byte| e4m3(byte)).collect();
                file.push((weight, Dtype::BF16, vec![rows, 32], bf16_bytes(&values)));
            }
            _ => file.push((weight, Dtype::F8_E4M3, vec![rows, 32], bytes)),
        }
        if store == Store::RowScales {
            let scales: Vec<_> = (0..rows).map(|row| qwen_scale(store, shard, row)).collect();
            files[3].1.push((format!("{name}.weight_scale"), Dtype::BF16, vec![rows, 1], bf16_bytes(&scales)));
        }
    }
    if store == Store::OneScale {
        let scale = qwen_scale(store, 0, 0);
        files[3].1.push((format!("{QWEN}.weight_scale"), Dtype::BF16, vec![1], bf16_bytes(&[scale])));
    }
    files[3].1.push(("model.norm.weight".into(), Dtype::BF16, vec![4], bf16_bytes(&[1.0; 4])));
    let names = ["a.safetensors", "b.safetensors", "c.safetensors", "d.safetensors"];
    let mut named = files.into_iter().map(|(_, tensors)| tensors).zip(names).map(|(tensors, name)| (name, tensors));
    std::array::from_fn(|_| named.next().unwrap())
}

/// A bf16 number: 0.000199 as Qwen has it, or one of each row.
fn qwen_scale(store: Store, shard: u64, row: usize) -> f32 {
    match store {
        Store::Bf16 => 1.0,
        Store::OneScale => f32::from_bits(0x3951 << 16),
        Store::RowScales => f32::from_bits((0x3c00 + 3 * shard as u32 + row as u32) << 16),
    }
}

#[test]
fn qwen_has_128_shards_that_share_a_scale_or_have_one_per_row_or_need_none() {
    for (store, dtype, kind, row_bytes) in [
        (Store::Bf16, SourceDtype::Bf16, None, 64),
        (Store::OneScale, SourceDtype::F8E4m3, Some(ScaleKind::Global), 32),
        (Store::RowScales, SourceDtype::F8E4m3, Some(ScaleKind::Rows), 34),
    ] {
        let folder = Folder::new();
        write_checkpoint(&folder, &qwen(store));
        let checkpoint = Checkpoint::open(folder.path("")).unwrap();
        let (table, info) = checkpoint.family_tables(Family::Qwen38).unwrap().remove(0);
        assert_eq!((table.name.as_str(), info.name.as_str()), (&*format!("{QWEN}.weight"), &*format!("{QWEN}.weight")));
        assert_eq!((info.dtype, info.rows, info.dim, info.row_bytes()), (dtype, 254, 32, row_bytes));
        for (shard, part) in (0..).zip(&info.parts) {
            assert_eq!(
                (part.name.clone(), part.rows),
                (format!("{QWEN}.shard_{shard}.weight"), qwen_rows(shard) as u64)
            );
            assert_eq!(part.scale.as_ref().map(|scale| scale.kind()), kind, "{store:?} {shard}");
        }
        let (file, all) = tables_of(&folder, Family::Qwen38).remove(0);
        let value = |shard: u64, i: usize, byte| rounded(e4m3(byte) * qwen_scale(store, shard, i / 32));
        let expected: Vec<_> = (0..128u64)
            .flat_map(|shard| {
                elements(qwen_rows(shard) * 32, shard).into_iter().enumerate().map(move |(i, b)| value(shard, i, b))
            })
            .collect();
        assert_eq!(all, expected, "{store:?}");
        // A segment per shard in the file, one run of records for a decoder.
        assert_eq!(file.tables()[0].segments.len(), 128);
        assert_eq!(file.load(&info.name).unwrap().segments().len(), 1);
    }
}

#[test]
fn qwen_with_a_shard_or_scale_too_few_or_too_many_is_refused_by_name() {
    let change = |store, edit: &dyn Fn(&mut Vec<Named>)| {
        let folder = Folder::new();
        let mut files = qwen(store);
        files.iter_mut().for_each(|(_, tensors)| edit(tensors));
        write_checkpoint(&folder, &files);
        // Without it the last shard would not be missed.
        fs::write(folder.path("config.json"), r#"{"text_config": {"split_ngram_parts": 128}}"#).unwrap();
        let error = refused(&folder, Family::Qwen38);
        (error.code(), error.to_string())
    };
    let name = |shard: &str| format!("{QWEN}.{shard}");
    let says = |(code, message): (&str, String), expected: &str, parts: &[String]| {
        assert_eq!(code, expected, "{message}");
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    };
    let without = |gone: String| move |tensors: &mut Vec<Named>| tensors.retain(|tensor| tensor.0 != gone);
    for shard in [0, 77, 127] {
        let gone = name(&format!("shard_{shard}.weight"));
        let got = change(Store::Bf16, &without(gone.clone()));
        says(got, "family-missing-part", &["has 127 parts, expected 128".into(), gone]);
    }
    let got = change(Store::OneScale, &without(name("weight_scale")));
    says(got, "source-missing-scale", &[name("shard_0.weight"), name("weight_scale")]);
    let got = change(Store::RowScales, &without(name("shard_9.weight_scale")));
    says(got, "source-missing-scale", &[name("shard_9.weight"), name("shard_9.weight_scale")]);
    let add = |tensor: Named| {
        move |tensors: &mut Vec<Named>| {
            if tensors.iter().any(|(name, ..)| name == "model.norm.weight") {
                tensors.push(tensor.clone());
            }
        }
    };
    let row = |shard: &str| (name(shard), Dtype::BF16, vec![2, 32], bf16_bytes(&[1.0; 64]));
    says(change(Store::Bf16, &add(row("shard_128.weight"))), "family-past-last-part", &[name("shard_128.weight")]);
    says(change(Store::Bf16, &add(row("shard_007.weight"))), "family-duplicate", &[name("shard_7"), name("shard_007")]);
    let one = (name("weight_scale"), Dtype::BF16, vec![1], bf16_bytes(&[0.5]));
    says(change(Store::RowScales, &add(one)), "source-two-scales", &[name("weight_scale")]);
    let wide = |tensors: &mut Vec<Named>| {
        for (tensor, _, shape, _) in tensors.iter_mut().filter(|(tensor, ..)| tensor.ends_with("shard_40.weight")) {
            *shape = vec![4, 16];
            assert!(tensor.starts_with("model."));
        }
    };
    says(change(Store::Bf16, &wide), "source-part-differs", &[name("shard_40.weight"), "values per row 16".into()]);

    // A file that is listed but not there.
    let folder = Folder::new();
    write_checkpoint(&folder, &qwen(Store::OneScale));
    fs::remove_file(folder.path("b.safetensors")).unwrap();
    let error = refused(&folder, Family::Qwen38);
    says((error.code(), error.to_string()), "source-missing-file", &[name("shard_2.weight"), "b.safetensors".into()]);
    // The same for the scale's.
    write_checkpoint(&folder, &qwen(Store::OneScale));
    fs::remove_file(folder.path("d.safetensors")).unwrap();
    let error = refused(&folder, Family::Qwen38);
    says((error.code(), error.to_string()), "source-missing-file", &[name("weight_scale"), "d.safetensors".into()]);
}

#[test]
fn longcat_has_twelve_tables_of_different_rows() {
    for start in ["model.ngram_embeddings.embedders.", "model.oe_embed_tokens"] {
        let folder = Folder::new();
        let mut files = [("1.safetensors", Vec::new()), ("2.safetensors", Vec::new())];
        let mut expected = Vec::new();
        for part in 0..12 {
            let rows = 5 + 2 * part + 1;
            let all: Vec<_> = elements(rows * 32, part as u64).into_iter().map(e4m3).collect();
            let tensor = (format!("{start}{part}.weight"), Dtype::BF16, vec![rows, 32], bf16_bytes(&all));
            files[usize::from(part % 5 == 0)].1.push(tensor);
            expected.extend(all);
        }
        write_checkpoint(&folder, &files);
        let (file, all) = tables_of(&folder, Family::LongcatFlash).remove(0);
        assert_eq!(all, expected);
        let table = &file.tables()[0];
        assert_eq!((table.rows, table.segments.len(), table.source.parts.len()), (204, 12, 12));
        files[0].1.remove(0);
        write_checkpoint(&folder, &files);
        let error = refused(&folder, Family::LongcatFlash);
        assert_eq!(error.code(), "family-missing-part");
        assert!(error.to_string().contains(&format!("{start}1.weight")), "{error}");
    }
}

/// Shards of a layer of Qwen's, two rows each, and their values.
fn shards(count: u64, end: &str) -> (Vec<Named>, Vec<f32>) {
    let mut all = Vec::new();
    let shard = |shard: u64| {
        let numbers: Vec<_> = elements(64, shard).into_iter().map(e4m3).collect();
        all.extend(&numbers);
        (format!("{QWEN}.shard_{shard}{end}"), Dtype::BF16, vec![2, 32], bf16_bytes(&numbers))
    };
    ((0..count).map(shard).collect(), all)
}

#[test]
fn qwen_has_as_many_shards_as_its_config_says_under_either_name() {
    let configs = [
        None,
        Some(r#"{"model_type": "x"}"#),
        Some(r#"{"split_ngram_parts": 8}"#),
        Some(r#"{"text_config": {"split_ngram_parts": 8}}"#),
        Some(r#"{"text_config": {"ple_config": {"split_ngram_parts": 8}}, "split_ngram_parts": 8, "x": [1]}"#),
        Some(r#"{"split_ngram_parts": null}"#),
    ];
    for end in [".weight", ""] {
        let (tensors, expected) = shards(8, end);
        for config in configs {
            let folder = Folder::new();
            write_checkpoint(
                &folder,
                &[("a.safetensors", tensors[3..].to_vec()), ("b.safetensors", tensors[..3].to_vec())],
            );
            if let Some(config) = config {
                fs::write(folder.path("config.json"), config).unwrap();
            }
            let checkpoint = Checkpoint::open(folder.path("")).unwrap();
            let (table, info) = checkpoint.family_tables(Family::Qwen38).unwrap().remove(0);
            assert_eq!(values(&mut checkpoint.rows(info).unwrap()), expected, "{config:?}");
            assert_eq!(table.name, format!("{QWEN}{end}"));
            // Only where nothing says how many there are it is worth a word.
            let tables = [table];
            let notes = checkpoint.family_notes(Family::Qwen38, &tables).unwrap();
            let is_told = config.is_some_and(|config| config.contains('8'));
            assert_eq!(notes.len(), usize::from(!is_told), "{notes:?}");
            assert!(is_told || notes[0].contains("the 8 that are there are taken for all"), "{notes:?}");
        }
    }
    // A single file says the same as an index, unless its name says that there are others.
    let folder = Folder::new();
    let (tensors, expected) = shards(8, "");
    crate::common::write(&folder.path("model-00001-of-00001.safetensors"), &tensors);
    assert_eq!(tables_of(&folder, Family::Qwen38)[0].1, expected);
    fs::rename(folder.path("model-00001-of-00001.safetensors"), folder.path("model-00001-of-00003.safetensors"))
        .unwrap();
    let error = refused(&folder, Family::Qwen38);
    assert_eq!(error.code(), "source-one-of-several", "{error}");
    fs::write(folder.path("config.json"), r#"{"split_ngram_parts": 8}"#).unwrap();
    assert_eq!(tables_of(&folder, Family::Qwen38)[0].1, expected);
}

#[test]
fn qwen_shards_that_a_config_or_their_numbers_contradict_are_refused() {
    let refuse = |tensors: &[Named], config: &str| {
        let folder = Folder::new();
        write_checkpoint(&folder, &[("a.safetensors", tensors.to_vec())]);
        if !config.is_empty() {
            fs::write(folder.path("config.json"), config).unwrap();
        }
        let error = refused(&folder, Family::Qwen38);
        (error.code(), error.to_string())
    };
    for end in [".weight", ""] {
        let (tensors, _) = shards(8, end);
        let name = |shard: &str| format!("{QWEN}.shard_{shard}{end}");
        let cases = [
            (tensors.clone(), r#"{"split_ngram_parts": 9}"#, "family-missing-part", name("8")),
            (tensors.clone(), r#"{"split_ngram_parts": 7}"#, "family-past-last-part", name("7")),
            (tensors[1..].to_vec(), "", "family-missing-part", name("0")),
            ([&tensors[..3], &tensors[4..]].concat(), "", "family-missing-part", name("3")),
            (
                [&tensors[..], &[(name("00"), Dtype::BF16, vec![2, 32], vec![0; 128])]].concat(),
                "",
                "family-duplicate",
                name("00"),
            ),
            (tensors.clone(), r#"{"split_ngram_parts": 0}"#, "source-config", "is 0, expected a number".into()),
            (tensors.clone(), r#"{"split_ngram_parts": "8"}"#, "source-config", "is \"8\", expected a number".into()),
            (
                tensors.clone(),
                r#"{"split_ngram_parts": 8, "a": {"split_ngram_parts": 9}}"#,
                "source-config",
                "9".into(),
            ),
            (tensors.clone(), "not JSON", "source-config", "config.json: it is malformed".into()),
        ];
        for (tensors, config, code, says) in cases {
            let (got, message) = refuse(&tensors, config);
            assert!(got == code && message.contains(&says), "{config}: {message}");
        }
    }
    // Two spellings of one table.
    let both = [shards(2, "").0, shards(2, ".weight").0].concat();
    assert_eq!(refuse(&both, "").0, "family-duplicate");
}

#[test]
fn qwen_shards_without_weight_in_their_names_have_scales_per_row() {
    for scale in [".weight_scale", "_scale", ".scale"] {
        let folder = Folder::new();
        let (mut tensors, mut expected) = (Vec::new(), Vec::new());
        for shard in 0..4u64 {
            let (name, bytes) = (format!("{QWEN}.shard_{shard}"), elements(64, shard));
            let scales: Vec<_> = (0..2).map(|row| qwen_scale(Store::RowScales, shard, row)).collect();
            let value = |(i, &byte)| rounded(e4m3(byte) * scales[i / 32]);
            expected.extend(bytes.iter().enumerate().map(value));
            tensors.push((format!("{name}{scale}"), Dtype::BF16, vec![2, 1], bf16_bytes(&scales)));
            tensors.push((name, Dtype::F8_E4M3, vec![2, 32], bytes));
        }
        write_checkpoint(&folder, &[("a.safetensors", tensors)]);
        assert_eq!(tables_of(&folder, Family::Qwen38)[0].1, expected, "{scale}");
    }
}

#[test]
fn qwen_in_one_tensor_is_a_table() {
    let folder = Folder::new();
    let all: Vec<_> = elements(16 * 32, 1).into_iter().map(e4m3).collect();
    let fused = (format!("{QWEN}.weight"), Dtype::BF16, vec![16, 32], bf16_bytes(&all));
    write_checkpoint(&folder, &[("a.safetensors", vec![fused.clone()])]);
    fs::write(folder.path("config.json"), r#"{"split_ngram_parts": 128}"#).unwrap();
    let (file, got) = tables_of(&folder, Family::Qwen38).remove(0);
    assert_eq!((got, file.tables()[0].name.as_str(), file.tables()[0].source.parts.len()), (all, fused.0.as_str(), 0));
}

#[test]
fn a_layer_that_is_not_listed_is_worth_a_note() {
    let notes = |layers: &[u64]| {
        let folder = Folder::new();
        let tensor = |layer| (format!("layers.{layer}.engram.embed.weight"), Dtype::BF16, vec![2, 32], vec![0; 128]);
        let tensors: Vec<Named> = layers.iter().map(tensor).collect();
        write_checkpoint(&folder, &[("a.safetensors", tensors)]);
        let checkpoint = Checkpoint::open(folder.path("")).unwrap();
        let tables = checkpoint.family_tables(Family::DeepseekV41).unwrap();
        let tables: Vec<_> = tables.into_iter().map(|(table, _)| table).collect();
        checkpoint.family_notes(Family::DeepseekV41, &tables).unwrap()
    };
    assert!(
        notes(&[1])[0].contains("has the table of layer 1 of deepseek-v4.1 and not that of layer 14"),
        "{:?}",
        notes(&[1])
    );
    assert!(notes(&[14])[0].contains("not that of layer 1, "));
    assert_eq!(notes(&[1, 14]).len() + notes(&[3]).len() + notes(&[1, 2, 14]).len(), 0);
}
