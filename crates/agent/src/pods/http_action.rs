//! Converts the HTTP request of a probe or hook for the network port. Its contents are decided in
//! `kubelet_core::pods::http_action`.

use std::time::Duration;

use kubelet_core::pods::http_action::{HttpAction, HttpScheme};
use ports::net::{HttpGet, Scheme};

/// Bodies are only used in messages, so a small part is enough.
const BODY_LIMIT: usize = 10 << 10;

/// `host` is the pod's address, or the host of the action.
pub(crate) fn http_get(action: &HttpAction, host: String, timeout: Option<Duration>) -> HttpGet {
    HttpGet {
        scheme: match action.scheme {
            HttpScheme::Http => Scheme::Http,
            HttpScheme::Https => Scheme::Https,
        },
        host,
        port: action.port,
        path: action.path.clone(),
        headers: action.headers.clone(),
        timeout,
        max_body_bytes: BODY_LIMIT,
        verify_tls: false,
    }
}
