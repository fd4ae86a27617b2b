//! HTTP without any rule of the API: the path and query of a request, protobuf bodies, and responses.

pub(crate) mod compression;
pub(crate) mod protobuf;
pub(crate) mod query;
pub(crate) mod request_info;
pub(crate) mod response;

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use rustls_pki_types::CertificateDer;

pub(crate) use query::{Query, encode};
pub(crate) use request_info::RequestInfo;

/// A response body; it fails if it is forwarded from a connection that breaks off.
pub(crate) type Body = UnsyncBoxBody<Bytes, hyper::Error>;

/// The certificate chain that a client presented.
pub(crate) type PeerCertificates = Arc<[CertificateDer<'static>]>;
