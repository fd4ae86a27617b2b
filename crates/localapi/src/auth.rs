//! Who is asking, and may they? Certificates and tokens become a [`User`]; rules over (user, verb, resource) answer yes
//! or no. The reviews of the API and the server's own doors ask the same functions.

pub(crate) mod attributes;
pub(crate) mod authority;
pub(crate) mod node;
pub(crate) mod rules;
pub(crate) mod service_account;
pub(crate) mod tokens;
pub(crate) mod x509;

use std::collections::BTreeMap;

/// Everybody who showed who they are.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
/// May do everything.
pub(crate) const MASTERS: &str = "system:masters";
/// Holders of a bootstrap token: they may ask for a certificate.
pub(crate) const BOOTSTRAPPERS: &str = "system:bootstrappers";
/// The group of nodes; the user is `system:node:<name>`.
pub(crate) const NODES: &str = "system:nodes";
pub(crate) const NODE_USER_PREFIX: &str = "system:node:";
const ANONYMOUS: &str = "system:anonymous";
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// Somebody, as far as the API cares.
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

    pub(crate) fn anonymous() -> Self {
        Self::new(ANONYMOUS, [UNAUTHENTICATED.to_owned()])
    }

    /// The same user, marked as one who showed who they are.
    pub(crate) fn authenticated(mut self) -> Self {
        if !self.is_in(AUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    pub(crate) fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// The node this user is, if it is one.
    pub(crate) fn node(&self) -> Option<&str> {
        self.name.strip_prefix(NODE_USER_PREFIX).filter(|node| !node.is_empty() && self.is_in(NODES))
    }
}
