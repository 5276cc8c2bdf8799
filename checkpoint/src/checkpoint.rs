//! A checkpoint, one safetensors file or many: which tensors it has, and which of them are tables.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use condprog_table::error::IoContext;
use condprog_table::format;
use condprog_table::header::{Header, TensorEntry};
use condprog_table::index::{Index, IndexError};
use condprog_table::input;
use condprog_table::source::SourceDtype;

use crate::error::{Error, SourceError};
use crate::near::near;

/// A checkpoint to read tables from: a safetensors file, or a folder of them with an index.
///
/// Opening reads headers, no data. A file that the index lists may be missing until it is needed: to compress the
/// tables of a checkpoint of hundreds of gigabytes, the files with the tables are enough.
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
        let header = input::header(&path)?;
        Ok(CheckpointFile { path, header })
    }

    /// Whether it is a table file rather than a checkpoint's.
    fn is_table_file(&self) -> bool {
        self.header.metadata(format::KEY_FORMAT) == Some(format::FORMAT)
    }
}

impl Checkpoint {
    /// Opens a safetensors file, an index, or a folder that has an index or a single safetensors file, and reads the
    /// headers of all files that are there.
    ///
    /// # Errors
    /// [`Error::File`] when a file cannot be read, is not a complete safetensors file, or an index is malformed or
    /// lists tensors that its files do not have; [`Error::Source`] when it is a table file.
    pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint, Error> {
        let path = path.as_ref();
        let mut checkpoint = Checkpoint::empty(path.into());
        match input::place(path)? {
            input::Place::File(file) => checkpoint.add(CheckpointFile::open(file)?, None),
            input::Place::Index(index) => checkpoint.open_index(&index)?,
        }
        checkpoint.refuse_table_files()?;
        Ok(checkpoint)
    }

    /// Opens the safetensors files of a checkpoint that has no index, or whatever a single path is to
    /// [`Checkpoint::open`].
    ///
    /// # Errors
    /// As [`Checkpoint::open`], and [`Error::Source`] when one of several paths is not a safetensors file, or is given
    /// twice.
    pub fn open_all<P: AsRef<Path>>(paths: &[P]) -> Result<Checkpoint, Error> {
        if let [path] = paths {
            return Checkpoint::open(path);
        }
        let names: Vec<_> = paths.iter().take(3).map(|path| path.as_ref().display().to_string()).collect();
        let more = if paths.len() > 3 { format!(" and {} more", paths.len() - 3) } else { String::new() };
        let mut checkpoint = Checkpoint::empty(format!("{}{more}", names.join(", ")).into());
        let mut seen = HashMap::new();
        for path in paths {
            let path = path.as_ref();
            let file = match input::place(path)? {
                input::Place::File(file) if file == path => file,
                _ => return Err(Error::source(path, SourceError::NotOneFile)),
            };
            let real = path.canonicalize().context("open", path)?;
            if let Some(other) = seen.insert(real, path) {
                return Err(Error::source(path, SourceError::FileTwice { other: other.into() }));
            }
            checkpoint.add(CheckpointFile::open(file)?, None);
        }
        checkpoint.refuse_table_files()?;
        Ok(checkpoint)
    }

    fn empty(path: PathBuf) -> Checkpoint {
        Checkpoint { path, files: Vec::new(), tensors: HashMap::new(), names: Vec::new(), index: None }
    }

    /// Refuses what is compressed already. A checkpoint that was rebuilt around its tables has other files beside them.
    fn refuse_table_files(&self) -> Result<(), Error> {
        let is_indexed = self.is_indexed();
        let mut files = self.files.iter();
        let table_file = match is_indexed {
            true if files.all(CheckpointFile::is_table_file) => self.files.first(),
            true => None,
            false => files.find(|file| file.is_table_file()),
        };
        match table_file {
            Some(file) => Err(self.error(SourceError::IsTableFile { file: file.path.clone() })),
            None => Ok(()),
        }
    }

    fn open_index(&mut self, path: &Path) -> Result<(), Error> {
        let index = input::index(path)?;
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
                Some(At::File(at)) => self.files[*at].path == folder.join(file),
                Some(At::Two(_)) => true,
                _ => false,
            };
            if !is_there {
                let source = IndexError::MissingTensor { tensor: tensor.clone(), file: file.clone() };
                return Err(condprog_table::Error::index(path, source).into());
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

    /// What was opened; of several files a text that names them.
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
        if self.contains(name) { self.find(name).ok().map(|(_, entry)| entry) } else { None }
    }

    /// Whether a tensor is listed, whether or not its file is there.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    pub(crate) fn find(&self, name: &str) -> Result<(&CheckpointFile, &TensorEntry), SourceError> {
        let tensor = || name.to_string();
        match self.tensors.get(name) {
            None => Err(SourceError::Missing { tensor: tensor(), near: near(name, self.names()) }),
            Some(At::Absent(file)) => Err(SourceError::MissingFile { tensor: tensor(), file: file.clone() }),
            Some(At::Two(places)) => {
                let files = places.map(|place| self.files[place].path.clone());
                Err(SourceError::TwoFiles { tensor: tensor(), files })
            }
            Some(At::File(place)) => {
                let file = &self.files[*place];
                let missing = || SourceError::Missing { tensor: tensor(), near: Vec::new() };
                let entry = file.header.tensor(name).ok_or_else(missing)?;
                Ok((file, entry))
            }
        }
    }

    pub(crate) fn describe(&self, name: &str) -> Result<(SourceDtype, [u64; 2]), SourceError> {
        let (file, tensor) = self.find(name)?;
        let (name, shape) = (tensor.name.clone(), tensor.shape.clone());
        if file.is_table_file() {
            return Err(SourceError::IsTableFile { file: file.path.clone() });
        }
        if let Some(packed) = self.packed(tensor) {
            return Err(packed);
        }
        let &[rows, dim] = tensor.shape.as_slice() else {
            return Err(SourceError::Rank { tensor: name, shape });
        };
        let dtype = SourceDtype::from_name(&tensor.dtype)
            .ok_or_else(|| SourceError::Dtype { tensor: name.clone(), got: tensor.dtype.clone() })?;
        if rows == 0 || dim == 0 {
            return Err(SourceError::Empty { tensor: name, shape });
        }
        if let Some((what, Some(owner))) = self.companion(&name) {
            return Err(SourceError::Companion { tensor: name, what: what.name(), owner: Some(owner) });
        }
        Ok((dtype, [rows, dim]))
    }

    pub(crate) fn error(&self, source: SourceError) -> Error {
        Error::source(&self.path, source)
    }
}
