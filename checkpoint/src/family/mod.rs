//! The model families whose hashed n-gram tables are known: which tensors of a checkpoint are their tables, which
//! rows belong to which order of n-gram, and how large the published tables are.
//!
//! All of it follows from names and shapes of tensors, and no data is read. Only the number of shards of Qwen's table
//! comes from the model's config, where there is one. The tables of a model that is not known here are named by hand.
//!
//! | | DeepSeek-V4.1-Flash | Qwen3.8-Flash-Next | LongCat-Flash-Lite |
//! |---|---|---|---|
//! | tensors | `layers.L.engram.embed.weight` | `layers.L.ple.ple_embedding.ngram_embedding.shard_S.weight` | `ngram_embeddings.embedders.E.weight`, or `oe_embed_tokensE.weight` |
//! | a table is | one tensor | shards 0 to 127 of a layer, or as many as its config says, or one tensor | embedders 0 to 11 |
//! | orders of n-gram | 2, 3, 4 | 2, 3 | 2, 3, 4 |
//! | heads of each | 8 | 8 | 4 |
//! | a head is | a run of rows | a run of rows; shards end within heads | a tensor |
//!
//! `model.` and `language_model.` may precede any of the names. The names of Qwen's shards may end at their number;
//! as one tensor its table is `ngram_embedding.weight`.
//!
//! A head hashes into a prime number of rows. The heads of a table of DeepSeek's or Qwen's have consecutive primes, in
//! order, so that the number of rows alone says where each begins.

mod names;
mod primes;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use condprog_core::Rate;
use condprog_table::SegmentPlan;
use condprog_table::quote::{listed, quoted};
use names::Place;

/// Tensors of the published table of Qwen's.
const QWEN_PARTS: u64 = 128;
/// Tensors of LongCat's.
const LONGCAT_PARTS: u64 = 12;
/// Names that a message shows where there is no table.
const NEAR: usize = 3;

/// A model family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// DeepSeek-V4.1-Flash, the Engram tables.
    DeepseekV41,
    /// Qwen3.8-Flash-Next, the n-gram table of its per-layer embeddings.
    Qwen38,
    /// LongCat-Flash-Lite, the n-gram embeddings.
    LongcatFlash,
}

/// A table as the model sees it: tensors joined in row order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyTable {
    /// Name: that of the tensor, or that of its parts without their number.
    pub name: String,
    /// Names of the tensors, in row order. They may have different numbers of rows.
    pub parts: Vec<String>,
}

/// The heads of one order of n-gram: each turns the same n tokens into another row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// The n of the n-gram.
    pub order: u32,
    /// How many heads there are; each reads one row per token.
    pub count: u32,
}

/// The rows of one order of n-gram in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderRows {
    /// The n of the n-gram.
    pub order: u32,
    /// Its rows.
    pub rows: Range<u64>,
}

/// The rows of one head in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadRows {
    /// The n of the n-gram.
    pub order: u32,
    /// Number of the head among those of this order, from 0.
    pub head: u32,
    /// Its rows.
    pub rows: Range<u64>,
}

/// A table of a published checkpoint, at full size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedTable {
    /// Name and tensors.
    pub table: FamilyTable,
    /// Rows of each tensor.
    pub part_rows: Vec<u64>,
    /// Values per row.
    pub dim: u32,
    /// Bytes per row in the checkpoint, scales included.
    pub row_bytes: u64,
}

impl PublishedTable {
    /// Rows of the whole table.
    pub fn rows(&self) -> u64 {
        self.part_rows.iter().sum()
    }
}

/// Why names or rows are not those of a family.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FamilyError {
    /// Tensors of two families are there.
    #[error(
        "tensor {} is of {family} but {} is of {other}, expected tables of one family",
        quoted(.tensor),
        quoted(.other_tensor)
    )]
    TwoFamilies {
        /// A family.
        family: Family,
        /// A tensor of it.
        tensor: String,
        /// Another family.
        other: Family,
        /// A tensor of that.
        other_tensor: String,
    },
    /// No tensor has the name of a table.
    #[error("no tensor is a table of {family}, expected names such as {expected:?}{}", or_near(.near))]
    NoTables {
        /// The family.
        family: Family,
        /// The name of a published tensor.
        expected: String,
        /// Names that have in them what those of the family's have.
        near: Vec<String>,
    },
    /// A part of a table is not there.
    #[error(
        "table {} has {got} parts, expected {expected}{}: tensor {} is missing",
        quoted(.table),
        as_told(.told),
        quoted(.missing)
    )]
    MissingPart {
        /// The table.
        table: String,
        /// Got.
        got: u64,
        /// Expected.
        expected: u64,
        /// The first that is missing.
        missing: String,
        /// Whether the checkpoint says how many it has.
        told: bool,
    },
    /// Two tensors are the same part of a table, or the same table.
    #[error("tensors {} and {} are both {what}, expected one of them", quoted(.first), quoted(.second))]
    Duplicate {
        /// One of them.
        first: String,
        /// The other.
        second: String,
        /// What both are.
        what: String,
    },
    /// A part has a number past the last.
    #[error(
        "tensor {} is beyond the last part of table {}, expected numbers from 0 to {last}{}",
        quoted(.tensor),
        quoted(.table),
        as_told(.told)
    )]
    PastLastPart {
        /// The table.
        table: String,
        /// The tensor.
        tensor: String,
        /// The last number.
        last: u64,
        /// Whether the checkpoint says how many it has.
        told: bool,
    },
    /// Another number of parts than the table's is said to have rows.
    #[error("rows of {got} parts are given for table {}, expected those of {expected}", quoted(.table))]
    Parts {
        /// The table.
        table: String,
        /// Got.
        got: usize,
        /// Expected.
        expected: usize,
    },
    /// The rows are more than can be counted.
    #[error("table {} has 2^64 rows or more", quoted(.table))]
    TooManyRows {
        /// The table.
        table: String,
    },
    /// The rows are not those of heads of the family, or those of more than one choice of heads.
    #[error(
        "table {} has {rows} rows: {found} runs of {heads} consecutive primes have this sum{}, expected one, so where \
         its orders begin is not known",
        quoted(.table),
        or_less(.padding)
    )]
    Heads {
        /// The table.
        table: String,
        /// Rows.
        rows: u64,
        /// How many heads were looked for.
        heads: usize,
        /// How many rows could belong to none of them.
        padding: u64,
        /// How many choices of heads there are.
        found: usize,
    },
    /// An order of n-gram that the tables do not have.
    #[error("tables of {family} have no rows of {order}-grams, expected an order among {expected:?}")]
    Order {
        /// The family.
        family: Family,
        /// Got.
        order: u32,
        /// Those it has.
        expected: Vec<u32>,
    },
}

fn or_near(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; near them are {}", listed(near, "and")) }
}

fn as_told(told: &bool) -> &'static str {
    if *told { " as split_ngram_parts in config.json has it" } else { "" }
}

fn or_less(padding: &u64) -> String {
    if *padding == 0 { String::new() } else { format!(" or up to {padding} less") }
}

impl FamilyError {
    /// A short, stable name that programs may compare.
    pub fn code(&self) -> &'static str {
        match self {
            FamilyError::TwoFamilies { .. } => "family-two",
            FamilyError::NoTables { .. } => "family-no-tables",
            FamilyError::MissingPart { .. } => "family-missing-part",
            FamilyError::Duplicate { .. } => "family-duplicate",
            FamilyError::PastLastPart { .. } => "family-past-last-part",
            FamilyError::Parts { .. } => "family-parts",
            FamilyError::TooManyRows { .. } => "family-too-many-rows",
            FamilyError::Heads { .. } => "family-heads",
            FamilyError::Order { .. } => "family-order",
        }
    }
}

impl Family {
    /// Every family.
    pub const ALL: [Family; 3] = [Family::DeepseekV41, Family::Qwen38, Family::LongcatFlash];

    /// As the command line has it.
    pub const fn name(self) -> &'static str {
        match self {
            Family::DeepseekV41 => "deepseek-v4.1",
            Family::Qwen38 => "qwen3.8",
            Family::LongcatFlash => "longcat-flash",
        }
    }

    /// The family whose tables are among the tensors of a checkpoint; `None` when no family's are.
    ///
    /// # Errors
    /// [`FamilyError::TwoFamilies`].
    pub fn detect<'a>(names: impl Iterator<Item = &'a str>) -> Result<Option<Family>, FamilyError> {
        let mut found: Option<(Family, &str)> = None;
        for name in names {
            let Some(Place { family: other, .. }) = Place::parse(name) else { continue };
            match found {
                None => found = Some((other, name)),
                Some((family, tensor)) if family != other => {
                    return Err(FamilyError::TwoFamilies {
                        family,
                        tensor: tensor.into(),
                        other,
                        other_tensor: name.into(),
                    });
                }
                Some(_) => {}
            }
        }
        Ok(found.map(|(family, _)| family))
    }

    /// The tables of this family among the tensors of a checkpoint, in order of their layers, each whole, with its
    /// parts in row order. Names of other tensors are passed over.
    ///
    /// Parts are put in order by their numbers, whatever order the names come in. `shard_07` and `shard_7` are the
    /// same part. `parts` is how many tensors a table of Qwen's has, as the checkpoint's configuration says it; without
    /// it, those from number 0 on that are there, none missing between, are all. The other families do not look at it.
    ///
    /// # Errors
    /// [`FamilyError::NoTables`], and [`FamilyError::MissingPart`], [`FamilyError::Duplicate`] or
    /// [`FamilyError::PastLastPart`] for a table that is not whole, naming the tensors.
    pub fn tables<'a>(
        self,
        names: impl Iterator<Item = &'a str>,
        parts: Option<u64>,
    ) -> Result<Vec<FamilyTable>, FamilyError> {
        let parts = self.parts().or(parts);
        let mut found: BTreeMap<_, Vec<(Place<'a>, &'a str)>> = BTreeMap::new();
        let mut near = Vec::new();
        for name in names {
            if let Some(place) = Place::parse(name).filter(|place| place.family == self) {
                found.entry((place.layer, place.stem, place.end)).or_default().push((place, name));
            } else if near.len() < NEAR && self.words().iter().any(|word| name.contains(word)) {
                near.push(name.to_string());
            }
        }
        let mut tables = Vec::new();
        let mut last: Option<(Option<u64>, &str)> = None;
        for ((layer, ..), mut tensors) in found {
            tensors.sort_by_key(|(place, _)| place.index);
            tables.push(self.join(&tensors, parts)?);
            // One layer reads one table, so a second one is the first under another name.
            let first = tensors[0].1;
            if let Some((_, before)) = last.filter(|(before, _)| *before == layer) {
                let what =
                    layer.map_or("of the table of the model".into(), |layer| format!("of the table of layer {layer}"));
                return Err(FamilyError::Duplicate { first: before.into(), second: first.into(), what });
            }
            last = Some((layer, first));
        }
        if tables.is_empty() {
            let expected = self.published()[0].table.parts[0].clone();
            return Err(FamilyError::NoTables { family: self, expected, near });
        }
        Ok(tables)
    }

    /// The layer that reads a table, by the name of the table or of a part of it; `None` for a table of the whole model,
    /// and for other names.
    pub(crate) fn layer(name: &str) -> Option<u64> {
        Place::parse(name)?.layer
    }

    /// The table that a tensor is of by its name, and the number of the part that it is, if the table has several.
    pub(crate) fn place(self, name: &str) -> Option<(String, Option<u64>)> {
        let place = Place::parse(name).filter(|place| place.family == self)?;
        Some((place.table(), place.index))
    }

    /// One table from its parts, which are in order of their numbers.
    fn join(self, parts: &[(Place<'_>, &str)], expected: Option<u64>) -> Result<FamilyTable, FamilyError> {
        let (some, _) = parts[0];
        let (table, told) = (some.table(), self == Family::Qwen38 && expected.is_some());
        // A table that is one tensor has one part, which has no number.
        let number = |place: &Place<'_>| place.index.unwrap_or(0);
        let last = number(&parts[parts.len() - 1].0);
        let count = if some.index.is_none() { Some(1) } else { expected };
        let expected = count.unwrap_or(last.saturating_add(1));
        for (&(first, name), &(second, other)) in parts.iter().zip(&parts[1..]) {
            if number(&first) == number(&second) && number(&first) < expected {
                let what = format!("part {} of table {table:?}", number(&first));
                return Err(FamilyError::Duplicate { first: name.into(), second: other.into(), what });
            }
        }
        let beyond = parts.iter().find(|(place, _)| count.is_some_and(|count| number(place) >= count));
        if let Some((_, name)) = beyond {
            let tensor = (*name).into();
            return Err(FamilyError::PastLastPart { table, tensor, last: expected.saturating_sub(1), told });
        }
        // Numbers rise and are below their count: they are all there, or the first out of place is missing.
        let got = parts.len() as u64;
        if got < expected {
            let present = (0..).zip(parts).take_while(|(place, part)| *place == number(&part.0)).count();
            let missing = some.sibling(present as u64);
            return Err(FamilyError::MissingPart { table, got, expected, missing, told });
        }
        Ok(FamilyTable { name: table, parts: parts.iter().map(|(_, name)| (*name).into()).collect() })
    }

    /// Tensors that make one table; `None` where checkpoints differ.
    const fn parts(self) -> Option<u64> {
        match self {
            Family::DeepseekV41 => Some(1),
            Family::Qwen38 => None,
            Family::LongcatFlash => Some(LONGCAT_PARTS),
        }
    }

    /// What the names of its tables have in them.
    const fn words(self) -> &'static [&'static str] {
        match self {
            Family::DeepseekV41 => &["engram"],
            Family::Qwen38 => &["ngram_embedding."],
            Family::LongcatFlash => &["ngram_embeddings.", "oe_embed"],
        }
    }

    /// The heads of a table, in the order in which their rows follow one another, in the table and in what a token
    /// reads: head 0 of the first order, head 1, and so on to the last head of the last order.
    ///
    /// LongCat's embedder `E` is head `E % 4` of order `2 + E / 4`, as the public model code numbers them.
    pub fn heads(self) -> &'static [Heads] {
        match self {
            Family::DeepseekV41 => {
                &[Heads { order: 2, count: 8 }, Heads { order: 3, count: 8 }, Heads { order: 4, count: 8 }]
            }
            Family::Qwen38 => &[Heads { order: 2, count: 8 }, Heads { order: 3, count: 8 }],
            Family::LongcatFlash => {
                &[Heads { order: 2, count: 4 }, Heads { order: 3, count: 4 }, Heads { order: 4, count: 4 }]
            }
        }
    }

    /// Rows that a token reads from one table: 24, 16 or 12. It reads as many from each table of the model.
    pub fn rows_per_token(self) -> u32 {
        self.heads().iter().map(|heads| heads.count).sum()
    }

    /// The rows of each head of a table, in row order. They may end within a part. `part_rows` has the rows of each
    /// part.
    ///
    /// DeepSeek's and Qwen's heads are found from the number of rows, as the only run of consecutive primes with that
    /// sum. Qwen pads its last shard: of 128 shards, up to 127 rows at the end belong to no head. With padding, more than
    /// one run may fit a table that is much smaller than the published one.
    ///
    /// # Errors
    /// [`FamilyError::Parts`], [`FamilyError::TooManyRows`], and [`FamilyError::Heads`] when no heads, or more than
    /// one choice of them, have that many rows.
    pub fn head_rows(self, table: &FamilyTable, part_rows: &[u64]) -> Result<Vec<HeadRows>, FamilyError> {
        let name = || table.name.clone();
        let rows = sum_rows(table, part_rows)?;
        let heads = self.rows_per_token() as usize;
        let sizes = match self {
            Family::LongcatFlash if part_rows.len() == heads => part_rows.to_vec(),
            Family::LongcatFlash => {
                return Err(FamilyError::Parts { table: name(), got: part_rows.len(), expected: heads });
            }
            Family::DeepseekV41 | Family::Qwen38 => {
                // Shards of equal size hold any number of rows with less than one more row each. A table of Qwen's that
                // is one tensor may have been put together from as many as the published one has.
                let padding = match (self, table.parts.len() as u64) {
                    (Family::Qwen38, 1) => QWEN_PARTS - 1,
                    (_, parts) => parts.saturating_sub(1),
                };
                let mut runs = primes::runs(rows, heads, padding);
                match (runs.pop(), runs.len()) {
                    (Some(run), 0) => run,
                    (run, more) => {
                        let found = more + usize::from(run.is_some());
                        return Err(FamilyError::Heads { table: name(), rows, heads, padding, found });
                    }
                }
            }
        };
        let numbers = self.heads().iter().flat_map(|heads| (0..heads.count).map(|head| (heads.order, head)));
        let mut start = 0;
        let ranges = numbers.zip(sizes).map(|((order, head), size)| {
            let rows = start..start + size;
            start = rows.end;
            HeadRows { order, head, rows }
        });
        Ok(ranges.collect())
    }

    /// The rows of each order of n-gram of a table, in row order; together they are all its rows. Rows of padding
    /// belong to the last order. `part_rows` has the rows of each part.
    ///
    /// # Errors
    /// As [`Family::head_rows`].
    pub fn orders(self, table: &FamilyTable, part_rows: &[u64]) -> Result<Vec<OrderRows>, FamilyError> {
        let mut orders: Vec<OrderRows> = Vec::new();
        for HeadRows { order, rows, .. } in self.head_rows(table, part_rows)? {
            match orders.last_mut() {
                Some(last) if last.order == order => last.rows.end = rows.end,
                _ => orders.push(OrderRows { order, rows }),
            }
        }
        if let Some(last) = orders.last_mut() {
            last.rows.end = part_rows.iter().sum();
        }
        Ok(orders)
    }

    /// The rate of every row of a table: `rate`, but for the orders of n-gram that have one of their own, as runs of
    /// rows with one rate each. Neighbours of the same rate are one run. `part_rows` has the rows of each part.
    ///
    /// # Errors
    /// [`FamilyError::Order`] for an order that the family does not have; as [`Family::head_rows`], but only where
    /// orders are told apart.
    pub fn rates(
        self,
        table: &FamilyTable,
        part_rows: &[u64],
        rate: Rate,
        by_order: &BTreeMap<u32, Rate>,
    ) -> Result<Vec<SegmentPlan>, FamilyError> {
        let orders: Vec<u32> = self.heads().iter().map(|heads| heads.order).collect();
        if let Some(&order) = by_order.keys().find(|order| !orders.contains(order)) {
            return Err(FamilyError::Order { family: self, order, expected: orders });
        }
        let rate_of = |order| by_order.get(&order).copied().unwrap_or(rate);
        if orders.iter().all(|order| rate_of(*order) == rate_of(orders[0])) {
            let rows = sum_rows(table, part_rows)?;
            return Ok(vec![SegmentPlan { rows, rate: rate_of(orders[0]) }]);
        }
        let mut runs: Vec<SegmentPlan> = Vec::new();
        for OrderRows { order, rows } in self.orders(table, part_rows)? {
            let (rows, rate) = (rows.end - rows.start, rate_of(order));
            match runs.last_mut() {
                Some(last) if last.rate == rate => last.rows += rows,
                _ => runs.push(SegmentPlan { rows, rate }),
            }
        }
        Ok(runs)
    }

    /// The tables of the published checkpoint: DeepSeek's in FP8 with a scale per 32 values (264 bytes per row),
    /// Qwen's in BF16 (320 bytes; its FP8 release has 160), LongCat's in BF16 (512 bytes).
    pub fn published(self) -> Vec<PublishedTable> {
        let numbered = |start: &str, count: u64| (0..count).map(|part| format!("{start}{part}.weight")).collect();
        match self {
            Family::DeepseekV41 => [(1, 384_006_168), (14, 384_016_682)]
                .map(|(layer, rows)| {
                    let name = format!("layers.{layer}.engram.embed.weight");
                    let table = FamilyTable { parts: vec![name.clone()], name };
                    PublishedTable { table, part_rows: vec![rows], dim: 256, row_bytes: 264 }
                })
                .into(),
            Family::Qwen38 => {
                let name = "model.language_model.layers.1.ple.ple_embedding.ngram_embedding";
                let table = FamilyTable {
                    name: format!("{name}.weight"),
                    parts: numbered(&format!("{name}.shard_"), QWEN_PARTS),
                };
                vec![PublishedTable {
                    table,
                    part_rows: vec![2_500_012; QWEN_PARTS as usize],
                    dim: 160,
                    row_bytes: 320,
                }]
            }
            Family::LongcatFlash => {
                let name = "model.ngram_embeddings.embedders";
                let table =
                    FamilyTable { name: format!("{name}.weight"), parts: numbered(&format!("{name}."), LONGCAT_PARTS) };
                let part_rows = (0..LONGCAT_PARTS).map(|part| 10_223_616 + 2 * part + 1).collect();
                vec![PublishedTable { table, part_rows, dim: 256, row_bytes: 512 }]
            }
        }
    }
}

fn sum_rows(table: &FamilyTable, part_rows: &[u64]) -> Result<u64, FamilyError> {
    let (got, expected) = (part_rows.len(), table.parts.len());
    if got != expected {
        return Err(FamilyError::Parts { table: table.name.clone(), got, expected });
    }
    let rows = part_rows.iter().try_fold(0u64, |sum, rows| sum.checked_add(*rows));
    rows.ok_or_else(|| FamilyError::TooManyRows { table: table.name.clone() })
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is not a family's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no model family is named {got:?}, expected deepseek-v4.1, qwen3.8 or longcat-flash")]
pub struct ParseFamilyError {
    /// Got.
    pub got: String,
}

impl FromStr for Family {
    type Err = ParseFamilyError;

    fn from_str(name: &str) -> Result<Family, ParseFamilyError> {
        let family = Family::ALL.into_iter().find(|family| family.name() == name);
        family.ok_or_else(|| ParseFamilyError { got: name.into() })
    }
}

#[cfg(test)]
mod tests;
