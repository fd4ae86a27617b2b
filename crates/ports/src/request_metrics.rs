//! Request metrics: what `server` reports of its callers, and `cluster` of its calls.
//!
//! These crates keep no counts; the observer, which serves `/metrics`, does. Every text is one of a fixed set, which bounds the
//! number of time series.

use std::time::Duration;

use crate::cluster::{ClusterError, ClusterResult};

/// A request to the main or the read-only port, as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestKind {
    /// `GET`; `other` for what no endpoint answers.
    pub method: &'static str,
    /// The first part of the path, `metrics/cadvisor`, or `other`.
    pub path: &'static str,
    pub is_main_port: bool,
}

/// What is requested from the API server about a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Review {
    /// The user of a token.
    Token,
    /// Whether a user is authorized for an action.
    Access,
}

/// A call of PodResources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodResourcesCall {
    List,
    GetAllocatable,
    Get,
}

/// Counts what the server does. Called while a request is served, so it must return quickly.
pub trait ServingObserver: Send + Sync + std::fmt::Debug {
    fn request_began(&self, request: RequestKind);
    /// The last byte was sent, or the upgraded stream ended.
    fn request_ended(&self, request: RequestKind, took: Duration);
    /// A WebSocket was requested: `exec`, `attach`, `portforward`.
    fn websocket_asked(&self, subresource: &'static str);
    /// A client was authenticated by a certificate, which is valid for this time.
    fn certificate_believed(&self, good_for: Duration);
    /// A token was looked up in the cache.
    fn token_looked_up(&self, was_known: bool, took: Duration);
    /// A review of a caller was requested from the API server; for the answer see [`answer_code`].
    fn reviewed(&self, review: Review, code: &'static str, took: Duration);
    /// `version` is `v1` or `v1alpha1`.
    fn pod_resources_called(&self, version: &'static str, call: PodResourcesCall, is_ok: bool);
    /// A client of the Pods API did not get an event.
    fn pod_watch_event_dropped(&self);
    /// The outcome of one check of `/healthz`.
    fn checked(&self, name: &'static str, is_ok: bool);
}

/// One call of the API, as it is counted.
#[derive(Clone, Copy, Debug)]
pub struct ApiExchange<'a> {
    /// `10.0.0.1:6443`.
    pub host: &'a str,
    pub method: &'a str,
    /// `None`: there was no answer.
    pub code: Option<u16>,
    /// Until the head of the answer.
    pub took: Duration,
    pub request_bytes: u64,
}

/// Counts calls of the API. Called after each, so it must return quickly.
pub trait ApiObserver: Send + Sync + std::fmt::Debug {
    fn exchanged(&self, exchange: &ApiExchange<'_>);
    /// The whole answer was read.
    fn read(&self, host: &str, method: &str, response_bytes: u64);
    /// A call waited for the rate limiter.
    fn waited(&self, host: &str, method: &str, took: Duration);
}

/// The status code of an answer to a creation, or the label for a call without an answer.
#[must_use]
pub const fn answer_code<T>(answer: &ClusterResult<T>) -> &'static str {
    match answer {
        Ok(_) => "201",
        Err(error) => match error {
            ClusterError::NotFound { .. } => "404",
            ClusterError::AlreadyExists { .. } | ClusterError::Conflict { .. } => "409",
            ClusterError::Expired { .. } => "410",
            ClusterError::Unauthorized { .. } => "401",
            ClusterError::Forbidden { .. } => "403",
            ClusterError::Invalid { .. } => "422",
            ClusterError::Busy { .. } => "429",
            ClusterError::Failed { code: 400..500, .. } => "400",
            ClusterError::Failed { code: 500..600, .. } => "500",
            ClusterError::Failed { .. }
            | ClusterError::TimedOut { .. }
            | ClusterError::Unreachable { .. } => "<error>",
        },
    }
}
