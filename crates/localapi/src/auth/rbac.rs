//! Role based access control: which roles apply to a user, and whether one of their rules allows a request.
//!
//! Owns the walk over bindings and roles. It reads objects and never writes them. What users may write into roles and
//! bindings is in `escalation`, the ClusterRoles that collect rules of others in `aggregation`, the objects of every
//! cluster in `defaults`, and how existing ones are completed in `reconciliation`.

pub(crate) mod aggregation;
pub(crate) mod defaults;
pub(crate) mod reconciliation;
pub(super) mod rule;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::ops::ControlFlow;

use serde_json::{Value, json};

use super::User;
use super::attributes::Attributes;
use super::service_account;
use crate::object::{self, items, text};
use crate::store::{Key, Objects};
use rule::Rule;

pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";
/// The most strings that one walk compares: the roles that apply to one user can be as large as the store.
const MAX_STEPS: usize = 1_000_000;
/// The most strings in the rules of one review.
const MAX_REVIEWED: usize = 100_000;

/// A binding that applies to the user, and the first of its subjects that does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    binding: &'a Value,
    subject: &'a Value,
}

impl fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, namespace) = (object::name(self.binding), object::namespace(self.binding));
        let (kind, role) = (text(self.binding, "/roleRef/kind"), text(self.binding, "/roleRef/name"));
        if namespace.is_empty() {
            write!(f, "ClusterRoleBinding {name:?} of {kind} {role:?} to ")?;
        } else {
            write!(f, "RoleBinding \"{name}/{namespace}\" of {kind} {role:?} to ")?;
        }
        let (kind, name) = (text(self.subject, "/kind"), text(self.subject, "/name"));
        match (kind, text(self.subject, "/namespace")) {
            ("ServiceAccount", "") => write!(f, "{kind} \"{name}/{namespace}\""),
            ("ServiceAccount", own) => write!(f, "{kind} \"{name}/{own}\""),
            _ => write!(f, "{kind} {name:?}"),
        }
    }
}

/// Why the rules of a binding are unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unresolved {
    /// `roles` or `clusterroles`, and the name of the role.
    NotFound(&'static str, String),
    Kind(String),
    TooMuch,
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The real server writes the singular here.
            Self::NotFound(plural, name) => {
                write!(f, "{}.{GROUP} {name:?} not found", plural.trim_end_matches('s'))
            }
            Self::Kind(kind) => write!(f, "unsupported role reference kind: {kind:?}"),
            Self::TooMuch => {
                write!(f, "the bindings and roles of the user have more than {MAX_STEPS} entries")
            }
        }
    }
}

/// Whether a role of the user allows the request. `Ok` is the reason of the permission; `Err` is that of the denial, and
/// empty if there is nothing to report.
pub(crate) fn check(user: &User, attributes: &Attributes, objects: &Objects) -> Result<String, String> {
    let mut allowed = None;
    let errors = visit(user, &attributes.namespace, objects, |source, rule| {
        if rule.allows(attributes) {
            allowed = Some(source);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    match allowed {
        Some(source) => Ok(format!("RBAC: allowed by {source}")),
        None if errors.is_empty() => Err(String::new()),
        None => Err(format!("RBAC: {}", aggregate(&errors))),
    }
}

/// Calls `visitor` with each rule that applies to the user in a namespace, those of all namespaces first; returns what
/// could not be resolved.
pub(super) fn visit<'a>(
    user: &User,
    namespace: &str,
    objects: &'a Objects,
    mut visitor: impl FnMut(Source<'a>, Rule<'a>) -> ControlFlow<()>,
) -> Vec<Unresolved> {
    let (mut steps, mut errors) = (0_usize, Vec::new());
    let own = (!namespace.is_empty()).then(|| objects.of("rolebindings", Some(namespace)));
    let bindings = objects.of("clusterrolebindings", None).chain(own.into_iter().flatten());
    for (key, binding) in bindings {
        let subjects = items(binding, "/subjects");
        // A subject is compared with the name and with each group of the user.
        steps += 1 + subjects.len().saturating_mul(1 + user.groups.len());
        let applies = subjects.iter().find(|subject| is_subject(user, subject, &key.namespace));
        if let Some(subject) = applies {
            let rules = match rules_of(binding, &key.namespace, objects) {
                Ok(rules) => rules,
                Err(unresolved) => {
                    errors.push(unresolved);
                    continue;
                }
            };
            for rule in rules.iter().map(Rule) {
                steps += rule.len();
                if steps > MAX_STEPS {
                    break;
                }
                if visitor(Source { binding, subject }, rule).is_break() {
                    return errors;
                }
            }
        }
        if steps > MAX_STEPS {
            errors.push(Unresolved::TooMuch);
            return errors;
        }
    }
    errors
}

/// Whether a subject of a binding in this namespace is the user, or a group of the user.
fn is_subject(user: &User, subject: &Value, namespace: &str) -> bool {
    let name = text(subject, "/name");
    match text(subject, "/kind") {
        "User" => user.name == name,
        "Group" => user.is_in(name),
        "ServiceAccount" => {
            let namespace = match text(subject, "/namespace") {
                "" => namespace,
                own => own,
            };
            !namespace.is_empty() && service_account::parts(&user.name) == Some((namespace, name))
        }
        _ => false,
    }
}

/// The rules of the role that a binding in this namespace refers to.
pub(super) fn rules_of<'a>(
    binding: &Value,
    namespace: &str,
    objects: &'a Objects,
) -> Result<&'a [Value], Unresolved> {
    let name = text(binding, "/roleRef/name");
    let key = match text(binding, "/roleRef/kind") {
        "Role" => Key::new("roles", namespace, name),
        "ClusterRole" => Key::new("clusterroles", "", name),
        other => return Err(Unresolved::Kind(other.to_owned())),
    };
    match objects.get(&key) {
        Some(role) => Ok(items(role, "/rules")),
        None => Err(Unresolved::NotFound(key.resource, key.name)),
    }
}

/// Several errors as one, each message once.
pub(super) fn aggregate(errors: &[Unresolved]) -> String {
    let mut seen = BTreeSet::new();
    let messages: Vec<String> =
        errors.iter().map(Unresolved::to_string).filter(|message| seen.insert(message.clone())).collect();
    match messages.as_slice() {
        [one] => one.clone(),
        _ => format!("[{}]", messages.join(", ")),
    }
}

/// The `status` of a SelfSubjectRulesReview: all rules that apply to the user in a namespace.
pub(crate) fn review(user: &User, namespace: &str, objects: &Objects) -> Value {
    let (mut resources, mut paths, mut size, mut is_complete) = (Vec::new(), Vec::new(), 0, true);
    let errors = visit(user, namespace, objects, |_, rule| {
        size += rule.len();
        if size > MAX_REVIEWED {
            is_complete = false;
            return ControlFlow::Break(());
        }
        if rule.list("resources").next().is_some() {
            resources.push(rule.with_fields(&["verbs", "apiGroups", "resources", "resourceNames"]));
        }
        if rule.list("nonResourceURLs").next().is_some() {
            paths.push(rule.with_fields(&["verbs", "nonResourceURLs"]));
        }
        ControlFlow::Continue(())
    });
    let mut status =
        json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": !is_complete});
    if !errors.is_empty() {
        status["evaluationError"] = json!(aggregate(&errors));
        status["incomplete"] = json!(true);
    }
    status
}
