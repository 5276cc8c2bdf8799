//! Names of tensors, as the checkpoints of the families spell them.

use super::Family;

/// Modules that a checkpoint may have around the language model; how many there are depends on who saved it.
const WRAPPERS: [&str; 2] = ["model.", "language_model."];

/// A tensor that holds a table of a family, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place<'a> {
    pub(super) family: Family,
    /// The layer that reads the table; `None` for a table of the whole model.
    pub(super) layer: Option<u64>,
    /// The name up to the number of the part, and what follows it: what the parts of one table share. The whole name,
    /// and nothing, where a table is one tensor.
    pub(super) stem: &'a str,
    pub(super) end: &'a str,
    /// The number of the part; `None` where a table is one tensor. Too large a number for this type is past the last
    /// part all the same.
    pub(super) index: Option<u64>,
}

impl<'a> Place<'a> {
    /// Takes a name apart; `None` for a tensor that is not a table's. All of the name must be as expected: scales
    /// beside a table, and tensors that have its name within theirs, are others.
    pub(super) fn parse(name: &'a str) -> Option<Place<'a>> {
        let mut inner = name;
        while let Some(rest) = WRAPPERS.into_iter().find_map(|wrapper| inner.strip_prefix(wrapper)) {
            inner = rest;
        }
        let whole = |family, layer| Place { family, layer, stem: name, end: "", index: None };
        let part = |family, layer, rest: &'a str, ends: &[&str]| {
            let (index, end) = number(rest)?;
            let stem = &name[..name.len() - rest.len()];
            ends.contains(&end).then_some(Place { family, layer, stem, end, index: Some(index) })
        };
        if let Some(rest) = inner.strip_prefix("layers.") {
            let (layer, rest) = number(rest)?;
            if rest == ".engram.embed.weight" {
                return Some(whole(Family::DeepseekV41, Some(layer)));
            }
            let rest = rest.strip_prefix(QWEN_TABLE)?;
            if rest == ".weight" {
                return Some(whole(Family::Qwen38, Some(layer)));
            }
            return part(Family::Qwen38, Some(layer), rest.strip_prefix(".shard_")?, &[".weight", ""]);
        }
        let rest = LONGCAT_PARTS.into_iter().find_map(|start| inner.strip_prefix(start))?;
        part(Family::LongcatFlash, None, rest, &[".weight"])
    }

    /// The name of another part of the same table.
    pub(super) fn sibling(&self, index: u64) -> String {
        format!("{}{index}{}", self.stem, self.end)
    }

    /// The name of the whole table: that of a part without its number.
    pub(super) fn table(&self) -> String {
        if self.index.is_none() {
            return self.stem.into();
        }
        format!("{}{}", self.stem.trim_end_matches(".shard_").trim_end_matches('.'), self.end)
    }
}

/// After the number of the layer. Its shards are parameters of their own or modules with a weight, as the program had it
/// that saved them; some save the table whole.
const QWEN_TABLE: &str = ".ple.ple_embedding.ngram_embedding";
/// The second is how the `-Sparse` checkpoints have it.
const LONGCAT_PARTS: [&str; 2] = ["ngram_embeddings.embedders.", "oe_embed_tokens"];

/// A decimal number at the start of a text, the largest there is where it is larger, and what follows it.
fn number(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(digits);
    // Digits that are no u64 are too many of them.
    (!digits.is_empty()).then(|| (digits.parse().unwrap_or(u64::MAX), rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_tables_are_taken_apart() {
        let whole = |family, layer, stem| Place { family, layer, stem, end: "", index: None };
        let place = |family, layer, stem, index| Place { family, layer, stem, end: ".weight", index: Some(index) };
        let fused = "model.layers.1.ple.ple_embedding.ngram_embedding.weight";
        let bare = "model.layers.1.ple.ple_embedding.ngram_embedding.shard_7";
        let engram = "layers.14.engram.embed.weight";
        let wrapped = "model.layers.14.engram.embed.weight";
        let qwen = "model.language_model.layers.1.ple.ple_embedding.ngram_embedding.shard_127.weight";
        let short = "layers.01.ple.ple_embedding.ngram_embedding.shard_07.weight";
        let cases = [
            (engram, whole(Family::DeepseekV41, Some(14), engram), engram),
            (wrapped, whole(Family::DeepseekV41, Some(14), wrapped), wrapped),
            (fused, whole(Family::Qwen38, Some(1), fused), fused),
            (
                bare,
                Place { end: "", ..place(Family::Qwen38, Some(1), bare.strip_suffix('7').unwrap(), 7) },
                "model.layers.1.ple.ple_embedding.ngram_embedding",
            ),
            (
                qwen,
                place(Family::Qwen38, Some(1), qwen.strip_suffix("127.weight").unwrap(), 127),
                "model.language_model.layers.1.ple.ple_embedding.ngram_embedding.weight",
            ),
            (
                short,
                place(Family::Qwen38, Some(1), short.strip_suffix("07.weight").unwrap(), 7),
                "layers.01.ple.ple_embedding.ngram_embedding.weight",
            ),
            (
                "model.ngram_embeddings.embedders.11.weight",
                place(Family::LongcatFlash, None, "model.ngram_embeddings.embedders.", 11),
                "model.ngram_embeddings.embedders.weight",
            ),
            (
                "model.oe_embed_tokens3.weight",
                place(Family::LongcatFlash, None, "model.oe_embed_tokens", 3),
                "model.oe_embed_tokens.weight",
            ),
            (
                "oe_embed_tokens99999999999999999999.weight",
                place(Family::LongcatFlash, None, "oe_embed_tokens", u64::MAX),
                "oe_embed_tokens.weight",
            ),
        ];
        for (name, place, table) in cases {
            let got = Place::parse(name);
            assert_eq!(got, Some(place), "{name}");
            assert_eq!(place.table(), table);
            if place.index.is_some() {
                assert_eq!(Place::parse(&place.sibling(5)), Some(Place { index: Some(5), ..place }));
            }
        }
    }

    #[test]
    fn names_that_only_contain_one_are_others() {
        let names = [
            "",
            "model.",
            "layers.1.engram.embed.scale",
            "layers.1.engram.embed.weight_scale",
            "layers.1.engram.embed.weight.old",
            "layers.1.engram.embed.weight#0",
            "layers.1.engram.embed.weights",
            "old.layers.1.engram.embed.weight",
            "mylayers.1.engram.embed.weight",
            "layers..engram.embed.weight",
            "layers.one.engram.embed.weight",
            "layers.-1.engram.embed.weight",
            "layers.1.engram.proj.weight",
            "draft.model.layers.1.engram.embed.weight",
            "model.language_model.layers.1.ple.ple_embedding.ngram_embedding.weight_scale",
            "model.language_model.layers.1.ple.ple_embedding.ngram_embedding",
            "model.language_model.layers.1.ple.ple_embedding.ngram_embedding.shard_",
            "model.language_model.layers.1.ple.ple_embedding.ngram_embedding.shard_0_scale",
            "model.language_model.layers.1.ple.ple_embedding.ngram_embedding.shard_.weight",
            "model.language_model.layers.1.ple.ple_embedding.ngram_embedding.shard_0.weight_scale",
            "model.language_model.layers.1.ple.ple_embedding.ngram_embedding.shard_0x.weight",
            "model.ngram_embeddings.embedders.1",
            "model.ngram_embeddings.embedders.weight",
            "model.ngram_embeddings.embedders.1.bias",
            "model.ngram_embeddings.post_projs.1.weight",
            "model.oe_embed_proj1.weight",
            "moe_embed_tokens1.weight",
            "model.embed_tokens.weight",
        ];
        for name in names {
            assert_eq!(Place::parse(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_taken(name in "(model\\.|language_model\\.|layers\\.|oe_embed_tokens|[0-9]{1,25}|\\PC){0,6}(\\.weight)?") {
            if let Some(place) = Place::parse(&name) {
                prop_assert!(name.starts_with(place.stem));
            }
        }
    }
}
