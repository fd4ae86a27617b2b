//! Common code of `/flagz` and `/statusz`: a text page, or a versioned API object if the client accepts one.

use std::fmt::{Display, Write};

use axum::response::Response;
use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::answer;

const COMPONENT: &str = "kubelet";
const GROUP: &str = "config.k8s.io";
const VERSIONS: [&str; 2] = ["v1beta1", "v1alpha1"];
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// The form of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    /// An API object of this version.
    Object(&'static str),
}

/// `lines` are for the page, `fields` for the object.
pub(crate) fn show(
    kind: &str,
    headers: &HeaderMap,
    lines: impl Iterator<Item = (impl Display, impl Display)>,
    fields: impl FnOnce() -> Value,
) -> Response {
    let accept = headers.get(ACCEPT).map(|value| value.to_str().unwrap_or_default());
    match form(kind, accept) {
        None => {
            let wanted = format!("application/json;v={};g={GROUP};as={kind}", VERSIONS[0]);
            let text = format!("media type not acceptable, must be one of: text/plain, {wanted}");
            answer::error(StatusCode::NOT_ACCEPTABLE, &text)
        }
        Some(Form::Text) => {
            let name = kind.to_lowercase();
            let mut page = format!(
                "\n{COMPONENT} {name}\nWarning: This endpoint is not meant to be machine parseable, has no formatting \
                 compatibility guarantees and is for debugging purposes only.\n\n"
            );
            for (name, value) in lines {
                // Writing to a string cannot fail.
                let _ = writeln!(page, "{name}: {value}");
            }
            answer::with_type(StatusCode::OK, TEXT, page)
        }
        Some(Form::Object(version)) => {
            let mut object = json!({
                "kind": kind, "apiVersion": format!("{GROUP}/{version}"), "metadata": {"name": COMPONENT},
            });
            if let (Value::Object(object), Value::Object(fields)) = (&mut object, fields()) {
                object.extend(fields);
            }
            answer::json(serde_json::to_vec(&object))
        }
    }
}

/// The first supported form in the `Accept` header.
fn form(kind: &str, accept: Option<&str>) -> Option<Form> {
    let Some(accept) = accept.filter(|accept| !accept.is_empty()) else { return Some(Form::Text) };
    accept.split(',').find_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
        let is = |name: &str, value: &str| parameters.contains(&(name, value));
        match media {
            "text/plain" | "text/*" | "*/*" => Some(Form::Text),
            "application/json" if is("g", GROUP) && is("as", kind) => {
                VERSIONS.into_iter().find(|version| is("v", version)).map(Form::Object)
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_supported_form_of_the_accept_header_is_used() {
        let object = |version: &str| format!("application/json;v={version};g=config.k8s.io;as=Flagz");
        for (accept, expected) in [
            (None, Some(Form::Text)),
            (Some(""), Some(Form::Text)),
            (Some("*/*"), Some(Form::Text)),
            (Some("text/html, text/plain;q=0.9"), Some(Form::Text)),
            (Some(&*object("v1beta1")), Some(Form::Object("v1beta1"))),
            (Some(&*object("v1alpha1")), Some(Form::Object("v1alpha1"))),
            (Some(&*format!("{}, text/plain", object("v9"))), Some(Form::Text)),
            (Some(&*object("v9")), None),
            (Some("application/json"), None),
            (Some("image/png"), None),
        ] {
            assert_eq!(form("Flagz", accept), expected, "{accept:?}");
        }
    }
}
