//! A program of condprog-core and nothing else: no std, no libc, no start files, no allocator.
//!
//! It decodes the record of SPEC.md section 11 in all three formats, through the reference functions and through a
//! table and a request, then codes a row and decodes it again. It exits with 0 when every bit is right, with 1 when
//! one is not, with 2 after a panic. With `n` arguments bit `n - 1` of the record is flipped first, so that a check
//! can see it fail.
#![no_std]
#![no_main]

mod memory;

use core::arch::{asm, global_asm};
use core::panic::PanicInfo;

use condprog_core::encoder::{Outcome, ReferenceEncoder, ScaleRule, Search, Workspace};
use condprog_core::{Decoder, Encoder, Job, Layout, Missing, Output, Rate, ReferenceDecoder, Segment, Table, reference};

// The kernel starts here with the number of arguments on top of the stack.
global_asm!(
    ".globl _start",
    "_start:",
    "xor ebp, ebp",
    "mov rdi, [rsp]",
    "and rsp, -16",
    "call {start}",
    "ud2",
    start = sym start,
);

extern "C" fn start(arguments: u64) -> ! {
    // The first argument is the program's name.
    exit(if check(arguments.saturating_sub(1)) == Some(()) { 0 } else { 1 })
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    exit(2)
}

fn exit(status: u32) -> ! {
    const EXIT: u64 = 60;
    // SAFETY: the system call takes a number and does not return; it touches no memory of ours.
    unsafe { asm!("syscall", in("rax") EXIT, in("rdi") u64::from(status), options(noreturn, nostack)) }
}

/// The record of SPEC.md section 11: width 12 at 1.5 bits.
const RECORD: [u8; 5] = [0xb1, 0x7a, 0x40, 0xa5, 0x57];
const DIM: usize = 12;
const F32: [u32; DIM] = [
    0xb99a_a800,
    0x38ca_0000,
    0x3a12_c400,
    0xb9b3_e800,
    0x384a_0000,
    0xb897_8000,
    0x390a_e000,
    0xb84a_0000,
    0x38a4_2000,
    0x39d6_a000,
    0x3937_1000,
    0xb8bd_6000,
];
const BF16: [u16; DIM] =
    [0xb99b, 0x38ca, 0x3a13, 0xb9b4, 0x384a, 0xb898, 0x390b, 0xb84a, 0x38a4, 0x39d7, 0x3937, 0xb8bd];
const F16: [u16; DIM] =
    [0x8cd5, 0x0650, 0x1096, 0x8d9f, 0x0328, 0x84bc, 0x0857, 0x8328, 0x0521, 0x0eb5, 0x09b8, 0x85eb];

fn check(flipped: u64) -> Option<()> {
    let layout = Layout::new(DIM as u32, Rate::from_quarters(6).ok()?).ok()?;
    let mut record = RECORD;
    if let Some(bit) = flipped.checked_sub(1) {
        *record.get_mut(bit as usize / 8)? ^= 0x80 >> (bit % 8);
    }
    let (mut single, mut brain, mut half) = ([0.0f32; DIM], [0; DIM], [0; DIM]);
    reference::decode_f32(layout, &record, &mut single);
    reference::decode_bf16(layout, &record, &mut brain);
    reference::decode_f16(layout, &record, &mut half);
    same(single.map(f32::to_bits), F32)?;
    same(brain, BF16)?;
    same(half, F16)?;

    let segments = [Segment { rows: 1, layout, records: &record }];
    let decoder = ReferenceDecoder::new(Table::new(&segments).ok()?);
    let mut rows = [0xffff; 2 * DIM];
    decoder.decode(&[-1, 0], Missing::Zero, Output::Bf16(&mut rows)).ok()?;
    same(*rows.first_chunk()?, [0; DIM])?;
    same(*rows.last_chunk()?, BF16)?;
    decoder.decode(&[-1], Missing::Error, Output::Bf16(&mut brain)).err()?;

    encodes()
}

fn same<T: PartialEq, const N: usize>(got: [T; N], expected: [T; N]) -> Option<()> {
    (got == expected).then_some(())
}

/// Codes a row without an allocator: the reference encoder works in what it is lent.
fn encodes() -> Option<()> {
    const DIM: usize = 64;
    const RECORD_BYTES: usize = 18;
    const SURVIVORS: usize = 1 << 14;
    let layout = Layout::new(DIM as u32, Rate::TWO).ok()?;
    let (mut metrics, mut decisions) = ([0; 2 * SURVIVORS], [0; DIM * SURVIVORS]);
    let (mut targets, mut states) = ([0; DIM], [0; 2 * DIM]);
    let workspace = Workspace {
        metrics: &mut metrics,
        decisions: &mut decisions,
        targets: &mut targets,
        states: &mut states,
    };
    let job = Job::new(layout, ScaleRule::Norm, Search::effort(0));
    let encoder = ReferenceEncoder::new(job, workspace).ok()?;
    let row: [f32; DIM] = core::array::from_fn(|t| ((t * 37 % 19) as f32 - 9.0) * 0.125);
    let (mut record, mut outcomes) = ([0xff; RECORD_BYTES], [Ok(Outcome::Zero)]);
    encoder.encode(&row, &mut record, &mut outcomes).ok()?;
    let mut restored = [0.0; DIM];
    reference::decode_f32(layout, &record, &mut restored);
    let (mut energy, mut error) = (0.0, 0.0);
    for (value, restored) in row.iter().zip(restored) {
        energy += value * value;
        error += (value - restored) * (value - restored);
    }
    // Two bits leave about a fifteenth of the energy; a wrong record leaves twice the energy.
    (outcomes == [Ok(Outcome::Coded)] && error < 0.15 * energy).then_some(())
}
