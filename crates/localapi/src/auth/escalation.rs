//! Users may only write roles and bindings whose permissions they hold themselves, unless they may `escalate` or `bind`.

use serde_json::Value;

use super::rbac::rule::{Permission, Rule, compact, describe, quoted};
use super::rbac::{GROUP, Unresolved, aggregate, rules_of, visit};
use crate::auth::attributes::Attributes;
use crate::auth::{MASTERS, User, rules};
use crate::object::{self, items, text};
use crate::store::Objects;

/// The most permissions that a role of a user who must hold them may consist of.
const MAX_PERMISSIONS: usize = 10_000;
/// The most comparisons of strings for one decision.
const MAX_COMPARISONS: usize = 10_000_000;
/// The longest list of missing permissions in a message, in bytes.
const MAX_MESSAGE: usize = 16 * 1024;

/// Why a role or binding may not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Forbidden(String),
    /// The binding refers to a role that does not exist: its plural and its name.
    NoRole(&'static str, String),
}

impl From<Unresolved> for Refusal {
    fn from(unresolved: Unresolved) -> Self {
        match unresolved {
            Unresolved::NotFound(plural, name) => Self::NoRole(plural, name),
            Unresolved::Kind(_) | Unresolved::TooMuch => Self::Forbidden(unresolved.to_string()),
        }
    }
}

/// Whether `user` may create this role or binding, or change the old one to it. `resource` is one of the four kinds.
pub(crate) fn check(
    user: &User,
    resource: &str,
    new: &Value,
    old: Option<&Value>,
    objects: &Objects,
) -> Result<(), Refusal> {
    if user.is_in(MASTERS) || old.is_some_and(|old| differs_for_deletion_only(new, old)) {
        return Ok(());
    }
    let namespace = object::namespace(new);
    if resource.ends_with("bindings") {
        if may(user, "bind", &reference(new, namespace), objects) {
            return Ok(());
        }
        return confirm(user, namespace, rules_of(new, namespace, objects)?, objects);
    }
    let name = old.map(object::name).unwrap_or_default();
    let own = Attributes { resource: resource.to_owned(), ..of(namespace, name) };
    if may(user, "escalate", &own, objects) {
        return Ok(());
    }
    confirm(user, namespace, items(new, "/rules"), objects)?;
    if collects(new) || old.is_some_and(collects) {
        confirm_all(user, objects)?;
    }
    Ok(())
}

/// Whether an update changes nothing but owners and finalizers, which a garbage collector needs to delete the object.
fn differs_for_deletion_only(new: &Value, old: &Value) -> bool {
    let mut new = new.clone();
    let metadata = object::metadata(&mut new);
    for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
        match old["metadata"].get(field) {
            Some(value) => drop(metadata.insert(field.to_owned(), value.clone())),
            None => drop(metadata.remove(field)),
        }
    }
    new == *old
}

fn of(namespace: &str, name: &str) -> Attributes {
    Attributes {
        group: GROUP.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..Attributes::default()
    }
}

/// The role of a binding in this namespace.
fn reference(binding: &Value, namespace: &str) -> Attributes {
    let resource = match text(binding, "/roleRef/kind") {
        "Role" => "roles",
        "ClusterRole" => "clusterroles",
        // No rule but one for all resources includes it, and validation refuses the binding.
        _ => "",
    };
    Attributes { resource: resource.to_owned(), ..of(namespace, text(binding, "/roleRef/name")) }
}

fn may(user: &User, verb: &str, attributes: &Attributes, objects: &Objects) -> bool {
    let attributes = Attributes { verb: verb.to_owned(), ..attributes.clone() };
    rules::check(user, &attributes, objects).is_ok()
}

/// Whether a ClusterRole collects the rules of others.
fn collects(role: &Value) -> bool {
    !items(role, "/aggregationRule/clusterRoleSelectors").is_empty()
}

/// Who collects rules of others can get any, so needs all of them.
fn confirm_all(user: &User, objects: &Objects) -> Result<(), Refusal> {
    let all = serde_json::json!([
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
        {"verbs": ["*"], "nonResourceURLs": ["*"]},
    ]);
    let all = all.as_array().map(Vec::as_slice).unwrap_or_default();
    confirm(user, "", all, objects).map_err(|_| {
        Refusal::Forbidden("must have cluster-admin privileges to use the aggregationRule".to_owned())
    })
}

/// Refuses rules with permissions that the user does not hold in the namespace.
fn confirm(user: &User, namespace: &str, wanted: &[Value], objects: &Objects) -> Result<(), Refusal> {
    let count = wanted.iter().map(|rule| Rule(rule).permission_count()).fold(0, usize::saturating_add);
    let (mut held, mut size) = (Vec::new(), 0_usize);
    let errors = visit(user, namespace, objects, |_, rule| {
        size += rule.len();
        held.push(rule);
        std::ops::ControlFlow::Continue(())
    });
    if count > MAX_PERMISSIONS || count.saturating_mul(size) > MAX_COMPARISONS {
        return Err(Refusal::Forbidden(format!(
            "the rules consist of {count} permissions, which are too many to compare with those of user {:?}",
            user.name
        )));
    }
    let permissions: Vec<Permission<'_>> = wanted.iter().flat_map(|rule| Rule(rule).permissions()).collect();
    let missing: Vec<Permission<'_>> = permissions
        .into_iter()
        .filter(|permission| !held.iter().any(|rule| rule.covers(permission)))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut message = format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        quoted(user.groups.iter().map(String::as_str)),
        described(&missing)
    );
    if !errors.is_empty() {
        message.push_str(&format!("; resolution errors: [{}]", aggregate(&errors)));
    }
    Err(Refusal::Forbidden(message))
}

/// The rules that are missing, one on each line, in the order of their text.
fn described(missing: &[Permission<'_>]) -> String {
    let (mut lines, mut size) = (Vec::new(), 0);
    for rule in compact(missing) {
        if size > MAX_MESSAGE {
            lines.push("{…}".to_owned());
            break;
        }
        let line = describe(&rule);
        size += line.len();
        lines.push(line);
    }
    lines.sort();
    lines.dedup();
    lines.join("\n")
}
