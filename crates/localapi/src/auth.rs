//! Authentication and authorization. Certificates and tokens identify a [`User`]; rules over (user, verb, resource) allow
//! or deny a request. The reviews of the API and the request handlers call the same functions.

pub(crate) mod attributes;
pub(crate) mod authority;
pub(crate) mod escalation;
pub(crate) mod impersonation;
pub(crate) mod node;
pub(crate) mod node_restriction;
pub(crate) mod pod_certificates;
pub(crate) mod rbac;
pub(crate) mod rules;
pub(crate) mod service_account;
pub(crate) mod tokens;
pub(crate) mod x509;

use std::collections::BTreeMap;

/// The group of all authenticated users.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
/// The group with all permissions.
pub(crate) const MASTERS: &str = "system:masters";
/// The group of bootstrap tokens, which may request a certificate.
pub(crate) const BOOTSTRAPPERS: &str = "system:bootstrappers";
/// The group of nodes; the user is `system:node:<name>`.
pub(crate) const NODES: &str = "system:nodes";
pub(crate) const NODE_USER_PREFIX: &str = "system:node:";
/// The user of what this server creates itself.
const OWN: &str = "system:apiserver";
pub(crate) const ANONYMOUS: &str = "system:anonymous";
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";

/// The user of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

impl User {
    pub(crate) fn new(name: impl Into<String>, groups: impl IntoIterator<Item = String>) -> Self {
        Self { name: name.into(), groups: groups.into_iter().collect(), ..Self::default() }
    }

    /// This server itself.
    pub(crate) fn own() -> Self {
        Self::new(OWN, [MASTERS.to_owned()])
    }

    pub(crate) fn is_own(&self) -> bool {
        self.name == OWN && self.is_in(MASTERS)
    }

    pub(crate) fn anonymous() -> Self {
        Self::new(ANONYMOUS, [UNAUTHENTICATED.to_owned()])
    }

    /// Adds the group of authenticated users.
    pub(crate) fn authenticated(mut self) -> Self {
        if !self.is_in(AUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    pub(crate) fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// The name of the node, if the user is one.
    pub(crate) fn node(&self) -> Option<&str> {
        self.name.strip_prefix(NODE_USER_PREFIX).filter(|node| !node.is_empty() && self.is_in(NODES))
    }
}
