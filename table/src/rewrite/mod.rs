//! A whole checkpoint made anew around its compressed tables: a folder that a serving stack takes in place of the
//! original.
//!
//! Table files stand for the tensors they were made from. All other files of the checkpoint are linked, so that
//! hundreds of gigabytes of other weights are neither copied nor stored twice; where a file system cannot link, they
//! are copied. What must change is written anew:
//!
//! | file | change |
//! |---|---|
//! | safetensors files of the checkpoint with replaced tensors in them | without those, the others byte for byte; not at all where nothing is left |
//! | the index | replaced tensors go, those of the table files come, `total_size` is that of all |
//! | `config.json` | `quantization_config` names the tables |
//!
//! The rest of both JSON files keeps its order and spelling. The original is only read. A hard link is the same file
//! under two names: whoever writes into one of the two in place changes both.

mod config;
mod object;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use twox_hash::XxHash3_64;

use self::object::Object;
use crate::error::{Error, IoContext};
use crate::format::TableInfo;
use crate::header::{Header, Strings, TensorEntry};
use crate::index::{self, CHECKPOINT_INDEX, Index, IndexError, Place};
use crate::output::{PARTIAL_SUFFIX, Partial, file_name, sync_folder, with_suffix, write_error};

/// What is not part of a checkpoint though it lies in its folder: the state of version control and of downloads.
const NOT_COPIED: [&str; 2] = [".git", ".cache"];
const CONFIG: &str = "config.json";
/// The file of a checkpoint of one file. Loaders that find it look for no index.
const ONLY_FILE: &str = "model.safetensors";
/// What is left of it, beside an index.
const REST_OF_ONLY_FILE: &str = "model-other.safetensors";
/// Stands in the output until it is whole.
const MARKER: &str = "condprog-rewrite";
/// Bytes copied at a time.
const CHUNK: u64 = 8 << 20;

/// Why a checkpoint cannot be made anew.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RewriteError {
    /// The checkpoint is not a folder.
    #[error("checkpoint is not a folder, expected one: a single file has nothing around its tables")]
    NotAFolder,
    /// The output lies in the checkpoint.
    #[error("output folder is the checkpoint's or lies in it, expected another: {}", .checkpoint.display())]
    Inside {
        /// The checkpoint.
        checkpoint: PathBuf,
    },
    /// A device or the like.
    #[error("is neither a file nor a folder, expected a checkpoint of these")]
    Special,
    /// A link leads to a folder above.
    #[error("is a link to a folder that contains it")]
    Loop,
    /// The checkpoint does not have a tensor that is to be replaced.
    #[error("tensor {tensor:?} is not in the checkpoint, so it cannot be replaced")]
    NoTensor {
        /// Name.
        tensor: String,
    },
    /// A JSON file is not what it should be.
    #[error("{name} is malformed: {source}")]
    Json {
        /// Of what kind.
        name: &'static str,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// The config has tables of another format.
    #[error("config.json has tables of condprog's format version {got}, expected {}", condprog_core::FORMAT_VERSION)]
    Version {
        /// Got.
        got: String,
    },
    /// A table file is not in the output folder.
    #[error("table file is not in the output folder, expected all of them there")]
    Elsewhere,
    /// A table file has the name of another file of the output.
    #[error("table file has the name of another file of the checkpoint, expected another name")]
    FileTaken,
    /// A tensor of a table file has the name of another tensor.
    #[error("tensor {tensor:?} is in a table file and in {other:?}, expected one of them")]
    TensorTaken {
        /// Name.
        tensor: String,
        /// The other file.
        other: String,
    },
}

impl RewriteError {
    /// A short name that stays, as of [`Error::code`].
    pub fn code(&self) -> &'static str {
        match self {
            RewriteError::NotAFolder => "rewrite-not-a-folder",
            RewriteError::Inside { .. } => "rewrite-inside",
            RewriteError::Special => "rewrite-special",
            RewriteError::Loop => "rewrite-loop",
            RewriteError::NoTensor { .. } => "rewrite-no-tensor",
            RewriteError::Json { .. } => "rewrite-json",
            RewriteError::Version { .. } => "rewrite-version",
            RewriteError::Elsewhere => "rewrite-elsewhere",
            RewriteError::FileTaken => "rewrite-file-taken",
            RewriteError::TensorTaken { .. } => "rewrite-tensor-taken",
        }
    }

    fn at(self, path: &Path) -> Error {
        Error::Rewrite { path: path.into(), source: Box::new(self) }
    }
}

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RewriteReport {
    /// The index of the output.
    pub index: PathBuf,
    /// Bytes of all tensors of the output, its tables included.
    pub total_size: u64,
    /// Files that are those of the checkpoint under a second name.
    pub linked: u64,
    /// Files that are copies.
    pub copied: u64,
    /// Safetensors files that were written without their replaced tensors.
    pub written: Vec<PathBuf>,
    /// Safetensors files of the checkpoint of which nothing is left.
    pub dropped: Vec<PathBuf>,
}

/// A checkpoint on its way into another folder.
///
/// ```no_run
/// use condprog_table::{CompressOptions, Rewrite, compress_file, quiet};
///
/// let table = "layers.1.engram.embed";
/// let replaced = [format!("{table}.weight"), format!("{table}.scale")].into();
/// // Says at once what is wrong with the checkpoint or the output, before hours of work.
/// let rewrite = Rewrite::begin("checkpoint", "output", replaced, false)?;
/// let (tables, options) = ("output/tables.safetensors", CompressOptions::default());
/// let report = compress_file("checkpoint", &[format!("{table}.weight")], tables, &options, &quiet)?;
/// rewrite.finish(&report.tables, &report.files)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Rewrite {
    output: PathBuf,
    /// Folders below the checkpoint's, before those within them.
    folders: Vec<PathBuf>,
    /// Files that are linked: where they are, below the checkpoint's folder.
    links: Vec<Link>,
    /// Files that are written without some of their tensors.
    rests: Vec<Rest>,
    /// Files that are left out.
    dropped: Vec<PathBuf>,
    index_name: String,
    /// The index as it was; empty where there was none.
    index: Object,
    /// Tensors that stay: name, file in the output, bytes.
    tensors: Vec<(String, String, u64)>,
    config: Option<Object>,
    /// Locks the output, and says that it is not whole.
    marker: Partial,
    resumed: bool,
}

#[derive(Debug)]
struct Link {
    /// Below the folder.
    name: PathBuf,
    /// The file itself, no symbolic link to it.
    source: PathBuf,
    bytes: u64,
}

#[derive(Debug)]
struct Rest {
    name: String,
    source: PathBuf,
    metadata: Vec<(String, String)>,
    /// The tensors that stay, as they are in the source, from its first byte.
    tensors: Vec<TensorEntry>,
}

impl Rewrite {
    /// Reads the checkpoint of folder `input`, finds out what becomes of each of its files, and creates the folder
    /// `output` with a marker in it that stays until [`Rewrite::finish`] is done. `replaced` are the tensors that the
    /// table files stand for, scales included. Table files can be written into `output` afterwards, or lie there
    /// already.
    ///
    /// Where the marker of an equal run is there, that run was cut short, and this one goes on with it.
    ///
    /// # Errors
    /// [`Error::Rewrite`], [`Error::Index`], [`Error::Header`] or [`Error::Io`] for a checkpoint that is not whole or an
    /// output that cannot be; [`Error::OutputExists`] when a file of the output is there already, unless `force` is set;
    /// then it is removed; [`Error::OtherRun`] when another run was cut short there, unless `force` is set;
    /// [`Error::Busy`].
    pub fn begin(
        input: impl AsRef<Path>,
        output: impl AsRef<Path>,
        replaced: BTreeSet<String>,
        force: bool,
    ) -> Result<Rewrite, Error> {
        let (input, output) = (input.as_ref(), output.as_ref());
        if !fs::metadata(input).context("open", input)?.is_dir() {
            return Err(RewriteError::NotAFolder.at(input));
        }
        refuse_inside(input, output)?;
        let mut weights = Weights::open(input, &replaced)?;
        let mut found = Found::default();
        found.walk(input, Path::new(""), &mut Vec::new())?;
        let identity = found.identity(&replaced);

        let config = match found.take(CONFIG) {
            Some(link) => Some(read_config(&link.source)?),
            None => None,
        };
        found.take(&weights.index_name);
        let (mut rests, mut dropped) = (Vec::new(), Vec::new());
        for (name, header) in std::mem::take(&mut weights.files) {
            let has = |tensor: &TensorEntry| replaced.contains(&tensor.name);
            if !header.tensors.iter().any(has) {
                continue;
            }
            let Some(Link { name: path, source, .. }) = found.take(&name) else { continue };
            if header.tensors.iter().all(has) {
                dropped.push(path);
                continue;
            }
            rests.push(Rest::new(weights.renamed(name), source, &header, &replaced));
        }
        fs::create_dir_all(output).context("create", output)?;
        let mut marker = Partial::open(&output.join(MARKER), false)?;
        let resumed = resumes(&mut marker, &identity, force)?;
        let mut rewrite = Rewrite {
            output: output.into(),
            folders: found.folders,
            links: found.files,
            rests,
            dropped,
            index_name: weights.index_name,
            index: weights.index,
            tensors: weights.tensors,
            config,
            marker,
            resumed,
        };
        if !resumed && let Err(error) = rewrite.clear(force).and_then(|()| rewrite.mark(&identity)) {
            rewrite.marker.discard();
            return Err(error);
        }
        Ok(rewrite)
    }

    /// Whether this goes on with a run that was cut short. Its table files may be whole then.
    pub fn is_resumed(&self) -> bool {
        self.resumed
    }

    /// Whether a table file of this name would take the place of another file of the output.
    pub fn is_taken(&self, name: &str) -> bool {
        self.names().any(|taken| taken == Path::new(name))
    }

    /// Everything that is made in the output, below its folder.
    fn names(&self) -> impl Iterator<Item = &Path> {
        let links = self.links.iter().map(|link| link.name.as_path());
        let rests = self.rests.iter().map(|rest| Path::new(&rest.name));
        links.chain(rests).chain(self.config.iter().map(|_| Path::new(CONFIG))).chain([Path::new(&self.index_name)])
    }

    /// Refuses or removes what is in the way.
    fn clear(&self, force: bool) -> Result<(), Error> {
        let mut there = Vec::new();
        for name in self.names() {
            let path = self.output.join(name);
            match fs::symlink_metadata(&path) {
                Ok(_) => there.push(path),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error).context("look for", &path),
            }
        }
        match there.into_iter().next() {
            Some(path) if !force => Err(Error::OutputExists { path }),
            _ => self.names().try_for_each(|name| remove(&self.output.join(name))),
        }
    }

    fn mark(&mut self, identity: &str) -> Result<(), Error> {
        self.marker.restart(identity.len() as u64)?;
        self.marker.write_at(0, identity.as_bytes())
    }

    /// Makes the output whole around its table files: `files`, which hold `tables`. The index comes last. Files that hold
    /// restored tensors have no tables: `config.json` then stays as it is.
    ///
    /// # Errors
    /// [`Error::Rewrite`] for a table file that is not in the output or collides with the rest of it, [`Error::Io`],
    /// [`Error::DiskFull`], [`Error::Header`]. The same call after [`Rewrite::begin`] goes on.
    pub fn finish(mut self, tables: &[TableInfo], files: &[PathBuf]) -> Result<RewriteReport, Error> {
        let mut tensors = std::mem::take(&mut self.tensors);
        for file in files {
            self.add_table_file(file, &mut tensors)?;
        }
        for folder in &self.folders {
            let path = self.output.join(folder);
            fs::create_dir_all(&path).context("create", &path)?;
        }
        let mut report = RewriteReport {
            index: self.output.join(&self.index_name),
            total_size: tensors.iter().map(|(_, _, bytes)| bytes).sum(),
            linked: 0,
            copied: 0,
            written: Vec::new(),
            dropped: std::mem::take(&mut self.dropped),
        };
        for link in &self.links {
            match link_or_copy(link, &self.output.join(&link.name), self.resumed)? {
                Made::Link => report.linked += 1,
                Made::Copy => report.copied += 1,
            }
        }
        for rest in &self.rests {
            rest.write(&self.output.join(&rest.name), self.resumed)?;
            report.written.push(rest.name.clone().into());
        }
        for folder in &self.folders {
            let path = self.output.join(folder);
            sync_folder(&path).context("finish", &path)?;
        }
        if let Some(mut config) = self.config.take() {
            let path = self.output.join(CONFIG);
            if !tables.is_empty() {
                config::add_tables(&mut config, tables).map_err(|source| source.at(&path))?;
            }
            write_text(&path, &(config.text(0) + "\n"))?;
        }
        let text = index_text(std::mem::take(&mut self.index), &tensors, report.total_size);
        let text = text.map_err(|source| RewriteError::Json { name: "index", source }.at(&report.index))?;
        write_text(&report.index, &text)?;
        self.marker.discard();
        sync_folder(&self.output).context("finish", &self.output)?;
        Ok(report)
    }

    /// Takes a table file's tensors into the index.
    fn add_table_file(&self, path: &Path, tensors: &mut Vec<(String, String, u64)>) -> Result<(), Error> {
        let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        let is_here = folder.canonicalize().ok() == self.output.canonicalize().ok();
        let name = path.file_name().and_then(OsStr::to_str).filter(|_| is_here);
        let name = name.ok_or_else(|| RewriteError::Elsewhere.at(path))?;
        if self.is_taken(name) {
            return Err(RewriteError::FileTaken.at(path));
        }
        let header = Header::open(path)?;
        let others: HashMap<_, _> = tensors.iter().map(|(tensor, file, _)| (tensor.as_str(), file.as_str())).collect();
        if let Some((tensor, other)) =
            header.tensors.iter().find_map(|tensor| Some((&tensor.name, others.get(tensor.name.as_str())?)))
        {
            let (tensor, other) = (tensor.clone(), (*other).into());
            return Err(RewriteError::TensorTaken { tensor, other }.at(path));
        }
        drop(others);
        tensors.extend(header.tensors.into_iter().map(|tensor| (tensor.name.clone(), name.into(), tensor.bytes())));
        Ok(())
    }
}

/// The weights of the checkpoint, as its index or its only file has them.
struct Weights {
    index_name: String,
    /// Empty where there was none.
    index: Object,
    is_indexed: bool,
    /// Names and headers of the safetensors files.
    files: Vec<(String, Header)>,
    /// Tensors that stay: name, file in the output, bytes.
    tensors: Vec<(String, String, u64)>,
}

impl Weights {
    fn open(input: &Path, replaced: &BTreeSet<String>) -> Result<Weights, Error> {
        let mut weights = Weights {
            index_name: CHECKPOINT_INDEX.into(),
            index: Object::default(),
            is_indexed: false,
            files: Vec::new(),
            tensors: Vec::new(),
        };
        let (at, map) = match index::place(input)? {
            Place::File(path) => {
                let header = Header::open(&path)?;
                let map = header.tensors.iter().map(|tensor| (tensor.name.clone(), file_name(&path))).collect();
                weights.files.push((file_name(&path), header));
                (path, map)
            }
            Place::Index(path) => {
                for file in Index::read(&path)?.files() {
                    weights.files.push((file.into(), Header::open(&input.join(file))?));
                }
                let malformed = |source| RewriteError::Json { name: "index", source }.at(&path);
                let text = fs::read(&path).context("read", &path)?;
                weights.index = serde_json::from_slice(&text).map_err(malformed)?;
                weights.is_indexed = true;
                weights.index_name = file_name(&path);
                let map: Option<Strings> = weights.index.read("weight_map").map_err(malformed)?;
                (path, map.map_or_else(Vec::new, |map| map.0))
            }
        };
        let mut missing: HashSet<&str> = replaced.iter().map(String::as_str).collect();
        let headers: HashMap<&str, &Header> = weights.files.iter().map(|(name, h)| (name.as_str(), h)).collect();
        for (tensor, file) in map {
            let Some(entry) = headers.get(file.as_str()).and_then(|header| header.tensor(&tensor)) else {
                return Err(Error::index(&at, IndexError::MissingTensor { tensor, file }));
            };
            if !missing.remove(tensor.as_str()) && !replaced.contains(&tensor) {
                let bytes = entry.bytes();
                let file = weights.renamed(file);
                weights.tensors.push((tensor, file, bytes));
            }
        }
        match missing.into_iter().min() {
            Some(tensor) => Err(RewriteError::NoTensor { tensor: tensor.into() }.at(input)),
            None => Ok(weights),
        }
    }

    /// What a file that is written anew is called: beside an index there must be no `model.safetensors`, for which
    /// loaders would forget the index.
    fn renamed(&self, name: String) -> String {
        if !self.is_indexed && name == ONLY_FILE { REST_OF_ONLY_FILE.into() } else { name }
    }
}

/// What is in the folder of the checkpoint.
#[derive(Default)]
struct Found {
    folders: Vec<PathBuf>,
    files: Vec<Link>,
    /// Name, length and time of each file.
    states: String,
}

impl Found {
    /// Adds a folder, `name` below the checkpoint's. Symbolic links are followed; `above` are the folders it lies in.
    fn walk(&mut self, folder: &Path, name: &Path, above: &mut Vec<PathBuf>) -> Result<(), Error> {
        let real = folder.canonicalize().context("open", folder)?;
        if above.contains(&real) {
            return Err(RewriteError::Loop.at(folder));
        }
        above.push(real);
        let entries = fs::read_dir(folder).context("read", folder)?;
        let mut entries = entries.collect::<io::Result<Vec<_>>>().context("read", folder)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (path, file_name) = (entry.path(), entry.file_name());
            if above.len() == 1 && NOT_COPIED.iter().any(|not| file_name == *not) {
                continue;
            }
            let (name, about) = (name.join(&file_name), fs::metadata(&path).context("open", &path)?);
            if about.is_dir() {
                self.folders.push(name.clone());
                self.walk(&path, &name, above)?;
            } else if about.is_file() {
                let time = about.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
                self.states += &format!("{name:?} {} {}\n", about.len(), time.unwrap_or_default().as_nanos());
                let source = path.canonicalize().context("open", &path)?;
                self.files.push(Link { name, source, bytes: about.len() });
            } else {
                return Err(RewriteError::Special.at(&path));
            }
        }
        above.pop();
        Ok(())
    }

    /// Takes out a file of the checkpoint's own folder.
    fn take(&mut self, name: &str) -> Option<Link> {
        let place = self.files.iter().position(|link| link.name == Path::new(name))?;
        Some(self.files.remove(place))
    }

    /// Tells apart one run from another.
    fn identity(&self, replaced: &BTreeSet<String>) -> String {
        format!("{:016x}", XxHash3_64::oneshot(format!("{}{replaced:?}", self.states).as_bytes()))
    }
}

/// Whether the marker is that of an equal run.
fn resumes(marker: &mut Partial, identity: &str, force: bool) -> Result<bool, Error> {
    // All have this length; what is longer is none.
    let mut got = vec![0; (marker.length() as usize).min(identity.len())];
    marker.read_at(0, &mut got)?;
    // One that is empty was cut short before anything else was made.
    if got.iter().all(|byte| *byte == 0) || force && got != identity.as_bytes() {
        return Ok(false);
    }
    if got != identity.as_bytes() {
        return Err(Error::OtherRun {
            path: marker.path().into(),
            what: "the checkpoint",
            got: String::from_utf8_lossy(&got).into_owned(),
            expected: identity.into(),
        });
    }
    Ok(true)
}

/// How a file came into the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    Link,
    Copy,
}

/// Puts a file into the output. One that a run before this has put there stays.
fn link_or_copy(link: &Link, output: &Path, resumed: bool) -> Result<Made, Error> {
    match fs::symlink_metadata(output) {
        Ok(there) if resumed => {
            let source = fs::metadata(&link.source).context("open", &link.source)?;
            if is_same_file(&source, &there) {
                return Ok(Made::Link);
            }
            // Files get their names when they are whole.
            if there.len() == link.bytes {
                return Ok(Made::Copy);
            }
        }
        _ => {}
    }
    let partial = with_suffix(output, PARTIAL_SUFFIX);
    remove(&partial)?;
    let made = match fs::hard_link(&link.source, &partial) {
        Ok(()) => Made::Link,
        // Another file system, one without links, a file of another user: whatever it is, a copy may still be possible.
        Err(_) => {
            let copied = fs::copy(&link.source, &partial).and_then(|_| File::open(&partial)?.sync_all());
            copied.map_err(|error| write_error(error, &partial, link.bytes))?;
            Made::Copy
        }
    };
    fs::rename(&partial, output).context("finish", output)?;
    Ok(made)
}

#[cfg(unix)]
fn is_same_file(a: &fs::Metadata, b: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// A link is then taken for a copy, which is as good.
#[cfg(not(unix))]
fn is_same_file(_: &fs::Metadata, _: &fs::Metadata) -> bool {
    false
}

impl Rest {
    fn new(name: String, source: PathBuf, header: &Header, replaced: &BTreeSet<String>) -> Rest {
        let kept = header.tensors.iter().filter(|tensor| !replaced.contains(&tensor.name)).cloned();
        let from_start = |tensor: TensorEntry| {
            let (start, end) = (header.data_start + tensor.start, header.data_start + tensor.end);
            TensorEntry { start, end, ..tensor }
        };
        Rest { name, source, metadata: header.metadata.clone(), tensors: kept.map(from_start).collect() }
    }

    /// Writes the tensors that stay, byte for byte.
    fn write(&self, output: &Path, resumed: bool) -> Result<(), Error> {
        let mut end = 0;
        let moved = self.tensors.iter().map(|tensor| {
            let start = end;
            end += tensor.bytes();
            TensorEntry { start, end, ..tensor.clone() }
        });
        let moved: Vec<_> = moved.collect();
        let header = Header::to_bytes(&self.metadata, &moved, 0).map_err(|source| Error::header(output, source))?;
        let length = header.len() as u64 + end;
        if resumed && fs::metadata(output).is_ok_and(|about| about.len() == length) {
            return Ok(());
        }
        let mut partial = Partial::open(output, true)?;
        partial.restart(length)?;
        let mut source = File::open(&self.source).context("open", &self.source)?;
        let (mut at, mut chunk) = (header.len() as u64, Vec::new());
        for tensor in &self.tensors {
            source.seek(SeekFrom::Start(tensor.start)).context("read", &self.source)?;
            let mut left = tensor.bytes();
            while left > 0 {
                chunk.resize(left.min(CHUNK) as usize, 0);
                source.read_exact(&mut chunk).context("read", &self.source)?;
                partial.write_at(at, &chunk)?;
                at += chunk.len() as u64;
                left -= chunk.len() as u64;
            }
        }
        // An unfinished file starts with zeros.
        partial.write_at(0, &header)?;
        partial.finish(true)
    }
}

/// The index with these tensors, and all else as it was.
fn index_text(mut index: Object, tensors: &[(String, String, u64)], total: u64) -> serde_json::Result<String> {
    let mut metadata: Object = index.read("metadata")?.unwrap_or_default();
    metadata.set("total_size", &total)?;
    index.set_object("metadata", &metadata, 0)?;
    let mut map = Object::default();
    for (tensor, file, _) in tensors {
        map.push(tensor, &file)?;
    }
    index.set_object("weight_map", &map, 0)?;
    Ok(index.text(0) + "\n")
}

fn read_config(path: &Path) -> Result<Object, Error> {
    let text = fs::read(path).context("read", path)?;
    let malformed = |source| RewriteError::Json { name: CONFIG, source }.at(path);
    let config = serde_json::from_slice(&text).map_err(malformed)?;
    // What cannot be said about tables is found before any is compressed.
    config::add_tables(&mut Object::clone(&config), &[]).map_err(|source| source.at(path))?;
    Ok(config)
}

fn write_text(path: &Path, text: &str) -> Result<(), Error> {
    let mut file = Partial::open(path, true)?;
    file.restart(text.len() as u64)?;
    file.write_at(0, text.as_bytes())?;
    file.finish(true)
}

/// Removes a file, if it is there.
fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).context("remove", path),
        _ => Ok(()),
    }
}

/// Refuses an output that is the checkpoint's folder, or lies in it, whether or not it is there yet.
fn refuse_inside(input: &Path, output: &Path) -> Result<(), Error> {
    let checkpoint = input.canonicalize().context("open", input)?;
    let mut there = std::path::absolute(output).context("look for", output)?;
    while !there.try_exists().context("look for", output)? && there.pop() {}
    let there = there.canonicalize().context("look for", output)?;
    if there.starts_with(&checkpoint) {
        return Err(RewriteError::Inside { checkpoint: input.into() }.at(output));
    }
    Ok(())
}
