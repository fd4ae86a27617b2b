//! Rules for access reviews and token requests, which are never stored.

use serde_json::{Value, json};

use super::field::FieldValue;
use super::{ErrorList, FieldError};

/// The seconds that a token may be valid.
const MIN_LIFETIME: i64 = 10 * 60;
const MAX_LIFETIME: i64 = 1 << 32;

/// Rules for an access review of this kind (the plural name) in a namespace.
pub(crate) fn check(resource: &str, review: &Value, namespace: &str) -> Vec<FieldError> {
    let mut errors = ErrorList::default();
    let review = FieldValue::root(review);
    let spec = review.at("spec");
    let (resources, paths) = (spec.at("resourceAttributes"), spec.at("nonResourceAttributes"));
    if paths.is_set() && resources.is_set() {
        errors.invalid(
            &paths.path,
            shown(&paths),
            "cannot be specified in combination with resourceAttributes",
        );
    }
    if !paths.is_set() && !resources.is_set() {
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.invalid(&resources.path, Value::Null, detail);
    }
    let names_subject = !spec.text_at("user").is_empty() || !spec.items("groups").is_empty();
    if !resource.starts_with("self") && !names_subject {
        errors.invalid("spec.user", "", "at least one of user or group must be specified");
    }
    for selector in ["fieldSelector", "labelSelector"] {
        check_selector(&resources.at(selector), &mut errors);
    }
    let metadata = review.at("metadata");
    let is_local = resource == "localsubjectaccessreviews";
    // Clients write the empty times of an object as null.
    let is_given = |field: &str, value: &Value| {
        !value.is_null() && field != "managedFields" && !(is_local && field == "namespace")
    };
    let mut fields = metadata.value.as_object().into_iter().flatten();
    if fields.any(|(field, value)| is_given(field, value)) {
        let detail = if is_local { "must be empty except for namespace" } else { "must be empty" };
        errors.invalid("metadata", metadata.value.clone(), detail);
    }
    if is_local {
        let own = resources.at("namespace");
        if resources.is_set() && own.text() != namespace {
            errors.invalid(&own.path, own.text(), "must match metadata.namespace");
        }
        if paths.is_set() {
            errors.invalid(&paths.path, shown(&paths), "disallowed on this kind of request");
        }
    }
    errors.errors
}

/// As the real server writes its internal type.
fn shown(paths: &FieldValue<'_>) -> Value {
    json!({"Path": paths.text_at("path"), "Verb": paths.text_at("verb")})
}

fn check_selector(selector: &FieldValue<'_>, errors: &mut ErrorList) {
    let (raw, requirements) = (selector.at("rawSelector"), selector.items("requirements"));
    if !selector.is_set() {
        return;
    }
    if !raw.text().is_empty() && !requirements.is_empty() {
        errors.invalid(&raw.path, raw.text(), "may not specified at the same time as requirements");
    }
    if raw.text().is_empty() && requirements.is_empty() {
        let detail = format!("when {} is specified, requirements or rawSelector is required", selector.path);
        errors.required(format!("{}.requirements", selector.path), &detail);
    }
}

/// Rules for the spec of a token request.
pub(crate) fn check_token_request(request: &Value) -> Vec<FieldError> {
    let mut errors = ErrorList::default();
    let seconds = FieldValue::root(request).at("spec.expirationSeconds");
    match seconds.number() {
        Some(number) if number < MIN_LIFETIME => {
            errors.invalid(&seconds.path, number, "may not specify a duration less than 10 minutes");
        }
        Some(number) if number > MAX_LIFETIME => {
            errors.invalid(&seconds.path, number, "may not specify a duration larger than 2^32 seconds");
        }
        Some(_) | None => {}
    }
    errors.errors
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each error of a review in the namespace `a` on a line.
    fn refused(resource: &str, review: &Value) -> String {
        let errors = check(resource, review, "a");
        errors.iter().map(FieldError::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn access_review_has_one_kind_of_attributes_and_no_metadata() {
        let (pods, path) =
            (json!({"resource": "pods", "namespace": "a"}), json!({"path": "/x", "verb": "get"}));
        let own = |review: Value| refused("selfsubjectaccessreviews", &review);
        let sent = json!({"metadata": {"creationTimestamp": null}, "spec": {"resourceAttributes": pods}});
        assert_eq!(own(sent), "");
        assert_eq!(
            own(json!({"spec": {}})),
            "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"
        );
        assert_eq!(
            own(json!({"spec": {"resourceAttributes": pods, "nonResourceAttributes": path}})),
            "spec.nonResourceAttributes: Invalid value: {\"Path\":\"/x\",\"Verb\":\"get\"}: cannot be specified in combination with resourceAttributes"
        );
        assert_eq!(
            own(json!({"metadata": {"name": "x"}, "spec": {"resourceAttributes": pods}})),
            "metadata: Invalid value: {\"name\":\"x\"}: must be empty"
        );
    }

    #[test]
    fn subject_and_namespace_of_a_review_are_checked() {
        let of = |spec: Value| json!({"metadata": {"namespace": "a"}, "spec": spec});
        let local = |namespace: &str, user: &str| {
            let spec = json!({"user": user, "resourceAttributes": {"namespace": namespace}});
            refused("localsubjectaccessreviews", &of(spec))
        };
        assert_eq!(local("a", "u"), "");
        assert_eq!(
            local("a", ""),
            "spec.user: Invalid value: \"\": at least one of user or group must be specified"
        );
        assert_eq!(
            local("b", "u"),
            "spec.resourceAttributes.namespace: Invalid value: \"b\": must match metadata.namespace"
        );
        let by_path = json!({"spec": {"groups": ["g"], "nonResourceAttributes": {"path": "/x"}}});
        assert_eq!(refused("subjectaccessreviews", &by_path), "");
        assert!(
            refused("localsubjectaccessreviews", &by_path).ends_with("disallowed on this kind of request")
        );
    }

    #[test]
    fn selector_of_a_review_has_one_form() {
        let with = |selector: Value| {
            let attributes = json!({"resource": "pods", "fieldSelector": selector});
            refused("selfsubjectaccessreviews", &json!({"spec": {"resourceAttributes": attributes}}))
        };
        assert_eq!(with(json!({"rawSelector": "a=b"})), "");
        let requirement = json!({"key": "a", "operator": "Exists"});
        assert!(
            with(json!({"rawSelector": "a=b", "requirements": [requirement]}))
                .ends_with("may not specified at the same time as requirements")
        );
        assert!(with(json!({})).ends_with("requirements or rawSelector is required"));
    }

    #[test]
    fn lifetime_of_a_token_is_between_ten_minutes_and_the_limit() {
        let of = |seconds: i64| check_token_request(&json!({"spec": {"expirationSeconds": seconds}}));
        for (seconds, is_valid) in [(599, false), (600, true), (1 << 32, true), ((1 << 32) + 1, false)] {
            assert_eq!(of(seconds).is_empty(), is_valid, "{seconds}");
        }
        assert!(check_token_request(&json!({"spec": {}})).is_empty());
    }
}
