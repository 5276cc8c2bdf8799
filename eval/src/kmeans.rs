//! Seeded k-means, and the k-d tree that finds the nearest of many centres.

use rayon::prelude::*;

use crate::noise::Noise;

/// Centres per leaf.
const LEAF: usize = 16;

/// Centres of `N` values, and a tree over them.
#[derive(Clone, Debug)]
pub(crate) struct Codebook<const N: usize> {
    centres: Vec<[f32; N]>,
    /// Indices of the centres, in the order of the tree.
    order: Vec<u32>,
    /// Inner nodes in breadth-first order: the axis that is cut, and where. Below node `i` lie `2i + 1` and `2i + 2`.
    cuts: Vec<(usize, f32)>,
}

impl<const N: usize> Codebook<N> {
    /// A codebook of given centres.
    ///
    /// # Panics
    /// Without centres.
    pub(crate) fn new(centres: Vec<[f32; N]>) -> Codebook<N> {
        assert!(!centres.is_empty(), "no centres");
        let mut order: Vec<u32> = (0..centres.len() as u32).collect();
        let depth = (centres.len() / LEAF).max(1).ilog2();
        let mut cuts = vec![(0, 0.0); (1 << depth) - 1];
        split(&centres, &mut order, &mut cuts, 0);
        Codebook { centres, order, cuts }
    }

    /// The centres.
    pub(crate) fn centres(&self) -> &[[f32; N]] {
        &self.centres
    }

    /// The nearest centre: its index and squared distance. Of equally near ones, any, but always the same.
    pub(crate) fn nearest(&self, point: &[f32; N]) -> (usize, f32) {
        let mut best = (0, f32::INFINITY);
        self.search(point, 0, 0..self.order.len(), &mut best);
        best
    }

    fn search(&self, point: &[f32; N], node: usize, range: std::ops::Range<usize>, best: &mut (usize, f32)) {
        let Some(&(axis, at)) = self.cuts.get(node) else {
            for &index in &self.order[range] {
                let distance = distance(point, &self.centres[index as usize]);
                if distance < best.1 {
                    *best = (index as usize, distance);
                }
            }
            return;
        };
        let middle = range.start + range.len() / 2;
        let (below, above) = ((2 * node + 1, range.start..middle), (2 * node + 2, middle..range.end));
        let offset = point[axis] - at;
        let (near, far) = if offset < 0.0 { (below, above) } else { (above, below) };
        self.search(point, near.0, near.1, best);
        if offset * offset < best.1 {
            self.search(point, far.0, far.1, best);
        }
    }

    /// Lloyd's algorithm from random points: `rounds` times, every centre moves to the mean of the points nearest to
    /// it. A centre that no point is nearest to starts again at a random point.
    ///
    /// # Panics
    /// When there are fewer points than centres.
    pub(crate) fn train(points: &[[f32; N]], size: usize, rounds: usize, seed: u64) -> Codebook<N> {
        assert!(points.len() >= size, "{} points for {size} centres", points.len());
        let mut noise = Noise::new(seed);
        let start = crate::noise::sample(points.len() as u64, size as u64, noise.next_u64());
        let mut book = Codebook::new(start.into_iter().map(|index| points[index as usize]).collect());
        for _ in 0..rounds {
            let nearest: Vec<usize> = points.par_iter().map(|point| book.nearest(point).0).collect();
            let mut sums = vec![[0.0f64; N]; size];
            let mut counts = vec![0u32; size];
            for (point, &index) in points.iter().zip(&nearest) {
                counts[index] += 1;
                for (sum, &value) in sums[index].iter_mut().zip(point) {
                    *sum += f64::from(value);
                }
            }
            let centres = sums.iter().zip(&counts).map(|(sum, &count)| match count {
                0 => points[noise.below(points.len() as u64) as usize],
                _ => sum.map(|sum| (sum / f64::from(count)) as f32),
            });
            book = Codebook::new(centres.collect());
        }
        book
    }
}

/// Orders centres so that each half of a node's range lies on one side of its cut, along the axis of largest spread.
fn split<const N: usize>(centres: &[[f32; N]], order: &mut [u32], cuts: &mut [(usize, f32)], node: usize) {
    if node >= cuts.len() {
        return;
    }
    let spread = |axis: usize| {
        let values = order.iter().map(|&index| centres[index as usize][axis]);
        let (low, high) = values.fold((f32::INFINITY, f32::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        high - low
    };
    let axis = (0..N).max_by(|&a, &b| spread(a).total_cmp(&spread(b))).unwrap_or(0);
    let middle = order.len() / 2;
    let value = |index: u32| centres[index as usize][axis];
    let (_, &mut at, _) = order.select_nth_unstable_by(middle, |&a, &b| value(a).total_cmp(&value(b)).then(a.cmp(&b)));
    cuts[node] = (axis, value(at));
    let (below, above) = order.split_at_mut(middle);
    split(centres, below, cuts, 2 * node + 1);
    split(centres, above, cuts, 2 * node + 2);
}

fn distance<const N: usize>(a: &[f32; N], b: &[f32; N]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points<const N: usize>(count: usize, seed: u64) -> Vec<[f32; N]> {
        let mut noise = Noise::new(seed);
        (0..count).map(|_| std::array::from_fn(|_| noise.normal() as f32)).collect()
    }

    #[test]
    fn tree_finds_what_a_scan_finds() {
        for size in [1, 15, 16, 100, 5_000] {
            let book = Codebook::new(points::<4>(size, 1));
            for point in points::<4>(500, 2) {
                let scan = book.centres().iter().map(|centre| distance(&point, centre)).fold(f32::INFINITY, f32::min);
                let (index, found) = book.nearest(&point);
                assert_eq!(found, scan);
                assert_eq!(distance(&point, &book.centres()[index]), scan);
            }
        }
    }

    #[test]
    fn scalar_codebook_of_a_gaussian_is_the_lloyd_max_quantizer() {
        let mut book = Codebook::train(&points::<1>(200_000, 3), 4, 60, 4).centres().to_vec();
        book.sort_by(|a, b| a[0].total_cmp(&b[0]));
        for (found, expected) in book.iter().zip([-1.510, -0.4528, 0.4528, 1.510]) {
            assert!((found[0] - expected).abs() < 0.02, "{found:?} {expected}");
        }
    }
}
