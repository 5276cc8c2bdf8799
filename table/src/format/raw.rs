//! The list of tables as the metadata spells it (`FORMAT.md` section 3), before what it says has been checked.

use condprog_core::{Layout, LayoutError, Rate};
use serde::{Deserialize, Serialize};

use super::{ChecksumInfo, SegmentInfo, SourceRecord, TableInfo, Zeroed};

#[derive(Deserialize)]
pub(super) struct RawTable {
    pub(super) name: String,
    pub(super) program: String,
    pub(super) dim: u32,
    pub(super) rows: u64,
    pub(super) first_row: u64,
    pub(super) table_rows: u64,
    pub(super) source: SourceRecord,
    pub(super) scale_rule: String,
    pub(super) effort: u8,
    pub(super) zero_rows: u64,
    pub(super) underflow_rows: u64,
    pub(super) non_finite_rows: u64,
    pub(super) segments: Vec<RawSegment>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct RawSegment {
    pub(super) tensor: String,
    pub(super) first_row: u64,
    pub(super) rows: u64,
    pub(super) rate_quarters: u32,
    pub(super) record_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) global_scale: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) zeroed: Option<Zeroed>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) source_xxh3_64: Option<String>,
    pub(super) checksums: ChecksumInfo,
}

impl RawSegment {
    /// Width and rate of the rows.
    pub(super) fn layout(&self, dim: u32) -> Result<Layout, LayoutError> {
        Layout::new(dim, Rate::from_quarters(self.rate_quarters)?)
    }
}

impl TryFrom<RawTable> for TableInfo {
    type Error = LayoutError;

    fn try_from(raw: RawTable) -> Result<TableInfo, LayoutError> {
        let layouts = raw.segments.iter().map(|segment| segment.layout(raw.dim)).collect::<Result<_, _>>()?;
        Ok(raw.with(layouts))
    }
}

impl RawTable {
    /// The table, given the layout of each of its segments.
    pub(super) fn with(self, layouts: Vec<Layout>) -> TableInfo {
        let segment = |(raw, layout): (RawSegment, Layout)| {
            let RawSegment { tensor, first_row, rows, global_scale, zeroed, source_xxh3_64, checksums, .. } = raw;
            SegmentInfo { tensor, first_row, rows, global_scale, zeroed, source_xxh3_64, checksums, layout }
        };
        TableInfo {
            name: self.name,
            program: self.program,
            dim: self.dim,
            rows: self.rows,
            first_row: self.first_row,
            table_rows: self.table_rows,
            source: self.source,
            scale_rule: self.scale_rule,
            effort: self.effort,
            zero_rows: self.zero_rows,
            underflow_rows: self.underflow_rows,
            non_finite_rows: self.non_finite_rows,
            segments: self.segments.into_iter().zip(layouts).map(segment).collect(),
        }
    }
}

impl From<SegmentInfo> for RawSegment {
    fn from(info: SegmentInfo) -> RawSegment {
        let (rate_quarters, record_bytes) = (info.layout.rate().quarters(), info.record_bytes());
        let SegmentInfo { tensor, first_row, rows, global_scale, zeroed, source_xxh3_64, checksums, .. } = info;
        RawSegment {
            tensor,
            first_row,
            rows,
            rate_quarters,
            record_bytes,
            global_scale,
            zeroed,
            source_xxh3_64,
            checksums,
        }
    }
}
