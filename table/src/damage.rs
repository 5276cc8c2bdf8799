//! What is wrong with rows of a table.

use std::fmt;

use serde::Serialize;

/// Rows that are not what was written, or not those of the source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Damage {
    /// Name of the table.
    pub table: String,
    /// The tensor the rows are in; of faults of a whole table, the first one's.
    pub tensor: String,
    /// First row, counted from the file's row 0 of the table.
    pub first_row: u64,
    /// Number of rows.
    pub rows: u64,
    /// What is wrong with them.
    pub fault: Fault,
}

/// What is wrong with some rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Fault {
    /// The records have another checksum.
    Checksum {
        /// Got, hexadecimal.
        got: String,
        /// Expected, hexadecimal.
        expected: String,
    },
    /// Records have padding bits that are not zero: decoders ignore them, but no writer leaves them so.
    Padding {
        /// The first such row.
        row: u64,
        /// How many there are.
        count: u64,
    },
    /// The metadata counts another number of zero rows.
    ZeroRows {
        /// Got.
        got: u64,
        /// Expected: the sum of the three counts.
        expected: u64,
    },
    /// Rows that, restored, are further from their source rows than the encoder makes any: those of another source, or of
    /// other places in it.
    SourceRows {
        /// The first such row.
        row: u64,
        /// How many there are.
        count: u64,
        /// Of the first, its squared error by its sum of squares; `null` in JSON where the source row is zero.
        relative_mse: f64,
        /// Of the first, the cosine between source and restored row.
        cosine: f64,
        /// Of the first, the restored row's length by the source row's; `null` in JSON where the source row is zero.
        norm_ratio: f64,
    },
    /// Rows have another direction than their source rows in the mean, further than the rate explains.
    Cosine {
        /// Mean over the rows.
        got: f64,
        /// The least that rows of this rate may have.
        expected: f64,
    },
    /// The relative squared error of a table is above the limit that was set.
    MaxError {
        /// Got.
        got: f64,
        /// The largest allowed.
        expected: f64,
    },
    /// The source rows are not those that were read when the table was made: at least one has changed, or changed places.
    SourceDigest {
        /// Got, hexadecimal.
        got: String,
        /// Expected, hexadecimal.
        expected: String,
    },
    /// Rows whose errors are within every limit, but whose records are not those that this version makes of the source
    /// rows: the source is another one, if a similar one, or the file was coded by another version of the encoder.
    Records {
        /// The first such row.
        row: u64,
        /// How many there are.
        count: u64,
        /// Rows of the table that were coded again.
        of: u64,
    },
}

impl Fault {
    /// A short, stable name, as of [`Error::code`](crate::Error::code).
    pub fn code(&self) -> &'static str {
        match self {
            Fault::Checksum { .. } => "damage-checksum",
            Fault::Padding { .. } => "damage-padding",
            Fault::ZeroRows { .. } => "damage-zero-rows",
            Fault::SourceRows { .. } => "mismatch-rows",
            Fault::Cosine { .. } => "mismatch-cosine",
            Fault::MaxError { .. } => "mismatch-error",
            Fault::SourceDigest { .. } => "mismatch-source",
            Fault::Records { .. } => "mismatch-records",
        }
    }

    /// Whether the rows are not those of the source that they were compared with. What is wrong otherwise is wrong with the
    /// file alone.
    pub fn is_mismatch(&self) -> bool {
        match self {
            Fault::Checksum { .. } | Fault::Padding { .. } | Fault::ZeroRows { .. } => false,
            Fault::SourceRows { .. }
            | Fault::Cosine { .. }
            | Fault::MaxError { .. }
            | Fault::SourceDigest { .. }
            | Fault::Records { .. } => true,
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.first_row + self.rows - 1;
        write!(f, "tensor {:?}, rows {} to {last}: ", self.tensor, self.first_row)?;
        match &self.fault {
            Fault::Checksum { got, expected } => write!(f, "checksum is {got}, expected {expected}: damaged"),
            Fault::Padding { row, count } => {
                write!(f, "padding bits of {count} records are set, expected zeros; the first is row {row}")
            }
            Fault::ZeroRows { got, expected } => write!(f, "{got} rows are zero, expected {expected} as counted"),
            Fault::SourceRows { row, count, relative_mse, cosine, norm_ratio } => write!(
                f,
                "{count} rows are not those of the source; the first is row {row}, with relative MSE {relative_mse:.4}, \
                 cosine {cosine:.4} and {norm_ratio:.4} times the length"
            ),
            Fault::Cosine { got, expected } => write!(
                f,
                "mean cosine with the source is {got:.4}, expected at least {expected:.4} at this rate: not the rows of \
                 the source"
            ),
            Fault::MaxError { got, expected } => write!(f, "relative MSE is {got:.6}, expected at most {expected}"),
            Fault::SourceDigest { got, expected } => write!(
                f,
                "the rows of the source have digest {got}, expected {expected} as when they were coded: not the same source"
            ),
            Fault::Records { row, count, of } => write!(
                f,
                "record bytes differ from what this version codes for the source row, though every error is within its \
                 limits: {count} of {of} rows that were coded again, the first is row {row}; the source is another one, \
                 or another version coded the file"
            ),
        }
    }
}
