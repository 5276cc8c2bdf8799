//! Where the records of a table lie, and putting them there.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use condprog_core::{Layout, Table};
use condprog_kernels::cuda::Segment;

use crate::context::Context;
use crate::error::CudaError;
use crate::memory::{DeviceMemory, PinnedMapping, PinnedMemory};

/// Where a decoder keeps the records.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Placement {
    /// In device memory.
    Device,
    /// In page-locked host memory that is mapped into the device, in huge pages where the system gives them.
    Host,
    /// Of each segment the first rows in device memory and the others in host memory, read by one launch.
    Split {
        /// Share of the rows for device memory, 0 to 1.
        device_share: f64,
    },
}

impl Placement {
    /// How many of `rows` rows go to device memory: all for a share of 1, none for 0, rounded down between.
    ///
    /// # Errors
    /// [`CudaError::Share`] when the share is not between 0 and 1.
    pub fn device_rows(self, rows: u64) -> Result<u64, CudaError> {
        match self {
            Placement::Device => Ok(rows),
            Placement::Host => Ok(0),
            Placement::Split { device_share } if (0.0..=1.0).contains(&device_share) => {
                // The product may round up past the count.
                Ok(((rows as f64 * device_share) as u64).min(rows))
            }
            Placement::Split { device_share } => Err(CudaError::Share { got: device_share }),
        }
    }
}

/// A segment whose records lie at an address of the device's address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedSegment {
    /// Number of rows, 0 allowed.
    pub rows: u64,
    /// Width and rate.
    pub layout: Layout,
    /// Address of the records, back to back, any alignment.
    pub records: u64,
}

/// A segment whose records lie in a [`PinnedMapping`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedSegment {
    /// Number of rows, 0 allowed.
    pub rows: u64,
    /// Width and rate.
    pub layout: Layout,
    /// Offset of the records in the mapping, in bytes, any alignment.
    pub offset: usize,
}

/// What keeps records where they are.
pub(crate) type Keep = Box<dyn Debug + Send + Sync>;

/// Bytes of records that are asked for at a time, on their way into device memory.
const PIECE: usize = 64 << 20;

/// Where records come from.
pub(crate) trait Source<E: From<CudaError>> {
    /// Writes the records of these rows of a segment.
    fn read(&mut self, segment: usize, rows: Range<u64>, records: &mut [u8]) -> Result<(), E>;

    /// Copies the records of the first rows of a segment to the device, in pieces.
    fn upload(&mut self, segment: usize, layout: Layout, rows: u64, memory: &mut DeviceMemory) -> Result<(), E> {
        let record = layout.record_bytes();
        let rows_at_once = (PIECE / record).max(1) as u64;
        let mut piece = vec![0; rows.min(rows_at_once) as usize * record];
        let mut first = 0;
        while first < rows {
            let end = rows.min(first + rows_at_once);
            let records = &mut piece[..(end - first) as usize * record];
            self.read(segment, first..end, records)?;
            memory.upload(first as usize * record, records)?;
            first = end;
        }
        Ok(())
    }
}

impl Source<CudaError> for Table<'_> {
    fn read(&mut self, segment: usize, rows: Range<u64>, records: &mut [u8]) -> Result<(), CudaError> {
        records.copy_from_slice(self::records(self, segment, rows));
        Ok(())
    }

    fn upload(&mut self, segment: usize, _: Layout, rows: u64, memory: &mut DeviceMemory) -> Result<(), CudaError> {
        memory.upload(0, self::records(self, segment, 0..rows))
    }
}

/// The records of these rows of a segment. They are there: `rows` are rows of the segment, and a table checks that each
/// has its record.
fn records<'a>(table: &'a Table<'_>, segment: usize, rows: Range<u64>) -> &'a [u8] {
    let segment = &table.segments()[segment];
    let record = segment.layout.record_bytes();
    &segment.records[rows.start as usize * record..rows.end as usize * record]
}

/// A function that is asked for records.
pub(crate) struct Reader<F>(pub(crate) F);

impl<E: From<CudaError>, F: FnMut(usize, Range<u64>, &mut [u8]) -> Result<(), E>> Source<E> for Reader<F> {
    fn read(&mut self, segment: usize, rows: Range<u64>, records: &mut [u8]) -> Result<(), E> {
        (self.0)(segment, rows, records)
    }
}

/// Puts a table where it shall lie.
pub(crate) fn place<E: From<CudaError>>(
    context: &Arc<Context>,
    segments: &[(u64, Layout)],
    placement: Placement,
    mut source: impl Source<E>,
) -> Result<(Vec<PlacedSegment>, Vec<Keep>), E> {
    let (mut placed, mut memory) = (Vec::new(), Vec::<Keep>::new());
    for (index, &(rows, layout)) in segments.iter().enumerate() {
        let device_rows = placement.device_rows(rows)?;
        let bytes = |rows: u64| {
            let bytes = usize::try_from(rows).ok().and_then(|rows| rows.checked_mul(layout.record_bytes()));
            bytes.ok_or(CudaError::Segment { segment: index, problem: "it is larger than memory can be" })
        };
        if device_rows > 0 {
            let mut part = DeviceMemory::new(context, bytes(device_rows)?)?;
            source.upload(index, layout, device_rows, &mut part)?;
            placed.push(PlacedSegment { rows: device_rows, layout, records: part.address() });
            memory.push(Box::new(part));
        }
        if device_rows < rows {
            let host_rows = rows - device_rows;
            let fill = |records: &mut [u8]| source.read(index, device_rows..rows, records);
            let part = PinnedMemory::new(context, bytes(host_rows)?, fill)?;
            placed.push(PlacedSegment { rows: host_rows, layout, records: part.address() });
            memory.push(Box::new(part));
        }
        if rows == 0 {
            placed.push(PlacedSegment { rows: 0, layout, records: 0 });
        }
    }
    Ok((placed, memory))
}

/// The segments of a mapping, checked against its length.
pub(crate) fn in_mapping(mapping: &PinnedMapping, segments: &[MappedSegment]) -> Result<Vec<PlacedSegment>, CudaError> {
    let place = |(index, segment): (usize, &MappedSegment)| {
        let bytes = u128::from(segment.rows) * segment.layout.record_bytes() as u128;
        if segment.offset as u128 + bytes > mapping.bytes() as u128 {
            return Err(CudaError::Segment { segment: index, problem: "its records reach beyond the mapping" });
        }
        let records = mapping.address() + segment.offset as u64;
        Ok(PlacedSegment { rows: segment.rows, layout: segment.layout, records })
    };
    segments.iter().enumerate().map(place).collect()
}

/// The segments as the kernels take them, and the number of rows.
pub(crate) fn for_kernels(segments: &[PlacedSegment]) -> Result<(Vec<Segment>, u64), CudaError> {
    let first =
        segments.first().ok_or(CudaError::Segment { segment: 0, problem: "there is none, expected at least 1" })?;
    let mut rows = 0u64;
    let mut result = Vec::with_capacity(segments.len());
    for (index, segment) in segments.iter().enumerate() {
        if segment.layout.dim() != first.layout.dim() {
            return Err(CudaError::Segment { segment: index, problem: "its width is not that of segment 0" });
        }
        result.push(Segment {
            first: rows,
            records: segment.records,
            // At most 32 KiB and 2.
            record_bytes: segment.layout.record_bytes() as u32,
            rate: segment.layout.rate().quarters(),
        });
        rows = rows
            .checked_add(segment.rows)
            .filter(|&rows| rows <= i64::MAX as u64)
            .ok_or(CudaError::Segment { segment: index, problem: "with it there are more rows than an id can name" })?;
    }
    Ok((result, rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use condprog_core::Rate;

    fn segment(rows: u64, dim: u32) -> PlacedSegment {
        PlacedSegment { rows, layout: Layout::new(dim, Rate::TWO).unwrap(), records: 0x1000 }
    }

    #[test]
    fn shares_are_of_rows() {
        let split = |device_share| Placement::Split { device_share }.device_rows(1000);
        assert_eq!(split(0.0), Ok(0));
        assert_eq!(split(0.2503), Ok(250));
        assert_eq!(split(1.0), Ok(1000));
        for bad in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert!(matches!(split(bad), Err(CudaError::Share { .. })), "{bad}");
        }
        assert_eq!(Placement::Device.device_rows(7), Ok(7));
        assert_eq!(Placement::Host.device_rows(7), Ok(0));
        // f64 has fewer bits than a row count.
        assert_eq!(Placement::Split { device_share: 1.0 }.device_rows(i64::MAX as u64), Ok(i64::MAX as u64));
    }

    #[test]
    fn segments_are_counted_and_checked() {
        let (segments, rows) = for_kernels(&[segment(3, 16), segment(0, 16), segment(5, 16)]).unwrap();
        assert_eq!(rows, 8);
        assert_eq!(segments.iter().map(|segment| segment.first).collect::<Vec<_>>(), [0, 3, 3]);
        assert_eq!((segments[0].record_bytes, segments[0].rate), (6, 8));
        for bad in [&[][..], &[segment(1, 16), segment(1, 24)], &[segment(1 << 62, 16), segment(1 << 62, 16)]] {
            assert!(matches!(for_kernels(bad), Err(CudaError::Segment { .. })));
        }
    }
}
