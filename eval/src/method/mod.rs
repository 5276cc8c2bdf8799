//! The methods that are compared, each with the bytes a row takes.

mod cp;
mod fp;
mod hyb;
mod residual;
mod rotation;
mod rtn;
mod scalar;

pub mod formats {
    //! The published formats block by block, for checks against other implementations.
    pub use super::fp::{MX_BLOCK, Mxfp4, NV_BLOCK, Nvfp4, e2m1_from_f64, e2m1_to_f32};
}
pub use residual::Principal;
pub use rtn::{Clip, Grid};
pub use scalar::lloyd_max;

use std::collections::{HashMap, HashSet};
use std::fmt;

use condprog_core::encoder::ScaleRule;
use condprog_core::{Rate, Scale};
use cp::Codes;
use rotation::Rotation;

use crate::error::Error;
use crate::rows::Rows;

/// Seed of rotations and codebooks.
const SEED: u64 = 0xc0de;

/// The scale of a row from `|e|^2`, `<e, f>` and `|f|^2`; 0 for a row of zeros.
fn alpha(rule: ScaleRule<()>, energy: f64, dot: f64, norm: f64, global: f64) -> f64 {
    if energy == 0.0 || norm == 0.0 {
        return 0.0;
    }
    match rule {
        ScaleRule::Projection if dot > 0.0 => energy / dot,
        ScaleRule::LeastSquares if dot > 0.0 => dot / norm,
        ScaleRule::Global(()) => global,
        _ => (energy / norm).sqrt(),
    }
}

/// What is done to a row before it is coded by CP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Before {
    /// Nothing.
    Nothing,
    /// A random rotation within the row.
    Rotation,
    /// The mean of the table and so many principal components are taken off, and stored.
    Components(u8),
}

/// A method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// The rows themselves, as they are stored.
    Source,
    /// No table: zeros.
    Zero,
    /// Round to nearest.
    Rtn {
        /// Bits per value.
        bits: u32,
        /// Levels.
        grid: Grid,
        /// Scale.
        clip: Clip,
    },
    /// MXFP4.
    Mxfp4 {
        /// The better of two exponents instead of the plain one.
        search: bool,
    },
    /// NVFP4.
    Nvfp4 {
        /// The best block scale instead of the plain one.
        search: bool,
    },
    /// FP8 e4m3 with an e8m0 scale per 32 values.
    Fp8,
    /// Lloyd-Max, least-squares scale.
    LloydMax {
        /// Bits per value.
        bits: u32,
    },
    /// K-means on vectors of so many values (2, 4 or 8), 2 bits per value.
    Vq {
        /// Values per vector.
        values: u32,
    },
    /// The paper's HYB trellis.
    Hyb {
        /// Half bits per value, 2 to 8.
        half_bits: u32,
        /// Scale.
        rule: ScaleRule<()>,
    },
    /// QTIP adapted to tables: in-row random rotation, HYB trellis, one scale per table.
    Qtip {
        /// Half bits per value, 2 to 8.
        half_bits: u32,
    },
    /// Conditional Program.
    Cp {
        /// Bits per value.
        rate: Rate,
        /// 0 to 4.
        effort: u8,
        /// Scale.
        rule: ScaleRule<()>,
        /// What is done to rows first.
        before: Before,
        /// Gain of the search in thousandths; 0 for the format's own choice.
        gain: u16,
    },
    /// Conditional Program with a rate per row that follows from how often a trace asks for it, at the mean storage of
    /// `rate`.
    Allocated {
        /// Mean bits per value.
        rate: Rate,
        /// Scale.
        rule: ScaleRule<()>,
    },
}

impl Method {
    /// Plain CP.
    pub const fn cp(rate: Rate, effort: u8, rule: ScaleRule<()>) -> Method {
        Method::Cp { rate, effort, rule, before: Before::Nothing, gain: 0 }
    }

    /// Every method that is compared by default, smallest idea first.
    pub fn catalogue() -> Vec<Method> {
        let mut all = vec![Method::Source, Method::Zero];
        for bits in 2..=4 {
            for clip in [Clip::Range, Clip::Optimal] {
                all.extend([Grid::Symmetric, Grid::Asymmetric].map(|grid| Method::Rtn { bits, grid, clip }));
            }
        }
        all.extend([false, true].map(|search| Method::Mxfp4 { search }));
        all.extend([false, true].map(|search| Method::Nvfp4 { search }));
        all.push(Method::Fp8);
        all.extend((2..=4).map(|bits| Method::LloydMax { bits }));
        all.extend([2, 4, 8].map(|values| Method::Vq { values }));
        for half_bits in [2, 3, 4, 5, 6, 8] {
            all.push(Method::Hyb { half_bits, rule: ScaleRule::Norm });
        }
        all.extend([ScaleRule::LeastSquares, ScaleRule::Projection].map(|rule| Method::Hyb { half_bits: 4, rule }));
        all.push(Method::Qtip { half_bits: 4 });
        let rates: Vec<Rate> = [4, 6, 8, 10, 12, 16].into_iter().filter_map(|q| Rate::from_quarters(q).ok()).collect();
        for &rate in &rates {
            all.extend(ScaleRule::ALL.map(|rule| Method::cp(rate, 0, rule)));
        }
        all.extend(rates.iter().map(|&rate| Method::cp(rate, 4, ScaleRule::Norm)));
        let variation = |before| Method::Cp { rate: Rate::TWO, effort: 0, rule: ScaleRule::Norm, before, gain: 0 };
        all.push(variation(Before::Rotation));
        all.extend([0, 1, 2, 4, 8, 16].map(|count| variation(Before::Components(count))));
        all
    }

    /// Methods beside the catalogue: other gains of the search, and rates by frequency, which need a trace.
    pub fn experiments() -> Vec<Method> {
        let rates: Vec<Rate> = [4, 6, 8, 10, 12, 16].into_iter().filter_map(|q| Rate::from_quarters(q).ok()).collect();
        let mut all = Vec::new();
        for &rate in &rates {
            for rule in [ScaleRule::Norm, ScaleRule::Projection] {
                let gains = (920..=1160).step_by(40);
                all.extend(gains.map(|gain| Method::Cp { rate, effort: 0, rule, before: Before::Nothing, gain }));
                all.extend((1..=3).map(|effort| Method::cp(rate, effort, rule)));
            }
            all.push(Method::cp(rate, 4, ScaleRule::Projection));
        }
        all.extend([ScaleRule::Norm, ScaleRule::Projection].map(|rule| Method::Allocated { rate: Rate::TWO, rule }));
        all
    }

    /// The methods of the catalogue and the experiments whose names match one of some patterns with `*` and `?`, each
    /// once, in the order of the patterns.
    ///
    /// # Errors
    /// [`Error::Method`] when nothing matches a pattern, [`Error::Pattern`] when one is malformed.
    pub fn matching<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Vec<Method>, Error> {
        let mut all = Method::catalogue();
        all.extend(Method::experiments());
        let mut found = Vec::new();
        for pattern in patterns {
            let wild = glob::Pattern::new(pattern)
                .map_err(|error| Error::Pattern { pattern: pattern.into(), reason: error.msg.into() })?;
            let matches: Vec<_> = all.iter().copied().filter(|method| wild.matches(&method.to_string())).collect();
            if matches.is_empty() {
                let example = Method::cp(Rate::TWO, 0, ScaleRule::Norm).to_string();
                return Err(Error::Method { pattern: pattern.into(), example });
            }
            found.extend(matches);
        }
        let mut seen = HashSet::new();
        found.retain(|&method| seen.insert(method));
        Ok(found)
    }

    /// What a sample is thinned by for this method: slow methods are measured on fewer rows. Plain CP at 2 bits and
    /// effort 0, whose codes serve three scale rules, takes all of them.
    pub fn cost(self) -> usize {
        match self {
            Method::Cp { effort: effort @ 1.., .. } => [1, 4, 8, 16, 48][usize::from(effort.min(4))],
            Method::Cp { rule: ScaleRule::Global(()), .. } => 8,
            Method::Cp { before, .. } if before != Before::Nothing => 8,
            Method::Cp { rate, .. } if rate != Rate::TWO => 4,
            Method::Hyb { .. } | Method::Qtip { .. } => 10,
            Method::Vq { values: 8 } => 12,
            Method::Rtn { clip: Clip::Optimal, .. } => 4,
            _ => 1,
        }
    }
}

/// The name in tables and files, such as `cp-2-e0-norm`.
impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let search = |search: bool| if search { "-search" } else { "" };
        let half = |half_bits: u32| f64::from(half_bits) / 2.0;
        match *self {
            Method::Source => f.write_str("source"),
            Method::Zero => f.write_str("zero"),
            Method::Rtn { bits, grid, clip } => {
                let grid = match grid {
                    Grid::Symmetric => "sym",
                    Grid::Asymmetric => "asym",
                };
                let clip = match clip {
                    Clip::Range => "range",
                    Clip::Optimal => "clip",
                };
                write!(f, "rtn-{bits}-{grid}-{clip}")
            }
            Method::Mxfp4 { search: s } => write!(f, "mxfp4{}", search(s)),
            Method::Nvfp4 { search: s } => write!(f, "nvfp4{}", search(s)),
            Method::Fp8 => f.write_str("fp8"),
            Method::LloydMax { bits } => write!(f, "lloyd-max-{bits}"),
            Method::Vq { values } => write!(f, "vq-{values}"),
            Method::Hyb { half_bits, rule } => write!(f, "hyb-{}-{}", half(half_bits), rule.name()),
            Method::Qtip { half_bits } => write!(f, "qtip-{}", half(half_bits)),
            Method::Cp { rate, effort, rule, before, gain } => {
                write!(f, "cp-{rate}-e{effort}-{}", rule.name())?;
                match before {
                    Before::Nothing => {}
                    Before::Rotation => f.write_str("-rotated")?,
                    Before::Components(count) => write!(f, "-mean-pc{count}")?,
                }
                if gain > 0 { write!(f, "-gain{gain}") } else { Ok(()) }
            }
            Method::Allocated { rate, rule } => write!(f, "cp-{rate}-e0-{}-by-frequency", rule.name()),
        }
    }
}

/// A rate per row under test, and the bytes per row of the whole table that it was made for.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// Rates of the rows under test.
    pub rates: Vec<Rate>,
    /// Mean bytes per row over the table, the map of rates included.
    pub row_bytes: f64,
}

/// What a method gives.
#[derive(Clone, Debug)]
pub struct Restored {
    /// The rows, binary32.
    pub rows: Rows,
    /// Bytes that each row takes, its share of `shared_bytes` among the rows of the table included.
    pub row_bytes: f64,
    /// Bytes that the table takes besides its rows: codebooks, components, programs.
    pub shared_bytes: u64,
}

/// What methods may know of the table that rows under test are of.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// Rows to fit codebooks and components on, none of them under test: a codebook does well on what it was fitted to,
    /// and the table has many more rows than it. Methods that need more of them than there are cannot be measured.
    pub fit: &'a Rows,
    /// Root mean square of the table's values, for methods with one scale for all rows: a single number is not fitted to
    /// a row, so it may be of any sample.
    pub rms: f64,
    /// Largest magnitude of a sample, for the same.
    pub largest: f32,
    /// Bytes per row in the source.
    pub source_bytes: f64,
    /// Rows of the table, among which its codebooks are shared; `None` where rows stand for a table without end.
    pub table_rows: Option<u64>,
}

/// Rows under test, and what methods may know of their table.
pub struct Subject<'a> {
    rows: &'a Rows,
    origin: Origin<'a>,
    allocation: Option<Allocation>,
    codes: HashMap<(Rate, u8, u16), Codes>,
    pairs: Option<hyb::Pairs>,
}

impl<'a> Subject<'a> {
    /// Rows under test, and where they come from.
    ///
    /// # Panics
    /// When the widths differ.
    pub fn new(rows: &'a Rows, origin: Origin<'a>) -> Subject<'a> {
        assert_eq!(rows.dim(), origin.fit.dim(), "row widths");
        Subject { rows, origin, allocation: None, codes: HashMap::new(), pairs: None }
    }

    /// Gives the rates that [`Method::Allocated`] uses.
    ///
    /// # Panics
    /// When there is not one for each row.
    pub fn allocate(&mut self, allocation: Allocation) {
        assert_eq!(allocation.rates.len(), self.rows.len(), "a rate for each row");
        self.allocation = Some(allocation);
    }

    /// The rows under test.
    pub fn rows(&self) -> &'a Rows {
        self.rows
    }

    /// The rows as a method gives them back.
    ///
    /// # Errors
    /// When the method cannot code the rows, or needs what was not given.
    pub fn restore(&mut self, method: Method) -> Result<Restored, Error> {
        let mut restored = self.restore_alone(method)?;
        if let Some(rows) = self.origin.table_rows {
            restored.row_bytes += restored.shared_bytes as f64 / rows as f64;
        }
        Ok(restored)
    }

    /// As [`Subject::restore`], but what is stored once is not shared out yet.
    fn restore_alone(&mut self, method: Method) -> Result<Restored, Error> {
        let (rows, dim) = (self.rows, self.rows.dim());
        let Origin { fit, rms, .. } = self.origin;
        let packed = |bits: u32, more: u64| ((dim as u64 * u64::from(bits)).div_ceil(8) + more) as f64;
        let simple = |rows: Rows, row_bytes: f64| Ok(Restored { rows, row_bytes, shared_bytes: 0 });
        match method {
            Method::Source => simple(rows.clone(), self.origin.source_bytes),
            Method::Zero => simple(Rows::new(dim, vec![0.0; rows.values().len()]), 0.0),
            Method::Rtn { bits, grid, clip } => {
                let parameters = if grid == Grid::Symmetric { 2 } else { 4 };
                simple(rtn::restore(rows, bits, grid, clip), packed(bits, parameters))
            }
            Method::Mxfp4 { search } => {
                simple(fp::Mxfp4 { search }.restore(rows), packed(4, dim.div_ceil(fp::MX_BLOCK) as u64))
            }
            Method::Nvfp4 { search } => {
                let format = fp::Nvfp4::of_largest(self.origin.largest.max(rows.largest()), search);
                let row_bytes = packed(4, dim.div_ceil(fp::NV_BLOCK) as u64);
                Ok(Restored { rows: format.restore(rows), row_bytes, shared_bytes: 4 })
            }
            Method::Fp8 => simple(fp::restore_fp8(rows), packed(8, dim.div_ceil(32) as u64)),
            Method::LloydMax { bits } => {
                let shared_bytes = 4 << (bits - 1);
                let rows = scalar::restore_lloyd_max(rows, bits);
                Ok(Restored { rows, row_bytes: packed(bits, 2), shared_bytes })
            }
            Method::Vq { values } => {
                let need = |need: String| Err(Error::Need { method: method.to_string(), need });
                if !dim.is_multiple_of(8) {
                    return need("a row width that 8 divides".into());
                }
                if !matches!(values, 2 | 4 | 8) {
                    return need("vectors of 2, 4 or 8 values".into());
                }
                let least = (scalar::least_vectors(values) * u64::from(values)).div_ceil(dim as u64);
                if (fit.len() as u64) < least {
                    return need(rows_to_fit(least, fit.len()));
                }
                let restored = match values {
                    2 => scalar::restore_vq::<2>(rows, fit, SEED),
                    4 => scalar::restore_vq::<4>(rows, fit, SEED),
                    _ => scalar::restore_vq::<8>(rows, fit, SEED),
                };
                let shared_bytes = (2 * u64::from(values)) << (2 * values);
                Ok(Restored { rows: restored, row_bytes: packed(2, 2), shared_bytes })
            }
            Method::Hyb { half_bits, rule } => {
                let pairs = self.pairs.get_or_insert_with(hyb::Pairs::new);
                let restored = hyb::restore(rows, pairs, half_bits, rule, rms)?;
                let row_bytes = (dim as u64 * u64::from(half_bits)).div_ceil(16) + 2;
                // 512 pairs of binary16.
                Ok(Restored { rows: restored, row_bytes: row_bytes as f64, shared_bytes: 2048 })
            }
            Method::Qtip { half_bits } => {
                let rotation = Rotation::new(dim, SEED);
                let rotated = rows.map(|row, out| rotation.forward(row, out));
                let pairs = self.pairs.get_or_insert_with(hyb::Pairs::new);
                let coded = hyb::restore(&rotated, pairs, half_bits, ScaleRule::Global(()), rms)?;
                let restored = coded.map(|row, out| rotation.inverse(row, out));
                let row_bytes = (dim as u64 * u64::from(half_bits)).div_ceil(16);
                // The table, the signs and the scale.
                let shared_bytes = 2048 + dim.div_ceil(8) as u64 + 4;
                Ok(Restored { rows: restored, row_bytes: row_bytes as f64, shared_bytes })
            }
            Method::Cp { rate, effort, rule, before, gain } => self.restore_cp(rate, effort, rule, before, gain),
            Method::Allocated { rule, .. } => self.restore_allocated(method, rule),
        }
    }

    /// The scale fields that CP stores under the norm rule: scales and variants of the rows.
    ///
    /// # Errors
    /// When the rows cannot be coded.
    pub fn scales(&mut self, rate: Rate, effort: u8) -> Result<Vec<Scale>, Error> {
        Ok(self.codes(rate, effort, 0)?.scales())
    }

    fn codes(&mut self, rate: Rate, effort: u8, gain: u16) -> Result<&Codes, Error> {
        let key = (rate, effort, gain);
        if !self.codes.contains_key(&key) {
            self.codes.insert(key, Codes::of_directions(self.rows, rate, effort, gain)?);
        }
        Ok(&self.codes[&key])
    }

    fn restore_cp(
        &mut self,
        rate: Rate,
        effort: u8,
        rule: ScaleRule<()>,
        before: Before,
        gain: u16,
    ) -> Result<Restored, Error> {
        let (rows, dim) = (self.rows, self.rows.dim());
        let Origin { fit, rms, .. } = self.origin;
        let code = |rows: &Rows, rms: f64| match rule {
            ScaleRule::Global(()) => {
                let (codes, scale) = Codes::of_rows(rows, rate, effort, rms)?;
                codes.restore(rows, rule.with_global(scale))
            }
            _ => Codes::of_directions(rows, rate, effort, gain)?.restore(rows, rule.with_global(Scale::ZERO)),
        };
        let record_bytes = cp::record_bytes(dim, rate)?;
        let (restored, row_bytes, shared) = match before {
            Before::Nothing if rule != ScaleRule::Global(()) => {
                let rule = rule.with_global(Scale::ZERO);
                (self.codes(rate, effort, gain)?.restore(rows, rule)?, record_bytes, 0)
            }
            Before::Nothing => (code(rows, rms)?, record_bytes, 0),
            Before::Rotation => {
                let rotation = Rotation::new(dim, SEED);
                // Lengths stay as they are, so the root mean square does.
                let coded = code(&rows.map(|row, out| rotation.forward(row, out)), rms)?;
                (coded.map(|row, out| rotation.inverse(row, out)), record_bytes, dim.div_ceil(8) as u64)
            }
            Before::Components(count) => {
                // With fewer, directions that the rows do not have are made up.
                if fit.len() < dim {
                    let method = Method::Cp { rate, effort, rule, before, gain }.to_string();
                    return Err(Error::Need { method, need: rows_to_fit(dim as u64, fit.len()) });
                }
                let principal = Principal::of(fit, usize::from(count), true);
                let part = principal.project(rows);
                let residual = |rows: &Rows, part: &Rows| {
                    Rows::new(dim, rows.values().iter().zip(part.values()).map(|(row, part)| row - part).collect())
                };
                let coded = code(&residual(rows, &part), residual(fit, &principal.project(fit)).rms())?;
                let sum = coded.values().iter().zip(part.values()).map(|(code, part)| code + part).collect();
                let count = u64::from(count);
                (Rows::new(dim, sum), record_bytes + 2 * count, (count + 1) * dim as u64 * 2)
            }
        };
        // The program's 128 levels.
        Ok(Restored { rows: restored, row_bytes: row_bytes as f64, shared_bytes: 128 + shared })
    }

    fn restore_allocated(&mut self, method: Method, rule: ScaleRule<()>) -> Result<Restored, Error> {
        let Some(Allocation { rates, row_bytes }) = self.allocation.clone() else {
            return Err(Error::Need { method: method.to_string(), need: "a trace of row ids".into() });
        };
        let dim = self.rows.dim();
        let mut out = vec![0.0; self.rows.values().len()];
        for rate in Rate::all().filter(|rate| rates.contains(rate)) {
            let rows: Vec<usize> = (0..rates.len()).filter(|&row| rates[row] == rate).collect();
            let part = Rows::new(dim, rows.iter().flat_map(|&row| self.rows.row(row)).copied().collect());
            let restored = Codes::of_directions(&part, rate, 0, 0)?.restore(&part, rule.with_global(Scale::ZERO))?;
            for (&row, restored) in rows.iter().zip(restored.iter()) {
                out[row * dim..(row + 1) * dim].copy_from_slice(restored);
            }
        }
        Ok(Restored { rows: Rows::new(dim, out), row_bytes, shared_bytes: 128 })
    }
}

/// Why a method that is fitted to rows cannot be measured.
fn rows_to_fit(least: u64, got: usize) -> String {
    format!("{least} rows to fit on that are not measured, and there are {got}: measure fewer rows of the table")
}
