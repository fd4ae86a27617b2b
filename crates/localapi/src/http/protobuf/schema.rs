//! The fields of the kinds that are decoded from protobuf, with their numbers in the API's `.proto` files.

/// The type of a field.
#[derive(Debug)]
pub(super) enum Type {
    Text,
    /// Base64 in JSON.
    Bytes,
    Bool,
    Int,
    Time,
    Message(&'static Message),
    Many(&'static Type),
    /// A message with only a list of strings, which JSON writes as the list itself.
    Texts,
    /// A map from strings to this type.
    Map(&'static Type),
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u8,
    pub(super) name: &'static str,
    pub(super) kind: Type,
}

#[derive(Debug)]
pub(super) struct Message {
    pub(super) name: &'static str,
    pub(super) fields: &'static [Field],
}

const fn field(number: u8, name: &'static str, kind: Type) -> Field {
    Field { number, name, kind }
}

const fn text(number: u8, name: &'static str) -> Field {
    field(number, name, Type::Text)
}

const fn texts(number: u8, name: &'static str) -> Field {
    field(number, name, Type::Many(&Type::Text))
}

const METADATA: Field = field(1, "metadata", Type::Message(&OBJECT_META));

/// The message of this kind, if it is supported.
pub(super) fn of(api_version: &str, kind: &str) -> Option<&'static Message> {
    match (api_version, kind) {
        ("v1", "ConfigMap") => Some(&CONFIG_MAP),
        ("v1", "Namespace") => Some(&NAMESPACE),
        ("v1", "Secret") => Some(&SECRET),
        ("v1", "ServiceAccount") => Some(&SERVICE_ACCOUNT),
        ("authentication.k8s.io/v1", "SelfSubjectReview") => Some(&SELF_SUBJECT_REVIEW),
        ("authentication.k8s.io/v1", "TokenRequest") => Some(&TOKEN_REQUEST),
        ("authorization.k8s.io/v1", "SelfSubjectAccessReview") => Some(&SELF_SUBJECT_ACCESS_REVIEW),
        ("certificates.k8s.io/v1", "CertificateSigningRequest") => Some(&CERTIFICATE_SIGNING_REQUEST),
        _ => None,
    }
}

/// `runtime.Unknown`: the kind and the encoded object.
pub(super) static ENVELOPE: Message = Message {
    name: "Unknown",
    fields: &[
        field(1, "typeMeta", Type::Message(&TYPE_META)),
        field(2, "raw", Type::Bytes),
        text(3, "contentEncoding"),
        text(4, "contentType"),
    ],
};

static TYPE_META: Message = Message { name: "TypeMeta", fields: &[text(1, "apiVersion"), text(2, "kind")] };

pub(super) static TEXTS: Message = Message { name: "ExtraValue", fields: &[texts(1, "items")] };

pub(super) static TIME: Message =
    Message { name: "Time", fields: &[field(1, "seconds", Type::Int), field(2, "nanos", Type::Int)] };

static OBJECT_META: Message = Message {
    name: "ObjectMeta",
    fields: &[
        text(1, "name"),
        text(2, "generateName"),
        text(3, "namespace"),
        text(4, "selfLink"),
        text(5, "uid"),
        text(6, "resourceVersion"),
        field(7, "generation", Type::Int),
        field(8, "creationTimestamp", Type::Time),
        field(9, "deletionTimestamp", Type::Time),
        field(10, "deletionGracePeriodSeconds", Type::Int),
        field(11, "labels", Type::Map(&Type::Text)),
        field(12, "annotations", Type::Map(&Type::Text)),
        field(13, "ownerReferences", Type::Many(&Type::Message(&OWNER_REFERENCE))),
        texts(14, "finalizers"),
    ],
};

static OWNER_REFERENCE: Message = Message {
    name: "OwnerReference",
    fields: &[
        text(1, "kind"),
        text(3, "name"),
        text(4, "uid"),
        text(5, "apiVersion"),
        field(6, "controller", Type::Bool),
        field(7, "blockOwnerDeletion", Type::Bool),
    ],
};

static CONFIG_MAP: Message = Message {
    name: "ConfigMap",
    fields: &[
        METADATA,
        field(2, "data", Type::Map(&Type::Text)),
        field(3, "binaryData", Type::Map(&Type::Bytes)),
        field(4, "immutable", Type::Bool),
    ],
};

static NAMESPACE: Message = Message {
    name: "Namespace",
    fields: &[
        METADATA,
        field(
            2,
            "spec",
            Type::Message(&Message { name: "NamespaceSpec", fields: &[texts(1, "finalizers")] }),
        ),
        field(3, "status", Type::Message(&Message { name: "NamespaceStatus", fields: &[text(1, "phase")] })),
    ],
};

static SECRET: Message = Message {
    name: "Secret",
    fields: &[
        METADATA,
        field(2, "data", Type::Map(&Type::Bytes)),
        text(3, "type"),
        field(4, "stringData", Type::Map(&Type::Text)),
        field(5, "immutable", Type::Bool),
    ],
};

static SERVICE_ACCOUNT: Message = Message {
    name: "ServiceAccount",
    fields: &[
        METADATA,
        field(2, "secrets", Type::Many(&Type::Message(&OBJECT_REFERENCE))),
        field(3, "imagePullSecrets", Type::Many(&Type::Message(&LOCAL_OBJECT_REFERENCE))),
        field(4, "automountServiceAccountToken", Type::Bool),
    ],
};

static OBJECT_REFERENCE: Message = Message {
    name: "ObjectReference",
    fields: &[
        text(1, "kind"),
        text(2, "namespace"),
        text(3, "name"),
        text(4, "uid"),
        text(5, "apiVersion"),
        text(6, "resourceVersion"),
        text(7, "fieldPath"),
    ],
};

static LOCAL_OBJECT_REFERENCE: Message = Message { name: "LocalObjectReference", fields: &[text(1, "name")] };

static SELF_SUBJECT_REVIEW: Message = Message {
    name: "SelfSubjectReview",
    fields: &[METADATA, field(2, "status", Type::Message(&SELF_SUBJECT_REVIEW_STATUS))],
};

static SELF_SUBJECT_REVIEW_STATUS: Message = Message {
    name: "SelfSubjectReviewStatus",
    fields: &[field(
        1,
        "userInfo",
        Type::Message(&Message {
            name: "UserInfo",
            fields: &[text(1, "username"), text(2, "uid"), texts(3, "groups")],
        }),
    )],
};

static TOKEN_REQUEST: Message = Message {
    name: "TokenRequest",
    fields: &[
        METADATA,
        field(2, "spec", Type::Message(&TOKEN_REQUEST_SPEC)),
        field(
            3,
            "status",
            Type::Message(&Message {
                name: "TokenRequestStatus",
                fields: &[text(1, "token"), field(2, "expirationTimestamp", Type::Time)],
            }),
        ),
    ],
};

static TOKEN_REQUEST_SPEC: Message = Message {
    name: "TokenRequestSpec",
    fields: &[
        texts(1, "audiences"),
        field(
            3,
            "boundObjectRef",
            Type::Message(&Message {
                name: "BoundObjectReference",
                fields: &[text(1, "kind"), text(2, "apiVersion"), text(3, "name"), text(4, "uid")],
            }),
        ),
        field(4, "expirationSeconds", Type::Int),
    ],
};

static SELF_SUBJECT_ACCESS_REVIEW: Message = Message {
    name: "SelfSubjectAccessReview",
    fields: &[
        METADATA,
        field(2, "spec", Type::Message(&SELF_SUBJECT_ACCESS_REVIEW_SPEC)),
        field(
            3,
            "status",
            Type::Message(&Message {
                name: "SubjectAccessReviewStatus",
                fields: &[
                    field(1, "allowed", Type::Bool),
                    text(2, "reason"),
                    text(3, "evaluationError"),
                    field(4, "denied", Type::Bool),
                ],
            }),
        ),
    ],
};

static SELF_SUBJECT_ACCESS_REVIEW_SPEC: Message = Message {
    name: "SelfSubjectAccessReviewSpec",
    fields: &[
        field(
            1,
            "resourceAttributes",
            Type::Message(&Message {
                name: "ResourceAttributes",
                fields: &[
                    text(1, "namespace"),
                    text(2, "verb"),
                    text(3, "group"),
                    text(4, "version"),
                    text(5, "resource"),
                    text(6, "subresource"),
                    text(7, "name"),
                ],
            }),
        ),
        field(
            2,
            "nonResourceAttributes",
            Type::Message(&Message {
                name: "NonResourceAttributes",
                fields: &[text(1, "path"), text(2, "verb")],
            }),
        ),
    ],
};

static CERTIFICATE_SIGNING_REQUEST: Message = Message {
    name: "CertificateSigningRequest",
    fields: &[
        METADATA,
        field(2, "spec", Type::Message(&CERTIFICATE_SIGNING_REQUEST_SPEC)),
        field(3, "status", Type::Message(&CERTIFICATE_SIGNING_REQUEST_STATUS)),
    ],
};

static CERTIFICATE_SIGNING_REQUEST_SPEC: Message = Message {
    name: "CertificateSigningRequestSpec",
    fields: &[
        field(1, "request", Type::Bytes),
        text(2, "username"),
        text(3, "uid"),
        texts(4, "groups"),
        texts(5, "usages"),
        field(6, "extra", Type::Map(&Type::Texts)),
        text(7, "signerName"),
        field(8, "expirationSeconds", Type::Int),
    ],
};

static CERTIFICATE_SIGNING_REQUEST_STATUS: Message = Message {
    name: "CertificateSigningRequestStatus",
    fields: &[
        field(
            1,
            "conditions",
            Type::Many(&Type::Message(&Message {
                name: "CertificateSigningRequestCondition",
                fields: &[
                    text(1, "type"),
                    text(2, "reason"),
                    text(3, "message"),
                    field(4, "lastUpdateTime", Type::Time),
                    field(5, "lastTransitionTime", Type::Time),
                    text(6, "status"),
                ],
            })),
        ),
        field(2, "certificate", Type::Bytes),
    ],
};
