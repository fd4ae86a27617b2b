//! The debugging endpoints of the read-only port, where they are always disabled.

use axum::Router;
use axum::response::Response;
use axum::routing::any;
use http::StatusCode;

use crate::Api;
use crate::answer;
use crate::endpoint::DEBUGGING_DISABLED;

const ENDPOINTS: [&str; 8] =
    ["/run", "/exec", "/attach", "/portForward", "/containerLogs", "/runningpods", "/logs", "/debug/pprof"];

/// Adds their refusals, also for everything below them, to the router.
pub(crate) fn disabled(router: Router<Api>) -> Router<Api> {
    ENDPOINTS.iter().fold(router, |router, endpoint| {
        router
            .route(endpoint, any(refuse))
            .route(&format!("{endpoint}/"), any(refuse))
            .route(&format!("{endpoint}/{{*rest}}"), any(refuse))
    })
}

async fn refuse() -> Response {
    answer::error(StatusCode::METHOD_NOT_ALLOWED, DEBUGGING_DISABLED)
}
