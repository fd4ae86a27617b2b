//! The types of the API: their fields, which are required, and how lists and maps are merged.
//!
//! Owns the table `schema/types.txt`. A section is a group and version (`[core.v1]`). A line without indentation is a type; below it one line
//! for each field: name (`!` for a required one), number in protobuf, type, and how it is merged. A number with a dot is that of a message
//! which JSON does not have, and the number in it; `*` marks a field that is absent rather than empty. Types are scalars, names of types (with their section, unless
//! it is the same), `[]` and `{}` for lists and maps, and `any`. How a list is merged by server-side apply: `atomic`, `set`, or `map=` with
//! the keys of its elements; by a strategic merge patch: `patch=` with the strategies and the key.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

use crate::resources::Resource;

const TABLE: &str = include_str!("schema/types.txt");
/// Names of unknown fields in one message.
const MAX_UNKNOWN: usize = 50;

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::parse(TABLE));

/// All types, by section and name: `core.v1.Pod`.
#[derive(Debug)]
pub(crate) struct Schema {
    types: BTreeMap<&'static str, BTreeMap<&'static str, Type>>,
}

#[derive(Debug, Default)]
pub(crate) struct Type {
    pub(crate) section: &'static str,
    pub(crate) name: &'static str,
    /// Server-side apply takes it as one value.
    pub(crate) atomic: bool,
    /// In the order of their names.
    pub(crate) fields: Vec<Field>,
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) required: bool,
    /// 0: not in protobuf.
    pub(crate) number: u8,
    /// The message around it that JSON does not have.
    pub(crate) outer: Option<u8>,
    /// Whether zero, false and the empty text differ from an absent field.
    pub(crate) optional: bool,
    pub(crate) shape: Shape,
    pub(crate) merge: Merge,
    /// The strategy and the key of a strategic merge patch, as in the table.
    pub(crate) patch: Option<&'static str>,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Scalar(&'static str),
    /// Section and name.
    Struct(&'static str, &'static str),
    List(Box<Self>),
    Map(Box<Self>),
    Any,
}

/// How server-side apply merges a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Merge {
    /// Fields and map entries one by one; a list as one value.
    Granular,
    Atomic,
    Set,
    /// Elements with these keys are the same.
    ByKeys(Vec<&'static str>),
}

const SCALARS: &[&str] =
    &["string", "bool", "int32", "int64", "number", "bytes", "Time", "MicroTime", "Quantity", "IntOrString"];

impl Schema {
    fn parse(table: &'static str) -> Self {
        let mut types: BTreeMap<&str, BTreeMap<&str, Type>> = BTreeMap::new();
        let (mut section, mut current) = ("", "");
        for line in table.lines().filter(|line| !line.is_empty()) {
            let mut words = line.split_whitespace();
            let first = words.next().unwrap_or_default();
            if let Some(name) = first.strip_prefix('[') {
                section = name.trim_end_matches(']');
            } else if line.starts_with(' ') {
                let of_section = types.entry(section).or_default();
                if let Some(of) = of_section.get_mut(current) {
                    of.fields.push(Field::parse(first, words, section));
                }
            } else {
                current = first;
                let atomic = words.next() == Some("atomic");
                let new = Type { section, name: first, atomic, fields: Vec::new() };
                types.entry(section).or_default().insert(first, new);
            }
        }
        Self { types }
    }

    /// The type of the objects of a kind.
    pub(crate) fn of(resource: &Resource) -> Option<&'static Type> {
        Self::of_object(&resource.api_version(), resource.kind)
    }

    /// The type of an object with this version and kind.
    pub(crate) fn of_object(api_version: &str, kind: &str) -> Option<&'static Type> {
        let (group, version) = api_version.split_once('/').unwrap_or(("core", api_version));
        let group = group.split('.').next().unwrap_or_default();
        Self::find(&format!("{group}.{version}"), kind)
    }

    pub(crate) fn find(section: &str, name: &str) -> Option<&'static Type> {
        SCHEMA.types.get(section)?.get(name)
    }
}

impl Field {
    fn parse(
        name: &'static str,
        mut words: std::str::SplitWhitespace<'static>,
        section: &'static str,
    ) -> Self {
        let number = words.next().unwrap_or_default();
        let path = number.trim_end_matches('*');
        let (outer, inner) =
            path.split_once('.').map_or((None, path), |(outer, inner)| (outer.parse().ok(), inner));
        let shape = Shape::parse(words.next().unwrap_or("any"), section);
        let mut field = Self {
            name: name.trim_end_matches('!'),
            required: name.ends_with('!'),
            number: inner.parse().unwrap_or(0),
            outer,
            optional: number.ends_with('*'),
            shape,
            merge: Merge::Granular,
            patch: None,
        };
        for word in words {
            match word.split_once('=') {
                Some(("map", keys)) => field.merge = Merge::ByKeys(keys.split(',').collect()),
                Some(("patch", strategy)) => field.patch = Some(strategy),
                _ if word == "set" => field.merge = Merge::Set,
                _ => field.merge = Merge::Atomic,
            }
        }
        field
    }
}

impl Shape {
    fn parse(text: &'static str, section: &'static str) -> Self {
        if let Some(item) = text.strip_prefix("[]") {
            Self::List(Box::new(Self::parse(item, section)))
        } else if let Some(value) = text.strip_prefix("{}") {
            Self::Map(Box::new(Self::parse(value, section)))
        } else if text == "any" {
            Self::Any
        } else if SCALARS.contains(&text) {
            Self::Scalar(text)
        } else {
            match text.rsplit_once('.') {
                Some((section, name)) => Self::Struct(section, name),
                None => Self::Struct(section, text),
            }
        }
    }
}

impl Type {
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        self.fields.binary_search_by(|field| field.name.cmp(name)).ok().and_then(|at| self.fields.get(at))
    }
}

/// The fields of an object that its type does not have, as paths, at most [`MAX_UNKNOWN`].
pub(crate) fn unknown_fields(of: &Type, object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect_unknown(&Shape::Struct(of.section, of.name), object, "", &mut found);
    found
}

/// The types are a tree, so the depth is that of the deepest type.
fn collect_unknown(shape: &Shape, value: &Value, path: &str, found: &mut Vec<String>) {
    match (shape, value) {
        (Shape::Struct(section, name), Value::Object(fields)) => {
            let Some(of) = Schema::find(section, name) else { return };
            for (name, value) in fields {
                if found.len() >= MAX_UNKNOWN {
                    return;
                }
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match of.field(name) {
                    Some(field) => collect_unknown(&field.shape, value, &path, found),
                    None => found.push(path),
                }
            }
        }
        (Shape::List(item), Value::Array(items)) => {
            for (index, value) in items.iter().enumerate() {
                collect_unknown(item, value, &format!("{path}[{index}]"), found);
            }
        }
        (Shape::Map(item), Value::Object(entries)) if !matches!(**item, Shape::Scalar(_)) => {
            for (key, value) in entries {
                collect_unknown(item, value, &format!("{path}.{key}"), found);
            }
        }
        _ => {}
    }
}
