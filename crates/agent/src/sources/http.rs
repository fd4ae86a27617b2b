//! Manifests from a URL: a Pod or a PodList, requested at a fixed period. After a failed or invalid response the last valid
//! version stays in effect; the version from before a restart is known from the pods' checkpoints.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use config::Features;
use kubelet_core::sources::static_pod::{Origin, parse_manifest};
use kubelet_core::sources::{DesiredPod, last_described_by};
use model::KeptPod;
use model::PodSource;
use ports::net::{HttpGet, Scheme};
use ports::{Clock, Files, Net};
use tokio::sync::mpsc;

use super::{ManifestProblems, SourceSet, checkpointed_pods, seen_now, warnings};
use crate::settings::Paths;

/// Timeout of a request, and limit for the size of the response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const BODY_LIMIT: usize = 10 << 20;

pub struct HttpSource {
    pub net: Arc<dyn Net>,
    pub files: Arc<dyn Files>,
    pub clock: Clock,
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub period: Duration,
    pub node_name: String,
    /// Has the directory of pod checkpoints.
    pub paths: Paths,
    pub features: Features,
    pub problems: ManifestProblems,
    pub sets: mpsc::Sender<SourceSet>,
}

fn set_of(pods: Vec<KeptPod>) -> SourceSet {
    let pods = pods.into_iter().map(DesiredPod::of_manifest).collect();
    SourceSet { source: PodSource::Http, pods, is_complete: true, undecodable: BTreeSet::new() }
}

impl std::fmt::Debug for HttpSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpSource").field("url", &self.url).finish_non_exhaustive()
    }
}

impl HttpSource {
    /// Runs until dropped.
    pub async fn run(self) {
        let origin = format!("url:{}", self.url);
        let mut last_content = Vec::new();
        let mut has_spoken = false;
        loop {
            let mut set = self.poll(&origin, &mut last_content).await;
            if set.is_none() && !has_spoken {
                set = self.load_checkpoints().await;
            }
            if let Some(set) = set {
                has_spoken = true;
                if self.sets.send(set).await.is_err() {
                    return;
                }
            }
            self.clock.sleep_until(self.clock.mono() + self.period).await;
        }
    }

    /// The pods of the response, if it is new and valid.
    async fn poll(&self, origin: &str, last_content: &mut Vec<u8>) -> Option<SourceSet> {
        match self.fetch().await {
            Ok(content) if content == *last_content => None,
            Ok(content) => {
                let set = self.parse(origin, &content);
                *last_content = content;
                set
            }
            Err(problem) => {
                self.problems.report(origin, vec![problem]);
                None
            }
        }
    }

    /// For a server that has not answered since the start, uses the pods from their checkpoints, so that housekeeping is not
    /// blocked.
    async fn load_checkpoints(&self) -> Option<SourceSet> {
        let checkpointed = checkpointed_pods(&*self.files, &self.paths).await?;
        let pods = last_described_by(&Origin::Url(self.url.clone()), &checkpointed);
        tracing::info!(
            url = self.url,
            pods = pods.len(),
            "Failed to read manifests from URL since the start, continuing pods from their checkpoints"
        );
        Some(set_of(pods))
    }

    fn parse(&self, origin: &str, content: &[u8]) -> Option<SourceSet> {
        match parse_manifest(content, &Origin::Url(self.url.clone()), &self.node_name, self.features) {
            Ok(parsed) => {
                self.problems.report(origin, warnings(&parsed.warnings));
                let pods = seen_now(parsed.pods, self.clock.now().wall);
                Some(set_of(pods))
            }
            Err(errors) => {
                self.problems.report(origin, errors.iter().map(ToString::to_string).collect());
                None
            }
        }
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
        if answer.body.is_empty() {
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
        timeout: REQUEST_TIMEOUT,
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
