//! The rows of a table, read from its files.

use std::collections::HashMap;
use std::fs::Metadata;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use condprog_table::checksum;
use condprog_table::read::ReadFile;
use condprog_table::source::{ScaleKind, SourceInfo, number_size};
use twox_hash::XxHash3_64;

use crate::checkpoint::{Checkpoint, CheckpointFile};
use crate::error::Error;
use crate::fp8;
use crate::scale;
use crate::source::{FileState, RawRows, RawScales, RowSource};

/// The rows of one table of a [`Checkpoint`], in however many tensors and files.
#[derive(Debug)]
pub struct TableRows {
    info: SourceInfo,
    paths: Vec<PathBuf>,
    files: Vec<ReadFile>,
    parts: Vec<Part>,
}

/// A tensor of a table.
#[derive(Debug)]
struct Part {
    /// First row, counted over the whole table.
    first: u64,
    rows: u64,
    /// Where its elements are.
    data: At,
    scales: Scales,
}

/// A place in a file: index of the file, offset.
#[derive(Clone, Copy, Debug)]
struct At(usize, u64);

#[derive(Clone, Debug)]
enum Scales {
    None,
    Groups(At),
    /// Of a type with this many bytes.
    Rows(At, String, usize),
    Global(f32),
}

impl TableRows {
    pub(super) fn open(checkpoint: &Checkpoint, info: SourceInfo) -> Result<TableRows, Error> {
        let mut opened = Opened::default();
        let mut parts = Vec::new();
        let mut first = 0;
        for part in &info.parts {
            let (file, entry) = checkpoint.find(&part.name).map_err(|source| checkpoint.error(source))?;
            let data = opened.at(file, entry.start)?;
            let scales = match &part.scale {
                None => Scales::None,
                Some(scale) => {
                    let (file, entry) = checkpoint.find(&scale.name).map_err(|source| checkpoint.error(source))?;
                    let before = scale.first_row.unwrap_or(0) * scale.bytes_per_row(info.dim);
                    let at = opened.at(file, entry.start + before)?;
                    match (scale.kind(), number_size(&scale.dtype), scale.value_bits) {
                        (ScaleKind::Groups, ..) => Scales::Groups(at),
                        (ScaleKind::Rows, size, _) => Scales::Rows(at, scale.dtype.clone(), size.unwrap_or(0)),
                        (ScaleKind::Global, _, bits) => Scales::Global(f32::from_bits(bits.unwrap_or(0))),
                    }
                }
            };
            parts.push(Part { first, rows: part.rows, data, scales });
            first += part.rows;
        }
        // The index comes after the files whose places are counted.
        let paths = opened.paths.into_iter().chain(checkpoint.index().map(PathBuf::from)).collect();
        Ok(TableRows { info, paths, files: opened.files, parts })
    }

    /// Reads rows of one part, counted from its first.
    fn read_part(&self, part: usize, first: u64, rows: usize, out: &mut RawRows) -> Result<(), Error> {
        let TableRows { info, files, parts, .. } = self;
        let read = |At(file, start): At, stride: u64, out: &mut Vec<u8>| {
            let end = out.len();
            out.resize(end + rows * stride as usize, 0);
            files[file].read_at(start + first * stride, &mut out[end..])
        };
        let part = &parts[part];
        read(part.data, info.dim * info.dtype.size() as u64, &mut out.data)?;
        match (&part.scales, &mut out.scales) {
            (Scales::Groups(at), RawScales::Groups(scales)) => read(*at, info.dim / fp8::GROUP as u64, scales)?,
            (Scales::Rows(at, dtype, size), RawScales::Rows(scales)) => {
                let mut bytes = Vec::new();
                read(*at, *size as u64, &mut bytes)?;
                scales.extend(bytes.chunks_exact(*size).map(|bytes| scale::number(dtype, bytes)));
            }
            (Scales::Global(scale), RawScales::Rows(scales)) => scales.resize(scales.len() + rows, *scale),
            // The parts of a table have scales of one kind.
            _ => {}
        }
        Ok(())
    }
}

impl Checkpoint {
    /// Opens a table for reading.
    ///
    /// # Errors
    /// As [`Checkpoint::info`], and [`Error::File`] when a file cannot be opened.
    pub fn table(&self, name: &str) -> Result<TableRows, Error> {
        self.rows(self.info(name)?)
    }

    /// Opens a table, as [`Checkpoint::info`], [`Checkpoint::join`] or [`Checkpoint::select`] gave it, for reading.
    ///
    /// # Errors
    /// [`Error::Source`] when it is not of this checkpoint, [`Error::File`] when a file cannot be opened.
    pub fn rows(&self, info: SourceInfo) -> Result<TableRows, Error> {
        TableRows::open(self, info)
    }
}

impl FileState {
    fn of(about: &Metadata) -> FileState {
        let modified = about.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        FileState { bytes: about.len(), modified_ns: modified.as_nanos() as u64 }
    }
}

impl RowSource for TableRows {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn identity(&mut self) -> Result<String, Error> {
        let mut sample = Sample(0);
        for (part, source) in self.parts.iter().zip(&self.info.parts) {
            let about = (&source.name, self.info.dtype.name(), source.rows, self.info.dim, &source.scale);
            sample.add(&serde_json::to_vec(&about).expect("strings and numbers are JSON"));
            let scales = match part.scales {
                Scales::Groups(at) => Some((at, self.info.dim / fp8::GROUP as u64)),
                Scales::Rows(at, _, size) => Some((at, size as u64)),
                Scales::None | Scales::Global(_) => None,
            };
            let data = (part.data, self.info.dim * self.info.dtype.size() as u64);
            for (At(file, start), stride) in [Some(data), scales].into_iter().flatten() {
                sample.add_some_of(&self.files[file], start, part.rows * stride)?;
            }
        }
        Ok(checksum::hex(sample.0))
    }

    fn state(&self) -> Result<Vec<FileState>, Error> {
        self.files.iter().map(|file| Ok(FileState::of(&file.about()?))).collect()
    }

    fn files(&self) -> &[PathBuf] {
        &self.paths
    }

    fn read(&mut self, first: u64, rows: usize) -> Result<RawRows, Error> {
        let end = first.checked_add(rows as u64);
        assert!(end.is_some_and(|end| end <= self.info.rows), "rows {first}.. of {}", self.info.rows);
        let end = first + rows as u64;
        let scales = match &self.parts[0].scales {
            Scales::None => RawScales::None,
            Scales::Groups(_) => RawScales::Groups(Vec::new()),
            Scales::Rows(..) | Scales::Global(_) => RawScales::Rows(Vec::new()),
        };
        let mut out = RawRows { dtype: self.info.dtype, dim: self.info.dim as usize, data: Vec::new(), scales };
        let from = self.parts.partition_point(|part| part.first + part.rows <= first);
        for part in from..self.parts.len() {
            let Part { first: start, rows, .. } = self.parts[part];
            if start >= end {
                break;
            }
            let (low, high) = (first.max(start), end.min(start + rows));
            self.read_part(part, low - start, (high - low) as usize, &mut out)?;
        }
        Ok(out)
    }
}

/// A digest of more bytes than can be read.
struct Sample(u64);

impl Sample {
    /// What is read whole.
    const WHOLE: u64 = 4 << 20;
    /// Of more: how many windows of how many bytes, evenly spread from the first byte to the last.
    const WINDOWS: u64 = 256;
    const WINDOW: u64 = Sample::WHOLE / Sample::WINDOWS;

    fn add(&mut self, bytes: &[u8]) {
        self.0 = XxHash3_64::oneshot_with_seed(self.0, bytes);
    }

    /// Adds `bytes` bytes of a file, starting at `start`, or windows of them.
    fn add_some_of(&mut self, file: &ReadFile, start: u64, bytes: u64) -> Result<(), Error> {
        let (windows, size) = if bytes <= Sample::WHOLE { (1, bytes) } else { (Sample::WINDOWS, Sample::WINDOW) };
        let mut window = vec![0; size as usize];
        for number in 0..windows {
            let place = u128::from(bytes - size) * u128::from(number) / u128::from((windows - 1).max(1));
            file.read_at(start + place as u64, &mut window)?;
            self.add(&window);
        }
        Ok(())
    }
}

/// Files that are open for a table, each once.
#[derive(Default)]
struct Opened {
    places: HashMap<PathBuf, usize>,
    paths: Vec<PathBuf>,
    files: Vec<ReadFile>,
}

impl Opened {
    /// A byte of the data of a file.
    fn at(&mut self, file: &CheckpointFile, start: u64) -> Result<At, Error> {
        let place = match self.places.get(&file.path) {
            Some(&place) => place,
            None => {
                self.files.push(ReadFile::open(&file.path)?);
                self.paths.push(file.path.clone());
                self.places.insert(file.path.clone(), self.files.len() - 1);
                self.files.len() - 1
            }
        };
        Ok(At(place, file.header.data_start + start))
    }
}
