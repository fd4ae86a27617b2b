//! Which pods a request is about: `pod`, `namespace` and `selector` of its query.

use axum::extract::FromRequestParts;
use axum::response::Response;
use explain_core::selector::parse_selector;
use http::StatusCode;
use http::request::Parts;
use model::inventory::PodSelection;

use crate::answer;
use crate::query::{first, pairs};

/// The pods of the query; each one without any of these parameters.
#[derive(Debug)]
pub(super) struct Selected(pub(super) PodSelection);

impl<S: Sync> FromRequestParts<S> for Selected {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Response> {
        selection(parts.uri.query())
            .map(Self)
            .map_err(|problem| answer::error(StatusCode::BAD_REQUEST, &problem))
    }
}

fn selection(query: Option<&str>) -> Result<PodSelection, String> {
    let pairs = pairs(query);
    let text = |name| first(&pairs, name).unwrap_or_default();
    let labels = parse_selector(text("selector")).map_err(|error| error.to_string())?;
    Ok(PodSelection { words: text("pod").to_owned(), namespace: text("namespace").to_owned(), labels })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selection_is_read_from_the_query_and_a_wrong_selector_is_refused() {
        assert_eq!(selection(None), Ok(PodSelection::default()));
        let read = selection(Some("pod=web&namespace=default&selector=app%3Dweb%2C!old")).unwrap();
        assert_eq!((&*read.words, &*read.namespace, read.labels.len()), ("web", "default", 2));
        assert!(selection(Some("selector=a%20b")).unwrap_err().starts_with("the label selector has \"a b\""));
    }
}
