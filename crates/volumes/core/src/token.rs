//! Service account tokens in volumes (docs/behaviour/volumes.md): the TokenRequest, and how long an issued token is used.
//! No request is sent here, and no clock is read.

use std::time::Duration;

use base_core::service_account_token::TokenRequirement;
use jiff::Timestamp;
use model::k8s::{BoundObjectReference, Pod, TokenRequest, TokenRequestSpec};
use model::time::{wait_of, wall_after, wall_before};

/// The shortest lifetime that the API accepts.
const SHORTEST_SECONDS: i64 = 600;
/// A token is renewed at this age, however long its lifetime is.
const OLDEST: Duration = Duration::from_secs(24 * 3600);
/// A token is renewed when this part of its lifetime is left.
const LEFT_PERCENT: u64 = 20;
/// Renewal comes up to this much earlier, so that the tokens of many pods are not renewed at once.
pub const TOKEN_JITTER: Duration = Duration::from_secs(10);

/// A token issued by the API.
#[derive(Clone, PartialEq, Eq)]
pub struct IssuedToken {
    pub token: String,
    pub expires_at: Timestamp,
    /// From its issue until it expires; the API may make it longer than requested.
    pub life: Duration,
}

impl std::fmt::Debug for IssuedToken {
    /// Without the token: this ends up in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IssuedToken")
            .field("expires_at", &self.expires_at)
            .field("life", &self.life)
            .finish_non_exhaustive()
    }
}

impl IssuedToken {
    /// Reads the response to a TokenRequest; `None` if it contains no token.
    #[must_use]
    pub fn of(response: &TokenRequest) -> Option<Self> {
        let status = response.status.as_ref()?;
        let token = status.token.clone().filter(|token| !token.is_empty())?;
        let life = response.spec.as_ref().and_then(|spec| spec.expiration_seconds);
        Some(Self {
            token,
            expires_at: status.expiration_timestamp.as_ref()?.0,
            life: wait_of(life.filter(|seconds| *seconds >= 0).unwrap_or(SHORTEST_SECONDS)),
        })
    }
}

/// Whether an issued token can still be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenAge {
    Fresh,
    /// A new one is requested; until it arrives, this one is used.
    Renewable,
    /// No server accepts it any more.
    Expired,
}

/// Evaluates the age of a token; `jitter` is up to [`TOKEN_JITTER`].
#[must_use]
pub fn compute_token_age(token: &IssuedToken, jitter: Duration, now: Timestamp) -> TokenAge {
    let issued_at = wall_before(token.expires_at, token.life);
    let renewable_at = wall_after(issued_at, OLDEST.saturating_sub(jitter));
    let left = token.life / 100 * u32::try_from(LEFT_PERCENT).unwrap_or(u32::MAX);
    if now >= token.expires_at {
        TokenAge::Expired
    } else if now > renewable_at || now > wall_before(token.expires_at, left.saturating_add(jitter)) {
        TokenAge::Renewable
    } else {
        TokenAge::Fresh
    }
}

/// Requests a token that is valid only as long as this pod exists.
#[must_use]
pub fn compute_token_request(pod: &Pod, requirement: &TokenRequirement) -> TokenRequest {
    let audience = Some(requirement.audience.clone()).filter(|audience| !audience.is_empty());
    let spec = TokenRequestSpec {
        audiences: Some(audience.into_iter().collect()),
        expiration_seconds: Some(requirement.expiration_seconds.max(SHORTEST_SECONDS)),
        bound_object_ref: Some(BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
        }),
    };
    TokenRequest { spec: Some(spec), ..TokenRequest::default() }
}

/// How often a request is repeated that the API server rejected because it does not know yet that the pod is bound here.
const MAX_BINDING_RETRIES: u32 = 6;
const BINDING_RETRY: Duration = Duration::from_millis(50);
/// Errors that the API server returns while its caches are behind the binding (`NodeRestriction` and the node authorizer).
const BINDING_NOT_SEEN: [&str; 2] =
    ["requested token bound to a pod scheduled on a different node", "no relationship found between node"];

/// How long to wait before a rejected request is repeated; `None` if that does not help. `retries` were made already.
/// All of them together take three seconds.
#[must_use]
pub fn compute_token_retry(refusal: &str, retries: u32) -> Option<Duration> {
    let is_binding_not_seen = BINDING_NOT_SEEN.iter().any(|text| refusal.contains(text));
    (is_binding_not_seen && retries < MAX_BINDING_RETRIES).then(|| BINDING_RETRY * 2_u32.pow(retries))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    const EXPIRES: i64 = 1_000_000;

    fn token(life_seconds: u64) -> IssuedToken {
        let expires_at = Timestamp::from_second(EXPIRES).unwrap();
        IssuedToken { token: "secret".to_owned(), expires_at, life: Duration::from_secs(life_seconds) }
    }

    #[test]
    fn token_request_refused_before_the_binding_is_seen_is_repeated_a_few_times() {
        let different = "serviceaccounts \"default\" is forbidden: node requested token bound to a pod scheduled on a different node";
        let delays: Vec<_> = (0..10).map_while(|retries| compute_token_retry(different, retries)).collect();
        assert_eq!(delays.len(), 6);
        assert_eq!(delays[0], Duration::from_millis(50));
        assert!(delays.iter().sum::<Duration>() < Duration::from_secs(4), "{delays:?}");
        let authorizer = "serviceaccounts \"default\" is forbidden: User \"system:node:n\" cannot create resource: no relationship found between node 'n' and this object";
        assert!(compute_token_retry(authorizer, 0).is_some());
        assert_eq!(compute_token_retry("serviceaccounts \"default\" is forbidden: quota", 0), None);
    }

    #[test]
    fn token_is_renewed_at_four_fifths_of_its_lifetime_or_after_a_day() {
        use TokenAge::{Expired, Fresh, Renewable};
        const HOUR: u64 = 3600;
        let table = [
            // Life, jitter, seconds before the end.
            (HOUR, 0, 720, Fresh),
            (HOUR, 0, 719, Renewable),
            (HOUR, 10, 730, Fresh),
            (HOUR, 10, 729, Renewable),
            (HOUR, 0, 1, Renewable),
            (HOUR, 0, 0, Expired),
            (HOUR, 10, -5, Expired),
            // A year: a day after its issue.
            (365 * 24 * HOUR, 0, 364 * 24 * 3600, Fresh),
            (365 * 24 * HOUR, 0, 364 * 24 * 3600 - 1, Renewable),
            (365 * 24 * HOUR, 10, 364 * 24 * 3600 + 9, Renewable),
        ];
        for (life, jitter, left, expected) in table {
            let now = Timestamp::from_second(EXPIRES - left).unwrap();
            let age = compute_token_age(&token(life), Duration::from_secs(jitter), now);
            assert_eq!(age, expected, "life {life}, jitter {jitter}, {left} s left");
        }
    }

    fn request(audience: &str, seconds: i64) -> String {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "ns", "uid": "u1"}}))
                .unwrap();
        let request = compute_token_request(&pod, &TokenRequirement::new(Some(audience), Some(seconds)));
        serde_json::to_string_pretty(&request.spec).unwrap()
    }

    #[test]
    fn token_request_is_bound_to_the_pod_and_lasts_at_least_ten_minutes() {
        expect![[r#"
            {
              "audiences": [
                "vault"
              ],
              "boundObjectRef": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": "web",
                "uid": "u1"
              },
              "expirationSeconds": 600
            }"#]]
        .assert_eq(&request("vault", 60));
        expect![[r#"
            {
              "audiences": [],
              "boundObjectRef": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": "web",
                "uid": "u1"
              },
              "expirationSeconds": 3607
            }"#]]
        .assert_eq(&request("", 3607));
    }

    #[test]
    fn response_without_a_token_is_none_and_debug_output_hides_the_token() {
        let answer: TokenRequest = serde_json::from_value(json!({
            "spec": {"audiences": [], "expirationSeconds": 3607},
            "status": {"token": "secret", "expirationTimestamp": "2026-01-01T01:00:07Z"},
        }))
        .unwrap();
        let issued = IssuedToken::of(&answer).unwrap();
        assert_eq!(issued.life, Duration::from_secs(3607));
        assert_eq!(issued.token, "secret");
        assert!(!format!("{issued:?}").contains("secret"), "{issued:?}");
        assert_eq!(IssuedToken::of(&TokenRequest { status: None, ..answer }), None);
    }
}
