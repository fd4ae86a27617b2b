//! Authorization of requests by the API server (SubjectAccessReview).

use model::k8s::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use ports::request_metrics::{Review, answer_code};
use ports::{Clock, ClusterError};
use tokio::sync::Semaphore;

use super::attributes::Attributes;
use super::timed_cache::TimedCache;
use super::user::User;
use super::{AuthorizationMode, Observer};

/// Entries of the cache of verdicts.
const MAX_VERDICTS: usize = 1024;
/// Concurrent reviews by the API server.
const MAX_REVIEWS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Allowed,
    Denied,
}

/// A user, a verb and a subresource of the node.
type ReviewKey = (User, &'static str, &'static str);

#[derive(Debug)]
pub(super) struct Authorizer {
    mode: AuthorizationMode,
    verdicts: TimedCache<ReviewKey, Verdict>,
    reviewing: Semaphore,
    clock: Clock,
    observer: Observer,
}

impl Authorizer {
    pub(super) fn new(mode: AuthorizationMode, clock: Clock, observer: Observer) -> Self {
        let (verdicts, reviewing) = (TimedCache::new(MAX_VERDICTS), Semaphore::new(MAX_REVIEWS));
        Self { mode, verdicts, reviewing, clock, observer }
    }

    /// A request is allowed if the user may access any of the subresources.
    pub(super) async fn authorize(
        &self,
        user: &User,
        attributes: &Attributes,
        node: &str,
    ) -> Result<Verdict, ClusterError> {
        for subresource in attributes.subresources {
            let question = (user.clone(), attributes.verb, *subresource);
            if self.answer(question, node).await? == Verdict::Allowed {
                return Ok(Verdict::Allowed);
            }
        }
        Ok(Verdict::Denied)
    }

    async fn answer(&self, question: ReviewKey, node: &str) -> Result<Verdict, ClusterError> {
        let (cluster, allowed_ttl, denied_ttl) = match &self.mode {
            AuthorizationMode::AlwaysAllow => return Ok(Verdict::Allowed),
            AuthorizationMode::Review { cluster, allowed_ttl, denied_ttl } => {
                (cluster, *allowed_ttl, *denied_ttl)
            }
        };
        if let Some(verdict) = self.verdicts.get(&question, self.clock.mono()) {
            return Ok(verdict);
        }
        // The semaphore is never closed; without a permit the review would be made, too.
        let _turn = self.reviewing.acquire().await.ok();
        if let Some(verdict) = self.verdicts.get(&question, self.clock.mono()) {
            return Ok(verdict);
        }
        let asked_at = self.clock.mono();
        let answer = cluster.review_access(&review(&question, node)).await;
        if let Some(observer) = &self.observer {
            let took = self.clock.mono().saturating_since(asked_at);
            observer.reviewed(Review::Access, answer_code(&answer), took);
        }
        let status = answer?.status.unwrap_or_default();
        let is_allowed = status.allowed && status.denied != Some(true);
        let (verdict, ttl) =
            if is_allowed { (Verdict::Allowed, allowed_ttl) } else { (Verdict::Denied, denied_ttl) };
        self.verdicts.put(question, verdict, self.clock.mono() + ttl);
        Ok(verdict)
    }
}

fn review(key: &ReviewKey, node: &str) -> SubjectAccessReview {
    let (user, verb, subresource) = key;
    let attributes = ResourceAttributes {
        verb: Some((*verb).to_owned()),
        version: Some("v1".to_owned()),
        resource: Some("nodes".to_owned()),
        subresource: Some((*subresource).to_owned()),
        name: Some(node.to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SubjectAccessReviewSpec {
        user: Some(user.name.clone()),
        uid: user.uid.clone(),
        groups: Some(user.groups.clone()),
        extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
        resource_attributes: Some(attributes),
        non_resource_attributes: None,
    };
    SubjectAccessReview { spec, ..SubjectAccessReview::default() }
}
