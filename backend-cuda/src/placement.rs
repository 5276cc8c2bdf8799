//! Where the records of a table lie, and putting them there.

use std::fmt::Debug;
use std::sync::Arc;

use condprog_core::{Layout, Table};
use condprog_kernels::cuda::Segment;
use cudarc::driver::CudaContext;
use cudarc::driver::sys::CUdeviceptr;

use crate::error::CudaError;
use crate::memory::{DeviceMemory, PinnedMapping, PinnedMemory};

/// Where a decoder keeps the records.
#[derive(Clone, Copy, Debug, PartialEq)]
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
    pub records: CUdeviceptr,
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

/// Copies a table to where it shall lie.
pub(crate) fn place(
    context: &Arc<CudaContext>,
    table: &Table<'_>,
    placement: Placement,
) -> Result<(Vec<PlacedSegment>, Vec<Keep>), CudaError> {
    let (mut placed, mut memory) = (Vec::new(), Vec::<Keep>::new());
    for segment in table.segments() {
        let device_rows = placement.device_rows(segment.rows)?;
        // In range of usize: the segment's slice holds more.
        let (on_device, on_host) = segment.records.split_at(device_rows as usize * segment.layout.record_bytes());
        if !on_device.is_empty() {
            let mut part = DeviceMemory::new(context, on_device.len())?;
            part.upload(0, on_device)?;
            placed.push(PlacedSegment { rows: device_rows, layout: segment.layout, records: part.address() });
            memory.push(Box::new(part));
        }
        if !on_host.is_empty() {
            let part = PinnedMemory::new(context, on_host.len(), |bytes| bytes.copy_from_slice(on_host))?;
            let rows = segment.rows - device_rows;
            placed.push(PlacedSegment { rows, layout: segment.layout, records: part.address() });
            memory.push(Box::new(part));
        }
        if segment.records.is_empty() {
            placed.push(PlacedSegment { rows: 0, layout: segment.layout, records: 0 });
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
