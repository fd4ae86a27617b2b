//! HTTP without any rule of the API: the path and query of a request, protobuf bodies, and responses.

pub(crate) mod path;
pub(crate) mod protobuf;
pub(crate) mod query;
pub(crate) mod response;

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use rustls_pki_types::CertificateDer;

pub(crate) use path::Target;
pub(crate) use query::{Query, encode};

/// A response body; it fails if it is forwarded from a connection that breaks off.
pub(crate) type Body = UnsyncBoxBody<Bytes, hyper::Error>;

/// The certificate chain that a client presented.
pub(crate) type Chain = Arc<[CertificateDer<'static>]>;
