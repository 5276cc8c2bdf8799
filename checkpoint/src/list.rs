//! What each tensor of a checkpoint would be taken for.

use std::collections::HashMap;
use std::path::PathBuf;

use condprog_table::source::SourceInfo;

use crate::checkpoint::Checkpoint;
use crate::error::{Error, SourceError};
use crate::family::Family;

/// A tensor, and what it would be taken for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedTensor {
    /// Name.
    pub name: String,
    /// Data type as the header spells it; `None` where the tensor cannot be looked at.
    pub dtype: Option<String>,
    /// Shape.
    pub shape: Option<Vec<u64>>,
    /// Bytes of its data.
    pub bytes: Option<u64>,
    /// The file it is in, or should be in.
    pub file: Option<PathBuf>,
    /// What it would be taken for.
    pub role: Role,
}

/// What a tensor would be taken for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// A table of its own.
    Table {
        /// Name of its scales, if it has them.
        scale: Option<String>,
    },
    /// A table of a family, or a part of one.
    Family {
        /// The family.
        family: Family,
        /// The table.
        table: String,
        /// Number of the part; `None` where the table is one tensor.
        part: Option<u64>,
        /// Name of its scales, if it has them.
        scale: Option<String>,
    },
    /// The scales of a table.
    Scales {
        /// The tensor that has them, the first of several.
        of: String,
        /// How many others have them too.
        others: usize,
    },
    /// What belongs to a tensor, though no table takes it.
    Companion {
        /// What it holds, in the plural.
        what: &'static str,
        /// The tensor, if it is there.
        of: Option<String>,
    },
    /// Nothing: it is not a table that can be compressed.
    None {
        /// A short, stable name, as of [`Error::code`].
        code: &'static str,
        /// Why.
        why: String,
    },
}

impl Checkpoint {
    /// What each tensor that the patterns match would be taken for, in the order of files and of their data; all without
    /// patterns.
    ///
    /// # Errors
    /// [`Error::Source`] when a pattern is malformed or matches nothing, [`Error::File`] when scales cannot be read. What is
    /// wrong with a tensor is its role, not an error.
    pub fn list(&self, patterns: &[String]) -> Result<Vec<ListedTensor>, Error> {
        // Of two families none is told: `family` says why.
        let family = self.family().unwrap_or_default();
        let mut users: HashMap<String, (String, usize)> = HashMap::new();
        let mut roles = HashMap::new();
        for name in self.names() {
            let role = match self.companion(name) {
                Some((what, of)) => Role::Companion { what: what.name(), of },
                None => match self.info(name) {
                    Ok(info) => table(family, name, &info),
                    Err(Error::Source { source, .. }) => none(&source),
                    Err(other) => return Err(other),
                },
            };
            if let Role::Table { scale: Some(scale) } | Role::Family { scale: Some(scale), .. } = &role {
                let users = users.entry(scale.clone()).or_insert_with(|| (name.into(), 0));
                users.1 += usize::from(users.0 != name);
            }
            roles.insert(name, role);
        }
        for (scale, (of, others)) in users {
            if let Some(role) = roles.get_mut(scale.as_str()) {
                *role = Role::Scales { of, others };
            }
        }
        let names = self.all_matching(patterns)?;
        let listed = names.into_iter().filter_map(|name| Some((name, roles.remove(name)?)));
        Ok(listed.map(|(name, role)| self.listed(name, role)).collect())
    }

    fn listed(&self, name: &str, role: Role) -> ListedTensor {
        let (mut dtype, mut shape, mut bytes, mut file) = (None, None, None, None);
        match self.find(name) {
            Ok((found, entry)) => {
                (dtype, shape) = (Some(entry.dtype.clone()), Some(entry.shape.clone()));
                (bytes, file) = (Some(entry.bytes()), Some(found.path.clone()));
            }
            Err(SourceError::MissingFile { file: missing, .. }) => file = Some(missing),
            Err(_) => {}
        }
        ListedTensor { name: name.into(), dtype, shape, bytes, file, role }
    }
}

fn table(family: Option<Family>, name: &str, info: &SourceInfo) -> Role {
    let scale = info.parts[0].scale.as_ref().map(|scale| scale.name.clone());
    match family.and_then(|family| Some((family, family.place(name)?))) {
        Some((family, (table, part))) => Role::Family { family, table, part, scale },
        None => Role::Table { scale },
    }
}

fn none(source: &SourceError) -> Role {
    Role::None { code: source.code(), why: source.to_string() }
}
