//! What identifies an object, read from JSON that may be malformed or incomplete after it.
//!
//! Never fails: what was read before the first error counts. An API server writes the name, the UID and the version of an object
//! before everything that users choose. The first value of a field counts.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};

/// An object, and of an event also its type. Empty where they could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// `ADDED`.
    pub(crate) event: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: String,
}

impl Head {
    pub(crate) fn of_object(json: &[u8]) -> Self {
        Self::read(json, Part::Object)
    }

    /// Reads a line of a watch.
    pub(crate) fn of_event(json: &[u8]) -> Self {
        Self::read(json, Part::Event)
    }

    fn read(json: &[u8], part: Part) -> Self {
        let mut head = Self::default();
        let mut reader = serde_json::Deserializer::from_slice(json);
        // The caller reports why the object cannot be decoded.
        let _ = Reader { part, head: &mut head }.deserialize(&mut reader);
        head
    }

    /// Whether a watch can go on after the object.
    pub(crate) const fn is_known(&self) -> bool {
        !self.name.is_empty() && !self.resource_version.is_empty()
    }
}

#[derive(Clone, Copy)]
enum Part {
    Event,
    Object,
    Metadata,
}

struct Reader<'a> {
    part: Part,
    head: &'a mut Head,
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let head = self.head;
        while let Some(field) = fields.next_key::<String>()? {
            match (self.part, field.as_str()) {
                (Part::Event, "type") if head.event.is_empty() => head.event = fields.next_value()?,
                (Part::Event, "object") => fields.next_value_seed(Reader { part: Part::Object, head })?,
                (Part::Object, "metadata") => {
                    fields.next_value_seed(Reader { part: Part::Metadata, head })?;
                }
                (Part::Metadata, "namespace") if head.namespace.is_empty() => {
                    head.namespace = fields.next_value()?;
                }
                (Part::Metadata, "name") if head.name.is_empty() => {
                    head.name = fields.next_value()?;
                }
                (Part::Metadata, "uid") if head.uid.is_none() => head.uid = fields.next_value()?,
                (Part::Metadata, "resourceVersion") if head.resource_version.is_empty() => {
                    head.resource_version = fields.next_value()?;
                }
                (Part::Event | Part::Object | Part::Metadata, _) => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brief(head: &Head) -> String {
        let Head { event, namespace, name, uid, resource_version } = head;
        format!("{event} {namespace}/{name} {} {resource_version}", uid.as_deref().unwrap_or("-"))
    }

    #[test]
    fn head_of_a_malformed_or_truncated_object_is_what_comes_before_the_problem() {
        let of = |json: &str| brief(&Head::of_object(json.as_bytes()));
        let whole = r#"{"kind":"Pod","metadata":{"name":"web","namespace":"a","uid":"u","resourceVersion":"7"},"spec":1}"#;
        assert_eq!(of(whole), " a/web u 7");
        assert_eq!(of(r#"{"metadata":{"name":"web","namespace":"a","uid":"u","resou"#), " a/web u ");
        assert_eq!(of(r#"{"metadata":{"name":"web","namespace":7,"uid":"u"}}"#), " /web - ");
        assert_eq!(of("[1]"), " / - ");
        assert_eq!(of(""), " / - ");
    }

    #[test]
    fn head_of_a_truncated_event_has_its_type() {
        let line = br#"{"type":"DELETED","object":{"metadata":{"name":"web","resourceVersion":"7","annotations":{"a":"bbbb"#;
        let head = Head::of_event(line);
        assert_eq!(brief(&head), "DELETED /web - 7");
        assert!(head.is_known());
        assert!(!Head::of_event(br#"{"type":"ADDED","object":{"metadata":{"name":"web"}}}"#).is_known());
    }
}
