//! One value at a time, for any CPU.

use condprog_core::Record;
use condprog_core::rounding::f32_bits;

use super::plan::{Plan, Scratch, unroll};
use super::{Half, scaled};
use crate::PROGRAM;

/// Decodes rows to 16-bit numbers.
pub(super) fn rows16(plan: &Plan, records: &[&[u8]], half: Half, out: &mut [u16], scratch: &mut Scratch) {
    each(plan, records, out, scratch, |record, states, out| {
        let (scale, variant) = (record.scale, record.scale.variant());
        let own;
        let (planes, add) = match half {
            Half::Bf16 => scaled::bf16(scale),
            Half::F16 => {
                own = scaled::f16(scale);
                (&own, 0)
            }
        };
        for (t, out) in out.iter_mut().enumerate() {
            let h = PROGRAM.hash(states.get(t), variant);
            let index = usize::from(h >> 8 & 127);
            *out = u16::from_le_bytes([planes.low[index], planes.high[index].wrapping_add(add)]) | h & 0x8000;
        }
    });
}

/// Decodes rows to binary32 numbers.
pub(super) fn rows32(plan: &Plan, records: &[&[u8]], out: &mut [f32], scratch: &mut Scratch) {
    each(plan, records, out, scratch, |record, states, out| {
        for (t, out) in out.iter_mut().enumerate() {
            let level = PROGRAM.value(states.get(t), record.scale.variant());
            *out = f32::from_bits(f32_bits(record.scale, level));
        }
    });
}

/// The states of an unrolled code.
struct States<'a> {
    quarters: usize,
    code: &'a [u8],
}

impl States<'_> {
    #[inline(always)]
    fn get(&self, t: usize) -> u16 {
        let bit = t * self.quarters / 4;
        let bytes = &self.code[bit / 8..][..4];
        let word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        (word << (bit % 8) >> 16) as u16
    }
}

fn each<T: Default + Clone>(
    plan: &Plan,
    records: &[&[u8]],
    out: &mut [T],
    scratch: &mut Scratch,
    mut decode: impl FnMut(&Record<'_>, &States<'_>, &mut [T]),
) {
    let layout = plan.layout;
    let code = scratch.room(layout, 1);
    for (bytes, out) in records.iter().zip(out.chunks_exact_mut(layout.dim() as usize)) {
        let record = Record::new(layout, bytes);
        if record.scale.is_zero() {
            out.fill(T::default());
            continue;
        }
        unroll(layout, record.code, code);
        decode(&record, &States { quarters: plan.group_bytes, code }, out);
    }
}
