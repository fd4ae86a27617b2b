//! The service account tokens of one pod (docs/behaviour/volumes.md).
//!
//! Owns the issued tokens, one for each that the pod's volumes request. How long a token is used is decided in
//! `volumes_core::token`.

use std::sync::Arc;
use std::time::Duration;

use api_core::retry::compute_retry_delay;
use base_agent::rng::Rng;
use base_core::service_account_token::TokenRequirement;
use model::containers::spec_of;
use model::k8s::Pod;
use model::{MonoTime, PodRef, SmallMap};
use parking_lot::Mutex;
use ports::cluster::ClusterError;
use volumes_core::token::{
    IssuedToken, TOKEN_JITTER, TokenAge, compute_token_age, compute_token_request, compute_token_retry,
};

use super::ObjectError;
use super::source::Access;

/// The least delay after a request that the API server refused because it is overloaded.
const REFUSED_DELAY: Duration = Duration::from_secs(1);
/// The service account of a pod whose spec names none.
const DEFAULT_ACCOUNT: &str = "default";

#[derive(Debug)]
pub(super) struct PodTokens {
    issued: Mutex<SmallMap<TokenRequirement, IssuedToken>>,
    /// No request before this time, and why: an overloaded API server refused one.
    refused: Mutex<Option<(MonoTime, ClusterError)>>,
    /// Spreads the renewals of many pods.
    rng: Rng,
}

impl PodTokens {
    pub(crate) fn new(rng: &Rng) -> Arc<Self> {
        Arc::new(Self { issued: Mutex::default(), refused: Mutex::default(), rng: rng.branch() })
    }

    /// A cached token that is not due for renewal, or else a new one. If the renewal fails, the old token is used until it
    /// expires.
    pub(crate) async fn get(
        &self,
        access: &Access,
        pod: &Pod,
        requirement: &TokenRequirement,
    ) -> Result<IssuedToken, ObjectError> {
        let known = self.issued.lock().get(requirement).cloned();
        let jitter = self.rng.up_to(TOKEN_JITTER);
        let age = known.as_ref().map(|token| compute_token_age(token, jitter, access.clock.now().wall));
        if let (Some(token), Some(TokenAge::Fresh)) = (&known, age) {
            return Ok(token.clone());
        }
        match (self.request(access, pod, requirement).await, known, age) {
            (Ok(issued), ..) => {
                self.issued.lock().insert(requirement.clone(), issued.clone());
                Ok(issued)
            }
            (Err(error), Some(old), Some(TokenAge::Renewable)) => {
                let (pod, audience) = (PodRef::of(pod), &requirement.audience);
                tracing::warn!(%pod, audience, err = %error, expires_at = %old.expires_at, "Failed to renew service account token, using the old one");
                Ok(old)
            }
            (Err(error), ..) => Err(ObjectError::Token(error)),
        }
    }

    /// Requests a token, unless the API server has asked to wait.
    async fn request(
        &self,
        access: &Access,
        pod: &Pod,
        requirement: &TokenRequirement,
    ) -> Result<IssuedToken, ClusterError> {
        let now = access.clock.mono();
        if let Some((until, error)) = &*self.refused.lock()
            && now < *until
        {
            return Err(error.clone());
        }
        let requested = request(access, pod, requirement).await;
        let refusal = requested.as_ref().err().and_then(|error| Some((error.retry_after()?, error.clone())));
        *self.refused.lock() = refusal.map(|(retry_after, error)| {
            let delay = compute_retry_delay(REFUSED_DELAY, Some(retry_after), self.rng.share());
            (access.clock.mono() + delay, error)
        });
        requested
    }

    /// Drops tokens that the pod no longer requests.
    pub(super) fn keep_only(&self, is_needed: impl Fn(&TokenRequirement) -> bool) {
        self.issued.lock().retain(|requirement, _| is_needed(requirement));
    }
}

/// The service account that the pod's spec names.
pub(super) fn account_of(pod: &Pod) -> Option<&str> {
    spec_of(pod).service_account_name.as_deref().filter(|name| !name.is_empty())
}

async fn request(
    access: &Access,
    pod: &Pod,
    requirement: &TokenRequirement,
) -> Result<IssuedToken, ClusterError> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let account = account_of(pod).unwrap_or(DEFAULT_ACCOUNT);
    let request = Box::new(compute_token_request(pod, requirement));
    let mut retries = 0;
    let answer = loop {
        let delay = match access.cluster.request_token(namespace, account, &request).await {
            Ok(answer) => break answer,
            Err(ClusterError::Forbidden { call, message }) => match compute_token_retry(&message, retries) {
                Some(delay) => delay,
                None => return Err(ClusterError::Forbidden { call, message }),
            },
            Err(error) => return Err(error),
        };
        tracing::debug!(%namespace, account, retries, "API server rejected the token request, it may not know the binding of the pod yet");
        retries += 1;
        access.clock.sleep_until(access.clock.mono() + delay).await;
    };
    IssuedToken::of(&answer).ok_or_else(|| ClusterError::Failed {
        call: format!("create token of serviceaccounts {namespace}/{account}"),
        code: 200,
        message: "the response has no token".to_owned(),
    })
}
