//! Records in memory, for decoders: all of a table, or those of some rows.

use std::ops::{Deref, Range};

use condprog_core::{Layout, Segment, Segments};
use condprog_memory::HugeBuffer;
use rayon::prelude::*;

use crate::error::Error;
use crate::format::TableInfo;
use crate::tables::{RecordRun, Tables};

/// Records of rows of one table, in memory.
#[derive(Debug)]
pub struct TableRecords {
    runs: Vec<(Layout, Bytes)>,
}

/// On huge pages where they are many.
#[derive(Debug)]
enum Bytes {
    Few(Vec<u8>),
    Many(HugeBuffer<u8>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Few(bytes) => bytes,
            Bytes::Many(bytes) => bytes,
        }
    }
}

impl TableRecords {
    /// The segments, for [`condprog_core::Table::new`]: runs of records of one layout, in row order.
    pub fn segments(&self) -> Vec<Segment<'_>> {
        (0..self.count()).map(|index| self.segment(index)).collect()
    }
}

/// So that a decoder can own what it reads: `CpuDecoder::new(file.load(name)?)`.
impl Segments for TableRecords {
    #[inline]
    fn count(&self) -> usize {
        self.runs.len()
    }

    #[inline]
    fn segment(&self, index: usize) -> Segment<'_> {
        let (layout, records) = &self.runs[index];
        Segment { rows: (records.len() / layout.record_bytes()) as u64, layout: *layout, records }
    }
}

/// Some rows of a table, each once, in memory.
#[derive(Debug)]
pub struct PickedRows {
    records: TableRecords,
    ids: Vec<i64>,
}

impl PickedRows {
    /// The segments of a table that has these rows only.
    pub fn segments(&self) -> Vec<Segment<'_>> {
        self.records.segments()
    }

    /// The ids that these rows have in that table, in the order in which they were asked for; -1 for an id that names no
    /// row.
    pub fn ids(&self) -> &[i64] {
        &self.ids
    }
}

impl Segments for PickedRows {
    #[inline]
    fn count(&self) -> usize {
        self.records.count()
    }

    #[inline]
    fn segment(&self, index: usize) -> Segment<'_> {
        self.records.segment(index)
    }
}

/// Bytes that one thread reads at a time.
const PART_BYTES: usize = 8 << 20;

/// Rows that one thread picks at a time.
const PART_ROWS: usize = 1 << 10;

/// Bytes between two rows that are read along rather than passed over: a system call costs more.
const GAP_BYTES: u64 = 1 << 12;

impl Tables {
    /// Reads all records of a table into memory, on huge pages where the system has them: the fastest to decode from. Ids
    /// count from [`TableInfo::first_row`] of the logical table, which is 0 unless this is one file of several.
    ///
    /// # Errors
    /// [`Error::NoTable`]; [`Error::Io`] when they cannot be read, or there is no memory for them.
    pub fn load(&self, name: &str) -> Result<TableRecords, Error> {
        let load = |run: RecordRun| -> Result<_, Error> {
            let no_memory = |source| Error::NoMemory { table: name.into(), bytes: run.bytes(), source };
            let length = usize::try_from(run.bytes()).map_err(|_| no_memory(std::io::ErrorKind::OutOfMemory.into()))?;
            let mut records = HugeBuffer::zeroed(length).map_err(no_memory)?;
            let bytes = run.layout.record_bytes();
            let rows = (PART_BYTES / bytes).max(1);
            records
                .par_chunks_mut(rows * bytes)
                .enumerate()
                .try_for_each(|(part, out)| self.read_run(&run, (part * rows) as u64, out))?;
            Ok((run.layout, Bytes::Many(records)))
        };
        let runs = self.runs(name)?.into_iter().map(load).collect::<Result<_, _>>()?;
        Ok(TableRecords { runs })
    }

    /// Reads the records of the rows that ids name, each once however often it is asked for. Takes memory for these, not
    /// for the table.
    ///
    /// ```no_run
    /// use condprog_core::{Decoder, Missing, Output, ReferenceDecoder, Table};
    ///
    /// let file = condprog_table::Tables::open("table.safetensors")?;
    /// let picked = file.pick("layers.1.engram.embed.weight", &[5, 70_000_000, 5, -1])?;
    /// let segments = picked.segments();
    /// let decoder = ReferenceDecoder::new(Table::new(&segments)?); // or a faster one
    /// let mut rows = vec![0.0; 4 * 256];
    /// decoder.decode(picked.ids(), Missing::Zero, Output::F32(&mut rows))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoTable`]; [`Error::Io`] when they cannot be read.
    pub fn pick(&self, name: &str, ids: &[i64]) -> Result<PickedRows, Error> {
        let table = self.table(name)?;
        let row = |&id: &i64| u64::try_from(id).ok().filter(|&row| row < table.rows);
        let mut rows: Vec<u64> = ids.iter().filter_map(row).collect();
        rows.par_sort_unstable();
        rows.dedup();
        let place = |id: &i64| row(id).and_then(|row| rows.binary_search(&row).ok()).map_or(-1, |place| place as i64);
        let ids = ids.par_iter().with_min_len(PART_ROWS).map(place).collect();
        let mut runs: Vec<(Layout, Bytes)> = Vec::new();
        let mut left = rows.as_slice();
        for segment in &table.segments {
            let (own, after) = left.split_at(left.partition_point(|&row| row < segment.first_row + segment.rows));
            left = after;
            let all = self.run(segment)?;
            let parts = own.par_chunks(PART_ROWS).map(|rows| self.pick_part(&all, segment.first_row, rows));
            for part in parts.collect::<Result<Vec<_>, _>>()? {
                let layout = all.layout;
                match runs.last_mut() {
                    Some((last, Bytes::Few(records))) if *last == layout => records.extend(part),
                    _ => runs.push((layout, Bytes::Few(part))),
                }
            }
        }
        if runs.is_empty() {
            // A table of no rows still has a width.
            runs.push((table.segments[0].layout, Bytes::Few(Vec::new())));
        }
        Ok(PickedRows { records: TableRecords { runs }, ids })
    }

    /// The records of ascending rows of one segment, which starts at row `start`.
    fn pick_part(&self, segment: &RecordRun, start: u64, rows: &[u64]) -> Result<Vec<u8>, Error> {
        let bytes = segment.layout.record_bytes();
        let mut out = Vec::with_capacity(rows.len() * bytes);
        let mut buffer = Vec::new();
        let mut next = 0;
        while let Some(&first) = rows.get(next) {
            let is_near = |pair: &[u64]| (pair[1] - pair[0] - 1).saturating_mul(bytes as u64) <= GAP_BYTES;
            let count = 1 + rows[next..].windows(2).take_while(|pair| is_near(pair)).count();
            let last = rows[next + count - 1];
            buffer.resize((last - first + 1) as usize * bytes, 0);
            self.read_run(segment, first - start, &mut buffer)?;
            for row in &rows[next..next + count] {
                let start = (row - first) as usize * bytes;
                out.extend_from_slice(&buffer[start..start + bytes]);
            }
            next += count;
        }
        Ok(out)
    }

    /// Reads the records of a range of rows of a table of this file.
    pub fn read_rows(&self, table: &TableInfo, rows: Range<u64>) -> Result<TableRecords, Error> {
        let read = |run: RecordRun| -> Result<_, Error> {
            let mut records = vec![0; run.bytes() as usize];
            self.read_run(&run, 0, &mut records)?;
            Ok((run.layout, Bytes::Few(records)))
        };
        Ok(TableRecords { runs: self.runs_of(table, rows)?.into_iter().map(read).collect::<Result<_, _>>()? })
    }
}
