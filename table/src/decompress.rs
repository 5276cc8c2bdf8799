//! A table file to an ordinary safetensors file.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::path::Path;

use condprog_core::{Decoder, Missing, Output, Table};
use condprog_cpu::CpuDecoder;
use rayon::prelude::*;

use crate::error::Error;
use crate::file::TableFile;
use crate::format::TableInfo;
use crate::fp8;
use crate::header::{Header, METADATA_KEY, TensorEntry};
use crate::journal::JOURNAL_SUFFIX;
use crate::output::{Partial, refuse_same, with_suffix};
use crate::source::{SCALE_DTYPE, SourceDtype};
use crate::stream::{Counter, Progress, Stage, default_block_rows, on_threads};

/// Number format of restored tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RestoredDtype {
    /// bfloat16.
    #[default]
    Bf16,
    /// IEEE binary16.
    F16,
    /// IEEE binary32, exact.
    F32,
    /// That of the source. FP8 tables get their scales again, by [`fp8::encode_group`]; that rounds once more.
    Source,
}

/// How to restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecompressOptions {
    /// Number format.
    pub dtype: RestoredDtype,
    /// Threads; `None` for those of the current rayon pool.
    pub threads: Option<NonZeroUsize>,
    /// Overwrite the output.
    pub force: bool,
}

/// Restores every table of a file under the name of its source tensor. Returns the bytes of the output.
///
/// The output is written as `OUTPUT.condprog-partial` and gets its name when it is whole and on the disk; a run that
/// fails leaves nothing.
///
/// # Errors
/// [`Error`], each naming what it is about.
pub fn decompress(
    file: &TableFile,
    output: impl AsRef<Path>,
    options: &DecompressOptions,
    progress: &Progress<'_>,
) -> Result<u64, Error> {
    let output = output.as_ref();
    refuse_same(file.path(), output)?;
    on_threads(options.threads, || {
        let tables = file.tables().iter().map(|table| Restored::new(table, options.dtype));
        let tables = tables.collect::<Result<Vec<_>, _>>()?;
        let (header, tables) = layout(output, tables)?;
        let mut partial = Partial::open(output, options.force)?;
        refuse_journal(output, partial.path(), options.force)?;
        match restore(file, &header, &tables, &mut partial, progress) {
            Ok(()) => {
                let bytes = partial.length();
                partial.finish(options.force)?;
                Ok(bytes)
            }
            Err(error) => {
                partial.discard();
                Err(error)
            }
        }
    })
}

/// A journal beside the output means hours of somebody's work in the unfinished file.
fn refuse_journal(output: &Path, partial: &Path, force: bool) -> Result<(), Error> {
    let journal = with_suffix(output, JOURNAL_SUFFIX);
    if !force && journal.exists() {
        let (got, expected) = ("compress".into(), "decompress".into());
        return Err(Error::OtherRun { path: partial.into(), what: "the command", got, expected });
    }
    Ok(())
}

/// A table to restore, and where its tensors will be in the file.
struct Restored<'a> {
    table: &'a TableInfo,
    dtype: SourceDtype,
    /// Name of the scales of an FP8 table.
    scale: Option<&'a str>,
    data: u64,
    scales: u64,
}

impl<'a> Restored<'a> {
    fn new(table: &'a TableInfo, dtype: RestoredDtype) -> Result<Restored<'a>, Error> {
        let unknown = || Error::SourceDtype { table: table.name.clone(), got: table.source.dtype.clone() };
        let dtype = match dtype {
            RestoredDtype::Bf16 => SourceDtype::Bf16,
            RestoredDtype::F16 => SourceDtype::F16,
            RestoredDtype::F32 => SourceDtype::F32,
            RestoredDtype::Source => SourceDtype::from_name(&table.source.dtype).ok_or_else(unknown)?,
        };
        let scale = match dtype {
            SourceDtype::F8E4m3 if !table.dim.is_multiple_of(fp8::GROUP as u32) => return Err(unknown()),
            SourceDtype::F8E4m3 => Some(table.source.scale.as_ref().ok_or_else(unknown)?.name.as_str()),
            _ => None,
        };
        Ok(Restored { table, dtype, scale, data: 0, scales: 0 })
    }

    fn groups(&self) -> u64 {
        self.scale.map_or(0, |_| u64::from(self.table.dim) / fp8::GROUP as u64)
    }
}

/// The header, and the tables with their places. Wide types come first, so that all tensors are aligned.
fn layout<'a>(output: &Path, mut tables: Vec<Restored<'a>>) -> Result<(Vec<u8>, Vec<Restored<'a>>), Error> {
    tables.sort_by_key(|table| std::cmp::Reverse(table.dtype.size()));
    let mut entries: Vec<TensorEntry> = Vec::new();
    let mut names = HashSet::from([METADATA_KEY.to_string()]);
    let mut end = 0u64;
    let mut place = |name: &str, dtype: &str, shape: [u64; 2], size: u64| {
        if !names.insert(name.to_string()) {
            return Err(Error::NameTaken { tensor: name.into() });
        }
        // Restored tables are larger than any file that is really there: counted with care.
        let too_large =
            || Error::Option { option: "rows times width", got: shape[0], expected: "below 2^63 bytes".into() };
        let bytes = shape[0].checked_mul(shape[1]).and_then(|n| n.checked_mul(size)).ok_or_else(too_large)?;
        let start = end;
        end = end.checked_add(bytes).filter(|&end| end <= i64::MAX as u64).ok_or_else(too_large)?;
        entries.push(TensorEntry { name: name.into(), dtype: dtype.into(), shape: shape.into(), start, end });
        Ok(start)
    };
    for restored in &mut tables {
        let (rows, dim) = (restored.table.rows, u64::from(restored.table.dim));
        let (name, dtype) = (&restored.table.source.name, restored.dtype);
        restored.data = place(name, dtype.name(), [rows, dim], dtype.size() as u64)?;
        if let Some(scale) = restored.scale {
            restored.scales = place(scale, SCALE_DTYPE, [rows, restored.groups()], 1)?;
        }
    }
    let metadata = [("format".to_string(), "pt".to_string())];
    let header = Header::to_bytes(&metadata, &entries, 0).map_err(|source| Error::header(output, source))?;
    for restored in &mut tables {
        restored.data += header.len() as u64;
        restored.scales += header.len() as u64;
    }
    Ok((header, tables))
}

fn restore(
    file: &TableFile,
    header: &[u8],
    tables: &[Restored<'_>],
    partial: &mut Partial,
    progress: &Progress<'_>,
) -> Result<(), Error> {
    let size = |t: &Restored<'_>| t.table.rows * (u64::from(t.table.dim) * t.dtype.size() as u64 + t.groups());
    partial.restart(header.len() as u64 + tables.iter().map(size).sum::<u64>())?;
    let total = tables.iter().map(|restored| restored.table.rows).sum();
    let mut counter = Counter::new(Stage::Restore, progress, 0, total);
    for restored in tables {
        let segments = file.segments_of(restored.table);
        let table = Table::new(&segments).expect("checked when the file was opened");
        let decoder = CpuDecoder::new(table)?;
        let (rows, dim) = (restored.table.rows, u64::from(restored.table.dim));
        let block = default_block_rows(dim);
        for first in (0..rows).step_by(block as usize) {
            let ids: Vec<i64> = (first..rows.min(first + block)).map(|row| row as i64).collect();
            let (data, scales) = restore_block(&decoder, &ids, restored.dtype);
            partial.write_at(restored.data + first * dim * restored.dtype.size() as u64, &data)?;
            partial.write_at(restored.scales + first * restored.groups(), &scales)?;
            counter.add(&restored.table.name, ids.len() as u64)?;
        }
    }
    partial.write_at(0, header)
}

/// Elements and scale bytes of some rows.
fn restore_block(decoder: &CpuDecoder<'_>, ids: &[i64], dtype: SourceDtype) -> (Vec<u8>, Vec<u8>) {
    let count = ids.len() * decoder.shape().dim as usize;
    let decode = |output: Output<'_>| {
        decoder.decode(ids, Missing::Error, output).expect("ids and output are those of the table");
    };
    match dtype {
        SourceDtype::Bf16 | SourceDtype::F16 => {
            let mut bits = vec![0u16; count];
            decode(if dtype == SourceDtype::F16 { Output::F16(&mut bits) } else { Output::Bf16(&mut bits) });
            (bits.iter().flat_map(|bits| bits.to_le_bytes()).collect(), Vec::new())
        }
        SourceDtype::F32 => {
            let mut values = vec![0f32; count];
            decode(Output::F32(&mut values));
            (values.iter().flat_map(|value| value.to_le_bytes()).collect(), Vec::new())
        }
        SourceDtype::F8E4m3 => {
            let mut values = vec![0f32; count];
            decode(Output::F32(&mut values));
            let mut data = vec![0; count];
            let mut scales = vec![0; count / fp8::GROUP];
            let groups = values.par_chunks_exact(fp8::GROUP).zip(data.par_chunks_exact_mut(fp8::GROUP));
            groups
                .zip(&mut scales)
                .with_min_len(1 << 10)
                .for_each(|((values, data), scale)| *scale = fp8::encode_group(values, data));
            (data, scales)
        }
    }
}
