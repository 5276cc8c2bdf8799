//! The tables that names and patterns select.

use std::collections::HashMap;

use condprog_table::header::TensorEntry;
use condprog_table::quote::{quoted, sizes, word};
use condprog_table::source::{SourceDtype, SourceInfo};
use glob::Pattern;

use crate::checkpoint::Checkpoint;
use crate::error::{Error, SourceError};
use crate::near::near;

/// Tensors that a message lists where no table is found.
const CANDIDATES: usize = 5;
/// What is in the names of tables that are known.
const KNOWN: [&str; 3] = ["ngram", "engram", "oe_embed"];

impl Checkpoint {
    /// The tables that patterns select, in the order of files and data; without patterns every two-dimensional tensor of
    /// a format that can be read. Scales come with their tables, however they are matched.
    ///
    /// A pattern is a name, or has `*`, `?` and `[...]` in it. A name must be a table. A pattern with wildcards takes
    /// the tables among what it matches, and must match one. A tensor whose file is not there may be a table, so
    /// it counts as one; so does one that is quantised in a form that is not read, which is then refused by its name.
    /// What belongs to another tensor, such as its scales, never does.
    ///
    /// # Errors
    /// [`Error::Source`] when a pattern is malformed or selects nothing, a named tensor is no table, or a tensor lacks
    /// the scales that its type needs.
    pub fn select(&self, patterns: &[String]) -> Result<Vec<SourceInfo>, Error> {
        let names = self.matching(patterns)?;
        names.into_iter().map(|name| self.info(name)).collect()
    }

    /// Names of the tensors that patterns select, as [`Checkpoint::select`] has it, whether or not they are tables.
    ///
    /// # Errors
    /// [`Error::Source`] when a pattern is malformed or selects nothing.
    pub fn select_names(&self, patterns: &[String]) -> Result<Vec<String>, Error> {
        let names = self.matching(patterns)?;
        Ok(names.into_iter().map(String::from).collect())
    }

    pub(super) fn matching<'a>(&'a self, patterns: &'a [String]) -> Result<Vec<&'a str>, Error> {
        let is_candidate = |name: &&str| {
            // One that is not there, or is there twice, may be a table: asked what it is, it says so.
            let is_table = self.tensor(name).is_none_or(|tensor| {
                let is_read = is_matrix(tensor) && SourceDtype::from_name(&tensor.dtype).is_some();
                is_read || self.packed(tensor).is_some()
            });
            is_table && self.companion(name).is_none()
        };
        let all = || self.names().collect::<Vec<_>>();
        let mut names: Vec<&str> = Vec::new();
        for pattern in patterns {
            let malformed = |source| self.error(SourceError::Pattern { pattern: pattern.clone(), source });
            let wild = Pattern::new(pattern).map_err(malformed)?;
            // A name is a name even where it has brackets in it.
            if self.contains(pattern) || !pattern.contains(['*', '?', '[']) {
                names.push(pattern);
                continue;
            }
            let matched: Vec<_> = all().into_iter().filter(|name| wild.matches(name)).collect();
            let tables: Vec<_> = matched.iter().copied().filter(is_candidate).collect();
            match (matched.first(), tables.is_empty()) {
                (None, _) => return Err(self.no_match(pattern)),
                // Nothing of use was matched: the first tensor says why.
                (Some(first), true) => match self.companion(first) {
                    Some((what, owner)) => {
                        let (tensor, what) = (first.to_string(), what.name());
                        return Err(self.error(SourceError::Companion { tensor, what, owner }));
                    }
                    None => names.push(first),
                },
                (Some(_), false) => names.extend(tables),
            }
        }
        if patterns.is_empty() {
            names.extend(all().into_iter().filter(is_candidate));
            if names.is_empty() {
                return Err(self.no_tables());
            }
        }
        let order: HashMap<&str, usize> = self.names().enumerate().map(|(place, name)| (name, place)).collect();
        names.sort_by_key(|name| order.get(name));
        names.dedup();
        Ok(names)
    }

    /// Names of all tensors that patterns match, in the order of files and data; every name without patterns.
    pub(super) fn all_matching(&self, patterns: &[String]) -> Result<Vec<&str>, Error> {
        let mut wild = Vec::new();
        for pattern in patterns {
            let malformed = |source| self.error(SourceError::Pattern { pattern: pattern.clone(), source });
            let compiled = Pattern::new(pattern).map_err(malformed)?;
            let is_match = |name: &str| name == pattern || compiled.matches(name);
            if !self.names().any(is_match) {
                return Err(self.no_match(pattern));
            }
            wild.push((pattern, compiled));
        }
        let is_match = |name: &&str| {
            let mut any = wild.iter().map(|(pattern, wild)| *name == *pattern || wild.matches(name));
            wild.is_empty() || any.any(|is_match| is_match)
        };
        Ok(self.names().filter(is_match).collect())
    }

    pub(super) fn no_match(&self, pattern: &str) -> Error {
        self.error(SourceError::NoMatch { pattern: pattern.into(), near: near(pattern, self.names()) })
    }

    pub(super) fn no_tables(&self) -> Error {
        let mut all: Vec<_> = self.tensors().map(|(_, tensor)| tensor).collect();
        all.sort_by_key(|tensor| std::cmp::Reverse(tensor.bytes()));
        let have = all.iter().take(CANDIDATES).map(|tensor| described(tensor)).collect();
        self.error(SourceError::NoTables { have, count: all.len() })
    }

    /// The tensors that are most likely the tables of a model that is not known: those whose names have in them what
    /// names of known tables have, then those with the most rows. With type and shape, for messages.
    pub fn candidates(&self) -> Vec<String> {
        let is_named = |name: &str| KNOWN.iter().any(|word| name.contains(word));
        let may_be = |tensor: &&TensorEntry| is_matrix(tensor) && self.companion(&tensor.name).is_none();
        let mut all: Vec<_> = self.tensors().map(|(_, tensor)| tensor).filter(may_be).collect();
        all.sort_by_key(|tensor| (!is_named(&tensor.name), std::cmp::Reverse(tensor.shape[0])));
        all.into_iter().take(CANDIDATES).map(described).collect()
    }

    /// Matrices that are not among the tables when none is named, since their type is not read. With type and shape, for
    /// messages.
    pub fn passed_over(&self) -> Vec<String> {
        let is_other = |tensor: &&TensorEntry| {
            let is_unread = is_matrix(tensor) && SourceDtype::from_name(&tensor.dtype).is_none();
            is_unread && self.companion(&tensor.name).is_none() && self.packed(tensor).is_none()
        };
        self.tensors().map(|(_, tensor)| tensor).filter(is_other).map(described).collect()
    }
}

/// Whether a tensor has rows of values.
fn is_matrix(tensor: &TensorEntry) -> bool {
    tensor.shape.len() == 2 && !tensor.shape.contains(&0)
}

fn described(tensor: &TensorEntry) -> String {
    format!("{} ({} {})", quoted(&tensor.name), word(&tensor.dtype), sizes(&tensor.shape))
}
