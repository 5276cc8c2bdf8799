//! The language model against the recorded figures. Needs the files of `../shared/data` beside the repository, and says
//! so when they are not there.

use std::path::{Path, PathBuf};

use condprog_eval::Method;
use condprog_eval::harness::{LanguageModelFiles, LanguageModelHarness};
use condprog_eval::language_model::row_ids;
use condprog_eval::method::{Clip, Grid, Subject};

fn folder() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    if folder.join("reference.json").exists() {
        return Some(folder);
    }
    eprintln!("skipped: no language model at {}", folder.display());
    None
}

fn recorded(folder: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(folder.join("reference.json")).unwrap()).unwrap()
}

#[test]
fn log_probabilities_are_the_recorded_ones() {
    let Some(folder) = folder() else { return };
    let recorded = recorded(&folder);
    let harness = LanguageModelHarness::open(LanguageModelFiles::in_folder(&folder), 1).unwrap();
    let reference = harness.evaluation().reference("rust", 0).unwrap();
    let first = recorded["log_probs_rust_window0_positions0to3_tokens0to7"].as_array().unwrap();
    for (position, expected) in first.iter().enumerate() {
        for (token, expected) in expected.as_array().unwrap().iter().enumerate() {
            let (got, expected) = (f64::from(reference[(token, position)]), expected.as_f64().unwrap());
            assert!((got - expected).abs() < 2e-4, "position {position}, token {token}: {got}, expected {expected}");
        }
    }
}

#[test]
#[ignore = "takes minutes: every window of the text, three times; eval/check.sh runs it"]
fn divergences_are_the_recorded_ones() {
    let Some(folder) = folder() else { return };
    let recorded = recorded(&folder);
    // The recorded means are over all windows.
    let harness = LanguageModelHarness::open(LanguageModelFiles::in_folder(&folder), usize::MAX).unwrap();
    let mut subject = Subject::new(harness.rows(), harness.origin());
    let rtn = Method::Rtn { bits: 2, grid: Grid::Asymmetric, clip: Clip::Range };
    for (method, kl, loss) in [(rtn, "kl_rtn2", "loss_rtn2"), (Method::Zero, "kl_zero", "loss_zero")] {
        let found = harness.evaluation().divergence(&subject.restore(method).unwrap().rows);
        assert_eq!(found.domains().len(), 9);
        for (domain, kl_found, loss_found) in found.per_domain() {
            let expected = |name: &str| recorded["domains"][domain][name].as_f64().unwrap();
            let (kl, change) = (expected(kl), expected(loss) - expected("loss"));
            assert!((kl_found.mean / kl - 1.0).abs() < 0.01, "{method} {domain}: KL {}, expected {kl}", kl_found.mean);
            assert!(
                (loss_found.mean - change).abs() < 1e-4,
                "{method} {domain}: {}, expected {change}",
                loss_found.mean
            );
        }
    }
}

#[test]
fn trace_is_rows_of_tokens_in_range() {
    let ids = row_ids(&[5, 0, 4095, 5]);
    assert_eq!(ids.len(), 32);
    // The 2-gram heads of the first token by hand: (6 * m0 xor 1 * m1) mod p, and the ranges of the heads.
    assert_eq!(ids[0], (6 * 210_700_973u64 ^ 399_813_167) % 32_749);
    assert_eq!(ids[1], 32_749 + (6 * 405_916_865u64 ^ 442_413_891) % 32_719);
    assert!(ids.iter().all(|&id| id < 261_638));
    for token in ids.chunks_exact(8) {
        assert!(token.is_sorted());
    }
}
