//! A value in an object and its field path.

use serde_json::Value;

/// The value at a field path; null if it does not exist.
#[derive(Clone, Debug)]
pub(super) struct FieldValue<'a> {
    /// The path as in messages: `spec.containers[0].image`.
    pub(super) path: String,
    pub(super) value: &'a Value,
}

impl<'a> FieldValue<'a> {
    pub(super) const fn root(object: &'a Value) -> Self {
        Self { path: String::new(), value: object }
    }

    /// A nested field: `at("spec.containers")`.
    pub(super) fn at(&self, fields: &str) -> Self {
        let value = fields.split('.').try_fold(self.value, |value, field| value.get(field));
        let dot = if self.path.is_empty() { "" } else { "." };
        Self { path: format!("{}{dot}{fields}", self.path), value: value.unwrap_or(&Value::Null) }
    }

    /// The elements of the list in a field.
    pub(super) fn items(&self, field: &str) -> Vec<Self> {
        let list = self.at(field);
        let elements = list.value.as_array().map(Vec::as_slice).unwrap_or_default();
        let element = |(index, value)| Self { path: format!("{}[{index}]", list.path), value };
        elements.iter().enumerate().map(element).collect()
    }

    /// The entries of the map in a field.
    pub(super) fn entries(&self, field: &str) -> Vec<(&'a str, Self)> {
        let map = self.at(field);
        let element = |(key, value): (&'a String, &'a Value)| {
            (key.as_str(), Self { path: format!("{}[{key}]", map.path), value })
        };
        map.value.as_object().into_iter().flatten().map(element).collect()
    }

    pub(super) fn is_set(&self) -> bool {
        !self.value.is_null()
    }

    /// The string, or an empty one.
    pub(super) fn text(&self) -> &'a str {
        self.value.as_str().unwrap_or_default()
    }

    pub(super) fn text_at(&self, fields: &str) -> &'a str {
        self.at(fields).text()
    }

    pub(super) fn number(&self) -> Option<i64> {
        self.value.as_i64()
    }

    pub(super) fn flag(&self, fields: &str) -> bool {
        self.at(fields).value.as_bool().unwrap_or_default()
    }
}
