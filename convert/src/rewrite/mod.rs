//! A whole checkpoint rebuilt around its compressed tables: a folder that a serving stack takes in place of the
//! original.
//!
//! Table files take the place of the tensors they were made from. Other files of weights are hard-linked, so that
//! hundreds of gigabytes are neither copied nor stored twice; where a file system cannot link, and where that is asked
//! for, they are copied. So is everything else, which people edit: a hard link is the same file under two names, and
//! whoever writes into one in place changes both. What must change is written again:
//!
//! | file | change |
//! |---|---|
//! | safetensors files of the checkpoint with replaced tensors in them | without those, the others byte for byte; not at all where nothing is left |
//! | the index | replaced tensors go, those of the table files come, `total_size` is that of all |
//! | `config.json` | `quantization_config` names the tables |
//!
//! The rest of both JSON files keeps its order and spelling. The original is only read. Symbolic links in it are followed
//! as far as they lead to files of the checkpoint, or of the download cache that it lies in.

mod config;
mod links;
mod marker;
mod object;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use condprog_table::format::TableInfo;
use condprog_table::header::{Header, Strings, TensorEntry};
use condprog_table::index::{CHECKPOINT_INDEX, IndexError};
use condprog_table::input::file_name;
use condprog_table::input::{self, Place};

use self::links::{Found, Link, Made};
use self::marker::Marker;
use self::object::Object;
use crate::compress::files::write_text;
use crate::error::{Error, IoContext, RewriteError};
use crate::output::{Temporary, There, look, refuse_existing, refuse_same, remove_equals, sweep, sync_folder};

const CONFIG: &str = "config.json";
/// The file of a checkpoint of one file. Loaders that find it look for no index.
const ONLY_FILE: &str = "model.safetensors";
/// What is left of it, beside an index.
const REST_OF_ONLY_FILE: &str = "model-other.safetensors";
/// Bytes copied at a time.
const CHUNK: u64 = 8 << 20;

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RewriteReport {
    /// The index of the output.
    pub index: PathBuf,
    /// Bytes of all tensors of the output, its tables included.
    pub total_size: u64,
    /// Files of the checkpoint that were hard-linked.
    pub linked: u64,
    /// Files that are copies.
    pub copied: u64,
    /// Safetensors files that were written without their replaced tensors.
    pub written: Vec<PathBuf>,
    /// Safetensors files of the checkpoint of which nothing is left.
    pub dropped: Vec<PathBuf>,
}

/// How to rebuild a checkpoint around its tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RewriteOptions {
    /// Copy files of weights too, rather than link them.
    pub copy: bool,
    /// Replace files of the output that are there, and start over where an unfinished one does not fit.
    pub force: bool,
}

/// A checkpoint on its way into another folder.
///
/// ```no_run
/// use condprog_convert::{CompressOptions, Rewrite, RewriteOptions, compress_file, quiet};
/// # fn example(codec: &dyn condprog_convert::Codec) -> Result<(), Box<dyn std::error::Error>> {
/// let table = "layers.1.engram.embed";
/// let replaced = [format!("{table}.weight"), format!("{table}.scale")].into();
/// // Says at once what is wrong with the checkpoint or the output, before hours of work.
/// let rewrite = Rewrite::begin("checkpoint", "output", replaced, RewriteOptions::default())?;
/// let (tables, options) = ("output/tables.safetensors", CompressOptions::default());
/// let report = compress_file("checkpoint", &[format!("{table}.weight")], tables, &options, codec, &quiet)?;
/// rewrite.finish(&report.tables, &report.files)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Rewrite {
    draft: Draft,
    /// Locks the output, and marks it as incomplete.
    marker: Marker,
    resumed: bool,
    copy: bool,
    made_folder: bool,
}

/// What would become of the files of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RewritePreview {
    /// Files that would be the checkpoint's under a second name, with their bytes, below its folder.
    pub linked: Vec<(PathBuf, u64)>,
    /// Files that would be copied, with their bytes.
    pub copied: Vec<(PathBuf, u64)>,
    /// Safetensors files that would be written without their replaced tensors, with the bytes of those that stay.
    pub written: Vec<(PathBuf, u64)>,
    /// Safetensors files of the checkpoint of which nothing would be left.
    pub dropped: Vec<PathBuf>,
    /// Whether an equal run was interrupted, so that this one would resume it.
    pub resumes: bool,
}

/// What becomes of each file of a checkpoint.
#[derive(Debug)]
struct Draft {
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
    /// Where the marker of an equal run is there, that run was interrupted, and this one resumes it.
    ///
    /// # Errors
    /// [`Error::Rewrite`], [`Error::File`] for a checkpoint that is not whole or an output that cannot be;
    /// [`Error::OutputExists`] when a file of the output is there already, unless `force` is set; then it is removed;
    /// [`Error::OtherRun`] when another run was interrupted there, unless `force` is set;
    /// [`Error::OutputNotAFile`] when something other than a file is in the way; [`Error::Busy`].
    pub fn begin(
        input: impl AsRef<Path>,
        output: impl AsRef<Path>,
        replaced: BTreeSet<String>,
        options: RewriteOptions,
    ) -> Result<Rewrite, Error> {
        let (input, output, force) = (input.as_ref(), output.as_ref(), options.force);
        let (draft, identity) = Draft::read(input, output, &replaced)?;
        let made_folder = matches!(look(output)?, There::Nothing);
        fs::create_dir_all(output).context("create", output)?;
        let (marker, resumed) = Marker::open(output, &identity, force)?;
        let mut rewrite = Rewrite { draft, marker, resumed, copy: options.copy, made_folder };
        if !resumed && let Err(error) = rewrite.draft.clear(force).and_then(|()| rewrite.marker.write(&identity)) {
            rewrite.abandon();
            return Err(error);
        }
        Ok(rewrite)
    }

    /// Undoes [`Rewrite::begin`] if nothing else was made: there is nothing to resume then.
    pub fn abandon(self) {
        if self.resumed {
            return;
        }
        // The error that led here is the one to report.
        let _ = self.marker.remove();
        if self.made_folder {
            // Where something is in it, it stays.
            let _ = fs::remove_dir(&self.draft.output);
        }
    }

    /// Refuses to make a checkpoint over one of these files, which are read for it.
    ///
    /// # Errors
    /// [`Error::SameFile`], others as of [`Rewrite::begin`].
    pub fn refuse_inputs<'a>(
        input: impl AsRef<Path>,
        output: impl AsRef<Path>,
        replaced: &BTreeSet<String>,
        inputs: impl IntoIterator<Item = &'a Path>,
    ) -> Result<(), Error> {
        let paths = Draft::read(input.as_ref(), output.as_ref(), replaced)?.0.paths();
        inputs.into_iter().try_for_each(|input| paths.iter().try_for_each(|path| refuse_same(input, path)))
    }

    /// What [`Rewrite::begin`] with these arguments and [`Rewrite::finish`] would make, table files aside, after every
    /// check that they make before their work. Nothing is written.
    ///
    /// # Errors
    /// As [`Rewrite::begin`].
    pub fn preview(
        input: impl AsRef<Path>,
        output: impl AsRef<Path>,
        replaced: BTreeSet<String>,
        options: RewriteOptions,
    ) -> Result<RewritePreview, Error> {
        let (draft, identity) = Draft::read(input.as_ref(), output.as_ref(), &replaced)?;
        let resumes = Marker::peek(output.as_ref(), &identity, options.force)?;
        if !resumes {
            draft.paths().iter().try_for_each(|path| refuse_existing(path, options.force))?;
        }
        let is_linked = |link: &&Link| link.is_weights() && !options.copy;
        let pairs = |links: Vec<&Link>| links.iter().map(|link| (link.name.clone(), link.bytes)).collect();
        let (linked, copied) = draft.links.iter().partition::<Vec<_>, _>(is_linked);
        let written = draft.rests.iter().map(|rest| {
            let bytes = rest.tensors.iter().map(TensorEntry::bytes).sum();
            (PathBuf::from(&rest.name), bytes)
        });
        Ok(RewritePreview {
            linked: pairs(linked),
            copied: pairs(copied),
            written: written.collect(),
            dropped: draft.dropped,
            resumes,
        })
    }

    /// Whether this resumes an interrupted run. Its table files may be complete then.
    pub fn is_resumed(&self) -> bool {
        self.resumed
    }

    /// Whether a table file of this name would take the place of another file of the output.
    pub fn is_taken(&self, name: &str) -> bool {
        self.draft.names().any(|taken| taken == Path::new(name))
    }

    /// Completes the output around its table files: `files`, which hold `tables`. The index comes last. Files that hold
    /// restored tensors have no tables: `config.json` then stays as it is.
    ///
    /// # Errors
    /// [`Error::Rewrite`] for a table file that is not in the output or collides with the rest of it, [`Error::File`],
    /// [`Error::DiskFull`], [`Error::File`]. The same call after [`Rewrite::begin`] resumes.
    pub fn finish(self, tables: &[TableInfo], files: &[PathBuf]) -> Result<RewriteReport, Error> {
        let Rewrite { mut draft, marker, resumed, copy, .. } = self;
        let mut tensors = std::mem::take(&mut draft.tensors);
        for file in files {
            draft.add_table_file(file, &mut tensors)?;
        }
        sweep(&draft.output);
        for folder in &draft.folders {
            let path = draft.output.join(folder);
            fs::create_dir_all(&path).context("create", &path)?;
            sweep(&path);
        }
        let mut report = RewriteReport {
            index: draft.output.join(&draft.index_name),
            total_size: tensors.iter().map(|(_, _, bytes)| bytes).sum(),
            linked: 0,
            copied: 0,
            written: Vec::new(),
            dropped: std::mem::take(&mut draft.dropped),
        };
        for link in &draft.links {
            match link.make(&draft.output.join(&link.name), copy, resumed)? {
                Made::Link => report.linked += 1,
                Made::Copy => report.copied += 1,
            }
        }
        for rest in &draft.rests {
            rest.write(&draft.output.join(&rest.name), resumed)?;
            report.written.push(rest.name.clone().into());
        }
        for folder in &draft.folders {
            let path = draft.output.join(folder);
            sync_folder(&path).context("finish", &path)?;
        }
        if let Some(mut config) = draft.config.take() {
            let path = draft.output.join(CONFIG);
            if !tables.is_empty() {
                config::add_tables(&mut config, tables).map_err(|source| source.at(&path))?;
            }
            write_text(&path, &(config.text(0) + "\n"), resumed)?;
        }
        let text = index_text(std::mem::take(&mut draft.index), &tensors, report.total_size);
        let text = text.map_err(|source| RewriteError::Json { name: "index", source }.at(&report.index))?;
        write_text(&report.index, &text, resumed)?;
        marker.remove()?;
        sync_folder(&draft.output).context("finish", &draft.output)?;
        Ok(report)
    }
}

impl Draft {
    /// Reads a checkpoint and finds out what becomes of its files; the text tells one run from another.
    fn read(input: &Path, output: &Path, replaced: &BTreeSet<String>) -> Result<(Draft, String), Error> {
        if !fs::metadata(input).context("open", input)?.is_dir() {
            return Err(RewriteError::NotAFolder.at(input));
        }
        refuse_inside(input, output)?;
        let mut weights = Weights::open(input, replaced)?;
        let mut found = Found::in_folder(input)?;
        let identity = found.identity(replaced);
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
            rests.push(Rest::new(weights.renamed(name), source, &header, replaced));
        }
        let draft = Draft {
            output: output.into(),
            folders: found.folders,
            links: found.files,
            rests,
            dropped,
            index_name: weights.index_name,
            index: weights.index,
            tensors: weights.tensors,
            config,
        };
        Ok((draft, identity))
    }

    /// Everything that is made in the output, below its folder.
    fn names(&self) -> impl Iterator<Item = &Path> {
        let links = self.links.iter().map(|link| link.name.as_path());
        let rests = self.rests.iter().map(|rest| Path::new(&rest.name));
        links.chain(rests).chain(self.config.iter().map(|_| Path::new(CONFIG))).chain([Path::new(&self.index_name)])
    }

    fn paths(&self) -> Vec<PathBuf> {
        self.names().map(|name| self.output.join(name)).collect()
    }

    /// Refuses anything but a folder where one is to be.
    fn refuse_folders(&self) -> Result<(), Error> {
        for folder in &self.folders {
            let path = self.output.join(folder);
            match look(&path)? {
                There::Nothing | There::Other("a folder") => {}
                There::File(_) => return Err(Error::OutputExists { path }),
                There::Other(kind) => return Err(Error::OutputNotAFile { path, kind }),
            }
        }
        Ok(())
    }

    /// Refuses or removes what is in the way.
    fn clear(&self, force: bool) -> Result<(), Error> {
        let paths = self.paths();
        // All are looked at before one is removed.
        self.refuse_folders()?;
        paths.iter().try_for_each(|path| refuse_existing(path, force))?;
        for path in paths {
            if matches!(look(&path)?, There::File(_)) {
                fs::remove_file(&path).context("remove", &path)?;
            }
        }
        Ok(())
    }

    /// Takes a table file's tensors into the index.
    fn add_table_file(&self, path: &Path, tensors: &mut Vec<(String, String, u64)>) -> Result<(), Error> {
        let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        let is_here = folder.canonicalize().ok() == self.output.canonicalize().ok();
        let name = path.file_name().and_then(OsStr::to_str).filter(|_| is_here);
        let name = name.ok_or_else(|| RewriteError::Elsewhere.at(path))?;
        if self.names().any(|taken| taken == Path::new(name)) {
            return Err(RewriteError::FileTaken.at(path));
        }
        let header = input::header(path)?;
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
        let (at, map) = match input::place(input)? {
            Place::File(path) => {
                let header = input::header(&path)?;
                let map = header.tensors.iter().map(|tensor| (tensor.name.clone(), file_name(&path))).collect();
                weights.files.push((file_name(&path), header));
                (path, map)
            }
            Place::Index(path) => {
                for file in input::index(&path)?.files() {
                    weights.files.push((file.into(), input::header(&input.join(file))?));
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
                return Err(condprog_table::Error::index(&at, IndexError::MissingTensor { tensor, file }).into());
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

    /// The name of a file that is written again: beside an index there must be no `model.safetensors`, for which
    /// loaders would forget the index.
    fn renamed(&self, name: String) -> String {
        if !self.is_indexed && name == ONLY_FILE { REST_OF_ONLY_FILE.into() } else { name }
    }
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
        let header = Header::to_bytes(&self.metadata, &moved, 0)
            .map_err(|source| condprog_table::Error::header(output, source))?;
        let length = header.len() as u64 + end;
        if resumed && fs::metadata(output).is_ok_and(|about| about.len() == length) {
            remove_equals(output);
            return Ok(());
        }
        let mut temporary = Temporary::create(output, resumed)?;
        match self.copy(&mut temporary, &header, length) {
            Ok(()) => temporary.finish(resumed),
            Err(error) => {
                temporary.discard();
                Err(error)
            }
        }
    }

    fn copy(&self, temporary: &mut Temporary, header: &[u8], length: u64) -> Result<(), Error> {
        temporary.set_length(length)?;
        let mut source = File::open(&self.source).context("open", &self.source)?;
        let (mut at, mut chunk) = (header.len() as u64, Vec::new());
        for tensor in &self.tensors {
            source.seek(SeekFrom::Start(tensor.start)).context("read", &self.source)?;
            let mut left = tensor.bytes();
            while left > 0 {
                chunk.resize(left.min(CHUNK) as usize, 0);
                source.read_exact(&mut chunk).context("read", &self.source)?;
                temporary.write_at(at, &chunk)?;
                at += chunk.len() as u64;
                left -= chunk.len() as u64;
            }
        }
        temporary.write_at(0, header)
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
