//! An encoder written from SPEC.md annex A alone gives the records of the reference encoder.

use condprog_core::encoder::{
    EncodeError, Encoder, Job, Outcome, ReferenceEncoder, ScaleRule, Search, Workspace, WorkspaceSize,
};
use condprog_core::hazmat::Metric;
use condprog_core::{Layout, Program, Rate, Scale};

/// One row under annex A, in its words. Path metrics are wide integers, out of reach is none.
struct Annex {
    d: usize,
    q: usize,
    metric: Metric,
    z: Vec<i64>,
}

type Path = Vec<usize>;

fn hash(s: usize, v: usize) -> usize {
    (s * (2 * s + 1) + v * 4096) % 65536
}

fn value(s: usize, v: usize) -> i64 {
    let h = hash(s, v);
    let level = i64::from(Program::V1.levels()[(h >> 8) & 127]);
    if h >= 32768 { -level } else { level }
}

fn two_to(e: i32) -> f64 {
    2f64.powi(e)
}

/// Outcome and record.
fn encode(layout: Layout, e: &[f32], rule: ScaleRule, search: Search) -> Result<(Outcome, Vec<u8>), usize> {
    let zero = vec![0; layout.record_bytes()];
    // A.1
    if let Some(column) = e.iter().position(|value| !value.is_finite()) {
        return Err(column);
    }
    let energy = e.iter().fold(0.0, |sum, &value| sum + f64::from(value) * f64::from(value));
    if energy == 0.0 {
        return Ok((Outcome::Zero, zero));
    }
    let metric = Metric::new(layout.program(), layout.rate());
    let unit = match rule {
        ScaleRule::Global(scale) if scale.is_zero() => 0.0,
        ScaleRule::Global(scale) => 4.0 / scale.alpha(),
        _ => (f64::from(layout.dim()) / energy).sqrt() * metric.deviation(),
    };
    let target = |&value: &f32| {
        let x = f64::from(value) * unit;
        let magnitude = (x.abs().min(two_to(20)) + 0.5) as i64;
        if x < 0.0 { -magnitude } else { magnitude }
    };
    let (d, q) = (layout.dim() as usize, layout.rate().quarters() as usize);
    let annex = Annex { d, q, metric, z: e.iter().map(target).collect() };
    // A.4 and A.5
    let mut best: Option<(usize, Path)> = None;
    for v in 0..usize::from(search.variants()) {
        let w = (search.window() as usize).min(d / 2);
        let first = annex.pass(v, d - w, 2 * w, None);
        let path = annex.pass(v, 0, d, Some(first[0] >> annex.shift(0)));
        if best.as_ref().is_none_or(|(other, old)| annex.beats(&path, v, old, *other)) {
            best = Some((v, path));
        }
    }
    let (v, mut path) = best.unwrap();
    // A.6
    let n = usize::from(search.recuts());
    for i in 0..n {
        let cut = d * (i + 1) / (n + 1);
        let again = annex.pass(v, cut, d, Some(path[cut] >> annex.shift(cut)));
        if annex.beats(&again, v, &path, v) {
            path = again;
        }
    }
    // A.7
    let dot = e.iter().zip(&path).fold(0.0, |sum, (&e, &s)| sum + f64::from(e) * value(s, v) as f64);
    let norm: i64 = path.iter().map(|&s| value(s, v).pow(2)).sum();
    let at_least = |a: f64| match rule {
        ScaleRule::Projection if dot > 0.0 => energy >= dot * a,
        ScaleRule::LeastSquares if dot > 0.0 => dot >= norm as f64 * a,
        _ => energy >= norm as f64 * a * a,
    };
    let field = match rule {
        ScaleRule::Global(scale) => scale.to_bits() & 0xfff,
        _ => {
            if at_least(255.0 * two_to(8)) {
                let largest = e.iter().fold(0.0, |m: f32, e| m.max(e.abs()));
                return Err(e.iter().rposition(|e| e.abs() == largest).unwrap());
            }
            // The largest field whose point half-way to the one below is reached; none is an underflow.
            let alpha = |field: u16| Scale::from_bits(field).alpha();
            let halfway =
                |field: u16| if field == 1 { 129.0 * two_to(-55) } else { (alpha(field - 1) + alpha(field)) / 2.0 };
            (1..=0xfffu16).rev().find(|&field| at_least(halfway(field))).unwrap_or(0)
        }
    };
    if field == 0 {
        return Ok((Outcome::Underflow, zero));
    }
    // A.8
    let mut record = zero;
    for (t, s) in path.iter().enumerate() {
        for i in 0..annex.shift(t + 1) {
            let k = t * q / 4 + i;
            record[k / 8] |= ((s >> (15 - i) & 1) as u8) << (7 - k % 8);
        }
    }
    let r = record.len();
    record[r - 2..].copy_from_slice(&(field | (v as u16) << 12).to_le_bytes());
    Ok((Outcome::Coded, record))
}

impl Annex {
    fn shift(&self, t: usize) -> usize {
        let t = if t == 0 { self.d } else { t };
        t * self.q / 4 - (t - 1) * self.q / 4
    }

    /// A.2: `D`, for a target.
    fn branches(&self, z: i64) -> Vec<u64> {
        let limit = i64::from(Metric::TARGET_LIMIT);
        let z = z.clamp(-limit, limit);
        let level = |k: usize| 4 * i64::from(Program::V1.levels()[k % 128]) * if k < 128 { 1 } else { -1 };
        let dist: Vec<u64> = (0..256).map(|k| z.abs_diff(level(k))).collect();
        let near = *dist.iter().min().unwrap();
        let branch = |dist: &u64| ((dist - near) * (dist + near)) >> self.metric.down();
        dist.iter().map(|dist| branch(dist).min(self.metric.max().into())).collect()
    }

    /// A.3. The path by value; values the pass does not see stay 0.
    fn pass(&self, v: usize, start: usize, count: usize, seam: Option<usize>) -> Path {
        let mut before: Vec<Option<u64>> = vec![Some(0); 1 << (16 - self.shift(start % self.d))];
        if let Some(seam) = seam {
            before.fill(None);
            before[seam] = Some(0);
        }
        let mut kept = Vec::new();
        for i in start..start + count {
            let (t, next) = (i % self.d, i % self.d + 1);
            let branches = self.branches(self.z[t]);
            let out = 16 - self.shift(next);
            let choose = |j: usize| {
                let candidates = (0..1 << self.shift(next)).filter_map(|high| {
                    let s = high << out | j;
                    Some((before[s >> self.shift(t)]? + branches[hash(s, v) >> 8], s))
                });
                candidates.min()
            };
            let survivors: Vec<Option<(u64, usize)>> = (0..1 << out).map(choose).collect();
            before = survivors.iter().map(|survivor| survivor.map(|(sum, _)| sum)).collect();
            kept.push((t, survivors));
        }
        let last = (0..before.len()).filter_map(|j| Some((before[j]?, j))).min();
        let mut j = seam.unwrap_or_else(|| last.unwrap().1);
        let mut path = vec![0; self.d];
        for (t, survivors) in kept.iter().rev() {
            let (_, s) = survivors[j].expect("the end is in reach");
            path[*t] = s;
            j = s >> self.shift(*t);
        }
        path
    }

    /// A.5.
    fn beats(&self, path: &Path, v: usize, other: &Path, other_v: usize) -> bool {
        let score = |path: &Path, v: usize| {
            let dot: i64 = self.z.iter().zip(path).map(|(z, &s)| z * value(s, v)).sum();
            let norm: i64 = path.iter().map(|&s| value(s, v).pow(2)).sum();
            (i128::from(dot), i128::from(norm))
        };
        let ((dot, norm), (other_dot, other_norm)) = (score(path, v), score(other, other_v));
        dot > 0 && (other_dot <= 0 || dot * dot * other_norm > other_dot * other_dot * norm)
    }
}

fn reference(layout: Layout, e: &[f32], rule: ScaleRule, search: Search) -> Result<(Outcome, Vec<u8>), usize> {
    let size = WorkspaceSize::of(layout);
    let (mut m, mut d) = (vec![0; size.metrics], vec![0; size.decisions]);
    let (mut z, mut s) = (vec![0; size.targets], vec![0; size.states]);
    let workspace = Workspace { metrics: &mut m, decisions: &mut d, targets: &mut z, states: &mut s };
    let encoder = ReferenceEncoder::new(Job::new(layout, rule, search), workspace).unwrap();
    let (mut record, mut outcomes) = (vec![0xa5; layout.record_bytes()], [Ok(Outcome::Zero)]);
    encoder.encode(e, &mut record, &mut outcomes).unwrap();
    assert!(outcomes[0].is_ok() || record.iter().all(|&byte| byte == 0), "{record:02x?}");
    outcomes[0].map(|outcome| (outcome, record)).map_err(|error: EncodeError| error.column())
}

#[test]
fn an_encoder_from_the_text_gives_the_same_records() {
    let mut seed = 7u64;
    let mut below = |bound: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % bound
    };
    let mut outcomes = [0; 4];
    for i in 0..78 {
        // Every rate; the narrowest rows it has, and wider ones.
        let rate = Rate::from_quarters(4 + i % 13).unwrap();
        let layout = (4 + below(24) as u32..).find_map(|dim| Layout::new(dim, rate).ok()).unwrap();
        let search = Search::new(1 + below(3) as u8, 1 + below(20) as u32, below(3) as u8).unwrap();
        let scale = Scale::from_bits(below(4096) as u16);
        let rule = [ScaleRule::Norm, ScaleRule::Projection, ScaleRule::LeastSquares, ScaleRule::Global(scale)]
            [below(4) as usize];
        let unit = match below(6) {
            0 => two_to(-70),
            1 => two_to(40),
            2 => two_to(-50),
            _ => 1.0,
        };
        let kind = below(5);
        let row: Vec<f32> = (0..layout.dim())
            .map(|_| {
                let x = (0..6).map(|_| below(1000) as f64).sum::<f64>() / 1000.0 - 3.0;
                let x = match kind {
                    0 if below(3) > 0 => 0.0,
                    1 => x.powi(5),
                    2 if below(30) == 0 => f64::NAN,
                    _ => x,
                };
                (x * unit) as f32
            })
            .collect();
        let (got, expected) = (encode(layout, &row, rule, search), reference(layout, &row, rule, search));
        assert_eq!(got, expected, "row {i}: {layout:?} {rule:?} {search:?} {row:?}");
        outcomes[match got {
            Ok((Outcome::Coded, _)) => 0,
            Ok((Outcome::Zero | Outcome::Underflow, _)) => 1,
            Err(column) if row[column].is_nan() => 2,
            Err(_) => 3,
        }] += 1;
    }
    assert!(outcomes[0] > 40 && outcomes.iter().all(|&count| count > 0), "{outcomes:?}");
}
