//! The list of tables as the metadata spells it (`FORMAT.md` section 3), before what it says has been checked.

use condprog_core::{Layout, LayoutError, Rate};
use serde::{Deserialize, Serialize};

use super::{ChecksumInfo, SegmentInfo, SourceRecord, TableInfo, Zeroed};

#[derive(Serialize, Deserialize)]
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
        let RawTable {
            name,
            program,
            dim,
            rows,
            first_row,
            table_rows,
            source,
            scale_rule,
            effort,
            zero_rows,
            underflow_rows,
            non_finite_rows,
            segments,
        } = raw;
        let segment = |raw: RawSegment| {
            let layout = raw.layout(dim)?;
            let RawSegment { tensor, first_row, rows, global_scale, zeroed, source_xxh3_64, checksums, .. } = raw;
            Ok(SegmentInfo { tensor, first_row, rows, global_scale, zeroed, source_xxh3_64, checksums, layout })
        };
        let segments = segments.into_iter().map(segment).collect::<Result<_, LayoutError>>()?;
        Ok(TableInfo {
            name,
            program,
            dim,
            rows,
            first_row,
            table_rows,
            source,
            scale_rule,
            effort,
            zero_rows,
            underflow_rows,
            non_finite_rows,
            segments,
        })
    }
}

impl From<TableInfo> for RawTable {
    fn from(info: TableInfo) -> RawTable {
        let TableInfo {
            name,
            program,
            dim,
            rows,
            first_row,
            table_rows,
            source,
            scale_rule,
            effort,
            zero_rows,
            underflow_rows,
            non_finite_rows,
            segments,
        } = info;
        let segment = |info: SegmentInfo| {
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
        };
        let segments = segments.into_iter().map(segment).collect();
        RawTable {
            name,
            program,
            dim,
            rows,
            first_row,
            table_rows,
            source,
            scale_rule,
            effort,
            zero_rows,
            underflow_rows,
            non_finite_rows,
            segments,
        }
    }
}
