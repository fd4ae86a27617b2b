//! The HTTP request of a probe or a lifecycle hook, as its `httpGet` describes it.
//!
//! Owns: defaults, named ports and headers. Never: sending it, or how long it may take.

use model::ContainerRef;
use model::k8s::{HTTPGetAction, HTTPHeader, IntOrString};

/// Why there is no port to talk to. The texts show in the pod's events.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    #[error("couldn't find port: {name} in container {container}")]
    Unknown { name: String, container: String },
    #[error("invalid port number: {number}")]
    OutOfRange { number: i32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpScheme {
    Http,
    Https,
}

/// A GET whose host may still be open: without one it goes to the pod's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAction {
    pub scheme: HttpScheme,
    pub host: Option<String>,
    pub port: u16,
    /// Path and query, beginning with a slash.
    pub path: String,
    /// In the order to send them; a `Host` among them replaces that of the URL.
    pub headers: Vec<(String, String)>,
}

impl HttpAction {
    /// Reads the request. Without the container's spec only numbers are understood as ports. `user_agent` is what the
    /// kubelet calls itself where the user gives no such header.
    ///
    /// # Errors
    /// When the port is out of range or the container names none so.
    pub fn of(
        get: &HTTPGetAction,
        container: Option<&ContainerRef<'_>>,
        user_agent: &str,
    ) -> Result<Self, PortError> {
        let is_https = get.scheme.as_deref().is_some_and(|s| s.eq_ignore_ascii_case("https"));
        let path = get.path.as_deref().unwrap_or_default();
        Ok(Self {
            scheme: if is_https { HttpScheme::Https } else { HttpScheme::Http },
            host: get.host.clone().filter(|host| !host.is_empty()),
            port: resolve_port(&get.port, container)?,
            path: if path.starts_with('/') { path.to_owned() } else { format!("/{path}") },
            headers: headers(get.http_headers.as_deref().unwrap_or_default(), user_agent),
        })
    }

    /// Where the request goes: to its own host or else the pod's address.
    #[must_use]
    pub fn host<'a>(&'a self, pod_ip: &'a str) -> &'a str {
        self.host.as_deref().unwrap_or(pod_ip)
    }

    /// The URL as messages show it.
    #[must_use]
    pub fn url(&self, pod_ip: &str) -> String {
        let scheme = match self.scheme {
            HttpScheme::Http => "http",
            HttpScheme::Https => "https",
        };
        format!("{scheme}://{}{}", join_host_port(self.host(pod_ip), self.port), self.path)
    }
}

/// `host:port`, with IPv6 addresses in brackets.
#[must_use]
pub fn join_host_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// The user's headers, and ours where there is none of that name. An empty `Accept` means: send none.
fn headers(given: &[HTTPHeader], user_agent: &str) -> Vec<(String, String)> {
    let has = |name: &str| given.iter().any(|h| h.name.eq_ignore_ascii_case(name));
    let is_empty_accept = |h: &&HTTPHeader| h.name.eq_ignore_ascii_case("Accept") && h.value.is_empty();
    let mut all: Vec<(String, String)> =
        given.iter().filter(|h| !is_empty_accept(h)).map(|h| (h.name.clone(), h.value.clone())).collect();
    for (name, value) in [("User-Agent", user_agent), ("Accept", "*/*")] {
        if !has(name) {
            all.push((name.to_owned(), value.to_owned()));
        }
    }
    all
}

/// The number of a port that is given by number or by its name in the container.
pub(crate) fn resolve_port(
    port: &IntOrString,
    container: Option<&ContainerRef<'_>>,
) -> Result<u16, PortError> {
    match port {
        IntOrString::Int(number) => port_number(*number),
        IntOrString::String(name) => {
            let ports = container.map(ContainerRef::ports).unwrap_or_default();
            let named = ports.iter().find(|p| p.name.as_deref() == Some(name));
            match (named, name.parse()) {
                (Some(port), _) => port_number(port.container_port),
                (None, Ok(number)) => port_number(number),
                (None, Err(_)) => Err(PortError::Unknown {
                    name: name.clone(),
                    container: container.map(|c| c.name().to_owned()).unwrap_or_default(),
                }),
            }
        }
    }
}

pub(crate) fn port_number(number: i32) -> Result<u16, PortError> {
    u16::try_from(number).ok().filter(|n| *n > 0).ok_or(PortError::OutOfRange { number })
}

#[cfg(test)]
mod tests {
    use model::containers::find_container;
    use model::k8s::Pod;
    use serde_json::{Value, json};

    use super::*;

    /// The request of a hook of a container whose port `quux` is 8080, or what is wrong.
    fn action(get: &Value) -> Result<HttpAction, PortError> {
        let ports = json!([{"name": "quux", "containerPort": 8080}]);
        let pod: Pod =
            serde_json::from_value(json!({"spec": {"containers": [{"name": "c", "ports": ports}]}})).unwrap();
        let get = serde_json::from_value(get.clone()).unwrap();
        HttpAction::of(&get, find_container(&pod, "c").as_ref(), "kube-lifecycle/1.36")
    }

    /// `lifecycle/handlers_test.go`, TestRunHTTPHandler and TestRunHandlerHTTPPort. A scheme that is neither HTTP nor HTTPS is
    /// refused by the API server; here it is HTTP.
    #[test]
    fn run_http_handler_table() {
        for (name, get, pod_ip, expected) in [
            (
                "missing pod IP",
                json!({"path": "foo", "port": "42", "host": "example.test", "scheme": "http"}),
                "",
                "http://example.test:42/foo",
            ),
            (
                "missing host",
                json!({"path": "foo", "port": "42", "scheme": "http"}),
                "233.252.0.1",
                "http://233.252.0.1:42/foo",
            ),
            (
                "leading slash",
                json!({"path": "/foo", "port": "42"}),
                "233.252.0.1",
                "http://233.252.0.1:42/foo",
            ),
            ("port resolution", json!({"path": "foo", "port": "quux"}), "1.2.3.4", "http://1.2.3.4:8080/foo"),
            (
                "https",
                json!({"path": "foo", "port": "4430", "scheme": "https"}),
                "1.2.3.4",
                "https://1.2.3.4:4430/foo",
            ),
            ("query param", json!({"path": "foo?k=v", "port": "80"}), "1.2.3.4", "http://1.2.3.4:80/foo?k=v"),
            ("fragment", json!({"path": "foo#frag", "port": "80"}), "1.2.3.4", "http://1.2.3.4:80/foo#frag"),
            (
                "consistent/with port",
                json!({"path": "bar", "port": "70", "host": "foo", "scheme": "HTTPS"}),
                "127.0.0.1",
                "https://foo:70/bar",
            ),
        ] {
            assert_eq!(action(&get).unwrap().url(pod_ip), expected, "{name}");
        }
        let without_port = action(&json!({"path": "bar", "port": "", "host": "foo"}));
        assert!(matches!(without_port, Err(PortError::Unknown { .. })), "consistent/without port");
    }

    #[test]
    fn run_http_handler_headers_table() {
        let headers = |given: Value| {
            let action = action(&json!({"path": "foo", "port": "80", "httpHeaders": given})).unwrap();
            action.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>()
        };
        let own = ["User-Agent: kube-lifecycle/1.36", "Accept: */*"];
        assert_eq!(headers(json!([])), own);
        assert_eq!(headers(json!([{"name": "Foo", "value": "bar"}])), ["Foo: bar", own[0], own[1]]);
        let host = headers(json!([{"name": "Host", "value": "from.header"}]));
        assert_eq!(host, ["Host: from.header", own[0], own[1]]);
    }
}
