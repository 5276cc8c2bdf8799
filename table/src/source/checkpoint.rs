//! A checkpoint, one safetensors file or many: which tensors it has, and which of them are tables.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern};

use super::rows::{TableRows, read_at};
use super::scale::{self, ScaleKind, ScaleTensor};
use super::{SourceDtype, SourceError, SourceInfo, SourcePart};
use crate::aspect::{Aspect, difference};
use crate::error::{Error, IoContext};
use crate::family::{Family, FamilyTable};
use crate::format::SourceRecord;
use crate::header::{Header, TensorEntry};
use crate::index::{self, Index, IndexError};

/// A checkpoint to read tables from: a safetensors file, or a folder of them with an index.
///
/// Opening reads headers, no data. What an index lists in a file that is not there is missed when it is needed: of a
/// checkpoint of hundreds of gigabytes, the files with the tables are enough to compress them.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    files: Vec<CheckpointFile>,
    /// Where each tensor is.
    tensors: HashMap<String, At>,
    /// Names in the order of files and of their data.
    names: Vec<String>,
    /// The index that names the files, if one does.
    index: Option<PathBuf>,
}

/// A safetensors file of a checkpoint.
#[derive(Debug)]
pub(crate) struct CheckpointFile {
    pub(crate) path: PathBuf,
    pub(crate) header: Header,
}

/// Where a tensor is.
#[derive(Debug)]
enum At {
    /// In one file.
    File(usize),
    /// In two.
    Two([usize; 2]),
    /// In a file that is not there.
    Absent(PathBuf),
}

impl CheckpointFile {
    fn open(path: PathBuf) -> Result<CheckpointFile, Error> {
        let header = Header::open(&path)?;
        Ok(CheckpointFile { path, header })
    }
}

impl Checkpoint {
    /// Opens a safetensors file, an index, or a folder that has an index or a single safetensors file, and reads the
    /// headers of all files that are there.
    ///
    /// # Errors
    /// [`Error::Header`] when a file is no safetensors file or not whole, [`Error::Index`] when an index is malformed or
    /// lists tensors that its files do not have, [`Error::Io`] when something cannot be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint, Error> {
        let path = path.as_ref();
        let mut checkpoint = Checkpoint {
            path: path.into(),
            files: Vec::new(),
            tensors: HashMap::new(),
            names: Vec::new(),
            index: None,
        };
        match index::place(path)? {
            index::Place::File(file) => checkpoint.add(CheckpointFile::open(file)?, None),
            index::Place::Index(index) => checkpoint.open_index(&index)?,
        }
        Ok(checkpoint)
    }

    fn open_index(&mut self, path: &Path) -> Result<(), Error> {
        let index = Index::read(path)?;
        self.index = Some(path.into());
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut absent = HashMap::new();
        for name in index.files() {
            let file = folder.join(name);
            if file.try_exists().context("look for", &file)? {
                self.add(CheckpointFile::open(file)?, Some(&index));
            } else {
                absent.insert(name, file);
            }
        }
        for (tensor, file) in &index.weight_map {
            if let Some(path) = absent.get(file.as_str()) {
                // A copy in another file is a file of another checkpoint: what the index says is what counts.
                self.tensors.insert(tensor.clone(), At::Absent(path.clone()));
                continue;
            }
            let is_there = match self.tensors.get(tensor) {
                Some(At::File(at)) => self.files[*at].path.ends_with(file),
                Some(At::Two(_)) => true,
                _ => false,
            };
            if !is_there {
                let source = IndexError::MissingTensor { tensor: tensor.clone(), file: file.clone() };
                return Err(Error::index(path, source));
            }
        }
        Ok(())
    }

    /// Adds the tensors of a file, those that the index lists if there is one.
    fn add(&mut self, file: CheckpointFile, index: Option<&Index>) {
        let place = self.files.len();
        for tensor in &file.header.tensors {
            if index.is_some_and(|index| !index.weight_map.contains_key(&tensor.name)) {
                continue;
            }
            let at = match self.tensors.get(&tensor.name) {
                Some(At::File(other)) => At::Two([*other, place]),
                Some(_) => continue,
                None => {
                    self.names.push(tensor.name.clone());
                    At::File(place)
                }
            };
            self.tensors.insert(tensor.name.clone(), at);
        }
        self.files.push(file);
    }

    /// What was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether an index names the files.
    pub fn is_indexed(&self) -> bool {
        self.index.is_some()
    }

    /// The index that names the files, if one does.
    pub(crate) fn index(&self) -> Option<&Path> {
        self.index.as_deref()
    }

    /// The files that are there, with their headers.
    pub fn files(&self) -> impl Iterator<Item = (&Path, &Header)> {
        self.files.iter().map(|file| (file.path.as_path(), &file.header))
    }

    /// Names of all tensors, in the order of files and of their data; at the end those whose file is not there.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let mut absent: Vec<_> =
            self.tensors.iter().filter(|(_, at)| matches!(at, At::Absent(_))).map(|(name, _)| name.as_str()).collect();
        absent.sort_unstable();
        let is_there = |name: &&String| !matches!(self.tensors.get(*name), Some(At::Absent(_)));
        self.names.iter().filter(is_there).map(String::as_str).chain(absent)
    }

    /// The tensors whose files are there, with their files.
    pub fn tensors(&self) -> impl Iterator<Item = (&Path, &TensorEntry)> {
        self.names.iter().filter_map(|name| self.find(name).ok()).map(|(file, entry)| (file.path.as_path(), entry))
    }

    /// A tensor by its name.
    pub fn tensor(&self, name: &str) -> Option<&TensorEntry> {
        self.find(name).ok().map(|(_, entry)| entry)
    }

    pub(crate) fn find(&self, name: &str) -> Result<(&CheckpointFile, &TensorEntry), SourceError> {
        let tensor = || name.to_string();
        match self.tensors.get(name) {
            None => Err(SourceError::Missing { tensor: tensor() }),
            Some(At::Absent(file)) => Err(SourceError::MissingFile { tensor: tensor(), file: file.clone() }),
            Some(At::Two(places)) => {
                let files = places.map(|place| self.files[place].path.clone());
                Err(SourceError::TwoFiles { tensor: tensor(), files })
            }
            Some(At::File(place)) => {
                let file = &self.files[*place];
                let entry = file.header.tensor(name).ok_or_else(|| SourceError::Missing { tensor: tensor() })?;
                Ok((file, entry))
            }
        }
    }

    /// What a tensor is as a table. Its own type says whether it has scales: what is called a scale beside a tensor of a
    /// float type was left over by other tools, and is not looked at.
    ///
    /// # Errors
    /// [`Error::Source`] when it is none, [`Error::Io`] when its scale cannot be read.
    pub fn info(&self, name: &str) -> Result<SourceInfo, Error> {
        self.info_with(name, None)
    }

    fn info_with(&self, name: &str, scale: Option<&str>) -> Result<SourceInfo, Error> {
        let (dtype, [rows, dim]) = self.describe(name).map_err(|source| self.error(source))?;
        let scale = match dtype.has_scales() {
            true => Some(self.scales(name, dtype, [rows, dim], scale)?),
            false => None,
        };
        let parts = vec![SourcePart { name: name.into(), rows, scale }];
        Ok(SourceInfo { name: name.into(), dtype, rows, dim, parts })
    }

    /// What several tensors are as one table: their rows one after another, in the order given. `scale` names the scales
    /// of all of them; without it they are found by their names.
    ///
    /// # Errors
    /// As [`Checkpoint::info`], and [`Error::Source`] when the tensors do not agree in width, type or kind of scales.
    pub fn join(&self, table: &str, tensors: &[String], scale: Option<&str>) -> Result<SourceInfo, Error> {
        self.join_parts(table, tensors.iter().map(|tensor| (tensor.as_str(), scale)))
    }

    /// What a table was made from, as its file has it: the same tensors and scales.
    ///
    /// # Errors
    /// As [`Checkpoint::join`].
    pub fn recorded(&self, source: &SourceRecord) -> Result<SourceInfo, Error> {
        let tensors = source.tensors();
        let parts =
            tensors.iter().map(|part| (part.name.as_str(), part.scale.as_ref().map(|scale| scale.name.as_str())));
        self.join_parts(&source.name, parts)
    }

    fn join_parts<'a>(
        &self,
        table: &str,
        tensors: impl Iterator<Item = (&'a str, Option<&'a str>)>,
    ) -> Result<SourceInfo, Error> {
        let (mut parts, mut seen) = (Vec::new(), HashSet::new());
        for (tensor, scale) in tensors {
            if !seen.insert(tensor) {
                let (table, tensor) = (table.into(), tensor.into());
                return Err(self.error(SourceError::PartTwice { table, tensor }));
            }
            parts.push(self.info_with(tensor, scale)?);
        }
        scales_of_single_rows(&mut parts);
        let mut parts = parts.into_iter();
        let first = parts.next().ok_or_else(|| self.error(SourceError::NoTables))?;
        let mut joined = SourceInfo { name: table.into(), ..first };
        for part in parts {
            differs(table, &joined, &part).map_err(|source| self.error(source))?;
            joined.rows = (joined.rows.checked_add(part.rows))
                .filter(|&rows| rows <= i64::MAX as u64)
                .ok_or_else(|| self.error(SourceError::TooManyRows { table: table.into() }))?;
            joined.parts.extend(part.parts);
        }
        Ok(joined)
    }

    /// The tensors that a pattern selects as one table, in the order of the numbers in their names.
    ///
    /// # Errors
    /// As [`Checkpoint::join`], and [`Error::Source`] when the pattern is malformed or selects nothing, or a number is
    /// missing in a row of names that differ in it alone.
    pub fn join_matching(&self, table: &str, pattern: &str, scale: Option<&str>) -> Result<SourceInfo, Error> {
        let patterns = [pattern.to_string()];
        let mut names = self.matching(&patterns).map_err(|source| self.error(source))?;
        names.sort_by_cached_key(|name| natural(name));
        if let Some((before, after)) = names.windows(2).find_map(|pair| gap(pair[0], pair[1])) {
            let table = table.into();
            return Err(self.error(SourceError::PartGap { table, before: before.into(), after: after.into() }));
        }
        let names: Vec<_> = names.into_iter().map(String::from).collect();
        self.join(table, &names, scale)
    }

    /// The family whose tables the checkpoint has.
    ///
    /// # Errors
    /// [`Error::Family`] when it has tables of two.
    pub fn family(&self) -> Result<Option<Family>, Error> {
        Ok(Family::detect(self.names())?)
    }

    /// The tables of a family, with the tensors that each is joined from.
    ///
    /// # Errors
    /// [`Error::Family`] when tensors are missing or too many, others as of [`Checkpoint::join`].
    pub fn family_tables(&self, family: Family) -> Result<Vec<(FamilyTable, SourceInfo)>, Error> {
        let table = |table: FamilyTable| {
            let info = self.join(&table.name, &table.parts, None)?;
            // One number for a whole table of that family is what other tools leave where they lost the scales.
            if let (Family::DeepseekV41, SourceDtype::F8E4m3, [part]) = (family, info.dtype, info.parts.as_slice())
                && let Some(scale) = part.scale.as_ref().filter(|scale| scale.kind() != ScaleKind::Groups)
            {
                let (tensor, name, shape) = (part.name.clone(), scale.name.clone(), scale.shape.clone());
                return Err(self.error(SourceError::ScaleKind { tensor, scale: name, shape }));
            }
            Ok((table, info))
        };
        family.tables(self.names())?.into_iter().map(table).collect()
    }

    /// Opens a table for reading.
    ///
    /// # Errors
    /// As [`Checkpoint::info`], and [`Error::Io`] when a file cannot be opened.
    pub fn table(&self, name: &str) -> Result<TableRows, Error> {
        self.rows(self.info(name)?)
    }

    /// Opens a table, as [`Checkpoint::info`], [`Checkpoint::join`] or [`Checkpoint::select`] gave it, for reading.
    ///
    /// # Errors
    /// [`Error::Source`] when it is not of this checkpoint, [`Error::Io`] when a file cannot be opened.
    pub fn rows(&self, info: SourceInfo) -> Result<TableRows, Error> {
        TableRows::open(self, info)
    }

    /// The tables that patterns select, in the order of files and data; without patterns every two-dimensional tensor of
    /// a format that can be read. Scales come with their tables, however they are matched.
    ///
    /// A pattern is a name, or has `*`, `?` and `[...]` in it. A name must be a table. A pattern with wildcards takes
    /// the tables among what it matches, and must match one. A tensor whose file is not there may be a table, so
    /// it counts as one.
    ///
    /// # Errors
    /// [`Error::Source`] when a pattern is malformed or selects nothing, a named tensor is no table, or a tensor lacks
    /// the scales that its type needs.
    pub fn select(&self, patterns: &[String]) -> Result<Vec<SourceInfo>, Error> {
        let names = self.matching(patterns).map_err(|source| self.error(source))?;
        names.into_iter().map(|name| self.info(name)).collect()
    }

    /// Names of the tensors that patterns select, as [`Checkpoint::select`] has it, whether or not they are tables.
    ///
    /// # Errors
    /// [`Error::Source`] when a pattern is malformed or selects nothing.
    pub fn select_names(&self, patterns: &[String]) -> Result<Vec<String>, Error> {
        let names = self.matching(patterns).map_err(|source| self.error(source))?;
        Ok(names.into_iter().map(String::from).collect())
    }

    fn matching<'a>(&'a self, patterns: &'a [String]) -> Result<Vec<&'a str>, SourceError> {
        let scales = self.names_of_scales();
        let is_candidate = |name: &&str| {
            // One that is not there, or is there twice, may be a table: asked what it is, it says so.
            let is_table = self.tensor(name).is_none_or(|tensor| {
                let is_matrix = tensor.shape.len() == 2 && !tensor.shape.contains(&0);
                is_matrix && SourceDtype::from_name(&tensor.dtype).is_some()
            });
            is_table && !scales.contains(*name)
        };
        let all = || self.names().collect::<Vec<_>>();
        let mut names: Vec<&str> = Vec::new();
        for pattern in patterns {
            let wild =
                Pattern::new(pattern).map_err(|source| SourceError::Pattern { pattern: pattern.clone(), source })?;
            // A name is a name even where it has brackets in it.
            if self.tensors.contains_key(pattern) || !pattern.contains(['*', '?', '[']) {
                names.push(pattern);
                continue;
            }
            let matched: Vec<_> =
                all().into_iter().filter(|name| wild.matches_with(name, MatchOptions::default())).collect();
            let tables: Vec<_> = matched.iter().copied().filter(is_candidate).collect();
            match (matched.first(), tables.is_empty()) {
                (None, _) => return Err(SourceError::NoMatch { pattern: pattern.clone() }),
                // Nothing of use was matched: the first tensor says why.
                (Some(first), true) => names.push(first),
                (Some(_), false) => names.extend(tables),
            }
        }
        if patterns.is_empty() {
            names.extend(all().into_iter().filter(is_candidate));
            if names.is_empty() {
                return Err(SourceError::NoTables);
            }
        }
        let order: HashMap<&str, usize> = self.names().enumerate().map(|(place, name)| (name, place)).collect();
        names.sort_by_key(|name| order.get(name));
        names.dedup();
        Ok(names)
    }

    /// Names of tensors that are scales of another: matrices, but no tables.
    fn names_of_scales(&self) -> HashSet<String> {
        let needs = |tensor: &TensorEntry| SourceDtype::from_name(&tensor.dtype).is_some_and(SourceDtype::has_scales);
        let tensors = self.tensors().filter(|(_, tensor)| needs(tensor));
        tensors
            .flat_map(|(_, tensor)| {
                let (own, beside) = scale::names(&tensor.name);
                own.into_iter().chain(beside)
            })
            .collect()
    }

    fn describe(&self, name: &str) -> Result<(SourceDtype, [u64; 2]), SourceError> {
        let (_, tensor) = self.find(name)?;
        let (name, shape) = (tensor.name.clone(), tensor.shape.clone());
        let &[rows, dim] = tensor.shape.as_slice() else {
            return Err(SourceError::Rank { tensor: name, shape });
        };
        let dtype = SourceDtype::from_name(&tensor.dtype)
            .ok_or_else(|| SourceError::Dtype { tensor: name.clone(), got: tensor.dtype.clone() })?;
        if rows == 0 || dim == 0 {
            return Err(SourceError::Empty { tensor: name, shape });
        }
        Ok((dtype, [rows, dim]))
    }

    /// The scales of a tensor: those named, its own, or one for all tensors beside it, in whatever file.
    fn scales(
        &self,
        tensor: &str,
        dtype: SourceDtype,
        shape: [u64; 2],
        named: Option<&str>,
    ) -> Result<ScaleTensor, Error> {
        let error = |source| self.error(source);
        let found = match named {
            Some(name) => name.to_string(),
            None => self.find_scales(tensor, dtype, shape).map_err(error)?,
        };
        let (file, entry) = self.find(&found).map_err(error)?;
        let kind = scale::kind(tensor, dtype, shape, entry).map_err(error)?;
        let mut scale =
            ScaleTensor { name: found, dtype: entry.dtype.clone(), shape: entry.shape.clone(), value_bits: None };
        if kind == ScaleKind::Global {
            let mut bytes = vec![0; entry.bytes() as usize];
            let mut open = File::open(&file.path).context("open", &file.path)?;
            read_at(&mut open, &file.path, file.header.data_start + entry.start, &mut bytes)?;
            let value = scale::number(&entry.dtype, &bytes);
            if !(value.is_finite() && value > 0.0) {
                let (tensor, scale) = (tensor.into(), scale.name);
                return Err(error(SourceError::ScaleValue { tensor, scale, value }));
            }
            scale.value_bits = Some(value.to_bits());
        }
        Ok(scale)
    }

    fn find_scales(&self, tensor: &str, dtype: SourceDtype, shape: [u64; 2]) -> Result<String, SourceError> {
        let (own, beside) = scale::names(tensor);
        let is_there = |name: &&String| self.tensors.contains_key(*name);
        let mut found: Vec<_> = own.iter().filter(is_there).collect();
        // What lies beside a tensor is its scale only when it is one number: else it belongs to something else.
        let is_number =
            |name: &&String| self.tensor(name).is_none_or(|entry| entry.shape.iter().all(|&size| size == 1));
        found.extend(beside.iter().filter(is_there).filter(is_number));
        match found.as_slice() {
            [one] => Ok((*one).clone()),
            [] => Err(SourceError::MissingScale {
                tensor: tensor.into(),
                dtype: dtype.name(),
                names: own.into_iter().chain(beside).collect(),
                expected: scale::expected(dtype, shape),
            }),
            [first, second, ..] => {
                let scales = [(*first).clone(), (*second).clone()];
                Err(SourceError::TwoScales { tensor: tensor.into(), scales })
            }
        }
    }

    pub(crate) fn error(&self, source: SourceError) -> Error {
        Error::source(&self.path, source)
    }
}

/// A name in pieces that sort as people expect: numbers by their value.
fn natural(name: &str) -> Vec<(&str, u128)> {
    let mut pieces = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let text = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let digits = rest[text..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |digits| text + digits);
        pieces.push((&rest[..text], rest[text..digits].parse().unwrap_or(0)));
        rest = &rest[digits..];
    }
    pieces
}

/// Two neighbours whose names differ in one number, and by more than one.
fn gap<'a>(before: &'a str, after: &'a str) -> Option<(&'a str, &'a str)> {
    let (a, b) = (natural(before), natural(after));
    let mut differ = a.iter().zip(&b).filter(|(a, b)| a != b);
    let same_form = a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a.0 == b.0);
    match (differ.next(), differ.next()) {
        (Some((a, b)), None) if same_form && b.1 > a.1 + 1 => Some((before, after)),
        _ => None,
    }
}

/// The scale of a tensor of one row is the row's where other tensors of the table have scales of rows.
fn scales_of_single_rows(parts: &mut [SourceInfo]) {
    let kind = |part: &SourceInfo| part.parts[0].scale.as_ref().map(ScaleTensor::kind);
    if !parts.iter().any(|part| kind(part) == Some(ScaleKind::Rows)) {
        return;
    }
    for part in parts.iter_mut().filter(|part| part.rows == 1 && kind(part) == Some(ScaleKind::Global)) {
        if let Some(scale) = part.parts[0].scale.as_mut().filter(|scale| !scale.shape.is_empty()) {
            scale.value_bits = None;
        }
    }
}

/// In what a tensor differs from the others of its table, where it must not.
fn differs(table: &str, all: &SourceInfo, part: &SourceInfo) -> Result<(), SourceError> {
    let scales = |info: &SourceInfo| match &info.parts[0].scale {
        None => "none".into(),
        Some(scale) => format!(
            "{} for {}",
            scale.dtype,
            match scale.kind() {
                ScaleKind::Groups => "groups of columns",
                ScaleKind::Rows => "rows",
                ScaleKind::Global => "the whole tensor",
            }
        ),
    };
    let aspects: [Aspect<'_, SourceInfo>; 3] = [
        ("type", &|info| info.dtype.name().into()),
        ("values per row", &|info| info.dim.to_string()),
        ("scales", &scales),
    ];
    if let Some((what, got, expected)) = difference(part, all, &aspects) {
        let tensors = Box::new([all.parts[0].name.clone(), part.name.clone()]);
        return Err(SourceError::PartDiffers { table: table.into(), tensors, what, got, expected });
    }
    Ok(())
}
