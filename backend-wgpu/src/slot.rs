//! The buffers that a request passes through, used again by the next one.

use std::sync::Mutex;

use crate::device::{Device, lock};
use crate::error::Error;
use crate::kernel::{Bounds, Kernel, MIN_OUTPUT};

/// Bytes of an entry of the kernel's `request` array.
pub(crate) const ENTRY_BYTES: usize = 8;

/// Entries of the smallest slot: with [`MIN_OUTPUT`], a request of decoding-time size never outgrows it.
const MIN_ENTRIES: usize = 1 << 10;

/// Slots kept for the next request; two are in use by each request that takes several dispatches.
const KEPT: usize = 8;

/// Buffers for one dispatch of a request, and the bind group over them.
pub(crate) struct Slot {
    /// Mapped for writing while the slot is in the pool.
    pub(crate) upload: wgpu::Buffer,
    pub(crate) request: wgpu::Buffer,
    pub(crate) output: wgpu::Buffer,
    pub(crate) readback: wgpu::Buffer,
    pub(crate) group: wgpu::BindGroup,
    entries: usize,
    output_bytes: usize,
}

impl Slot {
    fn new(device: &Device, kernel: &Kernel, entries: usize, output_bytes: usize) -> Result<Slot, Error> {
        use wgpu::BufferUsages as Usage;
        device.guarded("making the buffers of a request", || {
            let upload = device.buffer(Usage::MAP_WRITE | Usage::COPY_SRC, entries * ENTRY_BYTES, true);
            let request = device.buffer(Usage::STORAGE | Usage::COPY_DST, entries * ENTRY_BYTES, false);
            let output = device.buffer(Usage::STORAGE | Usage::COPY_SRC, output_bytes, false);
            let readback = device.buffer(Usage::MAP_READ | Usage::COPY_DST, output_bytes, false);
            let group = device.raw.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &kernel.request,
                entries: &[
                    wgpu::BindGroupEntry { binding: 0, resource: request.as_entire_binding() },
                    wgpu::BindGroupEntry { binding: 1, resource: output.as_entire_binding() },
                ],
            });
            Slot { upload, request, output, readback, group, entries, output_bytes }
        })
    }

    fn fits(&self, entries: usize, output_bytes: usize) -> bool {
        self.entries >= entries && self.output_bytes >= output_bytes
    }
}

/// Slots that no request uses at the moment.
#[derive(Default)]
pub(crate) struct Pool(Mutex<Vec<Slot>>);

impl Pool {
    /// The smallest slot that fits, a new one when none does.
    pub(crate) fn take(
        &self,
        device: &Device,
        kernel: &Kernel,
        bounds: &Bounds,
        [entries, output_bytes]: [usize; 2],
    ) -> Result<Slot, Error> {
        let mut slots = lock(&self.0);
        let fitting = slots.iter().enumerate().filter(|(_, slot)| slot.fits(entries, output_bytes));
        if let Some((index, _)) = fitting.min_by_key(|(_, slot)| (slot.output_bytes, slot.entries)) {
            return Ok(slots.swap_remove(index));
        }
        drop(slots);
        // Powers of two, so that slowly growing requests do not each need a slot of their own.
        let round = |size: usize, least: usize, most: usize| size.max(least).next_power_of_two().min(most.max(size));
        let entries = round(entries, MIN_ENTRIES, bounds.binding_bytes / ENTRY_BYTES);
        Slot::new(device, kernel, entries, round(output_bytes, MIN_OUTPUT, bounds.dispatch_bytes))
    }

    /// Takes a slot back, its upload buffer mapped. The smallest is given up when there are too many.
    pub(crate) fn put(&self, slot: Slot) {
        let mut slots = lock(&self.0);
        slots.push(slot);
        if slots.len() > KEPT
            && let Some((index, _)) = slots.iter().enumerate().min_by_key(|(_, slot)| (slot.output_bytes, slot.entries))
        {
            slots.swap_remove(index);
        }
    }
}
