//! The tables of a model family in a checkpoint, and what its configuration says of them.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::PathBuf;

use condprog_table::error::IoContext;
use condprog_table::input;
use condprog_table::quote::{cut, quoted};
use condprog_table::source::{ScaleKind, SourceDtype, SourceInfo};
use serde_json::Value;

use crate::checkpoint::Checkpoint;
use crate::error::{Error, SourceError};
use crate::family::{Family, FamilyTable};

/// The configuration of a checkpoint.
const CONFIG: &str = "config.json";
/// Largest configuration that is read.
const MAX_CONFIG_BYTES: u64 = 1 << 26;
/// How many tensors a table of Qwen's has, in its configuration.
const SPLIT_PARTS: &str = "split_ngram_parts";

impl Checkpoint {
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
    /// [`Error::Family`] when tensors are missing or too many, [`Error::Source`] when a configuration that says how many
    /// there are is malformed, others as of [`Checkpoint::join`].
    pub fn family_tables(&self, family: Family) -> Result<Vec<(FamilyTable, SourceInfo)>, Error> {
        let parts = self.split_parts(family)?;
        let table = |table: FamilyTable| {
            if parts.is_none() && table.parts.len() > 1 && family == Family::Qwen38 && self.is_one_of_several() {
                return Err(self.error(SourceError::OneOfSeveral { table: table.name }));
            }
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
        family.tables(self.names(), parts)?.into_iter().map(table).collect()
    }

    /// What is worth saying of the tables of a family, though nothing is wrong with them: layers that the published
    /// model has and this checkpoint does not list, and a number of tensors that nothing but their names tells.
    ///
    /// # Errors
    /// As [`Checkpoint::family_tables`].
    pub fn family_notes(&self, family: Family, tables: &[FamilyTable]) -> Result<Vec<String>, Error> {
        let mut notes = Vec::new();
        let layers = |names: &mut dyn Iterator<Item = &str>| names.filter_map(Family::layer).collect::<BTreeSet<_>>();
        let there = layers(&mut tables.iter().map(|table| table.name.as_str()));
        let published = family.published();
        let published = layers(&mut published.iter().map(|published| published.table.name.as_str()));
        let missing: Vec<_> = published.difference(&there).map(u64::to_string).collect();
        // Layers with other numbers are those of another model of the family.
        if !missing.is_empty() && !there.is_empty() && there.is_subset(&published) {
            let there: Vec<_> = there.iter().map(u64::to_string).collect();
            notes.push(format!(
                "{} has the table of layer {} of {family} and not that of layer {}, which the published model has: only \
                 what is there is taken",
                self.path().display(),
                there.join(" and "),
                missing.join(" and ")
            ));
        }
        if family == Family::Qwen38
            && let Some(table) = tables.iter().find(|table| table.parts.len() > 1)
            && self.split_parts(family)?.is_none()
        {
            notes.push(format!(
                "no {CONFIG} says in {SPLIT_PARTS} how many tensors table {} has: the {} that are there are taken for \
                 all",
                quoted(&table.name),
                table.parts.len()
            ));
        }
        Ok(notes)
    }

    /// How many tensors each table of a family has, where the configuration says.
    fn split_parts(&self, family: Family) -> Result<Option<u64>, Error> {
        let Some(path) = self.config().filter(|_| family == Family::Qwen38) else { return Ok(None) };
        if !path.try_exists().context("look for", &path)? {
            return Ok(None);
        }
        let fail = |what: String| Error::source(&path, SourceError::Config { what });
        let (mut file, about) = input::open(&path)?;
        if about.len() > MAX_CONFIG_BYTES {
            return Err(fail(format!("it is {} bytes, expected at most {MAX_CONFIG_BYTES}", about.len())));
        }
        let mut json = Vec::new();
        file.read_to_end(&mut json).context("read", &path)?;
        let config: Value = serde_json::from_slice(&json).map_err(|error| {
            fail(format!(
                "it is malformed, and should say in {SPLIT_PARTS} how many tensors a table has: {}",
                cut(&error)
            ))
        })?;
        let mut found = Vec::new();
        collect(&config, &mut found);
        found.dedup();
        match found.as_slice() {
            [] => Ok(None),
            [value] => match value.as_u64().filter(|&parts| parts > 0) {
                Some(parts) => Ok(Some(parts)),
                None => Err(fail(format!("{SPLIT_PARTS} is {}, expected a number of at least 1", cut(value)))),
            },
            [first, second, ..] => {
                Err(fail(format!("{SPLIT_PARTS} is {} and {}, expected one number", cut(first), cut(second))))
            }
        }
    }

    /// The configuration of the checkpoint, which may not be there.
    fn config(&self) -> Option<PathBuf> {
        let mut folders = self.files().filter_map(|(path, _)| path.parent());
        let folder = match self.index() {
            Some(index) => index.parent()?,
            None => {
                let first = folders.next()?;
                folders.all(|folder| folder == first).then_some(first)?
            }
        };
        Some(folder.join(CONFIG))
    }

    /// Whether it is a file without an index whose name, such as `model-00001-of-00002`, says that there are others.
    fn is_one_of_several(&self) -> bool {
        let mut files = self.files().map(|(path, _)| path.file_stem().unwrap_or_default().to_string_lossy());
        let (Some(only), None) = (files.next(), files.next()) else { return false };
        let of = only.rsplit_once("-of-").and_then(|(_, count)| count.parse::<u64>().ok());
        !self.is_indexed() && of.is_some_and(|count| count > 1)
    }
}

/// Every value of the key, wherever it is: configurations of models in models are nested.
fn collect<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if key == SPLIT_PARTS && !value.is_null() {
                    found.push(value);
                } else {
                    collect(value, found);
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| collect(value, found)),
        _ => {}
    }
}
