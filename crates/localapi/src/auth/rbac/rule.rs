//! One rule of a role: which requests it allows, and which permissions it covers. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::auth::attributes::Attributes;

const ALL: &str = "*";
const LISTS: [&str; 5] = ["verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"];

/// A rule as a role holds it. A list that is missing allows nothing, except that of the names, which allows all.
#[derive(Clone, Copy, Debug)]
pub(in crate::auth) struct Rule<'a>(pub(in crate::auth) &'a Value);

/// The least that a rule can allow: one verb on one resource, of one name or of all, or on one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::auth) enum Permission<'a> {
    Resource { group: &'a str, resource: &'a str, verb: &'a str, name: Option<&'a str> },
    Path { path: &'a str, verb: &'a str },
}

impl<'a> Rule<'a> {
    pub(in crate::auth) fn list(self, field: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let list = self.0.get(field).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str)
    }

    /// The number of its strings: the cost of evaluating it.
    pub(in crate::auth) fn len(self) -> usize {
        let count = |field| self.0.get(field).and_then(Value::as_array).map_or(0, Vec::len);
        1 + LISTS.into_iter().map(count).sum::<usize>()
    }

    fn has(self, field: &str, wanted: &str) -> bool {
        self.list(field).any(|own| own == ALL || own == wanted)
    }

    /// Whether the rule is about this name. No name is a request about all of them.
    fn has_name(self, name: &str) -> bool {
        let names = self.0.get("resourceNames").filter(|names| !names.is_null());
        names.is_none_or(|names| names.as_array().is_some_and(Vec::is_empty))
            || self.list("resourceNames").any(|own| own == name)
    }

    pub(in crate::auth) fn allows(self, attributes: &Attributes) -> bool {
        let Attributes { verb, group, resource, subresource, name, path, .. } = attributes;
        if !self.has("verbs", verb) {
            return false;
        }
        if !path.is_empty() {
            return self.list("nonResourceURLs").any(|own| covers_path(own, path));
        }
        self.has("apiGroups", group)
            && self.list("resources").any(|own| covers_resource(own, resource, subresource))
            && self.has_name(name)
    }

    /// How many permissions it consists of.
    pub(in crate::auth) fn permission_count(self) -> usize {
        let count = |field| self.list(field).count();
        let verbs = count("verbs");
        let of_resources = count("apiGroups")
            .saturating_mul(count("resources"))
            .saturating_mul(verbs)
            .saturating_mul(count("resourceNames").max(1));
        of_resources.saturating_add(count("nonResourceURLs").saturating_mul(verbs))
    }

    /// All of its permissions, in the order of groups, resources, verbs and names; paths come last. There may be as many
    /// as [`Self::permission_count`] returns.
    pub(in crate::auth) fn permissions(self) -> Vec<Permission<'a>> {
        let mut all = Vec::new();
        for group in self.list("apiGroups") {
            for resource in self.list("resources") {
                for verb in self.list("verbs") {
                    let of = |name| Permission::Resource { group, resource, verb, name };
                    let before = all.len();
                    all.extend(self.list("resourceNames").map(|name| of(Some(name))));
                    if all.len() == before {
                        all.push(of(None));
                    }
                }
            }
        }
        for path in self.list("nonResourceURLs") {
            all.extend(self.list("verbs").map(|verb| Permission::Path { path, verb }));
        }
        all
    }

    /// Whether the rule includes a permission.
    pub(in crate::auth) fn covers(self, permission: &Permission<'_>) -> bool {
        match *permission {
            Permission::Path { path, verb } => {
                self.has("verbs", verb) && self.list("nonResourceURLs").any(|own| covers_path(own, path))
            }
            Permission::Resource { group, resource, verb, name } => {
                let (parent, part) = resource.split_once('/').unwrap_or((resource, ""));
                self.has("verbs", verb)
                    && self.has("apiGroups", group)
                    && self.list("resources").any(|own| covers_resource(own, parent, part))
                    // A permission for all names is only covered by a rule without names.
                    && self.has_name(name.unwrap_or_default())
                    && (name.is_some() || self.list("resourceNames").next().is_none())
            }
        }
    }

    /// A copy with those of these fields that it has.
    pub(in crate::auth) fn with_fields(self, fields: &[&str]) -> Value {
        let has = |field: &&&str| self.0.get(**field).is_some_and(|value| !value.is_null());
        let copied = fields.iter().filter(has).map(|field| ((*field).to_owned(), self.0[*field].clone()));
        Value::Object(copied.collect())
    }
}

/// Whether the resource of a rule (`*`, `pods`, `pods/log`, `*/scale`) includes a resource or its part.
fn covers_resource(own: &str, resource: &str, part: &str) -> bool {
    if own == ALL {
        return true;
    }
    match own.split_once('/') {
        None => part.is_empty() && own == resource,
        Some((parent, own_part)) => {
            !part.is_empty() && own_part == part && (parent == ALL || parent == resource)
        }
    }
}

/// Whether the path of a rule includes a path; a star at its end stands for anything.
fn covers_path(own: &str, path: &str) -> bool {
    own == path || (own.ends_with('*') && path.starts_with(own.trim_end_matches('*')))
}

/// Permissions as rules: one for all verbs of a resource, and one for each other permission, which come first.
pub(in crate::auth) fn compact(permissions: &[Permission<'_>]) -> Vec<Value> {
    let mut rules = Vec::new();
    let mut verbs: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for permission in permissions {
        match *permission {
            Permission::Resource { group, resource, verb, name: None } => {
                verbs.entry((group, resource)).or_default().push(verb);
            }
            Permission::Resource { group, resource, verb, name: Some(name) } => rules.push(json!({
                "apiGroups": [group], "resources": [resource], "resourceNames": [name], "verbs": [verb],
            })),
            Permission::Path { path, verb } => {
                rules.push(json!({"nonResourceURLs": [path], "verbs": [verb]}));
            }
        }
    }
    let of_resources = verbs.into_iter().map(
        |((group, resource), verbs)| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs}),
    );
    rules.extend(of_resources);
    rules
}

/// A rule as in messages: `{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}`.
pub(in crate::auth) fn describe(rule: &Value) -> String {
    let fields = [
        ("APIGroups", "apiGroups"),
        ("Resources", "resources"),
        ("NonResourceURLs", "nonResourceURLs"),
        ("ResourceNames", "resourceNames"),
        ("Verbs", "verbs"),
    ];
    let described = fields.into_iter().filter_map(|(title, field)| {
        let values: Vec<&str> = Rule(rule).list(field).collect();
        (!values.is_empty()).then(|| format!("{title}:{}", quoted(values)))
    });
    format!("{{{}}}", described.collect::<Vec<_>>().join(", "))
}

/// Strings as Go prints a list of them: `["a" "b"]`.
pub(in crate::auth) fn quoted<'a>(values: impl IntoIterator<Item = &'a str>) -> String {
    let values: Vec<String> = values.into_iter().map(|value| format!("{value:?}")).collect();
    format!("[{}]", values.join(" "))
}
