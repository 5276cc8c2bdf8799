//! From a table file to an ordinary safetensors file.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;

use condprog_checkpoint::fp8;
use condprog_checkpoint::internal::{number_at_least, number_bytes};
use condprog_core::{Missing, Output};
use condprog_table::Tables;
use condprog_table::format::TableInfo;
use condprog_table::header::{Header, TensorEntry};
use condprog_table::names::METADATA_KEY;
use condprog_table::source::{ScaleKind, ScaleTensor, SourceDtype, number_size};
use rayon::prelude::*;

use crate::codec::{BoxDecoder, Codec, CodecError};
use crate::error::Error;
use crate::journal;
use crate::output::{Temporary, folder_of, refuse_full, refuse_same, sweep};
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
    /// That of the source; FP8 and INT8 tables get scales of the same kind again, which rounds once more. Scales of
    /// groups are [`fp8::encode_group`]'s, scales of rows the smallest that hold the row; a scale for the whole tensor
    /// stays as it was, and the few values beyond its reach become the largest there is.
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

/// Restores every table of a file under the names of its source tensors. Returns the bytes of the output.
///
/// The output is written under a working name, and renamed when it is complete and on disk. A run that fails leaves
/// nothing; the next run removes what a killed one has left.
///
/// # Errors
/// [`Error`], each naming what it is about.
pub fn decompress(
    file: &Tables,
    output: impl AsRef<Path>,
    options: &DecompressOptions,
    codec: &dyn Codec,
    progress: &Progress<'_>,
) -> Result<u64, Error> {
    let output = output.as_ref();
    file.files().try_for_each(|file| refuse_same(file, output))?;
    on_threads(options.threads, || {
        let tensors = file.tables().iter().map(|table| tensors(table, options.dtype)).collect::<Result<Vec<_>, _>>()?;
        let tensors: Vec<_> = tensors.into_iter().flatten().collect();
        let layout = layout(output, &tensors)?;
        journal::refuse(&journal::peek(output)?, output, "decompress", options.force)?;
        sweep(folder_of(output));
        let mut temporary = Temporary::create(output, options.force)?;
        let bytes = layout.2;
        let restored = refuse_full(output, bytes, std::iter::empty())
            .and_then(|()| restore(file, &layout, &tensors, &mut temporary, codec, progress));
        match restored {
            Ok(()) => temporary.finish(options.force).map(|()| bytes),
            Err(error) => {
                temporary.discard();
                Err(error)
            }
        }
    })
}

/// A tensor of a source to restore.
struct Restored<'a> {
    table: &'a TableInfo,
    name: String,
    dtype: SourceDtype,
    /// Its rows, counted from the table's first row here.
    rows: Range<u64>,
    /// Of a format that has them.
    scale: Option<ScaleTensor>,
}

impl Restored<'_> {
    fn dim(&self) -> u64 {
        u64::from(self.table.dim)
    }

    fn row_bytes(&self) -> u64 {
        self.dim() * self.dtype.size() as u64
    }

    /// Bytes of scales per row.
    fn scale_bytes(&self) -> u64 {
        self.scale.as_ref().map_or(0, |scale| scale.bytes_per_row(self.dim()))
    }
}

/// The source tensors of a table, those of which there are rows here.
fn tensors(table: &TableInfo, dtype: RestoredDtype) -> Result<Vec<Restored<'_>>, Error> {
    let unknown = || Error::SourceDtype { table: table.name.clone(), got: table.source.dtype.clone() };
    let dtype = match dtype {
        RestoredDtype::Bf16 => SourceDtype::Bf16,
        RestoredDtype::F16 => SourceDtype::F16,
        RestoredDtype::F32 => SourceDtype::F32,
        RestoredDtype::Source => SourceDtype::from_name(&table.source.dtype).ok_or_else(unknown)?,
    };
    let (mut restored, mut start) = (Vec::new(), 0u64);
    let parts = table.source.tensors();
    let first_scale = parts.first().and_then(|part| part.scale.clone());
    for part in parts {
        // Scales of all rows of the table are those of its rows in turn, in one tensor.
        let is_in_turn = |scale: &ScaleTensor| match scale.first_row {
            None => true,
            Some(row) => first_scale.as_ref().is_some_and(|first| {
                let is_same = (&first.name, &first.dtype) == (&scale.name, &scale.dtype);
                row == start && first.first_row == Some(0) && is_same && scale.value_bits.is_none()
            }),
        };
        let end = start.checked_add(part.rows).ok_or_else(unknown)?;
        let (first, last) = (table.first_row, table.first_row + table.rows);
        let rows = start.clamp(first, last) - first..end.clamp(first, last) - first;
        if rows.is_empty() {
            start = end;
            continue;
        }
        let scale = match dtype.has_scales() {
            true => {
                let scale = part.scale.filter(|scale| can_restore(scale, dtype, table.dim) && is_in_turn(scale));
                Some(scale.ok_or_else(unknown)?)
            }
            false => None,
        };
        start = end;
        restored.push(Restored { table, name: part.name, dtype, rows, scale });
    }
    Ok(restored)
}

/// Whether the metadata tells of scales that can be made again.
fn can_restore(scale: &ScaleTensor, dtype: SourceDtype, dim: u32) -> bool {
    match scale.kind() {
        ScaleKind::Groups => dtype == SourceDtype::F8E4m3 && dim.is_multiple_of(fp8::GROUP as u32),
        ScaleKind::Rows => number_size(&scale.dtype).is_some(),
        ScaleKind::Global => {
            let value = f32::from_bits(scale.value_bits.unwrap_or(0));
            number_size(&scale.dtype).is_some() && value.is_finite() && value > 0.0
        }
    }
}

/// Where each tensor starts in the file, by name.
type Places = HashMap<String, u64>;

/// The header, the places of all tensors, and the length of the file. Wide types come first, so that all are aligned.
fn layout(output: &Path, restored: &[Restored<'_>]) -> Result<(Vec<u8>, Places, u64), Error> {
    let mut wanted: Vec<(String, &str, Vec<u64>, usize)> = Vec::new();
    let (mut shared, mut spanning) = (HashSet::new(), HashSet::new());
    for tensor in restored {
        let rows = tensor.rows.end - tensor.rows.start;
        wanted.push((tensor.name.clone(), tensor.dtype.name(), vec![rows, tensor.dim()], tensor.dtype.size()));
        let Some(scale) = &tensor.scale else { continue };
        let rows = match scale.first_row {
            None => rows,
            // One tensor for all of the table.
            Some(_) if !spanning.insert((&tensor.table.name, &scale.name)) => continue,
            Some(_) => tensor.table.rows,
        };
        let shape = match scale.kind() {
            ScaleKind::Groups => vec![rows, tensor.dim() / fp8::GROUP as u64],
            ScaleKind::Rows => [vec![rows], vec![1; scale.shape.len().saturating_sub(1)]].concat(),
            // Tensors beside each other may share it.
            ScaleKind::Global if !shared.insert((&scale.name, scale.value_bits)) => continue,
            ScaleKind::Global => scale.shape.clone(),
        };
        wanted.push((scale.name.clone(), &scale.dtype, shape, number_size(&scale.dtype).unwrap_or(1)));
    }
    wanted.sort_by_key(|(.., size)| Reverse(*size));
    let mut names = HashSet::from([METADATA_KEY.to_string()]);
    let (mut entries, mut end) = (Vec::new(), 0u64);
    for (name, dtype, shape, size) in wanted {
        if !names.insert(name.clone()) {
            return Err(Error::NameTaken { tensor: name });
        }
        // Restored tables are larger than any file that is really there: counted with care.
        let bytes = shape.iter().try_fold(size as u64, |bytes, &n| bytes.checked_mul(n));
        let start = end;
        let next = bytes.and_then(|bytes| start.checked_add(bytes)).filter(|&next| next <= i64::MAX as u64);
        end = next.ok_or_else(|| {
            let got = shape.first().copied().unwrap_or(0);
            Error::Option { option: "rows times width", got, expected: "below 2^63 bytes".into() }
        })?;
        entries.push(TensorEntry { name, dtype: dtype.into(), shape, start, end });
    }
    let metadata = [("format".to_string(), "pt".to_string())];
    let header =
        Header::to_bytes(&metadata, &entries, 0).map_err(|source| condprog_table::Error::header(output, source))?;
    let data = header.len() as u64;
    let places = entries.into_iter().map(|entry| (entry.name, data + entry.start)).collect();
    Ok((header, places, data + end))
}

fn restore(
    file: &Tables,
    (header, places, length): &(Vec<u8>, Places, u64),
    tensors: &[Restored<'_>],
    temporary: &mut Temporary,
    codec: &dyn Codec,
    progress: &Progress<'_>,
) -> Result<(), Error> {
    temporary.set_length(*length)?;
    let mut counter =
        Counter::new(Stage::Restore, progress, 0, tensors.iter().map(|t| t.rows.end - t.rows.start).sum());
    for tensor in tensors {
        let block = default_block_rows(tensor.dim());
        let scale = tensor.scale.as_ref().map(|scale| {
            let before = scale.first_row.map_or(0, |_| tensor.rows.start * tensor.scale_bytes());
            (scale, places[&scale.name] + before)
        });
        if let Some((scale, at)) = scale
            && let Some(bits) = scale.value_bits
        {
            temporary.write_at(at, &number_bytes(&scale.dtype, f32::from_bits(bits).into()))?;
        }
        for first in tensor.rows.clone().step_by(block as usize) {
            let rows = first..tensor.rows.end.min(first + block);
            let ids: Vec<i64> = (0..(rows.end - rows.start) as i64).collect();
            let records = file.read_rows(tensor.table, rows)?;
            let decoder = codec.decoder(records)?;
            let (data, scales) = restore_block(&decoder, &ids, tensor)?;
            let row = first - tensor.rows.start;
            temporary.write_at(places[&tensor.name] + row * tensor.row_bytes(), &data)?;
            if let Some((_, at)) = scale {
                temporary.write_at(at + row * tensor.scale_bytes(), &scales)?;
            }
            counter.add(&tensor.table.name, ids.len() as u64)?;
        }
    }
    temporary.write_at(0, header)
}

/// Elements and scale bytes of some rows.
fn restore_block(decoder: &BoxDecoder, ids: &[i64], tensor: &Restored<'_>) -> Result<(Vec<u8>, Vec<u8>), CodecError> {
    let dim = decoder.shape().dim as usize;
    let count = ids.len() * dim;
    let decode = |output: Output<'_>| decoder.decode(ids, Missing::Error, output);
    Ok(match (tensor.dtype, &tensor.scale) {
        (SourceDtype::Bf16 | SourceDtype::F16, _) => {
            let mut bits = vec![0u16; count];
            decode(if tensor.dtype == SourceDtype::F16 { Output::F16(&mut bits) } else { Output::Bf16(&mut bits) })?;
            (bits.iter().flat_map(|bits| bits.to_le_bytes()).collect(), Vec::new())
        }
        (dtype @ (SourceDtype::F8E4m3 | SourceDtype::I8), Some(scale)) => {
            let mut values = vec![0f32; count];
            decode(Output::F32(&mut values))?;
            let element = if dtype == SourceDtype::I8 { fp8::i8_from_f64 } else { fp8::e4m3_from_f64 };
            let largest = if dtype == SourceDtype::I8 { fp8::I8_MAX } else { fp8::E4M3_MAX };
            let mut data = vec![0; count];
            let mut scales = vec![0; ids.len() * tensor.scale_bytes() as usize];
            match scale.kind() {
                ScaleKind::Groups => {
                    let groups = values.par_chunks_exact(fp8::GROUP).zip(data.par_chunks_exact_mut(fp8::GROUP));
                    groups
                        .zip(&mut scales)
                        .with_min_len(1 << 10)
                        .for_each(|((values, data), scale)| *scale = fp8::encode_group(values, data));
                }
                ScaleKind::Rows => {
                    let rows = values.par_chunks_exact(dim).zip(data.par_chunks_exact_mut(dim));
                    let size = tensor.scale_bytes() as usize;
                    rows.zip(scales.par_chunks_exact_mut(size)).for_each(|((values, data), bytes)| {
                        let most = values.iter().fold(0f64, |most, &value| most.max(f64::from(value).abs()));
                        let unit = if most > 0.0 { number_at_least(&scale.dtype, most / largest) } else { 1.0 };
                        bytes.copy_from_slice(&number_bytes(&scale.dtype, unit));
                        data.iter_mut().zip(values).for_each(|(data, &value)| *data = element(f64::from(value) / unit));
                    });
                }
                ScaleKind::Global => {
                    let unit = f64::from(f32::from_bits(scale.value_bits.unwrap_or(0)));
                    let elements = data.par_iter_mut().zip(&values).with_min_len(1 << 14);
                    elements.for_each(|(data, &value)| *data = element(f64::from(value) / unit));
                }
            }
            (data, scales)
        }
        _ => {
            let mut values = vec![0f32; count];
            decode(Output::F32(&mut values))?;
            (values.iter().flat_map(|value| value.to_le_bytes()).collect(), Vec::new())
        }
    })
}
