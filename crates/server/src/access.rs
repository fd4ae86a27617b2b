//! Who may come in: every request to the main port is first given a name (`authentication`) and then judged
//! (`authorization`) by what its path and method stand for (`attributes`). Nothing is served before both said yes.

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

/// Who counts reviews, if anybody.
type Observer = Option<Arc<dyn ServingObserver>>;

/// How callers are told apart and judged.
#[derive(Clone, Debug)]
pub struct AccessSettings {
    pub node_name: String,
    /// Callers without credentials are let in as `system:anonymous`.
    pub anonymous: bool,
    /// `None`: certificates of clients are not looked at.
    pub client_ca: Option<watch::Receiver<ClientCa>>,
    /// Whom the API server is asked about, and how long its answers hold. `None`: bearer tokens are not looked at.
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
    /// The API server is asked (SubjectAccessReview).
    Review {
        cluster: Arc<dyn Cluster>,
        allowed_ttl: Duration,
        denied_ttl: Duration,
    },
}

/// A caller that the gate has let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// It showed no credentials.
    pub(crate) is_anonymous: bool,
}

/// Guards one port.
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
            authenticator: Authenticator::new((anonymous, client_ca, token_review), clock, observer.clone()),
            authorizer: Authorizer::new(authorization, clock, observer),
            node_name,
        }
    }

    /// `Err` is the answer to a caller who may not.
    pub(crate) async fn admit(
        &self,
        head: (&Method, &str, &http::HeaderMap),
        certificates: &[CertificateDer<'static>],
    ) -> Result<Admitted, Box<Response>> {
        let (method, path, headers) = head;
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
        let asked = || {
            let subresources = attributes.subresources.join(" ");
            format!(
                "(user={}, verb={}, resource=nodes, subresource(s)=[{subresources}])",
                user.name, attributes.verb
            )
        };
        match self.authorizer.authorize(&user, attributes, &self.node_name).await {
            Ok(Verdict::Allowed) => Ok(Admitted { is_anonymous: user.is_anonymous() }),
            Ok(Verdict::Denied) => Err(answer::text(StatusCode::FORBIDDEN, format!("Forbidden {}", asked()))),
            Err(error) => {
                tracing::warn!(err = %error, user = user.name, "Failed to authorize the request with the API server");
                let text = format!("Authorization error {}", asked());
                Err(answer::text(StatusCode::INTERNAL_SERVER_ERROR, text))
            }
        }
    }
}

/// The verb that a method stands for. As in the original, every other method has an empty verb, so that a client cannot
/// make up any number of permissions to ask the API server for.
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
