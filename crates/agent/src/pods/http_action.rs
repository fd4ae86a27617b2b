//! The HTTP request of a probe or hook as the network takes it. What is in it is decided in `kubelet_core::http_action`.

use std::time::Duration;

use kubelet_core::http_action::{HttpAction, HttpScheme};
use ports::net::{HttpGet, Scheme};

/// Bodies are only shown, so a little is enough.
const BODY_LIMIT: usize = 10 << 10;

/// `host` is the pod's address, or what the action names instead.
pub(crate) fn http_get(action: &HttpAction, host: String, timeout: Duration) -> HttpGet {
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
