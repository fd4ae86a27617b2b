//! The checksum of the Go kubelet's checkpoints: FNV-1a over a debug print of the Go value, with the names of its types.
//!
//! Owns the print. Which types and fields a checkpoint has is the business of the module that reads and writes it.

#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use base_core::fnv::fnv1a_32;

/// A value of Go, as far as checkpoints have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GoValue {
    /// A slice, map or pointer that is nil.
    Nil,
    /// A text or a number, as it is printed.
    Plain(String),
    Slice(Vec<Self>),
    /// In the order in which Go sorts the keys: numbers by value, texts by their bytes.
    Map(Vec<(String, Self)>),
    Struct(Vec<GoField>),
    Pointer(Box<Self>),
}

/// A field of a struct; the name of its type has the package, like `[]state.Block`. The type of a pointer is without its `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoField {
    pub name: &'static str,
    pub type_name: &'static str,
    pub value: GoValue,
}

impl GoField {
    #[must_use]
    pub const fn new(name: &'static str, type_name: &'static str, value: GoValue) -> Self {
        Self { name, type_name, value }
    }
}

impl GoValue {
    #[must_use]
    pub fn plain(value: impl ToString) -> Self {
        Self::Plain(value.to_string())
    }

    /// A slice that is not nil.
    pub fn slice(items: impl IntoIterator<Item = Self>) -> Self {
        Self::Slice(items.into_iter().collect())
    }

    /// A map that is not nil.
    pub fn map<K: ToString>(entries: impl IntoIterator<Item = (K, Self)>) -> Self {
        Self::Map(entries.into_iter().map(|(key, value)| (key.to_string(), value)).collect())
    }

    #[must_use]
    pub fn pointer(self) -> Self {
        Self::Pointer(Box::new(self))
    }
}

/// The checksum of a value of this type. A checkpoint is usually a pointer to a struct.
#[must_use]
pub fn go_checksum(type_name: &str, value: &GoValue) -> u32 {
    fnv1a_32(go_print(type_name, value).into_bytes())
}

/// The value with its type, as `%#v` of the library `spew` prints it.
fn go_print(type_name: &str, value: &GoValue) -> String {
    let mut text = String::new();
    push_typed(&mut text, type_name, value);
    text
}

/// The type of a pointer shows where it leads.
fn push_typed(text: &mut String, type_name: &str, value: &GoValue) {
    let (star, value) = match value {
        GoValue::Pointer(value) => ("*", value.as_ref()),
        GoValue::Nil | GoValue::Plain(_) | GoValue::Slice(_) | GoValue::Map(_) | GoValue::Struct(_) => {
            ("", value)
        }
    };
    // Writing to a string cannot fail.
    let _ = write!(text, "({star}{type_name})");
    push_value(text, value);
}

fn push_value(text: &mut String, value: &GoValue) {
    match value {
        GoValue::Nil => text.push_str("<nil>"),
        GoValue::Plain(plain) => text.push_str(plain),
        GoValue::Slice(items) => {
            text.push('[');
            push_separated(text, items, push_value);
            text.push(']');
        }
        GoValue::Map(entries) => {
            text.push_str("map[");
            push_separated(text, entries, |text, (key, value)| {
                text.push_str(key);
                text.push(':');
                push_value(text, value);
            });
            text.push(']');
        }
        GoValue::Struct(fields) => {
            text.push('{');
            push_separated(text, fields, |text, field| {
                text.push_str(field.name);
                text.push(':');
                push_typed(text, field.type_name, &field.value);
            });
            text.push('}');
        }
        GoValue::Pointer(value) => {
            text.push_str("<*>");
            push_value(text, value);
        }
    }
}

fn push_separated<T>(text: &mut String, items: &[T], push: impl Fn(&mut String, &T)) {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            text.push(' ');
        }
        push(text, item);
    }
}
