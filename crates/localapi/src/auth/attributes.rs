//! What a request asks for, as authorization sees it.

/// What somebody wants to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; for a path, the HTTP method in
    /// small letters.
    pub(crate) verb: String,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The field selector of a list, watch or collection, as it was sent.
    pub(crate) field_selector: String,
    /// For what is no resource: its path. Then all above but the verb are empty.
    pub(crate) path: String,
}

/// Asking for a certificate and looking whether it is there.
pub(crate) fn is_own_request(wanted: &Attributes) -> bool {
    wanted.group == "certificates.k8s.io"
        && wanted.resource == "certificatesigningrequests"
        && wanted.subresource.is_empty()
        && ["create", "get", "list", "watch"].contains(&wanted.verb.as_str())
}
