//! Tables of several tensors: their rows one after another, and the scales of each.

use std::collections::HashSet;

use condprog_table::aspect::{Aspect, difference};
use condprog_table::format::SourceRecord;
use condprog_table::source::{ScaleKind, ScaleTensor, SourceInfo};
use glob::Pattern;

use crate::checkpoint::Checkpoint;
use crate::error::{Error, SourceError};
use crate::order::{self, Disorder};
use crate::scale::{self, ScalePlace};

impl Checkpoint {
    /// What several tensors are as one table: their rows one after another, in the order given. `scale` names the scales
    /// where their names and places do not tell: a tensor of one number for all, one with the scales of all rows of the
    /// table, or by a pattern those of each tensor.
    ///
    /// # Errors
    /// As [`Checkpoint::info`], and [`Error::Source`] when the tensors do not agree in width, type or kind of scales,
    /// or the named scales do not fit them.
    pub fn join(&self, table: &str, tensors: &[String], scale: Option<&str>) -> Result<SourceInfo, Error> {
        let places = match scale {
            Some(scale) => self.places(table, tensors, scale)?,
            None => vec![ScalePlace::ByName; tensors.len()],
        };
        self.join_parts(table, tensors.iter().map(String::as_str).zip(places))
    }

    /// What a table was made from, as its file has it: the same tensors and scales.
    ///
    /// # Errors
    /// As [`Checkpoint::join`].
    pub fn recorded(&self, source: &SourceRecord) -> Result<SourceInfo, Error> {
        let (tensors, mut next) = (source.tensors(), 0u64);
        let places = tensors.iter().map(|part| {
            let first_row = next;
            next = next.saturating_add(part.rows);
            let place = match &part.scale {
                None => ScalePlace::ByName,
                Some(ScaleTensor { name, first_row: None, .. }) => ScalePlace::In(name.clone()),
                Some(ScaleTensor { name, .. }) => {
                    ScalePlace::From { name: name.clone(), first_row, table_rows: source.shape[0] }
                }
            };
            (part.name.as_str(), place)
        });
        self.join_parts(&source.name, places)
    }

    fn join_parts<'a>(
        &self,
        table: &str,
        tensors: impl Iterator<Item = (&'a str, ScalePlace)>,
    ) -> Result<SourceInfo, Error> {
        let (mut parts, mut seen) = (Vec::new(), HashSet::new());
        for (tensor, scale) in tensors {
            if !seen.insert(tensor) {
                let (table, tensor) = (table.into(), tensor.into());
                return Err(self.error(SourceError::PartTwice { table, tensor }));
            }
            parts.push(self.info_with(tensor, &scale)?);
        }
        scales_of_single_rows(&mut parts);
        let mut parts = parts.into_iter();
        let first = parts.next().ok_or_else(|| self.no_tables())?;
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

    /// The tensors that a pattern selects as one table, in the order of the numbers in their names. `{A..B}` in the
    /// pattern stands for the numbers from A to B, all of which must be there.
    ///
    /// # Errors
    /// As [`Checkpoint::join`], and [`Error::Source`] when the pattern is malformed or selects nothing, or names that
    /// differ in a number alone do not have 0, 1, 2 and so on: a number is missing or there in two spellings, or the
    /// first is not 0 and not listed.
    pub fn join_matching(&self, table: &str, pattern: &str, scale: Option<&str>) -> Result<SourceInfo, Error> {
        let listed = order::listed(pattern).filter(|_| !self.contains(pattern));
        let is_listed = listed.is_some();
        let patterns = listed.unwrap_or_else(|| vec![pattern.into()]);
        let mut names = self.matching(&patterns)?;
        let error = |disorder| self.error(disordered(table, disorder));
        order::order(&mut names, is_listed).map_err(error)?;
        if let [only] = names.as_slice()
            && !is_listed
            && let Some(disorder) = order::single(pattern, only)
        {
            return Err(error(disorder));
        }
        let names: Vec<_> = names.into_iter().map(String::from).collect();
        self.join(table, &names, scale)
    }

    /// Where the scales of the tensors of a table are that a name or a pattern gives.
    fn places(&self, table: &str, tensors: &[String], scale: &str) -> Result<Vec<ScalePlace>, Error> {
        let names = self.scales_matching(table, scale)?;
        match names.as_slice() {
            [only] if tensors.len() > 1 => self.places_in(table, tensors, only),
            names if names.len() == tensors.len() => {
                if let (Some(of_scales), Some(of_tensors)) = (order::numbers(names), order::numbers(tensors))
                    && let Some(at) = (0..names.len()).find(|&at| of_scales[at] != of_tensors[at])
                {
                    let (tensor, scale) = (tensors[at].clone(), names[at].clone());
                    return Err(self.error(SourceError::ScaleNumber { tensor, scale }));
                }
                Ok(names.iter().cloned().map(ScalePlace::In).collect())
            }
            names => {
                let (got, expected) = (names.len(), tensors.len());
                let (table, pattern) = (table.into(), scale.into());
                Err(self.error(SourceError::ScaleCount { table, pattern, got, expected }))
            }
        }
    }

    /// The tensors that a name or a pattern of scales means, in natural order.
    fn scales_matching(&self, table: &str, pattern: &str) -> Result<Vec<String>, Error> {
        if self.contains(pattern) {
            return Ok(vec![pattern.into()]);
        }
        if let Some(listed) = order::listed(pattern).filter(|_| !pattern.contains(['*', '?', '['])) {
            return Ok(listed);
        }
        if !pattern.contains(['*', '?', '[']) {
            return Ok(vec![pattern.into()]);
        }
        let malformed = |source| self.error(SourceError::Pattern { pattern: pattern.into(), source });
        let wild = Pattern::new(pattern).map_err(malformed)?;
        let mut names: Vec<_> = self.names().filter(|name| wild.matches(name)).collect();
        if names.is_empty() {
            return Err(self.no_match(pattern));
        }
        order::order(&mut names, true).map_err(|disorder| self.error(disordered(table, disorder)))?;
        Ok(names.into_iter().map(String::from).collect())
    }

    /// Where the scales of several tensors are in one: the same number for all, or for each its own rows.
    fn places_in(&self, table: &str, tensors: &[String], scale: &str) -> Result<Vec<ScalePlace>, Error> {
        let error = |source| self.error(source);
        let mut rows = Vec::new();
        let (mut first, mut dims) = (0u64, None);
        for tensor in tensors {
            let (dtype, [count, dim]) = self.describe(tensor).map_err(error)?;
            rows.push(first);
            first = first.checked_add(count).ok_or_else(|| error(SourceError::TooManyRows { table: table.into() }))?;
            dims.get_or_insert((dtype, dim));
        }
        let Some((dtype, dim)) = dims.filter(|(dtype, _)| dtype.has_scales()) else {
            return Ok(vec![ScalePlace::ByName; tensors.len()]);
        };
        let (_, entry) = self.find(scale).map_err(error)?;
        match scale::kind(table, dtype, [first, dim], entry) {
            Ok(ScaleKind::Global) => Ok(vec![ScalePlace::In(scale.into()); tensors.len()]),
            Ok(_) => {
                let place = |first_row| ScalePlace::From { name: scale.into(), first_row, table_rows: first };
                Ok(rows.into_iter().map(place).collect())
            }
            Err(SourceError::Scale { shape, .. }) => Err(error(SourceError::JoinedScale {
                table: table.into(),
                parts: tensors.len(),
                rows: first,
                scale: scale.into(),
                shape,
            })),
            Err(other) => Err(error(other)),
        }
    }
}

/// Why the tensors of a table are not one run.
fn disordered(table: &str, disorder: Disorder<'_>) -> SourceError {
    let table = table.into();
    match disorder {
        Disorder::Same(tensors) => SourceError::PartSame { table, tensors: tensors.map(String::from) },
        Disorder::Gap([before, after]) => SourceError::PartGap { table, before: before.into(), after: after.into() },
        Disorder::First(first, pattern) => SourceError::PartFirst { table, first: first.into(), pattern },
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
