//! Output KL: what a method's rows do to the model's distribution of the next token.

use half::bf16;
use nalgebra::DMatrix;
use rayon::prelude::*;
use serde::Serialize;

use super::{HEADS_PER_TOKEN, LanguageModel, Tokens, WINDOW, row_ids};
use crate::interval::{Interval, Ratio};
use crate::rows::Rows;

/// The model, its text, and the output with the reference table; methods are compared with that.
pub struct Evaluation {
    model: LanguageModel,
    /// Ids of the rows that the text asks for, ascending.
    ids: Vec<u64>,
    windows: Vec<Window>,
}

struct Window {
    domain: String,
    tokens: Vec<u32>,
    /// For every row that the window asks for, its place among the ids.
    places: Vec<usize>,
    reference: DMatrix<f32>,
    loss: f64,
}

/// What a method does to one window.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WindowDivergence {
    /// Domain of the text.
    pub domain: String,
    /// Number of the window in its domain.
    pub window: usize,
    /// Mean KL(reference || method) per token, in nats.
    pub kl: f64,
    /// Mean loss per token with the reference table.
    pub reference_loss: f64,
    /// Mean loss per token with the method's table.
    pub loss: f64,
}

/// What a method does to all windows, in the order of the evaluation.
#[derive(Clone, Debug, PartialEq)]
pub struct Divergence {
    /// The windows.
    pub windows: Vec<WindowDivergence>,
}

impl Evaluation {
    /// Runs the model with the reference rows: one for each of [`Tokens::rows`], in that order. They are rounded to
    /// bf16, as a serving stack has them.
    ///
    /// # Panics
    /// When there is not one row for each id, or rows are not 256 wide.
    pub fn new(model: LanguageModel, tokens: &Tokens, reference: &Rows) -> Evaluation {
        let ids = tokens.rows();
        assert_eq!((reference.len(), reference.dim()), (ids.len(), 256), "rows of the reference");
        let all = tokens.domains.iter().flat_map(|(domain, windows)| windows.iter().map(move |w| (domain, w)));
        let mut windows: Vec<Window> = all
            .map(|(domain, tokens)| {
                let place = |id: u64| ids.binary_search(&id).expect("an id of the tokens");
                let places = row_ids(&tokens[..WINDOW]).into_iter().map(place).collect();
                let (domain, tokens) = (domain.clone(), tokens.clone());
                Window { domain, tokens, places, reference: DMatrix::zeros(0, 0), loss: 0.0 }
            })
            .collect();
        windows.par_iter_mut().for_each(|window| {
            window.reference = window.run(&model, reference);
            window.loss = window.loss(&window.reference);
        });
        Evaluation { model, ids, windows }
    }

    /// Ids of the rows that the text asks for, ascending: what [`Evaluation::divergence`] wants restored.
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// Runs the model with a method's rows, one for each id, rounded to bf16.
    ///
    /// # Panics
    /// When there is not one row for each id.
    pub fn divergence(&self, restored: &Rows) -> Divergence {
        assert_eq!(restored.len(), self.ids.len(), "restored rows");
        let windows = self.windows.par_iter().enumerate().map(|(index, window)| {
            let output = window.run(&self.model, restored);
            let kl: f64 = window
                .reference
                .iter()
                .zip(output.iter())
                .map(|(&p, &q)| f64::from(p.exp()) * (f64::from(p) - f64::from(q)))
                .sum();
            let first = self.windows.iter().position(|other| other.domain == window.domain).unwrap_or(0);
            WindowDivergence {
                domain: window.domain.clone(),
                window: index - first,
                kl: kl / WINDOW as f64,
                reference_loss: window.loss,
                loss: window.loss(&output),
            }
        });
        Divergence { windows: windows.collect() }
    }

    /// Log-probabilities with the reference table in a window of a domain, a column per position.
    pub fn reference(&self, domain: &str, window: usize) -> Option<&DMatrix<f32>> {
        self.windows.iter().filter(|w| w.domain == domain).nth(window).map(|window| &window.reference)
    }
}

impl Window {
    fn run(&self, model: &LanguageModel, rows: &Rows) -> DMatrix<f32> {
        let mut memory = Vec::with_capacity(WINDOW * HEADS_PER_TOKEN * rows.dim());
        for &place in &self.places {
            memory.extend(rows.row(place).iter().map(|&value| bf16::from_f32(value).to_f32()));
        }
        model.log_probabilities(&self.tokens[..WINDOW], &memory)
    }

    fn loss(&self, output: &DMatrix<f32>) -> f64 {
        let next = self.tokens[1..].iter().enumerate();
        -next.map(|(t, &token)| f64::from(output[(token as usize, t)])).sum::<f64>() / WINDOW as f64
    }
}

impl Divergence {
    /// The domains, in order.
    pub fn domains(&self) -> Vec<&str> {
        let mut domains: Vec<&str> = self.windows.iter().map(|window| window.domain.as_str()).collect();
        domains.dedup();
        domains
    }

    fn strata(&self, of: impl Fn(&WindowDivergence) -> f64) -> Vec<Vec<f64>> {
        let of = &of;
        let domain = |domain: &str| self.windows.iter().filter(|w| w.domain == domain).map(of).collect();
        self.domains().into_iter().map(domain).collect()
    }

    /// Mean KL per token over all domains, each weighing the same.
    pub fn kl(&self) -> Interval {
        Interval::of_strata(&self.strata(|window| window.kl))
    }

    /// Mean change of the loss over all domains.
    pub fn loss_change(&self) -> Interval {
        Interval::of_strata(&self.strata(|window| window.loss - window.reference_loss))
    }

    /// KL and change of the loss per domain.
    pub fn per_domain(&self) -> Vec<(&str, Interval, Interval)> {
        let kl = self.strata(|window| window.kl);
        let loss = self.strata(|window| window.loss - window.reference_loss);
        let parts = kl.iter().zip(&loss).map(|(kl, loss)| (Interval::of(kl), Interval::of(loss)));
        self.domains().into_iter().zip(parts).map(|(domain, (kl, loss))| (domain, kl, loss)).collect()
    }

    /// This KL over another one on the same windows; below 1, this method loses less.
    ///
    /// # Panics
    /// When the windows differ.
    pub fn ratio(&self, other: &Divergence) -> Ratio {
        assert_eq!(self.windows.len(), other.windows.len(), "windows");
        let (ours, theirs) = (self.strata(|window| window.kl), other.strata(|window| window.kl));
        let pairs: Vec<Vec<_>> = ours.into_iter().zip(theirs).map(|(a, b)| a.into_iter().zip(b).collect()).collect();
        Ratio::of(&pairs, 1)
    }
}
