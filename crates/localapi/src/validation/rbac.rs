//! Rules for roles and role bindings.

#[cfg(test)]
mod tests;

use serde::Deserialize;
use serde_json::{Value, json};

use super::field::FieldValue;
use super::metadata::path_problems;
use super::{ErrorList, Reason, names};

const GROUP: &str = "rbac.authorization.k8s.io";
/// Rules of one role. The real server has no limit but that of the request.
pub(crate) const MAX_RULES: usize = 1000;
/// Subjects of one binding.
const MAX_SUBJECTS: usize = 1000;
/// Selectors of one aggregation rule, and requirements of one selector.
const MAX_SELECTORS: usize = 100;

/// The types of the fields of a role, which are checked before any rule is applied.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only the types are checked")]
pub(super) struct RoleTypes {
    rules: Option<Vec<RuleTypes>>,
    aggregation_rule: Option<AggregationTypes>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only the types are checked")]
struct RuleTypes {
    verbs: Option<Vec<String>>,
    #[serde(rename = "apiGroups")]
    api_groups: Option<Vec<String>>,
    resources: Option<Vec<String>>,
    #[serde(rename = "resourceNames")]
    resource_names: Option<Vec<String>>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only the types are checked")]
struct AggregationTypes {
    cluster_role_selectors: Option<Vec<SelectorTypes>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only the types are checked")]
struct SelectorTypes {
    match_labels: Option<std::collections::BTreeMap<String, String>>,
    match_expressions: Option<Vec<RequirementTypes>>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only the types are checked")]
struct RequirementTypes {
    key: Option<String>,
    operator: Option<String>,
    values: Option<Vec<String>>,
}

/// The types of the fields of a binding.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only the types are checked")]
pub(super) struct BindingTypes {
    subjects: Option<Vec<SubjectTypes>>,
    role_ref: Option<ReferenceTypes>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only the types are checked")]
struct SubjectTypes {
    kind: Option<String>,
    api_group: Option<String>,
    name: Option<String>,
    namespace: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only the types are checked")]
struct ReferenceTypes {
    kind: Option<String>,
    api_group: Option<String>,
    name: Option<String>,
}

pub(super) fn check_role(role: &FieldValue<'_>, errors: &mut ErrorList) {
    check_rules(role, true, errors);
}

pub(super) fn check_cluster_role(role: &FieldValue<'_>, errors: &mut ErrorList) {
    check_rules(role, false, errors);
    let aggregation = role.at("aggregationRule");
    if !aggregation.is_set() {
        return;
    }
    let selectors = aggregation.items("clusterRoleSelectors");
    let path = format!("{}.clusterRoleSelectors", aggregation.path);
    if selectors.is_empty() {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.required(&path, detail);
    }
    if too_many(&path, selectors.len(), MAX_SELECTORS, errors) {
        return;
    }
    for selector in &selectors {
        check_selector(selector, errors);
    }
}

fn check_rules(role: &FieldValue<'_>, is_namespaced: bool, errors: &mut ErrorList) {
    let rules = role.items("rules");
    if too_many("rules", rules.len(), MAX_RULES, errors) {
        return;
    }
    for rule in &rules {
        check_rule(rule, is_namespaced, errors);
    }
}

fn check_rule(rule: &FieldValue<'_>, is_namespaced: bool, errors: &mut ErrorList) {
    let is_empty = |field: &str| rule.at(field).value.as_array().is_none_or(Vec::is_empty);
    let path = |field: &str| format!("{}.{field}", rule.path);
    if is_empty("verbs") {
        errors.required(path("verbs"), "verbs must contain at least one value");
    }
    if !is_empty("nonResourceURLs") {
        let urls = rule.at("nonResourceURLs");
        if is_namespaced {
            let detail = "namespaced rules cannot apply to non-resource URLs";
            errors.invalid(&urls.path, urls.value.clone(), detail);
        }
        if !["apiGroups", "resources", "resourceNames"].into_iter().all(is_empty) {
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            errors.invalid(&urls.path, urls.value.clone(), detail);
        }
        return;
    }
    if is_empty("apiGroups") {
        errors.required(path("apiGroups"), "resource rules must supply at least one api group");
    }
    if is_empty("resources") {
        errors.required(path("resources"), "resource rules must supply at least one resource");
    }
}

fn check_selector(selector: &FieldValue<'_>, errors: &mut ErrorList) {
    let path = format!("{}.matchLabels", selector.path);
    let labels = selector.entries("matchLabels");
    let expressions = selector.items("matchExpressions");
    if too_many(&selector.path, labels.len() + expressions.len(), MAX_SELECTORS, errors) {
        return;
    }
    for (key, value) in labels {
        errors.all_invalid(&path, key, names::label_key_problems(key));
        errors.all_invalid(&path, value.text(), names::label_value_problems(value.text()));
    }
    for expression in &expressions {
        check_expression(expression, errors);
    }
}

fn check_expression(expression: &FieldValue<'_>, errors: &mut ErrorList) {
    let key = expression.at("key");
    errors.all_invalid(&key.path, key.text(), names::label_key_problems(key.text()));
    let (operator, values) = (expression.at("operator"), expression.items("values"));
    let path = format!("{}.values", expression.path);
    match operator.text() {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(path, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            errors.forbidden(path, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => errors.invalid(&operator.path, other, "not a valid selector operator"),
    }
    for value in values {
        errors.all_invalid(&value.path, value.text(), names::label_value_problems(value.text()));
    }
}

pub(super) fn check_role_binding(
    binding: &FieldValue<'_>,
    old: Option<&FieldValue<'_>>,
    errors: &mut ErrorList,
) {
    check_binding(binding, old, true, errors);
}

pub(super) fn check_cluster_role_binding(
    binding: &FieldValue<'_>,
    old: Option<&FieldValue<'_>>,
    errors: &mut ErrorList,
) {
    check_binding(binding, old, false, errors);
}

fn check_binding(
    binding: &FieldValue<'_>,
    old: Option<&FieldValue<'_>>,
    is_namespaced: bool,
    errors: &mut ErrorList,
) {
    let role = binding.at("roleRef");
    not_supported(&role.at("apiGroup"), &[GROUP], errors);
    let kinds: &[&str] = if is_namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    not_supported(&role.at("kind"), kinds, errors);
    let name = role.at("name");
    match name.text() {
        "" => errors.required(&name.path, ""),
        text => errors.all_invalid(&name.path, text, path_problems(text)),
    }
    let subjects = binding.items("subjects");
    if !too_many("subjects", subjects.len(), MAX_SUBJECTS, errors) {
        for subject in &subjects {
            check_subject(subject, is_namespaced, errors);
        }
    }
    let Some(old) = old else { return };
    let fields = ["apiGroup", "kind", "name"];
    if fields.into_iter().any(|field| role.text_at(field) != old.at("roleRef").text_at(field)) {
        // The type that the real server prints has no names of JSON.
        let value = json!({
            "APIGroup": role.text_at("apiGroup"),
            "Kind": role.text_at("kind"),
            "Name": name.text(),
        });
        errors.invalid("roleRef", value, "cannot change roleRef");
    }
}

fn check_subject(subject: &FieldValue<'_>, is_namespaced: bool, errors: &mut ErrorList) {
    let (kind, name, group) = (subject.at("kind"), subject.at("name"), subject.at("apiGroup"));
    let namespace = subject.at("namespace");
    if name.text().is_empty() {
        errors.required(&name.path, "");
    }
    match kind.text() {
        "ServiceAccount" => {
            if !name.text().is_empty() {
                errors.all_invalid(&name.path, name.text(), names::subdomain_problems(name.text()));
            }
            not_supported(&group, &[""], errors);
            if !is_namespaced && namespace.text().is_empty() {
                errors.required(&namespace.path, "");
            }
        }
        "User" | "Group" => {
            if name.text().is_empty() {
                let detail = format!("{} name cannot be empty", kind.text().to_lowercase());
                errors.invalid(&name.path, "", detail);
            }
            not_supported(&group, &[GROUP], errors);
        }
        _ => not_supported(&kind, &["ServiceAccount", "User", "Group"], errors),
    }
}

/// Checks that a string, which may be unset, is one of the supported values.
fn not_supported(field: &FieldValue<'_>, supported: &[&str], errors: &mut ErrorList) {
    if supported.contains(&field.text()) {
        return;
    }
    let supported: Vec<String> = supported.iter().map(|one| format!("\"{one}\"")).collect();
    let value = Value::from(field.text());
    let message = format!("Unsupported value: {value}: supported values: {}", supported.join(", "));
    errors.add(&field.path, Reason::NotSupported, message);
}

/// Adds an error if a list has more items than this server accepts.
fn too_many(path: &str, count: usize, max: usize, errors: &mut ErrorList) -> bool {
    if count > max {
        let message = format!("Too many: {count}: must have at most {max} items");
        errors.add(path, Reason::TooMany, message);
    }
    count > max
}
