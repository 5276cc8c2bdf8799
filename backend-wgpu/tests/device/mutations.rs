//! The suite sees a wrong kernel: each of these mutations of the shader's text compiles, and fails conformance.

use condprog_conformance::{Backend, Verdict, check_decoder};
use condprog_core::{BackendError, Decoder, Table};
use condprog_kernels::wgsl;
use condprog_wgpu::{Gpu, Options, WgpuDecoder};

use crate::support;

/// What is wrong, the text that makes it right, and the text in its place.
const MUTATIONS: &[(&str, &str, &str)] = &[
    ("window: one bit late", "i * part.rate / 4)", "i * part.rate / 4 + 1)"),
    ("window: a group starts one bit late", "record_bits(start + at)", "record_bits(start + at + 1)"),
    ("window: third word not read", "big_endian(records[word + 2])", "big_endian(records[word + 1])"),
    ("window: rounded up at fractional rates", "i * part.rate / 4)", "(i * part.rate + 3) / 4)"),
    ("wrap-around: one bit late", "have = part.code_bits - at;", "have = part.code_bits - at + 1;"),
    ("wrap-around: one bit early", "have = part.code_bits - at;", "have = part.code_bits - at - 1;"),
    ("wrap-around: not in the second word", "have < 64 {", "have < 32 {"),
    ("wrap-around: none", "have < 64 {", "have < 0 {"),
    ("sign: flipped", "(h & 0x8000) << 16", "(~h & 0x8000) << 16"),
    ("sign: of the wrong bit", "(h & 0x8000) << 16", "(h & 0x4000) << 17"),
    ("bf16 rounding: ties away from zero", "(bits + 0x7fff + ((bits >> 16) & 1)) >> 16", "(bits + 0x8000) >> 16"),
    ("bf16 rounding: towards zero", "(bits + 0x7fff + ((bits >> 16) & 1)) >> 16", "bits >> 16"),
    ("f16 rounding: ties away from zero", "- 1 + (kept & 1)", ""),
    ("f16 rounding: subnormals one bit short", "126 - min(exponent, 113)", "127 - min(exponent, 113)"),
    ("f16 rounding: smallest subnormals lost", "exponent < 127 - 25", "exponent < 127 - 24"),
    ("f16 rounding: infinity too early", "exponent > 127 + 15", "exponent > 127 + 14"),
    ("scale: exponent one too high", "ALPHA_BIAS: u32 = 54", "ALPHA_BIAS: u32 = 53"),
    ("scale: top bit of the exponent lost", "& 0x3f", "& 0x1f"),
    ("scale: bytes swapped", "(bits >> 24) | ((bits >> 8) & 0xff00)", "bits >> 16"),
    ("scale: variant lost", "(variant << 12)", "0"),
    ("scale: a zero row only with variant 0", "(scale & 0xfff) != 0", "scale != 0"),
    ("level: one index high", "(h >> 8) & 0x7f", "((h >> 8) + 1) & 0x7f"),
    ("hash: another multiplier", "2 * state + 1", "2 * state + 3"),
    ("missing rows not zero", "var scale = 0u;", "var scale = 1u;"),
];

struct Mutated(Gpu);

impl Backend for Mutated {
    fn decoder<'t>(&'t self, table: Table<'t>) -> Result<impl Decoder, impl BackendError> {
        WgpuDecoder::new(&self.0, table)
    }
}

#[test]
#[ignore = "compiles 24 kernels, which takes minutes on a software driver: backend-wgpu/check.sh runs it"]
fn every_mutation_is_caught() {
    if support::gpu(&Options::default()).is_none() {
        return;
    }
    for &(name, right, wrong) in MUTATIONS {
        assert_eq!(wgsl::DECODE.matches(right).count(), 1, "{name}: {right:?} is not in the kernel once");
        let source = wgsl::DECODE.replace(right, wrong);
        let gpu = pollster::block_on(Gpu::with_kernel(&Options::default(), &source)).unwrap();
        match check_decoder("mutated", &Mutated(gpu)).verdict {
            Verdict::Failed(failures) => println!("{name}: caught by {} cases", failures.len()),
            verdict => panic!("{name}: not caught, {verdict:?}"),
        }
    }
}
