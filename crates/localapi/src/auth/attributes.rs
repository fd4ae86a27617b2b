//! The attributes of a request that authorization evaluates.

/// The attributes of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; for a path, the HTTP method in
    /// lower case.
    pub(crate) verb: String,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The field selector of a list, watch or collection, as it was sent.
    pub(crate) field_selector: String,
    /// The path of a non-resource request; all fields above except the verb are empty then.
    pub(crate) path: String,
}

/// Whether the request creates or reads certificate signing requests.
pub(crate) fn is_certificate_request(attributes: &Attributes) -> bool {
    attributes.group == "certificates.k8s.io"
        && attributes.resource == "certificatesigningrequests"
        && attributes.subresource.is_empty()
        && ["create", "get", "list", "watch"].contains(&attributes.verb.as_str())
}
