//! Manifests from a URL: a Pod or a PodList, requested at a fixed period. After a failed or invalid response the last valid
//! version stays in effect; the version from before a restart is known from the pods' checkpoints.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use config::Features;
use model::PodSource;
use model::k8s::Pod;
use ports::net::{HttpGet, Scheme};
use ports::{Clock, Net};
use sources_core::duplicates::{ManifestPods, Owners};
use sources_core::static_pod::{Origin, parse_manifest};
use sources_core::{DesiredPod, last_described_by};
use tokio::sync::mpsc;

use super::{ManifestProblems, NodePods, Problem, RepeatedError, SourceSet, seen_now};

/// Timeout of a request, and limit for the size of the response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const BODY_LIMIT: usize = 10 << 20;

pub(crate) struct HttpSource {
    pub(crate) net: Arc<dyn Net>,
    pub(crate) node: NodePods,
    pub(crate) clock: Clock,
    pub(crate) url: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) period: Duration,
    pub(crate) node_name: String,
    pub(crate) features: Features,
    pub(crate) problems: ManifestProblems,
    pub(crate) sets: mpsc::Sender<SourceSet>,
}

/// What the source knows.
#[derive(Debug, Default)]
struct State {
    content: Vec<u8>,
    /// The pods of the last valid response, or, before there was one, of the checkpoints.
    pods: Option<Vec<Arc<Pod>>>,
    /// No running pod can be one of a response that never came.
    is_complete: bool,
    /// Before the runtime was listed, that is not known.
    awaits_listing: bool,
    owners: Owners,
    /// What is wrong with the content.
    problems: Vec<Problem>,
    unreadable: RepeatedError,
}

impl std::fmt::Debug for HttpSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpSource").field("url", &self.url).finish_non_exhaustive()
    }
}

impl HttpSource {
    /// Runs until dropped.
    pub(crate) async fn run(self) {
        let mut state = State::default();
        let mut listings = self.node.cache.listings();
        loop {
            listings.mark_unchanged();
            let failure = self.poll(&mut state).await.err();
            self.load_checkpoints(&mut state).await;
            if let Some(set) = self.set_of(&mut state, failure).await
                && self.sets.send(set).await.is_err()
            {
                return;
            }
            let next = self.clock.mono() + self.period;
            tokio::select! {
                // Whether the runtime has other pods than those of checkpoints is known from its first listing on.
                Ok(()) = listings.changed(), if state.awaits_listing => {}
                () = self.clock.sleep_until(next) => {}
            }
        }
    }

    /// `Err`: why there is no response.
    async fn poll(&self, state: &mut State) -> Result<(), String> {
        let content = self.fetch().await?;
        state.unreadable.clear();
        if content == state.content {
            return Ok(());
        }
        match parse_manifest(&content, &Origin::Url(self.url.clone()), &self.node_name, self.features) {
            Ok(parsed) => {
                state.problems = Problem::warnings(&parsed.warnings);
                state.pods = Some(seen_now(parsed.pods, self.clock.now().wall));
                state.is_complete = true;
            }
            Err(errors) => state.problems = Problem::errors(&errors),
        }
        state.content = content;
        Ok(())
    }

    /// For a server that has given no valid response since the start, uses the pods from their checkpoints, so that housekeeping is
    /// not blocked.
    async fn load_checkpoints(&self, state: &mut State) {
        state.awaits_listing = false;
        if state.is_complete {
            return;
        }
        let Some(checkpoints) = self.node.checkpoints().await else { return };
        if state.pods.is_none() {
            let pods = last_described_by(&Origin::Url(self.url.clone()), &checkpoints.pods);
            tracing::info!(
                url = self.url,
                pods = pods.len(),
                "Failed to read manifests from URL since the start, continuing pods from their checkpoints"
            );
            state.pods = Some(pods);
        }
        state.is_complete = checkpoints.is_every_pod_known;
        state.awaits_listing = !state.is_complete && !checkpoints.is_listed;
    }

    /// The pods of the last valid response, one for each name; reports what is wrong with it. `None`: they are not known.
    async fn set_of(&self, state: &mut State, failure: Option<String>) -> Option<SourceSet> {
        let pods = state.pods.as_deref().unwrap_or_default();
        let manifests = [ManifestPods { origin: &self.url, pods }];
        let unique = self.node.unique(&manifests, &state.owners, &self.node_name).await;
        let origin = format!("url:{}", self.url);
        match failure {
            Some(why) => {
                let now = self.clock.mono();
                self.problems.report_unreadable(&origin, why, &mut state.unreadable, now);
            }
            None => {
                let duplicates = Problem::duplicates(unique.errors).into_values().flatten();
                self.problems.report(&origin, state.problems.iter().cloned().chain(duplicates).collect());
            }
        }
        state.owners = unique.owners;
        state.pods.is_some().then(|| SourceSet {
            source: PodSource::Http,
            pods: unique.pods.into_iter().map(DesiredPod::of_manifest).collect(),
            is_complete: state.is_complete,
            undecodable: BTreeSet::new(),
        })
    }

    async fn fetch(&self) -> Result<Vec<u8>, String> {
        let request = parse_url(&self.url, self.headers.clone())?;
        let answer = self.net.http_get(&request).await.map_err(|e| format!("{}: {e}", self.url))?;
        if answer.status != 200 {
            return Err(format!("{}: answered with status {}, expected 200", self.url, answer.status));
        }
        if answer.truncated {
            return Err(format!("{}: answered with more than {BODY_LIMIT} bytes", self.url));
        }
        if answer.body.trim_ascii().is_empty() {
            return Err(format!("{}: answered with no content", self.url));
        }
        Ok(answer.body)
    }
}

/// Splits `scheme://host[:port]/path`.
fn parse_url(url: &str, headers: Vec<(String, String)>) -> Result<HttpGet, String> {
    let invalid = || format!("{url:?} is not a URL of the form http[s]://host[:port]/path");
    let (scheme, rest) = url.split_once("://").ok_or_else(invalid)?;
    let (scheme, default_port) = match scheme {
        "http" => (Scheme::Http, 80),
        "https" => (Scheme::Https, 443),
        _ => return Err(invalid()),
    };
    let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| invalid())?),
        Some(_) | None => (authority, default_port),
    };
    if host.is_empty() {
        return Err(invalid());
    }
    Ok(HttpGet {
        scheme,
        host: host.trim_matches(['[', ']']).to_owned(),
        port,
        path: path.to_owned(),
        headers,
        timeout: Some(REQUEST_TIMEOUT),
        max_body_bytes: BODY_LIMIT,
        verify_tls: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, expected: Result<(Scheme, &str, u16, &str), ()>) {
        let parsed = parse_url(url, Vec::new());
        let parsed =
            parsed.as_ref().map(|r| (r.scheme, r.host.as_str(), r.port, r.path.as_str())).map_err(|_| ());
        assert_eq!(parsed, expected, "{url}");
    }

    #[test]
    fn manifest_urls_are_split_into_scheme_host_port_and_path() {
        check("http://a/b?c=d", Ok((Scheme::Http, "a", 80, "/b?c=d")));
        check("https://a", Ok((Scheme::Https, "a", 443, "/")));
        check("http://a:8080/", Ok((Scheme::Http, "a", 8080, "/")));
        check("http://[::1]:81/x", Ok((Scheme::Http, "::1", 81, "/x")));
        check("http://[::1]/x", Ok((Scheme::Http, "::1", 80, "/x")));
        for bad in ["a/b", "ftp://a", "http://", "http://a:port/"] {
            check(bad, Err(()));
        }
    }
}
