//! A table on the device: parts of one layout each, none longer than a binding.

use condprog_core::{Layout, Table};
use condprog_kernels::wgsl;

use crate::device::Wait;
use crate::error::Error;
use crate::gpu::Shared;

/// Bytes uploaded at a time: what the driver's staging memory grows by while a table is loaded.
const UPLOAD_BYTES: usize = 16 << 20;

/// The parts of a table, in row order, none empty.
#[derive(Debug)]
pub(crate) struct Parts {
    parts: Vec<Part>,
    bytes: u64,
}

/// Consecutive rows whose records lie in one binding.
#[derive(Debug)]
pub(crate) struct Part {
    first_row: u64,
    pub(crate) group: wgpu::BindGroup,
}

/// Where a part's records lie in the table given.
struct Cut<'a> {
    first_row: u64,
    layout: Layout,
    records: &'a [u8],
}

impl Cut<'_> {
    /// Length of the part's buffer: whole words, and what the kernel reads behind the last record.
    fn buffer_bytes(&self) -> usize {
        self.records.len().next_multiple_of(4) + wgsl::RECORDS_SLACK
    }
}

impl Parts {
    /// Uploads a table.
    pub(crate) async fn upload(gpu: &Shared, table: Table<'_>, wait: Wait) -> Result<Parts, Error> {
        let cuts = cut(table, gpu.bounds.binding_bytes)?;
        let bytes = cuts.iter().map(|cut| cut.buffer_bytes() as u64).sum();
        if bytes > gpu.bounds.table_bytes {
            return Err(Error::TableTooLarge { bytes, room: gpu.bounds.table_bytes });
        }
        let mut parts = Vec::with_capacity(cuts.len());
        let mut room = 0;
        for (index, cut) in cuts.iter().enumerate() {
            let part = upload(gpu, index as u32, cut, wait).await.map_err(|error| match error {
                Error::OutOfMemory { .. } => Error::TableTooLarge { bytes, room },
                error => error,
            })?;
            room += cut.buffer_bytes() as u64;
            parts.push(part);
        }
        Ok(Parts { parts, bytes })
    }

    /// Device memory in use, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn as_slice(&self) -> &[Part] {
        &self.parts
    }

    /// Part and record of a row of the table. There is at least one part, since there is a row.
    #[inline]
    pub(crate) fn locate(&self, row: u64) -> (u32, u32) {
        let part = self.parts.partition_point(|part| part.first_row <= row) - 1;
        // A binding holds fewer than 2^27 records.
        (part as u32, (row - self.parts[part].first_row) as u32)
    }
}

/// Cuts segments at record boundaries.
fn cut(table: Table<'_>, binding_bytes: usize) -> Result<Vec<Cut<'_>>, Error> {
    let mut cuts = Vec::new();
    let mut first_row = 0;
    for segment in table.segments() {
        let record = segment.layout.record_bytes();
        // The buffer is rounded up to whole words.
        let longest = binding_bytes.saturating_sub(wgsl::RECORDS_SLACK) & !3;
        if record > longest {
            return Err(Error::RecordTooLong { record, longest });
        }
        for records in segment.records.chunks(longest / record * record) {
            cuts.push(Cut { first_row, layout: segment.layout, records });
            first_row += (records.len() / record) as u64;
        }
    }
    Ok(cuts)
}

async fn upload(gpu: &Shared, index: u32, cut: &Cut<'_>, wait: Wait) -> Result<Part, Error> {
    use wgpu::BufferUsages as Usage;
    const WHAT: &str = "uploading a table";
    // The kernel's `struct Part`, to a multiple of 16 bytes.
    let layout = cut.layout;
    let description =
        [layout.dim(), layout.rate().quarters(), layout.code_bits(), layout.record_bytes() as u32, index, 0, 0, 0];
    let (records, group) = gpu.device.guarded(WHAT, || {
        let records = gpu.device.buffer(Usage::STORAGE | Usage::COPY_DST, cut.buffer_bytes(), false);
        let part = gpu.device.buffer(Usage::UNIFORM | Usage::COPY_DST, size_of_val(&description), false);
        gpu.device.queue.write_buffer(&part, 0, bytemuck::cast_slice(&description));
        let group = gpu.device.raw.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &gpu.kernel.part,
            entries: &[
                wgpu::BindGroupEntry { binding: 0, resource: records.as_entire_binding() },
                wgpu::BindGroupEntry { binding: 1, resource: part.as_entire_binding() },
            ],
        });
        (records, group)
    })?;
    let mut at = 0;
    for bytes in cut.records.chunks(UPLOAD_BYTES) {
        let submitted = gpu.device.guarded(WHAT, || {
            // Copies are of whole words.
            let (words, rest) = bytes.split_at(bytes.len() & !3);
            gpu.device.queue.write_buffer(&records, at, words);
            if !rest.is_empty() {
                let mut last = [0; 4];
                last[..rest.len()].copy_from_slice(rest);
                gpu.device.queue.write_buffer(&records, at + words.len() as u64, &last);
            }
            gpu.device.queue.submit([])
        })?;
        gpu.device.finish(submitted, wait).await?;
        at += bytes.len() as u64;
    }
    Ok(Part { first_row: cut.first_row, group })
}
