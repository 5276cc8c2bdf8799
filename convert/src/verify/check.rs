//! What a file says of itself: checksums, padding and counts of zero rows.

use condprog_core::{Layout, Record};
use condprog_table::Tables;
use condprog_table::format::{SegmentInfo, TableInfo};
use condprog_table::tables::block_range;
use condprog_table::{Damage, Fault};
use rayon::prelude::*;

use super::VerifyTable;
use crate::error::Error;
use crate::stream::Counter;

/// Checks a table without its source.
pub(super) fn check(file: &Tables, table: &TableInfo, counter: &mut Counter<'_>) -> Result<VerifyTable, Error> {
    let (mut damage, mut zero_rows) = (Vec::new(), 0);
    for segment in &table.segments {
        let step = 4 * rayon::current_num_threads() as u64;
        for first in (0..segment.blocks()).step_by(step as usize) {
            let blocks = first..segment.blocks().min(first + step);
            let check = |block| check_block(file, table, segment, block);
            let found: Vec<_> = blocks.clone().into_par_iter().map(check).collect();
            for block in found {
                let (checksum, zeros, padding) = block?;
                damage.extend(checksum);
                damage.extend(padding);
                zero_rows += zeros;
            }
            let rows = block_range(segment, blocks.end - 1).end - block_range(segment, first).start;
            counter.add(&table.name, rows)?;
        }
    }
    let expected = table.zero_rows + table.underflow_rows + table.non_finite_rows;
    // Of damaged records, the count says nothing new.
    if damage.is_empty() && zero_rows != expected {
        damage.push(Damage {
            table: table.name.clone(),
            tensor: table.segments[0].tensor.clone(),
            first_row: 0,
            rows: table.rows,
            fault: Fault::ZeroRows { got: zero_rows, expected },
        });
    }
    let bytes = table.segments[0].record_bytes();
    Ok(VerifyTable {
        name: table.name.clone(),
        rows: table.rows,
        dim: table.dim,
        rate: table.mean_rate(),
        record_bytes: table.segments.iter().all(|segment| segment.record_bytes() == bytes).then_some(bytes),
        source_bytes: table.source_bytes(),
        table_bytes: table.record_bytes(),
        relative_mse: None,
        mean_cosine: None,
        norm_ratio: None,
        worst_row: None,
        worst_relative_mse: None,
        recoded_rows: None,
        mismatched_rows: None,
        zero_rows,
        underflow_rows: table.underflow_rows,
        non_finite_rows: table.non_finite_rows,
        damage,
    })
}

/// Of a block: a wrong checksum, zero rows, and padding that is set.
fn check_block(
    file: &Tables,
    table: &TableInfo,
    segment: &SegmentInfo,
    block: u64,
) -> Result<(Option<Damage>, u64, Option<Damage>), Error> {
    let layout = segment.layout;
    let rows = block_range(segment, block);
    let mut scan = Scan { layout, row: segment.first_row + rows.start, zeros: 0, first: None, count: 0 };
    let checksum = file.read_block(table, segment, block, |records| scan.add(records))?;
    let padding = scan.first.map(|row| Damage {
        table: table.name.clone(),
        tensor: segment.tensor.clone(),
        first_row: segment.first_row + rows.start,
        rows: rows.end - rows.start,
        fault: Fault::Padding { row, count: scan.count },
    });
    Ok((checksum, scan.zeros, padding))
}

/// Zero rows of records, and padding.
struct Scan {
    layout: Layout,
    /// The next row.
    row: u64,
    zeros: u64,
    /// The first row with padding bits that are set.
    first: Option<u64>,
    /// How many there are.
    count: u64,
}

impl Scan {
    fn add(&mut self, records: &[u8]) {
        for record in records.chunks_exact(self.layout.record_bytes()) {
            let record = Record::new(self.layout, record);
            self.zeros += u64::from(record.scale.is_zero());
            if !record.padding_is_zero(self.layout) {
                self.first.get_or_insert(self.row);
                self.count += 1;
            }
            self.row += 1;
        }
    }
}
