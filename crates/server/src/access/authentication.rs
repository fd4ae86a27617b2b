//! Authentication: by client certificate, by bearer token, or as anonymous. Invalid credentials are an error, and never
//! treated as anonymous.

use std::time::Duration;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use model::MonoTime;
use model::k8s::{TokenReview, TokenReviewSpec};
use ports::Clock;
use ports::request_metrics::{Review, answer_code};
use rustls_pki_types::{CertificateDer, UnixTime};
use tokio::sync::{Semaphore, watch};

use super::timed_cache::TimedCache;
use super::user::{User, not_after};
use super::{Observer, TokenReviews};
use crate::tls::ClientCa;

/// Entries of the token cache.
const MAX_TOKENS: usize = 1024;
/// A longer token is rejected without a review.
const MAX_TOKEN_BYTES: usize = 16 << 10;
/// Concurrent reviews by the API server. Further requests wait, and then use a cached answer for the same token.
const MAX_REVIEWS: usize = 8;

#[derive(Debug)]
pub(super) struct Authenticator {
    anonymous: bool,
    client_ca: Option<watch::Receiver<ClientCa>>,
    reviews: Option<TokenReviews>,
    /// `None`: the token is invalid.
    tokens: TimedCache<TokenDigest, Option<User>>,
    reviewing: Semaphore,
    clock: Clock,
    observer: Observer,
}

impl Authenticator {
    pub(super) fn new(
        anonymous: bool,
        client_ca: Option<watch::Receiver<ClientCa>>,
        reviews: Option<TokenReviews>,
        clock: Clock,
        observer: Observer,
    ) -> Self {
        let (tokens, reviewing) = (TimedCache::new(MAX_TOKENS), Semaphore::new(MAX_REVIEWS));
        Self { anonymous, client_ca, reviews, tokens, reviewing, clock, observer }
    }

    /// `Err` is why authentication failed, for the log and not for the client.
    pub(super) async fn identify(
        &self,
        headers: &HeaderMap,
        certificates: &[CertificateDer<'static>],
    ) -> Result<User, String> {
        let by_certificate = self.by_certificate(certificates);
        if let Some(Ok(user)) = by_certificate {
            self.record_certificate(certificates);
            return Ok(user);
        }
        let by_token = match bearer(headers).zip(self.reviews.as_ref()) {
            Some((token, reviews)) => Some(self.by_token(token, reviews).await),
            None => None,
        };
        match (by_token, by_certificate) {
            (Some(Ok(user)), _) => Ok(user),
            (Some(Err(why)), _) | (None, Some(Err(why))) => Err(why),
            (None, _) if self.anonymous => Ok(User::anonymous()),
            (None, _) => Err("no credentials".to_owned()),
        }
    }

    /// `None`: the client has no certificate, or certificates are not accepted.
    fn by_certificate(&self, certificates: &[CertificateDer<'static>]) -> Option<Result<User, String>> {
        let authority = self.client_ca.as_ref()?.borrow().clone();
        let own = certificates.first()?;
        // No certificate is valid before 1970.
        let seconds = u64::try_from(self.clock.now().wall.as_second()).unwrap_or(0);
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let checked = authority.check(certificates, now).map_err(|why| format!("client certificate: {why}"));
        Some(checked.and_then(|()| {
            User::of_certificate(own).ok_or_else(|| "client certificate: it has no common name".to_owned())
        }))
    }

    fn record_certificate(&self, certificates: &[CertificateDer<'static>]) {
        let (Some(observer), Some(own)) = (&self.observer, certificates.first()) else { return };
        let left = not_after(own).map(|end| end.duration_since(self.clock.now().wall));
        if let Some(good_for) = left.and_then(|left| Duration::try_from(left).ok()) {
            observer.certificate_believed(good_for);
        }
    }

    async fn by_token(&self, token: &str, reviews: &TokenReviews) -> Result<User, String> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err("bearer token: too long".to_owned());
        }
        let known = |user: Option<User>| user.ok_or_else(|| "bearer token: not authenticated".to_owned());
        let key = digest(token);
        let began = self.clock.mono();
        if let Some(user) = self.tokens.get(&key, began) {
            self.record_lookup(true, began);
            return known(user);
        }
        let holder = self.review(key, token, reviews).await;
        self.record_lookup(false, began);
        known(holder?)
    }

    fn record_lookup(&self, was_known: bool, began: MonoTime) {
        if let Some(observer) = &self.observer {
            observer.token_looked_up(was_known, self.clock.mono().saturating_since(began));
        }
    }

    /// TokenReview by the API server; `None` if the token is not authenticated.
    async fn review(
        &self,
        key: TokenDigest,
        token: &str,
        reviews: &TokenReviews,
    ) -> Result<Option<User>, String> {
        let _turn = self.reviewing.acquire().await.map_err(|closed| closed.to_string())?;
        if let Some(user) = self.tokens.get(&key, self.clock.mono()) {
            return Ok(user);
        }
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let asked_at = self.clock.mono();
        let answer = reviews.cluster.review_token(&review).await;
        if let Some(observer) = &self.observer {
            let took = self.clock.mono().saturating_since(asked_at);
            observer.reviewed(Review::Token, answer_code(&answer), took);
        }
        let status = answer.map_err(|error| format!("bearer token: {error}"))?.status.unwrap_or_default();
        if let Some(error) = status.error.filter(|error| !error.is_empty()) {
            return Err(format!("bearer token: {error}"));
        }
        let holder = status.user.filter(|_| status.authenticated == Some(true)).and_then(User::of_review);
        self.tokens.put(key, holder.clone(), self.clock.mono() + reviews.ttl);
        Ok(holder)
    }
}

/// The cache has digests instead of tokens: their size is bounded, and a memory dump does not contain valid tokens.
type TokenDigest = [u8; 32];

fn digest(token: &str) -> TokenDigest {
    let digest = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
    digest.as_ref().try_into().unwrap_or_default()
}

/// The token of `Authorization: Bearer …`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bearer_token_is_read_from_the_authorization_header() {
        let token = |text: &'static str| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, http::HeaderValue::from_static(text))]);
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(token("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(token("bearer  abc ").as_deref(), Some("abc"));
        assert_eq!(token("Bearer "), None);
        assert_eq!(token("Basic abc"), None);
        assert_eq!(bearer(&HeaderMap::new()), None);
    }
}
