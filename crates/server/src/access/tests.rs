//! How long answers of the API server hold, on a clock that the test turns.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, StatusCode};
use jiff::Timestamp;
use testing::FakeCluster;

use super::*;

const TOKENS: Duration = Duration::from_secs(120);
const ALLOWED: Duration = Duration::from_secs(300);
const DENIED: Duration = Duration::from_secs(30);

/// A gate that asks the cluster, with another time for each kind of answer.
struct Asking {
    gate: Gate,
    cluster: FakeCluster,
}

impl Asking {
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

    /// The status of the refusal, 200 if there is none, and what the API server was asked for it.
    async fn ask(&self, token: &str, path: &str) -> (u16, Vec<&'static str>) {
        self.cluster.forget_calls();
        let mut headers = HeaderMap::new();
        let bearer = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
        headers.insert(http::header::AUTHORIZATION, bearer);
        let judged = self.gate.admit((&Method::GET, path, &headers), &[]).await;
        let status = judged.err().map_or(StatusCode::OK, |refused| refused.status());
        let asked = self.cluster.call_lines();
        let asked = asked.iter().map(|line| if line.contains("tokenreviews") { "who" } else { "may" });
        (status.as_u16(), asked.collect())
    }
}

async fn pass(time: Duration) {
    tokio::time::advance(time).await;
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn who_somebody_is_holds_for_the_time_of_tokens_whether_anybody_or_nobody() {
    let asking = Asking::new();
    asking.cluster.accept_token("good", "scraper");
    assert_eq!(asking.ask("good", "/metrics").await, (200, vec!["who", "may"]));
    assert_eq!(asking.ask("bad", "/metrics").await, (401, vec!["who"]));
    pass(TOKENS - SECOND).await;
    assert_eq!(asking.ask("good", "/metrics").await, (200, vec![]));
    assert_eq!(asking.ask("bad", "/metrics").await, (401, vec![]));
    pass(SECOND).await;
    // A token that was nobody's may be somebody's by now.
    asking.cluster.accept_token("bad", "late");
    assert_eq!(asking.ask("good", "/metrics").await, (200, vec!["who"]));
    assert_eq!(asking.ask("bad", "/metrics").await, (200, vec!["who", "may"]));
}

#[tokio::test(start_paused = true)]
async fn a_yes_and_a_no_hold_for_their_own_times() {
    let asking = Asking::new();
    asking.cluster.accept_token("good", "scraper").set_access(|review| {
        let attributes = review.spec.resource_attributes.as_ref();
        attributes.and_then(|attributes| attributes.subresource.as_deref()) == Some("metrics")
    });
    assert_eq!(asking.ask("good", "/metrics").await, (200, vec!["who", "may"]));
    assert_eq!(asking.ask("good", "/stats/summary").await, (403, vec!["may"]));
    asking.cluster.set_access(|_| true);
    pass(DENIED - SECOND).await;
    assert_eq!(asking.ask("good", "/stats/summary").await, (403, vec![]));
    pass(SECOND).await;
    assert_eq!(asking.ask("good", "/stats/summary").await, (200, vec!["may"]));
    asking.cluster.set_access(|_| false);
    // A permission that was taken away still holds for a while.
    pass(ALLOWED - DENIED - SECOND).await;
    assert_eq!(asking.ask("good", "/metrics").await, (200, vec!["who"]));
    pass(SECOND).await;
    assert_eq!(asking.ask("good", "/metrics").await, (403, vec!["may"]));
}

#[tokio::test(start_paused = true)]
async fn a_question_that_got_no_answer_is_asked_again_at_once() {
    let asking = Asking::new();
    asking.cluster.accept_token("good", "scraper");
    asking.cluster.set_outage(Some(testing::fake_cluster::Outage::Refused));
    assert_eq!(asking.ask("good", "/metrics").await.0, 401);
    asking.cluster.set_outage(None);
    assert_eq!(asking.ask("good", "/metrics").await, (200, vec!["who", "may"]));
    asking.cluster.set_outage(Some(testing::fake_cluster::Outage::Refused));
    assert_eq!(asking.ask("good", "/stats/summary").await.0, 500);
    // What is known stays known while nobody can be asked.
    assert_eq!(asking.ask("good", "/metrics").await, (200, vec![]));
    asking.cluster.set_outage(None);
    assert_eq!(asking.ask("good", "/stats/summary").await, (200, vec!["may"]));
}

#[tokio::test(start_paused = true)]
async fn no_number_of_callers_fills_the_memory_and_who_is_forgotten_is_asked_for_again() {
    let asking = Asking::new();
    asking.cluster.accept_token("first", "scraper");
    assert_eq!(asking.ask("first", "/metrics").await, (200, vec!["who", "may"]));
    pass(SECOND).await;
    for number in 0..1024 {
        assert_eq!(asking.ask(&format!("guess-{number}"), "/metrics").await, (401, vec!["who"]));
    }
    assert_eq!(asking.ask("first", "/metrics").await, (200, vec!["who"]));
    // Long ones are not even remembered.
    let long = "x".repeat((16 << 10) + 1);
    assert_eq!(asking.ask(&long, "/metrics").await, (401, vec![]));
}

proptest::proptest! {
    /// Whatever the header, the path and the method: an answer, and never a way in without a name.
    #[test]
    fn nothing_in_a_head_lets_anybody_in(
        header in proptest::collection::vec(1..=255_u8, 0..80),
        path in "/[ -~]{0,60}",
        method in "[A-Z]{1,12}",
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (asking, mut headers) = (Asking::new(), HeaderMap::new());
        if let Ok(value) = HeaderValue::from_bytes(&header) {
            headers.insert(http::header::AUTHORIZATION, value);
        }
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let judged = runtime.block_on(asking.gate.admit((&method, &path, &headers), &[]));
        proptest::prop_assert_eq!(judged.unwrap_err().status(), StatusCode::UNAUTHORIZED);
    }
}
