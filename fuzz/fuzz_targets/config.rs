//! The configuration and the index of a checkpoint whose tables are replaced: refused, or both are written again as JSON.
//!
//! The input is the two of them, with a zero byte between.

#![no_main]

use std::fs;

use condprog_checkpoint::Checkpoint;
use condprog_checkpoint::family::Family;
use condprog_convert::{Rewrite, RewriteOptions};
use condprog_testkit::{Dtype, Folder, write};
use libfuzzer_sys::fuzz_target;

thread_local!(static INPUT: Folder = {
    let folder = Folder::new();
    let tensors = [("layers.1.ple.ple_embedding.ngram_embedding.shard_0.weight", Dtype::F32, vec![2, 4], vec![1; 32]), ("b", Dtype::U8, vec![1], vec![1])];
    write(&folder.path("model-00001.safetensors"), &tensors);
    folder
});

fuzz_target!(|bytes: &[u8]| {
    let (config, index) = match bytes.iter().position(|&byte| byte == 0) {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &br#"{"weight_map":{"b":"model-00001.safetensors"}}"#[..]),
    };
    INPUT.with(|input| {
        fs::write(input.path("config.json"), config).expect("a temporary file can be written");
        fs::write(input.path("model.safetensors.index.json"), index).expect("a temporary file can be written");
        if let Ok(checkpoint) = Checkpoint::open(input.path("")) {
            let _ = Family::ALL.map(|family| checkpoint.family_tables(family).is_ok());
        }
        let output = Folder::new();
        let begun = Rewrite::begin(input.path(""), output.path("out"), ["b".into()].into(), RewriteOptions::default());
        let Ok(rewrite) = begun else { return };
        if rewrite.finish(&[], &[]).is_ok() {
            // An index may list nothing but what is replaced, for which there are no table files here.
            let opened = Checkpoint::open(output.path("out"));
            assert!(opened.as_ref().err().is_none_or(|error| error.code() == "index-empty"), "{opened:?}");
        }
    });
});
