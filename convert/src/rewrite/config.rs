//! The entry of `config.json` that says which tables are compressed.

use condprog_core::FORMAT_VERSION;
use condprog_table::format::TableInfo;
use serde_json::json;

use super::CONFIG;
use super::object::Object;
use crate::error::RewriteError;

/// The key that loaders look at, in the config or in the config of its language model.
const QUANTIZATION: &str = "quantization_config";
const TEXT_CONFIG: &str = "text_config";
/// The key under which the entry names its method, and how this one is called.
const METHOD: &str = "quant_method";
const CONDPROG: &str = "condprog";
const VERSION: &str = "format_version";
const TABLES: &str = "tables";

/// Adds tables to a config. Where the rest of the model is quantised in another way, that entry stays, with an object
/// for the tables in it.
pub(super) fn add_tables(config: &mut Object, tables: &[TableInfo]) -> Result<(), RewriteError> {
    let malformed = |source| RewriteError::Json { name: CONFIG, source };
    let read = |object: &Object, key: &str| object.read::<Object>(key).map_err(malformed);
    if let Some(mut entry) = read(config, QUANTIZATION)? {
        add_to_entry(&mut entry, tables, 1)?;
        return config.set_object(QUANTIZATION, &entry, 0).map_err(malformed);
    }
    if let Some(mut text) = read(config, TEXT_CONFIG)?
        && let Some(mut entry) = read(&text, QUANTIZATION)?
    {
        add_to_entry(&mut entry, tables, 2)?;
        text.set_object(QUANTIZATION, &entry, 1).map_err(malformed)?;
        return config.set_object(TEXT_CONFIG, &text, 0).map_err(malformed);
    }
    let mut entry = Object::default();
    entry.set(METHOD, &CONDPROG).map_err(malformed)?;
    add_to_own(&mut entry, tables, 1)?;
    config.set_object(QUANTIZATION, &entry, 0).map_err(malformed)
}

/// Adds tables to an entry that is there, `depth` objects deep.
fn add_to_entry(entry: &mut Object, tables: &[TableInfo], depth: usize) -> Result<(), RewriteError> {
    let malformed = |source| RewriteError::Json { name: CONFIG, source };
    if entry.get(METHOD) == Some("\"condprog\"") {
        return add_to_own(entry, tables, depth);
    }
    let mut own: Object = entry.read(CONDPROG).map_err(malformed)?.unwrap_or_default();
    add_to_own(&mut own, tables, depth + 1)?;
    entry.set_object(CONDPROG, &own, depth).map_err(malformed)
}

/// Adds tables to those of an earlier run, if there was one.
fn add_to_own(own: &mut Object, tables: &[TableInfo], depth: usize) -> Result<(), RewriteError> {
    let malformed = |source| RewriteError::Json { name: CONFIG, source };
    if let Some(got) = own.get(VERSION).filter(|got| *got != FORMAT_VERSION.to_string()) {
        return Err(RewriteError::Version { got: got.into() });
    }
    own.set(VERSION, &FORMAT_VERSION).map_err(malformed)?;
    let mut all: Object = own.read(TABLES).map_err(malformed)?.unwrap_or_default();
    for table in tables {
        let entry = json!({ "dim": table.dim, "rows": table.table_rows, "rate": table.mean_rate() });
        all.set(&table.name, &entry).map_err(malformed)?;
    }
    own.set_object(TABLES, &all, depth).map_err(malformed)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn added(config: &str, names: &[&str]) -> Result<String, RewriteError> {
        let table = |name: &&str| {
            let table = json!({
                "name": name, "program": "p", "dim": 160, "rows": 7, "first_row": 0, "table_rows": 7,
                "source": { "name": name, "dtype": "F32", "shape": [7, 160], "bytes": 4480 },
                "scale_rule": "norm", "effort": 0, "zero_rows": 0, "underflow_rows": 0, "non_finite_rows": 0,
                "segments": [{
                    "tensor": name, "first_row": 0, "rows": 7, "rate_quarters": 6, "record_bytes": 32,
                    "checksums": { "tensor": "c", "block_rows": 7, "xxh3_64": "" }
                }]
            });
            serde_json::from_value(table).unwrap()
        };
        let mut object: Object = serde_json::from_str(config).unwrap();
        add_tables(&mut object, &names.iter().map(table).collect::<Vec<_>>())?;
        Ok(object.text(0))
    }

    #[test]
    fn a_config_gets_an_entry() {
        let expected = r#"{
  "hidden_size": 64,
  "eps": 1e-06,
  "quantization_config": {
    "quant_method": "condprog",
    "format_version": 1,
    "tables": {
      "t": {"dim":160,"rate":1.5,"rows":7}
    }
  }
}"#;
        assert_eq!(added(r#"{"hidden_size": 64, "eps": 1e-06}"#, &["t"]).unwrap(), expected);
        // Of no entry as of none, and of one's own with a table as of the same table.
        assert_eq!(
            added(r#"{"hidden_size": 64, "eps": 1e-06, "quantization_config": null}"#, &["t"]).unwrap(),
            expected
        );
        assert_eq!(added(expected, &["t"]).unwrap(), expected);
        let more: Value = serde_json::from_str(&added(expected, &["u"]).unwrap()).unwrap();
        let tables = more["quantization_config"]["tables"].as_object().unwrap();
        assert!(tables.contains_key("t") && tables.contains_key("u"), "{more}");
    }

    #[test]
    fn another_method_s_entry_stays() {
        let config = r#"{
  "quantization_config": {
    "quant_method": "fp8",
    "weight_block_size": [128, 128]
  },
  "vocab_size": 10
}"#;
        let expected = r#"{
  "quantization_config": {
    "quant_method": "fp8",
    "weight_block_size": [128, 128],
    "condprog": {
      "format_version": 1,
      "tables": {
        "t": {"dim":160,"rate":1.5,"rows":7}
      }
    }
  },
  "vocab_size": 10
}"#;
        assert_eq!(added(config, &["t"]).unwrap(), expected);
        assert_eq!(added(expected, &["t"]).unwrap(), expected);
        // The entry of a language model within another.
        let text = r#"{"text_config": {"quantization_config": {"quant_method": "fp8"}}, "x": 1}"#;
        let all: Value = serde_json::from_str(&added(text, &["t"]).unwrap()).unwrap();
        assert_eq!(all.get("quantization_config"), None);
        assert_eq!(all["text_config"]["quantization_config"]["condprog"]["tables"]["t"]["rows"], 7);
    }

    #[test]
    fn what_is_no_config_is_refused() {
        let later = r#"{"quantization_config": {"quant_method": "condprog", "format_version": 2}}"#;
        let error = added(later, &["t"]).unwrap_err();
        assert_eq!(error.to_string(), "config.json has tables of condprog's format version 2, expected 1");
        let error = added(r#"{"quantization_config": 8}"#, &["t"]).unwrap_err();
        assert!(error.to_string().starts_with("config.json is malformed: "), "{error}");
    }
}
