//! `fieldValidation`: what happens to a field that a type does not have, and to a key that comes twice. It is refused, named in a warning, or
//! ignored.

use ::http::{HeaderValue, Response, header};
use serde_json::Value;

use crate::http::Body;
use crate::schema::{Schema, unknown_fields};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Ignore,
    Warn,
    Strict,
}

/// The keys of a body that come twice, in the words of the real server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Duplicates {
    texts: Vec<String>,
    is_yaml: bool,
}

impl Duplicates {
    pub(super) fn of_json(paths: &[String]) -> Self {
        let texts = paths.iter().map(|path| format!("duplicate field {path:?}")).collect();
        Self { texts, is_yaml: false }
    }

    pub(super) fn of_json_patch(paths: &[String]) -> Self {
        let texts = paths.iter().map(|path| format!("json patch duplicate field {path:?}")).collect();
        Self { texts, is_yaml: false }
    }

    pub(super) fn of_yaml(found: &[yaml::Duplicate]) -> Self {
        let text = |found: &yaml::Duplicate| {
            let line = found.position.map_or(0, |at| at.line);
            format!("line {line}: key {:?} already set in map", found.key)
        };
        Self { texts: found.iter().map(text).collect(), is_yaml: true }
    }

    /// Each with a text of its own.
    pub(super) fn warnings(&self) -> &[String] {
        &self.texts
    }

    pub(super) fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// All of them as one error.
    pub(super) fn error(&self) -> String {
        match self.is_yaml {
            true => format!("yaml: unmarshal errors:\n  {}", self.texts.join("\n  ")),
            false => self.texts.join(", "),
        }
    }
}

/// The warnings for an object, or why it is refused. `known` is the stored object, whose fields are not reported again.
pub(super) fn check(
    mode: Mode,
    object: &Value,
    known: Option<&Value>,
    duplicates: &Duplicates,
) -> Result<Vec<String>, String> {
    if mode == Mode::Ignore {
        return Ok(Vec::new());
    }
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let mut unknown = Vec::new();
    if let Some(of) = Schema::of_object(text("apiVersion"), text("kind")) {
        unknown = unknown_fields(of, object);
        if !unknown.is_empty()
            && let Some(known) = known
        {
            let before = unknown_fields(of, known);
            unknown.retain(|field| !before.contains(field));
        }
    }
    let unknown = unknown.iter().map(|field| format!("unknown field {field:?}"));
    if mode == Mode::Warn {
        return Ok(duplicates.texts.iter().cloned().chain(unknown).collect());
    }
    let duplicates = (!duplicates.is_empty()).then(|| duplicates.error());
    let problems: Vec<String> = duplicates.into_iter().chain(unknown).collect();
    match problems.is_empty() {
        true => Ok(Vec::new()),
        false => Err(format!("strict decoding error: {}", problems.join(", "))),
    }
}

pub(super) fn mode(text: &str) -> Option<Mode> {
    match text {
        "" | "Warn" => Some(Mode::Warn),
        "Ignore" => Some(Mode::Ignore),
        "Strict" => Some(Mode::Strict),
        _ => None,
    }
}

/// Adds a header for each warning.
pub(super) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for warning in warnings {
        let escaped = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{escaped}\"")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checked(mode: Mode, known: Option<&Value>, duplicates: &Duplicates) -> Result<Vec<String>, String> {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "date": {}});
        check(mode, &object, known, duplicates)
    }

    #[test]
    fn unknown_field_is_refused_named_or_ignored() {
        let none = Duplicates::default();
        assert_eq!(checked(Mode::Warn, None, &none).unwrap(), ["unknown field \"date\""]);
        assert_eq!(checked(Mode::Ignore, None, &none).unwrap(), [""; 0]);
        assert_eq!(
            checked(Mode::Strict, None, &none).unwrap_err(),
            "strict decoding error: unknown field \"date\""
        );
        let known = json!({"date": {}});
        assert_eq!(checked(Mode::Strict, Some(&known), &none).unwrap(), [""; 0]);
        assert_eq!((mode(""), mode("Odd")), (Some(Mode::Warn), None));
    }

    #[test]
    fn duplicate_keys_are_named_before_unknown_fields() {
        let json = Duplicates::of_json(&["data.a".to_owned(), "data".to_owned()]);
        assert_eq!(
            checked(Mode::Strict, None, &json).unwrap_err(),
            "strict decoding error: duplicate field \"data.a\", duplicate field \"data\", unknown field \"date\""
        );
        let (_, found) = yaml::read_json("data:\n  a: 1\n  a: 2\n  b: 1\n  b: 1\n").unwrap();
        let yaml = Duplicates::of_yaml(&found);
        assert_eq!(
            checked(Mode::Warn, None, &yaml).unwrap(),
            [
                "line 3: key \"a\" already set in map",
                "line 5: key \"b\" already set in map",
                "unknown field \"date\""
            ]
        );
        assert_eq!(
            yaml.error(),
            "yaml: unmarshal errors:\n  line 3: key \"a\" already set in map\n  line 5: key \"b\" already set in map"
        );
    }
}
