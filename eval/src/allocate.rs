//! Frequency-based bit allocation: rows that a trace asks for often get a higher rate, at the same mean storage.

use condprog_core::{Layout, Rate};

use crate::error::Error;
use crate::rows::{Rows, energy};

/// Relative MSE of Gaussian rows at each rate that is given out, effort 0.
const DISTORTION: [(u32, f64); 7] =
    [(4, 0.2883), (6, 0.1386), (8, 0.0683), (10, 0.0343), (12, 0.0172), (14, 0.0088), (16, 0.0045)];
/// Bits per row of the map that says which row has which rate: one of seven.
const MAP_BITS: f64 = 3.0;

/// A rate for every row of a table.
#[derive(Clone, Debug)]
pub struct Rates {
    /// The rates, by row.
    pub rates: Vec<Rate>,
    /// Mean bytes per row, the map included.
    pub row_bytes: f64,
}

/// What an error in each row costs: how often it is asked for, times its energy. A row that the trace does not have
/// counts half a time.
pub fn weights(rows: &Rows, counts: &[u32]) -> Vec<f64> {
    rows.iter().zip(counts).map(|(row, &count)| f64::from(count).max(0.5) * energy(row)).collect()
}

/// The rates that minimise the weighted error while the mean bytes per row, map included, are at most those of a
/// record at `mean`.
///
/// # Errors
/// [`Error::Layout`] when the width has no record at one of the rates.
///
/// # Panics
/// Without rows.
pub fn rates(weights: &[f64], dim: usize, mean: Rate) -> Result<Rates, Error> {
    assert!(!weights.is_empty(), "no rows");
    let bytes = |rate| Ok::<_, Error>(Layout::new(dim as u32, rate)?.record_bytes() as f64);
    let mut choices = Vec::new();
    for (quarters, distortion) in DISTORTION {
        let rate = Rate::from_quarters(quarters)?;
        choices.push((rate, bytes(rate)?, distortion));
    }
    let budget = bytes(mean)? - MAP_BITS / 8.0;
    // For a price per byte every row chooses on its own; the price is found by bisection.
    let choose = |weight: f64, price: f64| {
        let cost = |&(_, bytes, distortion): &(Rate, f64, f64)| weight * distortion + price * bytes;
        *choices.iter().min_by(|a, b| cost(a).total_cmp(&cost(b))).expect("there are choices")
    };
    let mean_bytes =
        |price: f64| weights.iter().map(|&weight| choose(weight, price).1).sum::<f64>() / weights.len() as f64;
    let largest = weights.iter().fold(0.0f64, |largest, &weight| largest.max(weight)).max(f64::MIN_POSITIVE);
    // In powers of two: at the lowest price every row takes the highest rate, at the highest price the lowest.
    let (mut low, mut high) = (libm::log2(largest) - 60.0, libm::log2(largest) + 10.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if mean_bytes(libm::exp2(middle)) > budget { low = middle } else { high = middle }
    }
    let price = libm::exp2(high);
    let rates = weights.iter().map(|&weight| choose(weight, price).0).collect();
    Ok(Rates { rates, row_bytes: mean_bytes(price) + MAP_BITS / 8.0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Noise;

    #[test]
    fn hot_rows_get_more_and_the_budget_is_kept() {
        let mut noise = Noise::new(1);
        let weights: Vec<f64> = (0..5_000).map(|_| libm::exp(2.0 * noise.normal())).collect();
        let found = rates(&weights, 256, Rate::TWO).unwrap();
        assert!(found.row_bytes <= 66.0 && found.row_bytes > 65.5, "{}", found.row_bytes);
        let mut order: Vec<usize> = (0..weights.len()).collect();
        order.sort_by(|&a, &b| weights[a].total_cmp(&weights[b]));
        assert!(order.windows(2).all(|pair| found.rates[pair[0]] <= found.rates[pair[1]]));
        assert!(found.rates[order[0]] < Rate::TWO && found.rates[order[4_999]] > Rate::TWO);
        let distortion = |rate: Rate| DISTORTION.iter().find(|d| d.0 == rate.quarters()).unwrap().1;
        let lost: f64 = weights.iter().zip(&found.rates).map(|(w, &r)| w * distortion(r)).sum();
        assert!(lost < 0.75 * 0.0683 * weights.iter().sum::<f64>());
    }
}
