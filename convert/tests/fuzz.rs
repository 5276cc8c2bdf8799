//! Mutated table files, safetensors inputs, indexes, files of a table that is cut, and parts: whatever they hold, they
//! are refused or read, without a panic.
//!
//! Runs for `CONDPROG_FUZZ_SECONDS` (2 by default) from a seed, `CONDPROG_FUZZ_SEED` (of the time by default), which it
//! prints. An input that fails is written to the target folder.

#[allow(dead_code, reason = "only the sound file is of use here")]
#[path = "../examples/reject_files/cases.rs"]
mod cases;
mod common;

use std::env;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use common::{Cpu, Folder, Seeded, compress, f32_bytes, options, rows, write};
use condprog_checkpoint::{Checkpoint, RowSource};
use condprog_convert::{
    CompressOptions, DecompressOptions, JoinOptions, PartOf, RestoredDtype, VerifyOptions, decompress, join, quiet,
    verify,
};
use condprog_core::encoder::ScaleRule;
use condprog_core::{Decoder, Missing, Output, Table};
use condprog_cpu::CpuDecoder;
use condprog_table::{Tables, inspect};
use safetensors::tensor::Dtype;

/// Reads some bytes in every way, and says whether they could be opened.
type Read = fn(&[u8], &Folder, bool) -> bool;

/// Does everything a reader can do with a table file, restoring it if asked.
fn read_table(bytes: &[u8], folder: &Folder, restore: bool) -> bool {
    Tables::from_bytes("fuzz", bytes.to_vec()).is_ok_and(|file| read_tables(&file, folder, restore))
}

/// Does the same with files that an index names.
fn read_index(bytes: &[u8], folder: &Folder, restore: bool) -> bool {
    let index = folder.path("cut.safetensors.index.json");
    fs::write(&index, bytes).unwrap();
    if let Ok(checkpoint) = Checkpoint::open(&index) {
        let _ = (checkpoint.names().count(), checkpoint.select(&[]), checkpoint.family());
    }
    Tables::open(&index).is_ok_and(|file| read_tables(&file, folder, restore))
}

/// And with the second of them.
fn read_shard(bytes: &[u8], folder: &Folder, restore: bool) -> bool {
    fs::copy(folder.path("sound.json"), folder.path("cut.safetensors.index.json")).unwrap();
    let path = folder.path(SHARD);
    let sound = fs::read(&path).unwrap();
    fs::write(&path, bytes).unwrap();
    let file = Tables::open(folder.path("cut.safetensors.index.json"));
    let opened = file.is_ok_and(|file| read_tables(&file, folder, restore));
    fs::write(&path, sound).unwrap();
    opened
}

/// The file of a cut table that is mutated.
const SHARD: &str = "cut-00002-of-00003.safetensors";

/// Joins a part with the other.
fn read_part(bytes: &[u8], folder: &Folder, _: bool) -> bool {
    fs::write(folder.path("part1"), bytes).unwrap();
    let parts = ["part0", "part1"].map(|name| folder.path(name));
    let output = folder.path("joined.safetensors");
    match join(&parts, output, &JoinOptions { force: true }, &quiet) {
        Ok(report) => {
            for path in report.files.iter().chain(&report.index) {
                Tables::open(path).unwrap();
            }
            true
        }
        Err(_) => false,
    }
}

fn read_tables(file: &Tables, folder: &Folder, restore: bool) -> bool {
    let report = verify(file, None, &VerifyOptions::default(), &Cpu, &quiet).unwrap();
    assert_eq!(report.tables.len(), file.tables().len());
    inspect(file).unwrap();
    for table in file.tables() {
        let records = file.load(&table.name).unwrap();
        let segments = records.segments();
        let decoder = CpuDecoder::new(Table::new(&segments).unwrap()).unwrap();
        let shape = decoder.shape();
        assert_eq!((shape.rows, shape.dim), (table.rows, table.dim));
        let ids = [0, shape.rows as i64 - 1, -1, i64::MAX, shape.rows as i64];
        let mut out = vec![0; ids.len() * shape.dim as usize];
        decoder.decode(&ids, Missing::Zero, Output::Bf16(&mut out)).unwrap();
        for (index, segment) in table.segments.iter().enumerate() {
            let _ = file.check_block(&table.name, index, segment.blocks() - 1);
        }
    }
    let output = folder.path("restored");
    if !restore {
        return true;
    }
    for dtype in [RestoredDtype::F16, RestoredDtype::Source] {
        let options = DecompressOptions { dtype, force: true, ..Default::default() };
        if decompress(file, &output, &options, &Cpu, &quiet).is_ok() {
            let tensors = file.tables().len();
            assert!(Checkpoint::open(&output).unwrap().tensors().count() >= tensors);
        }
    }
    true
}

/// Does everything a reader can do with a source file, and compresses the first rows of each table.
fn read_source(bytes: &[u8], folder: &Folder, _: bool) -> bool {
    let path = folder.path("input");
    fs::write(&path, bytes).unwrap();
    let Ok(file) = Checkpoint::open(&path) else { return false };
    let _ = file.select(&["*".into()]);
    for (_, tensor) in file.tensors() {
        let Ok(mut table) = file.table(&tensor.name) else { continue };
        let rows = table.info().rows.min(3) as usize;
        let raw = table.read(0, rows).unwrap();
        let mut out = vec![0.0; rows * raw.dim];
        raw.to_f32(0..rows, &mut out);
        assert!(table.info().bytes() < bytes.len() as u64);
    }
    true
}

/// Changes a few words, or a byte.
fn mutate_text(text: &[u8], random: &mut Seeded) -> Vec<u8> {
    let mut json = String::from_utf8(text.to_vec()).unwrap();
    for _ in 0..1 + random.next() % 3 {
        json = mutate_json(&json, random);
    }
    let mut bytes = json.into_bytes();
    if random.next().is_multiple_of(8) && !bytes.is_empty() {
        let at = below(random, bytes.len());
        bytes[at] = random.next() as u8;
    }
    bytes
}

/// Changes a few things: bytes anywhere, numbers and words in the header, in and out of the list of tables, the length
/// of the header, the length of the file.
fn mutate(file: &[u8], random: &mut Seeded) -> Vec<u8> {
    let mut bytes = file.to_vec();
    let header = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let mut json = String::from_utf8(file[8..8 + header].to_vec()).unwrap();
    let mut data = file[8 + header..].to_vec();
    for _ in 0..1 + random.next() % 3 {
        match random.next() % 8 {
            0..4 => json = mutate_json(&json, random),
            4 => {
                let at = below(random, data.len().max(1));
                if let Some(byte) = data.get_mut(at) {
                    *byte ^= 1 << (random.next() % 8);
                }
            }
            5 => data.truncate(below(random, data.len() + 1)),
            6 => data.extend_from_within(..below(random, data.len() + 1)),
            _ => {
                let at = below(random, bytes.len());
                bytes[at] = random.next() as u8;
                return bytes;
            }
        }
    }
    let length = match random.next() % 32 {
        0 => random.next() % 4096,
        _ => json.len() as u64,
    };
    [&length.to_le_bytes(), json.as_bytes(), &data].concat()
}

fn below(random: &mut Seeded, end: usize) -> usize {
    (random.next() % end as u64) as usize
}

/// Replaces, doubles or removes one token.
fn mutate_json(json: &str, random: &mut Seeded) -> String {
    let tokens = tokens(json);
    let Some(&(start, end)) = tokens.get(below(random, tokens.len().max(1))) else { return json.into() };
    let token = &json[start..end];
    let other = |random: &mut Seeded| {
        let &(start, end) = &tokens[below(random, tokens.len())];
        json[start..end].to_string()
    };
    let number = token.parse::<u64>();
    let replacement = match (number, random.next() % 8) {
        (Ok(number), 0) => number.wrapping_add(1).to_string(),
        (Ok(number), 1) => number.wrapping_sub(1).to_string(),
        (Ok(number), 2) => number.wrapping_mul(1 + random.next() % 4).to_string(),
        (Ok(_), 3) => {
            let edges = [0, 1, 255, 1 << 31, 1 << 32, 1 << 60, 1 << 63, u64::MAX - 7, u64::MAX];
            edges[below(random, edges.len())].to_string()
        }
        (Ok(_), 4) => "-1".into(),
        (_, 5) => String::new(),
        (_, 6) => format!("{token}{token}"),
        _ => other(random),
    };
    format!("{}{replacement}{}", &json[..start], &json[end..])
}

/// Runs of letters and digits, and single other characters.
fn tokens(json: &str) -> Vec<(usize, usize)> {
    let mut tokens: Vec<(usize, usize)> = Vec::new();
    let mut in_word = false;
    for (at, character) in json.char_indices() {
        let word = character.is_ascii_alphanumeric() || "_#.-".contains(character);
        match tokens.last_mut() {
            Some((_, end)) if word && in_word => *end = at + 1,
            _ => tokens.push((at, at + character.len_utf8())),
        }
        in_word = word;
    }
    tokens
}

/// What is mutated, how, and how it is read.
struct Kind {
    name: &'static str,
    seeds: Vec<Vec<u8>>,
    mutate: fn(&[u8], &mut Seeded) -> Vec<u8>,
    read: Read,
}

fn kinds(folder: &Folder) -> [Kind; 5] {
    let input = folder.path("seed");
    let table = |options| {
        compress(&input, &folder.path("table"), &options).unwrap();
        fs::read(folder.path("table")).unwrap()
    };
    let force = |block| CompressOptions { force: true, ..options(block) };
    fs::write(&input, cases::input()).unwrap();
    let mut sources = vec![cases::input()];
    let mut tables = vec![table(cases::options())];
    let values = rows(6, 64, 1);
    let tensors = [
        ("a.weight", Dtype::F8_E4M3, vec![3, 64], vec![0x38; 192]),
        ("a.scale", Dtype::F8_E8M0, vec![3, 2], vec![120; 6]),
        ("b", Dtype::BF16, vec![4, 16], vec![0; 128]),
        ("c", Dtype::F32, vec![6, 64], f32_bytes(&values)),
        ("d", Dtype::I64, vec![2], vec![0; 16]),
        ("e.0", Dtype::I8, vec![3, 32], vec![3; 96]),
        ("e.1", Dtype::I8, vec![2, 32], vec![5; 64]),
        ("e.scale", Dtype::BF16, vec![1], vec![0x80, 0x3f]),
        ("f", Dtype::F8_E4M3, vec![3, 32], vec![0x33; 96]),
        ("f.scale", Dtype::F16, vec![3, 1], vec![0, 0x3c, 0, 0x3c, 0, 0x3c]),
    ];
    write(&input, &tensors);
    sources.push(fs::read(&input).unwrap());
    tables.push(table(force(2)));
    // A table of two tensors and one scale, whole, cut into three files, and as two parts.
    let checkpoint = Checkpoint::open(&input).unwrap();
    let joined = |name: &str, options| {
        let info = checkpoint.join_matching("e", "e.[0-9]", None).unwrap();
        let mut sources: Vec<Box<dyn RowSource>> = vec![Box::new(checkpoint.rows(info).unwrap())];
        condprog_convert::compress(&mut sources, folder.path(name), &options, &Cpu, &quiet).unwrap()
    };
    joined("table", force(2));
    tables.push(fs::read(folder.path("table")).unwrap());
    let cut = || CompressOptions { shard_bytes: Some(28), scale: ScaleRule::Global(()), ..force(2) };
    let report = joined("cut.safetensors", cut());
    assert_eq!(report.files[1], folder.path(SHARD));
    let index = fs::read(folder.path("cut.safetensors.index.json")).unwrap();
    fs::write(folder.path("sound.json"), &index).unwrap();
    let shard = fs::read(folder.path(SHARD)).unwrap();
    for index in 0..2 {
        let part = Some(PartOf::Share { index, of: 2 });
        joined(&format!("part{index}"), CompressOptions { part, ..cut() });
    }
    let part = fs::read(folder.path("part1")).unwrap();
    [
        Kind { name: "table", seeds: tables, mutate, read: read_table },
        Kind { name: "source", seeds: sources, mutate, read: read_source },
        Kind { name: "index", seeds: vec![index], mutate: mutate_text, read: read_index },
        Kind { name: "shard", seeds: vec![shard], mutate, read: read_shard },
        Kind { name: "part", seeds: vec![part], mutate, read: read_part },
    ]
}

#[test]
fn mutated_files_never_panic() {
    let seconds = env::var("CONDPROG_FUZZ_SECONDS").map_or(2, |text| text.parse().expect("a number of seconds"));
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = env::var("CONDPROG_FUZZ_SEED").map_or(time, |text| text.parse().expect("a number"));
    println!("CONDPROG_FUZZ_SEED={seed}");
    let folder = Folder::new();
    let kinds = kinds(&folder);
    for kind in &kinds {
        assert!(kind.seeds.iter().all(|bytes| (kind.read)(bytes, &folder, true)), "{}", kind.name);
    }
    let mut random = Seeded(seed);
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut count, mut opened) = ([0u64; 5], [0u64; 5]);
    // Long enough for every kind to have been opened and refused, and as long as asked.
    while Instant::now() < end || (0..5).any(|kind| opened[kind] == 0 || opened[kind] == count[kind]) {
        let place = below(&mut random, kinds.len());
        let Kind { name, seeds, mutate, read } = &kinds[place];
        let bytes = mutate(&seeds[below(&mut random, seeds.len())], &mut random);
        // Restoring waits for the disk, so not every time.
        let restore = random.next().is_multiple_of(16);
        match catch_unwind(AssertUnwindSafe(|| read(&bytes, &folder, restore))) {
            Ok(ok) => opened[place] += u64::from(ok),
            Err(_) => {
                let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{name}-{seed}"));
                fs::write(&path, bytes).unwrap();
                panic!("seed {seed}, input {}: kept as {}", count.iter().sum::<u64>(), path.display());
            }
        }
        count[place] += 1;
        // A mutator that breaks everything, or nothing, would find nothing.
        assert!(Instant::now() < end + Duration::from_secs(60), "{opened:?} of {count:?} opened");
    }
    for (kind, (opened, count)) in kinds.iter().zip(opened.iter().zip(count)) {
        println!("{count} of kind {}, {opened} opened", kind.name);
    }
}
