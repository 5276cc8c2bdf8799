//! The CUDA kernels: sources, the PTX made from them, what they take, which one a table needs and in what shape it is
//! launched.
//!
//! Nothing here touches a device, so that the CUDA backend and the tests that run the same kernels on the CPU
//! (`kernels/host-shim`) select, fill in and launch them by the same code.

use condprog_core::{Dtype, Layout};

/// Source of the decoder.
pub const DECODE: &str = include_str!("../decode.cu");
/// PTX of [`DECODE`], made by `kernels/check-cuda.sh --update` with the compiler pinned there.
pub const DECODE_PTX: &str = include_str!("../prebuilt/decode.ptx");
/// Source of what the benchmark needs beside the decoder.
pub const BENCH: &str = include_str!("../bench.cu");
/// PTX of [`BENCH`], made as [`DECODE_PTX`] is.
pub const BENCH_PTX: &str = include_str!("../prebuilt/bench.ptx");
/// Options with which NVRTC makes [`DECODE_PTX`], and with which it must be called for any other architecture.
pub const NVRTC_OPTIONS: [&str; 3] = ["--std=c++17", "-default-device", "--fmad=false"];
/// The virtual architecture of [`DECODE_PTX`]: devices of this compute capability or a later one run it.
pub const ARCHITECTURE: &str = "compute_90";
/// [`ARCHITECTURE`] as major and minor number.
pub const COMPUTE_CAPABILITY: (u32, u32) = (9, 0);

/// Threads of a block of the kernels of [`BENCH`].
pub const BENCH_BLOCK: u32 = 256;

/// Word `index` of what the kernel `fill` of [`BENCH`] writes.
pub const fn content(index: u64) -> u32 {
    let mut z = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (z ^ z >> 32) as u32
}

/// Threads of a warp.
pub const WARP: u32 = 32;
/// Most threads of a block, and how many the backend launches.
pub const BLOCK: u32 = 512;
/// Blocks that a multiprocessor of compute capability 9.0 holds at once, by the kernels' launch bounds.
pub const BLOCKS_PER_PROCESSOR: u32 = 3;
/// Most rows that a warp takes at a time.
pub const CHUNK: u32 = 8;

/// Consecutive rows of one layout, as the kernels take them; `Segment` in the source.
///
/// Aligned 4-byte words that hold a byte of a record must be readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Segment {
    /// Id of the first row: 0 in the first segment, ascending.
    pub first: u64,
    /// Address of the records in the device's address space.
    pub records: u64,
    /// Bytes of a record.
    pub record_bytes: u32,
    /// Quarter bits per value.
    pub rate: u32,
}

/// The argument of a decoding kernel; `Request` in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Request {
    /// Address of `count` signed integers of `id_bytes` bytes each.
    pub ids: u64,
    /// Address of `count` rows of `dim` values. Aligned for a value; to 16 bytes for a common kernel.
    pub out: u64,
    /// Address of an u64 that is lowered to the first position whose id names no row, or 0.
    pub missing: u64,
    /// Address of the [`Segment`]s.
    pub segments: u64,
    /// Number of ids, at least 1.
    pub count: u64,
    /// Rows of the table.
    pub rows: u64,
    /// Number of segments, at least 1.
    pub segment_count: u32,
    /// Values per row.
    pub dim: u32,
    /// 4 or 8.
    pub id_bytes: u32,
    /// Logarithm of the rows that a warp takes at a time, at most that of [`CHUNK`].
    pub chunk_log2: u32,
}

/// One decoding kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Name of the entry point.
    pub name: &'static str,
    /// What it writes.
    pub dtype: Dtype,
    /// Quarter bits per value and values per row of a common layout; `None` for the kernel of any layout.
    pub layout: Option<(u32, u32)>,
}

macro_rules! kernels {
    ($(($suffix:literal, $dtype:ident)),*) => {
        [$(
            kernels!(@ "decode_r8_d160_", $suffix, $dtype, Some((8, 160))),
            kernels!(@ "decode_r6_d256_", $suffix, $dtype, Some((6, 256))),
            kernels!(@ "decode_r8_d256_", $suffix, $dtype, Some((8, 256))),
            kernels!(@ "decode_r10_d256_", $suffix, $dtype, Some((10, 256))),
            kernels!(@ "decode_r12_d256_", $suffix, $dtype, Some((12, 256))),
            kernels!(@ "decode_any_", $suffix, $dtype, None),
        )*]
    };
    (@ $prefix:literal, $suffix:literal, $dtype:ident, $layout:expr) => {
        Kernel {
            name: concat!($prefix, $suffix),
            dtype: Dtype::$dtype,
            layout: $layout,
        }
    };
}

impl Kernel {
    /// Every kernel, in the order of [`Kernel::index`].
    pub const ALL: [Kernel; 18] = kernels![("bf16", Bf16), ("f16", F16), ("f32", F32)];

    /// The kernel for a table whose segments have these layouts, and an output at this address.
    ///
    /// A common kernel needs one layout for all segments, one of those it knows, and an output at a multiple of 16.
    pub fn select(layouts: impl IntoIterator<Item = Layout>, dtype: Dtype, out: u64) -> Kernel {
        let mut layouts = layouts.into_iter().map(|layout| (layout.rate().quarters(), layout.dim()));
        let first = layouts.next().filter(|first| layouts.all(|other| other == *first) && out.is_multiple_of(16));
        let of_dtype = || Kernel::ALL.iter().filter(|kernel| kernel.dtype == dtype);
        let common = first.and_then(|layout| of_dtype().find(|kernel| kernel.layout == Some(layout)));
        *common.or_else(|| of_dtype().find(|kernel| kernel.layout.is_none())).expect("one kernel of any layout each")
    }

    /// Where the kernel stands in [`Kernel::ALL`].
    pub fn index(&self) -> usize {
        Kernel::ALL.iter().position(|kernel| kernel == self).expect("every kernel is listed")
    }
}

/// Shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks, at least 1.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Logarithm of the rows that a warp takes at a time.
    pub chunk_log2: u32,
}

impl Grid {
    /// The launch for `count` ids, at least 1, on a device of `processors` multiprocessors that hold
    /// `blocks_per_processor` blocks each.
    ///
    /// No more blocks than the device holds at once: a block writes its table only once. Chunks are as large as leaves
    /// one to every warp, so that a small request is spread over the device.
    pub fn new(count: u64, processors: u32, blocks_per_processor: u32) -> Grid {
        let most = u64::from(processors.max(1)) * u64::from(blocks_per_processor.max(1));
        let warps = u64::from(BLOCK / WARP);
        let rows_per_warp = count / (most * warps);
        let chunk_log2 = rows_per_warp.clamp(1, u64::from(CHUNK)).ilog2();
        let blocks = count.div_ceil(warps << chunk_log2).clamp(1, most);
        Grid { blocks: u32::try_from(blocks).unwrap_or(u32::MAX >> 1), threads: BLOCK, chunk_log2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use condprog_core::Rate;

    fn layout(quarters: u32, dim: u32) -> Layout {
        Layout::new(dim, Rate::from_quarters(quarters).unwrap()).unwrap()
    }

    #[test]
    fn names_are_distinct_and_in_source_and_ptx() {
        for (index, kernel) in Kernel::ALL.iter().enumerate() {
            assert_eq!(kernel.index(), index);
            extern crate std;
            assert!(DECODE_PTX.contains(&std::format!(".entry {}(", kernel.name)), "{}", kernel.name);
        }
    }

    #[test]
    fn common_layouts_get_their_kernel_and_the_rest_the_general_one() {
        for kernel in Kernel::ALL {
            let Some((quarters, dim)) = kernel.layout else { continue };
            let one = layout(quarters, dim);
            assert_eq!(Kernel::select([one], kernel.dtype, 0x1000), kernel);
            assert_eq!(Kernel::select([one, one, one], kernel.dtype, 16), kernel);
            assert_eq!(Kernel::select([one], kernel.dtype, 0x1008).layout, None);
            assert_eq!(Kernel::select([one, layout(16, dim)], kernel.dtype, 0).layout, None);
        }
        assert_eq!(Kernel::select([layout(8, 128)], Dtype::F16, 0).name, "decode_any_f16");
    }

    #[test]
    fn grids_cover_the_request_within_the_device() {
        for processors in [1, 7, 132] {
            for count in [1, 2, 15, 16, 17, 48, 384, 3072, 49_152, 196_608, 1 << 40] {
                let grid = Grid::new(count, processors, 3);
                assert!(grid.blocks >= 1 && grid.blocks <= processors * 3, "{grid:?}");
                assert!(1 << grid.chunk_log2 <= CHUNK);
                let at_once = u64::from(grid.blocks * (BLOCK / WARP)) << grid.chunk_log2;
                assert!(at_once >= count || grid.blocks == processors * 3, "{count} {grid:?}");
                // No block without work.
                let chunks = count.div_ceil(1 << grid.chunk_log2);
                assert!(u64::from(grid.blocks - 1) * u64::from(BLOCK / WARP) < chunks, "{count} {grid:?}");
            }
        }
        assert_eq!(Grid::new(196_608, 132, 3), Grid { blocks: 396, threads: 512, chunk_log2: 3 });
        assert_eq!(Grid::new(48, 132, 3), Grid { blocks: 3, threads: 512, chunk_log2: 0 });
    }
}
