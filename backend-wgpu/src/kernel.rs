//! The compiled kernel, and the sizes within which it is used.

use std::borrow::Cow;

use condprog_core::{Dtype, trellis};
use condprog_kernels::wgsl;

use crate::error::Error;

/// Groups per thread that make a thread per row, whatever the width.
pub(crate) const WHOLE_ROW: u32 = trellis::MAX_DIM / wgsl::GROUP;

/// Longest binding that the kernel's 32-bit numbers of bits and records are meant for: that of WebGPU's default limits.
pub(crate) const LONGEST_BINDING: u64 = 128 << 20;

/// Smallest output buffer. A row of the greatest width in the longest number format fits.
pub(crate) const MIN_OUTPUT: usize = trellis::MAX_DIM as usize * 4;

/// Sizes within the device's limits, or below as the options ask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) table_bytes: u64,
    pub(crate) binding_bytes: usize,
    pub(crate) dispatch_bytes: usize,
    pub(crate) dispatch_threads: u64,
    pub(crate) groups_per_thread: u32,
}

/// A limit of a device and the least that the kernel needs of it.
type Need = (&'static str, fn(&wgpu::Limits) -> u64, u64);

/// What the kernel cannot do without. WebGPU's default limits are above all of it.
const NEEDS: [Need; 9] = [
    ("max_bind_groups", |limits| limits.max_bind_groups.into(), 2),
    ("max_bindings_per_bind_group", |limits| limits.max_bindings_per_bind_group.into(), 2),
    ("max_storage_buffers_per_shader_stage", |limits| limits.max_storage_buffers_per_shader_stage.into(), 3),
    ("max_uniform_buffers_per_shader_stage", |limits| limits.max_uniform_buffers_per_shader_stage.into(), 1),
    ("max_storage_buffer_binding_size", |limits| limits.max_storage_buffer_binding_size, MIN_OUTPUT as u64),
    ("max_buffer_size", |limits| limits.max_buffer_size, MIN_OUTPUT as u64),
    (
        "max_compute_invocations_per_workgroup",
        |limits| limits.max_compute_invocations_per_workgroup.into(),
        wgsl::WORKGROUP as u64,
    ),
    ("max_compute_workgroup_size_x", |limits| limits.max_compute_workgroup_size_x.into(), wgsl::WORKGROUP as u64),
    (
        // A dispatch has at least one row, of the greatest width, a thread for each group.
        "max_compute_workgroups_per_dimension",
        |limits| limits.max_compute_workgroups_per_dimension.into(),
        WHOLE_ROW.div_ceil(wgsl::WORKGROUP) as u64,
    ),
];

/// Checks that a device's limits are enough for the kernel.
pub(crate) fn check(limits: &wgpu::Limits) -> Result<(), Error> {
    for (limit, of, expected) in NEEDS {
        let got = of(limits);
        if got < expected {
            return Err(Error::Limit { limit, got, expected });
        }
    }
    Ok(())
}

/// The longest binding on a device with these limits.
pub(crate) fn longest_binding(limits: &wgpu::Limits) -> u64 {
    limits.max_storage_buffer_binding_size.min(limits.max_buffer_size).min(LONGEST_BINDING)
}

/// Pipelines and the layouts of their two bind groups.
pub(crate) struct Kernel {
    pub(crate) part: wgpu::BindGroupLayout,
    pub(crate) request: wgpu::BindGroupLayout,
    bf16: wgpu::ComputePipeline,
    f16: wgpu::ComputePipeline,
    f32: wgpu::ComputePipeline,
}

impl Kernel {
    pub(crate) fn pipeline(&self, dtype: Dtype) -> &wgpu::ComputePipeline {
        match dtype {
            Dtype::Bf16 => &self.bf16,
            Dtype::F16 => &self.f16,
            Dtype::F32 => &self.f32,
        }
    }

    /// Compiles the kernel. Errors go to the scope of the caller.
    pub(crate) fn compile(device: &wgpu::Device, source: &str, groups_per_thread: u32) -> Kernel {
        let entry = |binding, ty| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
            count: None,
        };
        let layout = |entries: &[wgpu::BindGroupLayoutEntry]| {
            device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries })
        };
        let read = wgpu::BufferBindingType::Storage { read_only: true };
        let write = wgpu::BufferBindingType::Storage { read_only: false };
        let part = layout(&[entry(0, read), entry(1, wgpu::BufferBindingType::Uniform)]);
        let request = layout(&[entry(0, read), entry(1, write)]);
        let pipelines = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            bind_group_layouts: &[Some(&part), Some(&request)],
            ..Default::default()
        });
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some("decode.wgsl"),
            source: wgpu::ShaderSource::Wgsl(Cow::Borrowed(source)),
        });
        let pipeline = |entry_point| {
            device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(entry_point),
                layout: Some(&pipelines),
                module: &module,
                entry_point: Some(entry_point),
                compilation_options: wgpu::PipelineCompilationOptions {
                    constants: &[(wgsl::GROUPS_PER_THREAD, f64::from(groups_per_thread))],
                    ..Default::default()
                },
                cache: None,
            })
        };
        let (bf16, f16, f32) = (pipeline(wgsl::DECODE_BF16), pipeline(wgsl::DECODE_F16), pipeline(wgsl::DECODE_F32));
        Kernel { part, request, bf16, f16, f32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_needed_and_the_default_ones_are_enough() {
        assert_eq!(check(&wgpu::Limits::default()), Ok(()));
        type Set = fn(&mut wgpu::Limits, u64);
        let sets: [Set; NEEDS.len()] = [
            |limits, value| limits.max_bind_groups = value as u32,
            |limits, value| limits.max_bindings_per_bind_group = value as u32,
            |limits, value| limits.max_storage_buffers_per_shader_stage = value as u32,
            |limits, value| limits.max_uniform_buffers_per_shader_stage = value as u32,
            |limits, value| limits.max_storage_buffer_binding_size = value,
            |limits, value| limits.max_buffer_size = value,
            |limits, value| limits.max_compute_invocations_per_workgroup = value as u32,
            |limits, value| limits.max_compute_workgroup_size_x = value as u32,
            |limits, value| limits.max_compute_workgroups_per_dimension = value as u32,
        ];
        for ((limit, _, expected), set) in NEEDS.into_iter().zip(sets) {
            let mut limits = wgpu::Limits::default();
            set(&mut limits, expected);
            assert_eq!(check(&limits), Ok(()), "{limit}");
            set(&mut limits, expected - 1);
            assert_eq!(check(&limits), Err(Error::Limit { limit, got: expected - 1, expected }));
        }
    }

    #[test]
    fn bindings_stay_within_every_bound() {
        let mut limits =
            wgpu::Limits { max_storage_buffer_binding_size: 1 << 31, max_buffer_size: 1 << 32, ..Default::default() };
        assert_eq!(longest_binding(&limits), LONGEST_BINDING);
        limits.max_buffer_size = 1 << 20;
        assert_eq!(longest_binding(&limits), 1 << 20);
    }
}
