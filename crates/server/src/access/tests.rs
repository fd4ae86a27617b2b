//! How long reviews by the API server are cached, on paused time.

use std::time::Duration;

use fakes::FakeCluster;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use jiff::Timestamp;

use super::*;

const TOKENS: Duration = Duration::from_secs(120);
const ALLOWED: Duration = Duration::from_secs(300);
const DENIED: Duration = Duration::from_secs(30);

/// A gate with reviews by the fake cluster, and a different TTL for each kind of answer.
struct TestGate {
    gate: Gate,
    cluster: FakeCluster,
}

impl TestGate {
    fn new() -> Self {
        let cluster = FakeCluster::new();
        let shared = Arc::new(cluster.clone());
        let settings = AccessSettings {
            node_name: "n1".to_owned(),
            anonymous: false,
            client_ca: None,
            token_review: Some(TokenReviews { cluster: shared.clone(), ttl: TOKENS }),
            authorization: AuthorizationMode::Review {
                cluster: shared,
                allowed_ttl: ALLOWED,
                denied_ttl: DENIED,
            },
        };
        let gate = Gate::new(settings, Clock::starting_at(Timestamp::UNIX_EPOCH), None);
        Self { gate, cluster }
    }

    /// The status of the response (200 if allowed), and the reviews that the API server got for it.
    async fn request(&self, token: &str, path: &str) -> (u16, Vec<&'static str>) {
        self.cluster.forget_calls();
        let mut headers = HeaderMap::new();
        let bearer = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
        headers.insert(http::header::AUTHORIZATION, bearer);
        let admitted = self.gate.admit(&Method::GET, path, &headers, &[]).await;
        let status = admitted.err().map_or(StatusCode::OK, |refused| refused.status());
        let reviews = self.cluster.call_lines();
        let reviews = reviews.iter().map(|line| if line.contains("tokenreviews") { "who" } else { "may" });
        (status.as_u16(), reviews.collect())
    }
}

async fn pass(time: Duration) {
    tokio::time::advance(time).await;
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn token_reviews_are_cached_for_their_ttl_with_and_without_a_user() {
    let gate = TestGate::new();
    gate.cluster.accept_token("good", "scraper");
    assert_eq!(gate.request("good", "/metrics").await, (200, vec!["who", "may"]));
    assert_eq!(gate.request("bad", "/metrics").await, (401, vec!["who"]));
    pass(TOKENS - SECOND).await;
    assert_eq!(gate.request("good", "/metrics").await, (200, vec![]));
    assert_eq!(gate.request("bad", "/metrics").await, (401, vec![]));
    pass(SECOND).await;
    // An invalid token may be valid by now.
    gate.cluster.accept_token("bad", "late");
    assert_eq!(gate.request("good", "/metrics").await, (200, vec!["who"]));
    assert_eq!(gate.request("bad", "/metrics").await, (200, vec!["who", "may"]));
}

#[tokio::test(start_paused = true)]
async fn allowed_and_denied_reviews_have_separate_ttls() {
    let gate = TestGate::new();
    gate.cluster.accept_token("good", "scraper").set_access(|review| {
        let attributes = review.spec.resource_attributes.as_ref();
        attributes.and_then(|attributes| attributes.subresource.as_deref()) == Some("metrics")
    });
    assert_eq!(gate.request("good", "/metrics").await, (200, vec!["who", "may"]));
    assert_eq!(gate.request("good", "/stats/summary").await, (403, vec!["may"]));
    gate.cluster.set_access(|_| true);
    pass(DENIED - SECOND).await;
    assert_eq!(gate.request("good", "/stats/summary").await, (403, vec![]));
    pass(SECOND).await;
    assert_eq!(gate.request("good", "/stats/summary").await, (200, vec!["may"]));
    gate.cluster.set_access(|_| false);
    // A revoked permission is still cached.
    pass(ALLOWED - DENIED - SECOND).await;
    assert_eq!(gate.request("good", "/metrics").await, (200, vec!["who"]));
    pass(SECOND).await;
    assert_eq!(gate.request("good", "/metrics").await, (403, vec!["may"]));
}

#[tokio::test(start_paused = true)]
async fn failed_review_is_not_cached() {
    let gate = TestGate::new();
    gate.cluster.accept_token("good", "scraper");
    gate.cluster.set_outage(Some(fakes::fake_cluster::Outage::Refused));
    assert_eq!(gate.request("good", "/metrics").await.0, 401);
    gate.cluster.set_outage(None);
    assert_eq!(gate.request("good", "/metrics").await, (200, vec!["who", "may"]));
    gate.cluster.set_outage(Some(fakes::fake_cluster::Outage::Refused));
    assert_eq!(gate.request("good", "/stats/summary").await.0, 500);
    // Cached answers stay valid while the API server does not respond.
    assert_eq!(gate.request("good", "/metrics").await, (200, vec![]));
    gate.cluster.set_outage(None);
    assert_eq!(gate.request("good", "/stats/summary").await, (200, vec!["may"]));
}

#[tokio::test(start_paused = true)]
async fn review_caches_are_bounded_and_dropped_entries_are_reviewed_again() {
    let gate = TestGate::new();
    gate.cluster.accept_token("first", "scraper");
    assert_eq!(gate.request("first", "/metrics").await, (200, vec!["who", "may"]));
    pass(SECOND).await;
    for number in 0..1024 {
        assert_eq!(gate.request(&format!("guess-{number}"), "/metrics").await, (401, vec!["who"]));
    }
    assert_eq!(gate.request("first", "/metrics").await, (200, vec!["who"]));
    // Long tokens are not cached.
    let long = "x".repeat((16 << 10) + 1);
    assert_eq!(gate.request(&long, "/metrics").await, (401, vec![]));
}

proptest::proptest! {
    /// Any header, path and method gets a response, and never access without authentication.
    #[test]
    fn no_request_head_is_allowed_without_authentication(
        header in proptest::collection::vec(1..=255_u8, 0..80),
        path in "/[ -~]{0,60}",
        method in "[A-Z]{1,12}",
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (gate, mut headers) = (TestGate::new(), HeaderMap::new());
        if let Ok(value) = HeaderValue::from_bytes(&header) {
            headers.insert(http::header::AUTHORIZATION, value);
        }
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let response = runtime.block_on(gate.gate.admit(&method, &path, &headers, &[]));
        proptest::prop_assert_eq!(response.unwrap_err().status(), StatusCode::UNAUTHORIZED);
    }
}
