//! The decoder: requests over dispatches.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use condprog_core::decoder::names_row;
use condprog_core::{Batch, Decoder, Dtype, Output, ShapeMismatch, Table, TableShape};
use condprog_kernels::wgsl;
use futures_channel::oneshot;

use crate::device::Wait;
use crate::error::Error;
use crate::gpu::{Gpu, Shared};
use crate::parts::Parts;
use crate::slot::{ENTRY_BYTES, Slot};

/// Dispatches of one request under way at a time: while one is read back, the next one runs.
const UNDER_WAY: usize = 2;

/// A table on a GPU, ready for requests. Any number of threads can make them.
#[derive(Debug)]
pub struct WgpuDecoder {
    gpu: Gpu,
    shape: TableShape,
    parts: Parts,
}

/// Time spent in the stages of a request, see [`WgpuDecoder::decode_timed`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Stages {
    /// Finding the records of the ids and bringing their numbers to the device.
    pub upload: Duration,
    /// Decoding.
    pub kernel: Duration,
    /// Bringing the rows back and into place.
    pub readback: Duration,
}

impl WgpuDecoder {
    /// Uploads a table to a GPU. The table is not needed afterwards.
    ///
    /// # Errors
    /// [`Error::TableTooLarge`] when it does not fit, else what the device reports.
    pub fn new(gpu: &Gpu, table: Table<'_>) -> Result<WgpuDecoder, Error> {
        pollster::block_on(WgpuDecoder::upload(gpu, table, Wait::Here))
    }

    /// [`WgpuDecoder::new`] as a future, which any executor can run.
    ///
    /// # Errors
    /// As [`WgpuDecoder::new`].
    pub async fn new_async(gpu: &Gpu, table: Table<'_>) -> Result<WgpuDecoder, Error> {
        WgpuDecoder::upload(gpu, table, Wait::Aside).await
    }

    async fn upload(gpu: &Gpu, table: Table<'_>, wait: Wait) -> Result<WgpuDecoder, Error> {
        let parts = Parts::upload(gpu.shared(), table, wait).await?;
        Ok(WgpuDecoder { gpu: gpu.clone(), shape: table.shape(), parts })
    }

    /// The GPU that holds the table.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Device memory that the table takes, in bytes.
    pub fn table_bytes(&self) -> u64 {
        self.parts.bytes()
    }

    /// [`Decoder::decode_batch`] as a future, which any executor can run. Dropping it gives the request up.
    ///
    /// # Errors
    /// As [`Decoder::decode_batch`].
    pub async fn decode_batch_async(&self, batch: Batch<'_>) -> Result<(), Error> {
        self.run(batch, Wait::Aside).await
    }

    /// Decodes a request one stage at a time and says how long each took. Slower than [`Decoder::decode_batch`], which
    /// overlaps them.
    ///
    /// # Errors
    /// As [`Decoder::decode_batch`].
    pub fn decode_timed(&self, batch: Batch<'_>) -> Result<Stages, Error> {
        pollster::block_on(self.run_timed(batch))
    }

    async fn run(&self, batch: Batch<'_>, wait: Wait) -> Result<(), Error> {
        let mut request = Request::new(self, batch)?;
        let mut under_way = VecDeque::with_capacity(UNDER_WAY);
        loop {
            while under_way.len() < UNDER_WAY
                && let Some((ids, rows)) = request.next()
            {
                let slot = request.fill(ids)?;
                let flight = self.gpu.shared().device.guarded(DECODING, || {
                    let mut encoder = request.encoder();
                    request.encode_upload(&mut encoder, &slot);
                    request.encode_kernel(&mut encoder, &slot);
                    request.encode_readback(&mut encoder, &slot, ids.len());
                    Flight::submit(&request, encoder, slot, rows)
                })?;
                under_way.push_back(flight);
            }
            match under_way.pop_front() {
                Some(flight) => flight.land(&request, wait).await?,
                None => return Ok(()),
            }
        }
    }

    async fn run_timed(&self, batch: Batch<'_>) -> Result<Stages, Error> {
        let gpu = self.gpu.shared();
        let mut request = Request::new(self, batch)?;
        let mut stages = Stages::default();
        while let Some((ids, rows)) = request.next() {
            let started = Instant::now();
            let slot = request.fill(ids)?;
            let uploading = gpu.device.guarded(DECODING, || {
                let mut encoder = request.encoder();
                request.encode_upload(&mut encoder, &slot);
                gpu.device.queue.submit([encoder.finish()])
            })?;
            gpu.device.finish(uploading, Wait::Here).await?;
            stages.upload += started.elapsed();

            let started = Instant::now();
            let running = gpu.device.guarded(DECODING, || {
                let mut encoder = request.encoder();
                request.encode_kernel(&mut encoder, &slot);
                gpu.device.queue.submit([encoder.finish()])
            })?;
            gpu.device.finish(running, Wait::Here).await?;
            stages.kernel += started.elapsed();

            let started = Instant::now();
            let flight = gpu.device.guarded(DECODING, || {
                let mut encoder = request.encoder();
                request.encode_readback(&mut encoder, &slot, ids.len());
                Flight::submit(&request, encoder, slot, rows)
            })?;
            flight.land(&request, Wait::Here).await?;
            stages.readback += started.elapsed();
        }
        Ok(stages)
    }
}

impl Decoder for WgpuDecoder {
    type Error = Error;

    fn shape(&self) -> TableShape {
        self.shape
    }

    fn decode_batch(&self, batch: Batch<'_>) -> Result<(), Error> {
        pollster::block_on(self.run(batch, Wait::Here))
    }
}

const DECODING: &str = "decoding a request";

/// What is left of a request, and the jobs of the dispatch that is being made.
struct Request<'a> {
    gpu: &'a Shared,
    parts: &'a Parts,
    table_rows: u64,
    dtype: Dtype,
    /// Bytes of a row for the caller.
    row_bytes: usize,
    /// The same with its padding to whole groups, as on the device.
    device_row_bytes: usize,
    threads_per_row: u64,
    /// Most rows of one dispatch.
    dispatch_rows: usize,
    ids: &'a [i64],
    out: &'a mut [u8],
    /// Part and record of each row of the dispatch.
    located: Vec<(u32, u32)>,
    /// The kernel's `request` array.
    entries: Vec<[u32; 2]>,
}

impl<'a> Request<'a> {
    fn new(decoder: &'a WgpuDecoder, batch: Batch<'a>) -> Result<Request<'a>, Error> {
        ShapeMismatch::check(&batch, decoder.shape)?;
        let (dtype, dim) = (batch.dtype(), decoder.shape.dim);
        let (mut ids, output) = batch.into_parts();
        // Devices are little-endian, and so are the hosts that wgpu runs on: the bits are in place as they come.
        let out: &mut [u8] = match output {
            Output::Bf16(out) | Output::F16(out) => bytemuck::cast_slice_mut(out),
            Output::F32(out) => bytemuck::cast_slice_mut(out),
        };
        let parts = decoder.parts.as_slice().len();
        if parts == 0 {
            // No record, no binding: every id is missing.
            out.fill(0);
            ids = &[];
        }
        let gpu = decoder.gpu.shared();
        let groups = dim.div_ceil(wgsl::GROUP);
        let device_row_bytes = (groups * wgsl::GROUP) as usize * dtype.size();
        let threads_per_row = u64::from(groups.div_ceil(gpu.bounds.groups_per_thread));
        let dispatch_rows = (gpu.bounds.dispatch_bytes / device_row_bytes)
            .min((gpu.bounds.binding_bytes / ENTRY_BYTES).saturating_sub(parts))
            .min((gpu.bounds.dispatch_threads / threads_per_row) as usize)
            .max(1);
        Ok(Request {
            gpu,
            parts: &decoder.parts,
            table_rows: decoder.shape.rows,
            dtype,
            row_bytes: dim as usize * dtype.size(),
            device_row_bytes,
            threads_per_row,
            dispatch_rows,
            ids,
            out,
            located: Vec::new(),
            entries: Vec::new(),
        })
    }

    /// The ids of the next dispatch and the place of their rows.
    fn next(&mut self) -> Option<(&'a [i64], &'a mut [u8])> {
        if self.ids.is_empty() {
            return None;
        }
        let (ids, rest) = self.ids.split_at(self.ids.len().min(self.dispatch_rows));
        self.ids = rest;
        let (rows, rest) = std::mem::take(&mut self.out).split_at_mut(ids.len() * self.row_bytes);
        self.out = rest;
        Some((ids, rows))
    }

    /// Lists the jobs of a dispatch by part and writes the list into a slot.
    fn fill(&mut self, ids: &[i64]) -> Result<Slot, Error> {
        let parts = self.parts.as_slice().len();
        self.entries.clear();
        self.entries.resize(parts + ids.len(), [0; 2]);
        self.located.clear();
        for &id in ids {
            let (part, record) = match names_row(id, self.table_rows) {
                true => self.parts.locate(id as u64),
                // Any part can write zeros.
                false => (0, wgsl::MISSING),
            };
            self.entries[part as usize][1] += 1;
            self.located.push((part, record));
        }
        let mut first = parts as u32;
        for [start, count] in &mut self.entries[..parts] {
            *start = first;
            first += *count;
        }
        for (place, &(part, record)) in self.located.iter().enumerate() {
            // The starts serve as cursors and are set back below.
            let at = &mut self.entries[part as usize][0];
            let job = *at as usize;
            *at += 1;
            self.entries[job] = [record, place as u32];
        }
        for [start, count] in &mut self.entries[..parts] {
            *start -= *count;
        }

        let slot = self.gpu.slot(self.entries.len(), ids.len() * self.device_row_bytes)?;
        let bytes: &[u8] = bytemuck::cast_slice(&self.entries);
        match slot.upload.get_mapped_range_mut(..bytes.len() as u64) {
            Ok(mut view) => view.copy_from_slice(bytes),
            Err(_) => return Err(self.gpu.device.unmapped(DECODING)),
        }
        Ok(slot)
    }

    fn encoder(&self) -> wgpu::CommandEncoder {
        self.gpu.device.raw.create_command_encoder(&Default::default())
    }

    fn encode_upload(&self, encoder: &mut wgpu::CommandEncoder, slot: &Slot) {
        slot.upload.unmap();
        encoder.copy_buffer_to_buffer(&slot.upload, 0, &slot.request, 0, (self.entries.len() * ENTRY_BYTES) as u64);
    }

    /// One dispatch for each part that has jobs.
    fn encode_kernel(&self, encoder: &mut wgpu::CommandEncoder, slot: &Slot) {
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(self.gpu.kernel.pipeline(self.dtype));
        pass.set_bind_group(1, &slot.group, &[]);
        for (part, &[_, jobs]) in self.parts.as_slice().iter().zip(&self.entries) {
            if jobs > 0 {
                pass.set_bind_group(0, &part.group, &[]);
                let threads = u64::from(jobs) * self.threads_per_row;
                // Within the limit: `dispatch_rows` sees to it.
                pass.dispatch_workgroups(threads.div_ceil(u64::from(wgsl::WORKGROUP)) as u32, 1, 1);
            }
        }
    }

    fn encode_readback(&self, encoder: &mut wgpu::CommandEncoder, slot: &Slot, rows: usize) {
        encoder.copy_buffer_to_buffer(&slot.output, 0, &slot.readback, 0, (rows * self.device_row_bytes) as u64);
    }
}

/// A dispatch that was submitted.
struct Flight<'a> {
    slot: Slot,
    index: wgpu::SubmissionIndex,
    /// The slot's readback and upload buffers, once they are mapped.
    mapped: [oneshot::Receiver<bool>; 2],
    rows: &'a mut [u8],
}

impl<'a> Flight<'a> {
    /// Submits what was encoded, the readback last.
    fn submit(request: &Request<'_>, encoder: wgpu::CommandEncoder, slot: Slot, rows: &'a mut [u8]) -> Flight<'a> {
        let index = request.gpu.device.queue.submit([encoder.finish()]);
        let map = |buffer: &wgpu::Buffer, mode| {
            let (sender, mapped) = oneshot::channel();
            // The request may have been given up.
            buffer.map_async(mode, .., move |result| {
                let _ = sender.send(result.is_ok());
            });
            mapped
        };
        let mapped = [map(&slot.readback, wgpu::MapMode::Read), map(&slot.upload, wgpu::MapMode::Write)];
        Flight { slot, index, mapped, rows }
    }

    /// Waits for the rows, puts them into place and gives the slot back.
    async fn land(self, request: &Request<'_>, wait: Wait) -> Result<(), Error> {
        let Flight { slot, index, mapped, rows } = self;
        request.gpu.device.finish(index, wait).await?;
        for mapped in mapped {
            if mapped.await != Ok(true) {
                return Err(request.gpu.device.unmapped(DECODING));
            }
        }
        let bytes = rows.len() / request.row_bytes * request.device_row_bytes;
        match slot.readback.get_mapped_range(..bytes as u64) {
            Ok(view) if request.row_bytes == request.device_row_bytes => rows.copy_from_slice(&view),
            Ok(view) => {
                let padded = view.chunks_exact(request.device_row_bytes);
                for (row, padded) in rows.chunks_exact_mut(request.row_bytes).zip(padded) {
                    row.copy_from_slice(&padded[..request.row_bytes]);
                }
            }
            Err(_) => return Err(request.gpu.device.unmapped(DECODING)),
        }
        slot.readback.unmap();
        request.gpu.pool.put(slot);
        Ok(())
    }
}
