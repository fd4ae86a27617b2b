//! Authorization attributes of a request: the verb, and the subresources of this node, any of which allows the request. Pure;
//! the subresources of each endpoint are in `endpoint`.

use http::Method;

use crate::endpoint::Endpoint;

/// The attributes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) verb: &'static str,
    /// The most specific first.
    pub(crate) subresources: &'static [&'static str],
}

/// For unknown paths: only a client with access to everything learns that they do not exist.
const EVERYTHING: &[&str] = &["proxy"];

/// The endpoint with the longest root that the path is at or below decides.
pub(crate) fn of(method: &Method, path: &str) -> Attributes {
    let endpoints = Endpoint::ALL.iter().filter(|endpoint| is_at_or_below(endpoint.root(), path));
    let endpoint = endpoints.max_by_key(|endpoint| endpoint.root().len());
    Attributes {
        verb: super::verb(method),
        subresources: endpoint.map_or(EVERYTHING, |endpoint| endpoint.subresources()),
    }
}

fn is_at_or_below(root: &str, path: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_its_subresources() {
        for (path, expected) in [
            ("/healthz", "healthz proxy"),
            ("/healthz/syncloop", "healthz proxy"),
            ("/pods", "pods proxy"),
            ("/runningpods/", "pods proxy"),
            ("/configz", "configz proxy"),
            ("/stats/summary", "stats"),
            ("/metrics", "metrics"),
            ("/metrics/cadvisor", "metrics"),
            ("/logs", "log"),
            ("/logs/syslog", "log"),
            ("/checkpoint/ns/pod/main", "checkpoint"),
            ("/statusz", "statusz"),
            ("/flagz", "configz"),
            ("/containerLogs/ns/pod/main", "proxy"),
            ("/exec/ns/pod/main", "proxy"),
            ("/attach/ns/pod/uid/main", "proxy"),
            ("/portForward/ns/pod", "proxy"),
            ("/run/ns/pod/main", "proxy"),
            ("/debug/pprof/heap", "proxy"),
            ("/debug/flags/v", "proxy"),
            ("/debug/manifests", "pods proxy"),
            ("/debug/pods/uid/start.svg", "pods proxy"),
            // Unknown paths that resemble endpoints.
            ("/", "proxy"),
            ("/metricsx", "proxy"),
            ("/podsecrets", "proxy"),
            ("//pods", "proxy"),
            ("/x/../pods", "proxy"),
        ] {
            assert_eq!(of(&Method::GET, path).subresources.join(" "), expected, "{path}");
        }
    }

    #[test]
    fn http_methods_are_mapped_to_verbs() {
        for (method, verb) in [
            ("GET", "get"),
            ("POST", "create"),
            ("PUT", "update"),
            ("PATCH", "patch"),
            ("DELETE", "delete"),
            // pkg/kubelet/server/auth.go: no verb for any other method.
            ("HEAD", ""),
            ("OPTIONS", ""),
            ("MADEUP", ""),
        ] {
            assert_eq!(of(&Method::from_bytes(method.as_bytes()).unwrap(), "/pods").verb, verb);
        }
    }
}
