//! Access control of the main port: every request is authenticated (`authentication`) and then authorized (`authorization`) by
//! the attributes of its path and method (`attributes`). Nothing is served before both succeeded.

pub(crate) mod attributes;
mod authentication;
mod authorization;
mod timed_cache;
mod user;

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use http::{Method, StatusCode};
use ports::request_metrics::ServingObserver;
use ports::{Clock, Cluster};
use rustls_pki_types::CertificateDer;
use tokio::sync::watch;

use crate::answer;
use crate::tls::ClientCa;
use attributes::Attributes;
use authentication::Authenticator;
use authorization::{Authorizer, Verdict};

/// Counts reviews.
type Observer = Option<Arc<dyn ServingObserver>>;

/// Settings of authentication and authorization.
#[derive(Clone, Debug)]
pub struct AccessSettings {
    pub node_name: String,
    /// Requests without credentials are authenticated as `system:anonymous`.
    pub anonymous: bool,
    /// `None`: client certificates are not accepted.
    pub client_ca: Option<watch::Receiver<ClientCa>>,
    /// TokenReview by the API server, and how long its answers are cached. `None`: bearer tokens are not accepted.
    pub token_review: Option<TokenReviews>,
    pub authorization: AuthorizationMode,
}

#[derive(Clone, Debug)]
pub struct TokenReviews {
    pub cluster: Arc<dyn Cluster>,
    pub ttl: Duration,
}

#[derive(Clone, Debug)]
pub enum AuthorizationMode {
    AlwaysAllow,
    /// SubjectAccessReview by the API server.
    Review {
        cluster: Arc<dyn Cluster>,
        allowed_ttl: Duration,
        denied_ttl: Duration,
    },
}

/// An allowed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// The request had no credentials.
    pub(crate) is_anonymous: bool,
}

/// Access control of one port.
#[derive(Debug)]
pub(crate) struct Gate {
    authenticator: Authenticator,
    authorizer: Authorizer,
    node_name: String,
}

impl Gate {
    pub(crate) fn new(settings: AccessSettings, clock: Clock, observer: Observer) -> Self {
        let AccessSettings { node_name, anonymous, client_ca, token_review, authorization } = settings;
        Self {
            authenticator: Authenticator::new(anonymous, client_ca, token_review, clock, observer.clone()),
            authorizer: Authorizer::new(authorization, clock, observer),
            node_name,
        }
    }

    /// `Err` is the response to a request that is not allowed.
    pub(crate) async fn admit(
        &self,
        method: &Method,
        path: &str,
        headers: &http::HeaderMap,
        certificates: &[CertificateDer<'static>],
    ) -> Result<Admitted, Box<Response>> {
        self.authorize(&attributes::of(method, path), headers, certificates).await.map_err(Box::new)
    }

    async fn authorize(
        &self,
        attributes: &Attributes,
        headers: &http::HeaderMap,
        certificates: &[CertificateDer<'static>],
    ) -> Result<Admitted, Response> {
        let user = match self.authenticator.identify(headers, certificates).await {
            Ok(user) => user,
            Err(why) => {
                tracing::debug!(err = why, "Unable to authenticate the request");
                return Err(answer::text(StatusCode::UNAUTHORIZED, "Unauthorized"));
            }
        };
        let describe = || {
            let subresources = attributes.subresources.join(" ");
            format!(
                "(user={}, verb={}, resource=nodes, subresource(s)=[{subresources}])",
                user.name, attributes.verb
            )
        };
        match self.authorizer.authorize(&user, attributes, &self.node_name).await {
            Ok(Verdict::Allowed) => Ok(Admitted { is_anonymous: user.is_anonymous() }),
            Ok(Verdict::Denied) => {
                Err(answer::text(StatusCode::FORBIDDEN, format!("Forbidden {}", describe())))
            }
            Err(error) => {
                tracing::warn!(err = %error, user = user.name, "Failed to authorize the request with the API server");
                let text = format!("Authorization error {}", describe());
                Err(answer::text(StatusCode::INTERNAL_SERVER_ERROR, text))
            }
        }
    }
}

/// The verb of a method. As in the Go kubelet, every other method has an empty verb, so that a client cannot cause any number
/// of different reviews.
pub(crate) fn verb(method: &Method) -> &'static str {
    match method.as_str() {
        "POST" => "create",
        "GET" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

#[cfg(test)]
mod tests;
