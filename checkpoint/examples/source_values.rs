//! Writes the numbers that a checkpoint's tables are made of, as the encoder sees them, for other programs to compare:
//!
//! ```text
//! source_values CHECKPOINT OUT [--scale NAME] [GLOB ...] [TABLE=GLOB ...]
//! ```
//!
//! Without patterns the tables of the model whose tables are there. The folder `OUT` gets `tables.json`, a list of
//! `name`, `file`, `rows` and `dim`, and a file per table of its rows as little-endian binary32.

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use condprog_checkpoint::{Checkpoint, RowSource};
use condprog_table::source::SourceInfo;
use serde_json::json;

/// Rows of each read, in turn: of no size that tensors, groups or threads have, so that reads end everywhere in them.
const READS: [u64; 7] = [1, 37, 64, 101, 5, 250, 13];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(checkpoint), Some(out)) = (arguments.next(), arguments.next()) else {
        return Err("expected CHECKPOINT OUT [--scale NAME] [GLOB ...] [TABLE=GLOB ...]".into());
    };
    let (mut patterns, mut scale) = (Vec::new(), None);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--scale" => scale = Some(arguments.next().ok_or("--scale without a name")?),
            _ => patterns.push(argument),
        }
    }
    let checkpoint = Checkpoint::open(&checkpoint)?;
    fs::create_dir_all(&out)?;
    let mut list = Vec::new();
    for (index, info) in tables(&checkpoint, &patterns, scale.as_deref())?.into_iter().enumerate() {
        let file = format!("{index}.f32");
        list.push(json!({ "name": info.name, "file": file, "rows": info.rows, "dim": info.dim }));
        write_values(&checkpoint, info, &Path::new(&out).join(file))?;
    }
    fs::write(Path::new(&out).join("tables.json"), serde_json::to_vec(&list)?)?;
    Ok(())
}

fn tables(
    checkpoint: &Checkpoint,
    patterns: &[String],
    scale: Option<&str>,
) -> Result<Vec<SourceInfo>, Box<dyn Error>> {
    if patterns.is_empty() {
        let family = checkpoint.family()?.ok_or("no model's tables are there, expected patterns")?;
        return Ok(checkpoint.family_tables(family)?.into_iter().map(|(_, info)| info).collect());
    }
    let mut infos = Vec::new();
    for pattern in patterns {
        match pattern.split_once('=') {
            Some((table, pattern)) => infos.push(checkpoint.join_matching(table, pattern, scale)?),
            None => {
                for name in checkpoint.select_names(std::slice::from_ref(pattern))? {
                    infos.push(checkpoint.join(&name, std::slice::from_ref(&name), scale)?);
                }
            }
        }
    }
    Ok(infos)
}

fn write_values(checkpoint: &Checkpoint, info: SourceInfo, path: &Path) -> Result<(), Box<dyn Error>> {
    let (rows, dim) = (info.rows, info.dim as usize);
    let mut source = checkpoint.rows(info)?;
    let mut out = BufWriter::new(File::create(path)?);
    let mut sizes = READS.iter().cycle();
    let mut first = 0;
    while first < rows {
        let count = sizes.next().map_or(1, |&size| size.min(rows - first)) as usize;
        let raw = source.read(first, count)?;
        // In two pieces, since threads take their rows of a block in pieces too.
        for rows in [0..count / 3, count / 3..count] {
            let mut values = vec![0.0; rows.len() * dim];
            raw.to_f32(rows, &mut values);
            values.iter().try_for_each(|value| out.write_all(&value.to_le_bytes()))?;
        }
        first += count as u64;
    }
    out.flush()?;
    Ok(())
}
