//! Numbers that stand in the CUDA sources as text are those of core and of the crate.

use condprog_core::{Program, scale, trellis};
use condprog_kernels::cuda;

/// The number a macro stands for.
fn define(source: &str, name: &str) -> u32 {
    let line = source.lines().find_map(|line| line.strip_prefix(&format!("#define {name} ")));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or_else(|| panic!("no number {name}"))
}

#[test]
fn numbers_of_the_format_are_those_of_core() {
    assert_eq!(define(cuda::DECODE, "STATE_BITS"), trellis::STATE_BITS);
    assert_eq!(define(cuda::DECODE, "MANTISSA_BITS"), scale::MANTISSA_BITS);
    // alpha = 1 has the exponent field of the bias.
    let one = scale::Scale::from_bits((define(cuda::DECODE, "EXPONENT_BIAS") << scale::MANTISSA_BITS) as u16);
    assert_eq!(one.alpha(), 1.0);
    let levels = cuda::DECODE.split_once("LEVELS[128] = {").and_then(|(_, rest)| rest.split_once("};")).unwrap().0;
    let levels: Vec<u8> =
        levels.split(',').map(str::trim).filter(|n| !n.is_empty()).map(|n| n.parse().unwrap()).collect();
    assert_eq!(levels, *Program::default().levels());
}

#[test]
fn the_shape_of_a_launch_is_that_of_the_crate() {
    for (name, value) in [
        ("WARP", cuda::WARP),
        ("BLOCK", cuda::BLOCK),
        ("BLOCKS_PER_SM", cuda::BLOCKS_PER_PROCESSOR),
        ("CHUNK", cuda::CHUNK),
    ] {
        assert_eq!(define(cuda::DECODE, name), value, "{name}");
    }
    assert_eq!(define(cuda::BENCH, "GATHER_BLOCK"), cuda::BENCH_BLOCK);
}

#[test]
fn the_ptx_is_of_the_architecture_that_the_crate_names() {
    let (major, minor) = cuda::COMPUTE_CAPABILITY;
    assert_eq!(cuda::ARCHITECTURE, format!("compute_{major}{minor}"));
    for ptx in [cuda::DECODE_PTX, cuda::BENCH_PTX] {
        assert!(ptx.contains(&format!(".target sm_{major}{minor}")) && ptx.contains("\n.version 7.8\n"));
    }
}

#[test]
fn structures_have_the_layout_of_the_source() {
    // Words and double words in this order, without gaps.
    assert_eq!((size_of::<cuda::Segment>(), align_of::<cuda::Segment>()), (24, 8));
    assert_eq!((size_of::<cuda::Request>(), align_of::<cuda::Request>()), (64, 8));
}
