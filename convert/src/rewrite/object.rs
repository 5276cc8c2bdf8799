//! JSON objects of which a part is changed: what is not keeps its order and its spelling, to the last digit.

use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::{RawValue, to_raw_value};

/// An object: keys in order, values as they are spelled.
#[derive(Clone, Debug, Default)]
pub(super) struct Object(Vec<(String, Box<RawValue>)>);

impl Object {
    /// A value, unless it is absent or `null`.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        let value = self.0.iter().find(|(k, _)| k == key).map(|(_, value)| value.get())?;
        (value != "null").then_some(value)
    }

    /// A value of a type, unless it is absent or `null`.
    pub(super) fn read<T: for<'de> Deserialize<'de>>(&self, key: &str) -> serde_json::Result<Option<T>> {
        self.get(key).map(serde_json::from_str).transpose()
    }

    /// Changes a value, in its place, or adds it at the end.
    pub(super) fn set(&mut self, key: &str, value: &impl Serialize) -> serde_json::Result<()> {
        let value = to_raw_value(value)?;
        match self.0.iter_mut().find(|(k, _)| k == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key.into(), value)),
        }
        Ok(())
    }

    /// Adds a value at the end; the key must be a new one.
    pub(super) fn push(&mut self, key: &str, value: &impl Serialize) -> serde_json::Result<()> {
        self.0.push((key.into(), to_raw_value(value)?));
        Ok(())
    }

    /// Changes a value to an object, as [`Object::set`] does. `depth` is that of the object it is in.
    pub(super) fn set_object(&mut self, key: &str, object: &Object, depth: usize) -> serde_json::Result<()> {
        let text: Box<RawValue> = RawValue::from_string(object.text(depth + 1))?;
        self.set(key, &text)
    }

    /// One key to a line, indented as what lies within `depth` objects.
    pub(super) fn text(&self, depth: usize) -> String {
        if self.0.is_empty() {
            return "{}".into();
        }
        let indent = "  ".repeat(depth);
        let line = |(key, value): &(String, Box<RawValue>)| {
            let key = serde_json::to_string(key).expect("strings are JSON");
            format!("{indent}  {key}: {}", value.get())
        };
        format!("{{\n{}\n{indent}}}", self.0.iter().map(line).collect::<Vec<_>>().join(",\n"))
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut object = Object::default();
                while let Some((key, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    if object.0.iter().any(|(k, _)| *k == key) {
                        return Err(A::Error::custom(format_args!("key {key:?} is there twice")));
                    }
                    object.0.push((key, value));
                }
                Ok(object)
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_changed_keeps_its_spelling() {
        let text =
            "{\n  \"b\": 1e-06,\n  \"a\": [1,  2.50],\n  \"n\": null,\n  \"big\": 123456789012345678901234567890\n}";
        let mut object: Object = serde_json::from_str(text).unwrap();
        assert_eq!(object.text(0), text);
        assert_eq!((object.get("b"), object.get("n"), object.get("x")), (Some("1e-06"), None, None));
        assert_eq!(object.read::<Vec<f64>>("a").unwrap(), Some(vec![1.0, 2.5]));
        object.set("b", &"x").unwrap();
        let mut inner = Object::default();
        assert_eq!(inner.text(1), "{}");
        inner.set("k", &1).unwrap();
        object.set_object("inner", &inner, 0).unwrap();
        let expected = text.replace("1e-06", "\"x\"").replace("7890\n}", "7890,\n  \"inner\": {\n    \"k\": 1\n  }\n}");
        assert_eq!(object.text(0), expected);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "[]", "{\"a\": 1, \"a\": 2}", "{\"a\": 1} x", "{\"a\"}"] {
            assert!(serde_json::from_str::<Object>(text).is_err(), "{text}");
        }
    }
}
