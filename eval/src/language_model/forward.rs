//! The forward pass, binary32.

use std::path::Path;

use nalgebra::{DMatrix, DMatrixView, DVector};
use safetensors::{Dtype, SafeTensors};

use super::{WINDOW, safetensors, tensor};
use crate::error::Error;

const WIDTH: usize = 256;
const HEADS: usize = 4;
const HEAD: usize = WIDTH / HEADS;
const HIDDEN: usize = 4 * WIDTH;
const MEMORY: usize = 2048;
const VOCABULARY: usize = 4096;
const EPSILON: f32 = 1e-6;

/// The weights. A matrix that the file has as `[inputs, outputs]`, row-major, is `outputs x inputs` here, column-major:
/// the same bytes, ready to be multiplied by columns of tokens.
#[derive(Clone, Debug)]
pub struct LanguageModel {
    /// `WIDTH x VOCABULARY`: an embedding per column.
    embedding: DMatrix<f32>,
    position: DMatrix<f32>,
    key: DMatrix<f32>,
    value: DMatrix<f32>,
    query_gain: DVector<f32>,
    key_gain: DVector<f32>,
    final_gain: DVector<f32>,
    blocks: Vec<Block>,
}

#[derive(Clone, Debug)]
struct Block {
    qkv: DMatrix<f32>,
    out: DMatrix<f32>,
    up: DMatrix<f32>,
    down: DMatrix<f32>,
    attention_gain: DVector<f32>,
    feed_gain: DVector<f32>,
}

impl LanguageModel {
    /// Reads the weights.
    ///
    /// # Errors
    /// [`Error`] when the file cannot be read or a tensor is missing or of another type or shape.
    pub fn read(path: &Path) -> Result<LanguageModel, Error> {
        let bytes = std::fs::read(path).map_err(|source| Error::io(path, source))?;
        let file = safetensors(path, &bytes)?;
        let matrix = |name: &str, inputs: usize, outputs: usize| -> Result<DMatrix<f32>, Error> {
            Ok(DMatrix::from_vec(outputs, inputs, floats(path, &file, name, &[inputs, outputs])?))
        };
        let gain =
            |name: &str| -> Result<DVector<f32>, Error> { Ok(DVector::from_vec(floats(path, &file, name, &[WIDTH])?)) };
        let block = |layer: usize| -> Result<Block, Error> {
            Ok(Block {
                qkv: matrix(&format!("l{layer}.qkv"), WIDTH, 3 * WIDTH)?,
                out: matrix(&format!("l{layer}.o"), WIDTH, WIDTH)?,
                up: matrix(&format!("l{layer}.u"), WIDTH, HIDDEN)?,
                down: matrix(&format!("l{layer}.d"), HIDDEN, WIDTH)?,
                attention_gain: gain(&format!("l{layer}.g1"))?,
                feed_gain: gain(&format!("l{layer}.g2"))?,
            })
        };
        Ok(LanguageModel {
            embedding: matrix("emb", VOCABULARY, WIDTH)?,
            position: matrix("pos", WINDOW, WIDTH)?,
            key: matrix("wk", MEMORY, WIDTH)?,
            value: matrix("wv", MEMORY, WIDTH)?,
            query_gain: gain("gq")?,
            key_gain: gain("gk")?,
            final_gain: gain("fg")?,
            blocks: vec![block(0)?, block(1)?],
        })
    }

    /// Tokens that the model knows; ids are below this.
    pub const fn vocabulary(&self) -> usize {
        VOCABULARY
    }

    /// Log-probabilities of the next token at each position of a window, a column of 4,096 per position. `memory` is
    /// what the table gives: 2,048 values per position.
    ///
    /// # Panics
    /// When there are more than 128 tokens, a token is not below 4,096, or `memory` has not 2,048 values for each.
    pub fn log_probabilities(&self, tokens: &[u32], memory: &[f32]) -> DMatrix<f32> {
        let count = tokens.len();
        let memory = DMatrixView::from_slice(memory, MEMORY, count);
        let mut hidden = DMatrix::from_fn(WIDTH, count, |row, t| {
            4.0 * self.embedding[(row, tokens[t] as usize)] + self.position[(row, t)]
        });
        let key = normalised(&(&self.key * memory), &self.key_gain);
        let value = &self.value * memory;
        let query = normalised(&hidden, &self.query_gain);
        for t in 0..count {
            let gate = sigmoid(query.column(t).dot(&key.column(t)) / 16.0);
            hidden.column_mut(t).axpy(gate, &value.column(t), 1.0);
        }
        for block in &self.blocks {
            let qkv = &block.qkv * normalised(&hidden, &block.attention_gain);
            hidden += &block.out * attention(&qkv);
            let up = &block.up * normalised(&hidden, &block.feed_gain);
            hidden += &block.down * up.map(gelu);
        }
        let mut logits = self.embedding.tr_mul(&normalised(&hidden, &self.final_gain));
        for mut column in logits.column_iter_mut() {
            let largest = column.max();
            let sum: f64 = column.iter().map(|&logit| f64::from((logit - largest).exp())).sum();
            column.add_scalar_mut(-(largest + sum.ln() as f32));
        }
        logits
    }
}

/// Each column over its root mean square, times a gain.
fn normalised(columns: &DMatrix<f32>, gain: &DVector<f32>) -> DMatrix<f32> {
    let mut out = columns.clone();
    for mut column in out.column_iter_mut() {
        let unit = 1.0 / (column.norm_squared() / column.len() as f32 + EPSILON).sqrt();
        column.zip_apply(gain, |value, gain| *value *= unit * gain);
    }
    out
}

/// Causal attention of four heads over columns of queries, keys and values, one above the other.
fn attention(qkv: &DMatrix<f32>) -> DMatrix<f32> {
    let count = qkv.ncols();
    let mut out = DMatrix::zeros(WIDTH, count);
    for head in 0..HEADS {
        let part = |which: usize| qkv.rows(which * WIDTH + head * HEAD, HEAD);
        // A column of weights per query.
        let mut weights = part(1).tr_mul(&part(0)) / 8.0;
        for (t, mut column) in weights.column_iter_mut().enumerate() {
            column.rows_mut(t + 1, count - t - 1).fill(f32::NEG_INFINITY);
            let largest = column.max();
            column.apply(|weight| *weight = (*weight - largest).exp());
            let sum = column.sum();
            column /= sum;
        }
        out.rows_mut(head * HEAD, HEAD).copy_from(&(part(2) * weights));
    }
    out
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// GELU, tanh approximation.
fn gelu(x: f32) -> f32 {
    let inner = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
}

fn floats(path: &Path, file: &SafeTensors<'_>, name: &str, shape: &[usize]) -> Result<Vec<f32>, Error> {
    let expected = format!("F32 of shape {shape:?}");
    let view = file.tensor(name).map_err(|_| tensor(path, name, "missing".into(), &expected))?;
    if view.dtype() != Dtype::F32 || view.shape() != shape {
        return Err(tensor(path, name, format!("{:?} of shape {:?}", view.dtype(), view.shape()), &expected));
    }
    Ok(view.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
}
