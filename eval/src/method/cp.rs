//! Conditional Program: the project's own encoder and decoder, every scale rule from one set of codes.

use condprog_core::encoder::{Outcome, ScaleRule, Search};
use condprog_core::hazmat::{Metric, Target, finish};
use condprog_core::scale::Nearest;
use condprog_core::{Encoder, Job, Layout, Program, Rate, Record, Scale, rounding, trellis};
use condprog_cpu::{CpuEncoder, CpuError};
use rayon::prelude::*;

use crate::error::Error;
use crate::rows::{Rows, energy};

/// Coded rows: records, whose scales are one rule's but whose codes serve all rules that code directions.
#[derive(Clone, Debug)]
pub(super) struct Codes {
    layout: Layout,
    records: Vec<u8>,
}

impl Codes {
    /// Codes the directions of rows. With a `gain` in thousandths other than 0, rows are searched with that many
    /// levels per standard deviation (times 44.01) instead of the format's own choice.
    pub(super) fn of_directions(rows: &Rows, rate: Rate, effort: u8, gain: u16) -> Result<Codes, Error> {
        let layout = layout(rows, rate)?;
        if gain == 0 {
            return Codes::encode(rows, layout, ScaleRule::Norm, effort);
        }
        // With a global scale of 1 the encoder takes a value of 1 for a level of 1: so the gain is in the rows.
        let one = Scale::from_bits(48 << 6);
        let metric = Metric::new(Program::default(), Rate::MIN).deviation() / 4.0; // a rate whose own gain is 1
        let unit = metric * f64::from(gain) / 1000.0;
        let scaled = rows.map(|row, out| {
            let unit = unit * (row.len() as f64 / energy(row)).sqrt();
            for (out, &value) in out.iter_mut().zip(row) {
                *out = if unit.is_finite() { (f64::from(value) * unit) as f32 } else { 0.0 };
            }
        });
        Codes::encode(&scaled, layout, ScaleRule::Global(one), effort)
    }

    /// Codes rows as they are, for one scale of the whole table: `rms` becomes the deviation the code was made for.
    pub(super) fn of_rows(rows: &Rows, rate: Rate, effort: u8, rms: f64) -> Result<(Codes, Scale), Error> {
        let layout = layout(rows, rate)?;
        let alpha = 4.0 * rms / Metric::new(Program::default(), rate).deviation();
        let scale = match Scale::nearest(|twice, x| alpha >= f64::from(twice) * libm::ldexp(1.0, x as i32 - 55)) {
            Nearest::Scale(scale) => scale,
            Nearest::Below => Scale::ZERO,
            Nearest::Above => Scale::MAX,
        };
        Ok((Codes::encode(rows, layout, ScaleRule::Global(scale), effort)?, scale))
    }

    fn encode(rows: &Rows, layout: Layout, rule: ScaleRule, effort: u8) -> Result<Codes, Error> {
        let encoder = CpuEncoder::new(Job::new(layout, rule, Search::effort(effort)))?;
        let mut records = vec![0; rows.len() * layout.record_bytes()];
        let mut outcomes = vec![Ok(Outcome::Zero); rows.len()];
        encoder.encode(rows.values(), &mut records, &mut outcomes).map_err(CpuError::from)?;
        match outcomes.into_iter().enumerate().find_map(|(row, outcome)| outcome.err().map(|source| (row, source))) {
            Some((row, source)) => Err(Error::Row { row: row as u64, source }),
            None => Ok(Codes { layout, records }),
        }
    }

    /// The restored rows under a rule, binary32, exact as every decoder has them.
    pub(super) fn restore(&self, rows: &Rows, rule: ScaleRule) -> Result<Rows, Error> {
        let dim = rows.dim();
        let mut out = vec![0.0; rows.values().len()];
        let records = self.records.par_chunks_exact(self.layout.record_bytes());
        out.par_chunks_exact_mut(dim).zip(records).enumerate().try_for_each_init(
            || (vec![0; dim], vec![0; dim]),
            |(targets, path), (index, (out, record))| {
                let row = rows.row(index);
                let record = Record::new(self.layout, record);
                let variant = record.scale.variant();
                for (t, state) in (0..).zip(path.iter_mut()) {
                    *state = trellis::state(self.layout, record.code, t);
                }
                let failed = |source| Error::Row { row: index as u64, source };
                let target = Target::new(self.layout, row, rule, targets).map_err(failed)?;
                let (scale, _) = finish(self.layout, row, &target, path, variant, rule).map_err(failed)?;
                for (out, &state) in out.iter_mut().zip(path.iter()) {
                    *out = f32::from_bits(rounding::f32_bits(scale, self.layout.program().value(state, variant)));
                }
                Ok::<_, Error>(())
            },
        )?;
        Ok(Rows::new(dim, out))
    }

    /// The scale fields under a rule.
    pub(super) fn scales(&self) -> Vec<Scale> {
        let records = self.records.chunks_exact(self.layout.record_bytes());
        records.map(|record| Record::new(self.layout, record).scale).collect()
    }
}

/// Bytes of a record.
pub(super) fn record_bytes(dim: usize, rate: Rate) -> Result<u64, Error> {
    Ok(Layout::new(dim as u32, rate)?.record_bytes() as u64)
}

fn layout(rows: &Rows, rate: Rate) -> Result<Layout, Error> {
    Ok(Layout::new(u32::try_from(rows.dim()).unwrap_or(u32::MAX), rate)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use condprog_core::reference;

    #[test]
    fn rules_from_shared_codes_are_what_the_encoder_writes() {
        let rows = Rows::gaussian(33, 64, 11);
        let layout = layout(&rows, Rate::TWO).unwrap();
        let shared = Codes::of_directions(&rows, Rate::TWO, 1, 0).unwrap();
        for rule in [ScaleRule::Norm, ScaleRule::Projection, ScaleRule::LeastSquares] {
            let own = Codes::encode(&rows, layout, rule, 1).unwrap();
            let restored = shared.restore(&rows, rule).unwrap();
            for (record, restored) in own.records.chunks_exact(layout.record_bytes()).zip(restored.iter()) {
                let mut expected = vec![0.0; 64];
                reference::decode_f32(layout, record, &mut expected);
                assert_eq!(restored, expected);
            }
        }
    }

    #[test]
    fn gain_of_the_format_gives_the_format_codes() {
        // At 2 bits the format's own gain is 1: only the rounding of the targets differs, by one binary32 rounding.
        let rows = Rows::gaussian(64, 64, 12);
        let own = Codes::of_directions(&rows, Rate::TWO, 0, 0).unwrap().restore(&rows, ScaleRule::Norm).unwrap();
        let gain = Codes::of_directions(&rows, Rate::TWO, 0, 1000).unwrap().restore(&rows, ScaleRule::Norm).unwrap();
        let equal = own.iter().zip(gain.iter()).filter(|(a, b)| a == b).count();
        assert!(equal >= 60, "{equal}");
    }
}
