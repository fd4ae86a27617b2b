//! The location of a backend, from the pod and node objects, and the paths and parameters of the kubelet's API. Pure
//! functions.

use std::fmt;
use std::net::IpAddr;

use http::Uri;
use serde_json::Value;

use crate::http::{Query, encode};
use crate::object::{self, items, text};
use crate::status::ApiError;

/// The port of a kubelet whose node reports none.
const KUBELET_PORT: u16 = 10250;
/// The preferred types of node addresses, in the order that kubeadm sets for the real server.
const PREFERRED_ADDRESS_TYPES: &[&str] = &["InternalIP", "ExternalIP", "Hostname"];
/// The streams of exec and attach: the parameter of the API, and that of the kubelet.
const STREAMS: &[(&str, &str)] =
    &[("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")];

/// The protocol of a connection to a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    /// TLS with the server's client certificate; a serving certificate of the cluster's authority must be valid.
    Kubelet,
    /// TLS with the server's client certificate; any serving certificate is accepted.
    KubeletUnverified,
    /// TLS without a client certificate; any serving certificate is accepted.
    Tls,
    Plain,
}

/// A host (a name or an address, without brackets) and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostPort {
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) channel: Channel,
    pub(super) host_port: HostPort,
    pub(super) path_and_query: String,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.channel == Channel::Plain { "http" } else { "https" };
        write!(f, "{scheme}://{}{}", self.host_port, self.path_and_query)
    }
}

/// Where the kubelet of this node listens: at `address`, or at the preferred address of the node.
pub(super) fn kubelet(node: &Value, address: Option<IpAddr>) -> Result<HostPort, ApiError> {
    let host = address.map_or_else(|| preferred_address(node), |address| Ok(address.to_string()))?;
    let port = node.pointer("/status/daemonEndpoints/kubeletEndpoint/Port").and_then(Value::as_u64);
    let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
    Ok(HostPort { host, port: port.unwrap_or(KUBELET_PORT) })
}

fn preferred_address(node: &Value) -> Result<String, ApiError> {
    let addresses = items(node, "/status/addresses");
    let of_kind = |kind: &&str| {
        let found = addresses.iter().find(|address| text(address, "/type") == *kind);
        found.map(|address| text(address, "/address").to_owned()).filter(|address| !address.is_empty())
    };
    PREFERRED_ADDRESS_TYPES.iter().find_map(of_kind).ok_or_else(|| {
        let known: Vec<String> = addresses
            .iter()
            .map(|address| format!("{{{} {}}}", text(address, "/type"), text(address, "/address")))
            .collect();
        ApiError::without_reason(format!(
            "no preferred addresses found; known addresses: [{}]",
            known.join(" ")
        ))
    })
}

/// The requested container, or the only one of the pod.
pub(super) fn container<'a>(pod: &'a Value, requested: Option<&str>) -> Result<&'a str, ApiError> {
    let all = ["initContainers", "containers", "ephemeralContainers"];
    let all: Vec<&str> = all
        .iter()
        .flat_map(|list| items(pod, &format!("/spec/{list}")))
        .map(|container| text(container, "/name"))
        .collect();
    let name = object::name(pod);
    if let Some(requested) = requested {
        let found = all.into_iter().find(|container| *container == requested);
        let refused = || ApiError::bad_request(format!("container {requested} is not valid for pod {name}"));
        return found.ok_or_else(refused);
    }
    let message = format!("a container name must be specified for pod {name}");
    match items(pod, "/spec/containers") {
        [only] => Ok(text(only, "/name")),
        [] => Err(ApiError::bad_request(message)),
        _ => Err(ApiError::bad_request(format!("{message}, choose one of: [{}]", all.join(" ")))),
    }
}

/// `/exec/<namespace>/<pod>/<container>?<query>`.
pub(super) fn stream_path(first: &str, pod: &Value, container: Option<&str>, query: &str) -> String {
    let mut path = format!("/{first}/{}/{}", encode(object::namespace(pod)), encode(object::name(pod)));
    if let Some(part) = container {
        path.push('/');
        path.push_str(&encode(part));
    }
    if !query.is_empty() {
        path.push('?');
        path.push_str(query);
    }
    path
}

/// The kubelet's parameters of an exec, attach or port-forward.
pub(super) fn stream_query(part: &str, query: &Query) -> Result<String, ApiError> {
    let mut parameters: Vec<String> = Vec::new();
    if part == "portforward" {
        let ports: Vec<&str> = query.all("ports").flat_map(|ports| ports.split(',')).collect();
        for port in &ports {
            let bad = || ApiError::bad_request(format!("ports: {port:?} is not a port number"));
            port.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(bad)?;
        }
        if !ports.is_empty() {
            parameters.push(format!("port={}", encode(&ports.join(","))));
        }
        return Ok(parameters.join("&"));
    }
    if part == "exec" {
        parameters.extend(query.all("command").map(|word| format!("command={}", encode(word))));
    }
    let streams = STREAMS.iter().filter(|(parameter, _)| query.flag(parameter));
    parameters.extend(streams.map(|(_, of_kubelet)| format!("{of_kubelet}=1")));
    Ok(parameters.join("&"))
}

/// `name`, `name:port` or `scheme:name:port`, as the name of a pod or node in a proxy path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SchemeNamePort<'a> {
    scheme: &'a str,
    pub(super) name: &'a str,
    /// Empty if not specified.
    pub(super) port: &'a str,
}

impl<'a> SchemeNamePort<'a> {
    pub(super) fn parse(id: &'a str) -> Option<Self> {
        let parts: Vec<&str> = id.split(':').collect();
        let (scheme, name, port) = match parts.as_slice() {
            [name] => ("", *name, ""),
            [name, port] => ("", *name, *port),
            [scheme, name, port] => (*scheme, *name, *port),
            _ => return None,
        };
        let good = !name.is_empty() && ["", "http", "https"].contains(&scheme);
        good.then_some(Self { scheme, name, port })
    }

    pub(super) fn channel(&self) -> Channel {
        if self.scheme == "https" { Channel::Tls } else { Channel::Plain }
    }

    /// The default port of the scheme.
    pub(super) fn default_port(&self) -> u16 {
        if self.scheme == "https" { 443 } else { 80 }
    }
}

/// The first declared container port of the pod.
pub(super) fn first_port(pod: &Value) -> Option<u16> {
    let mut containers = items(pod, "/spec/containers").iter();
    let port = containers.find_map(|container| container.pointer("/ports/0/containerPort")?.as_u64());
    port.and_then(|port| u16::try_from(port).ok())
}

pub(super) fn pod_address(pod: &Value) -> Option<String> {
    let first = items(pod, "/status/podIPs").first().map(|ip| text(ip, "/ip"));
    let address = first.unwrap_or_else(|| text(pod, "/status/podIP"));
    (!address.is_empty()).then(|| address.to_owned())
}

/// The path after its first `segments` segments, and the query, both unchanged. Empty if no slash follows the segments: the
/// proxy answers with a redirect then.
pub(super) fn proxied(uri: &Uri, segments: usize) -> String {
    // Plus the empty string before the first slash.
    let rest = uri.path().splitn(segments + 2, '/').nth(segments + 1);
    match (rest, uri.query()) {
        (None, _) => String::new(),
        (Some(path), None) => format!("/{path}"),
        (Some(path), Some(query)) => format!("/{path}?{query}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(addresses: &[(&str, &str)], port: u64) -> Value {
        let addresses: Vec<Value> =
            addresses.iter().map(|(kind, address)| json!({"type": kind, "address": address})).collect();
        let endpoint = json!({"kubeletEndpoint": {"Port": port}});
        json!({"status": {"addresses": addresses, "daemonEndpoints": endpoint}})
    }

    fn pod(containers: &[&str]) -> Value {
        let named = |name: &&str| json!({"name": name, "ports": [{"containerPort": 8080}]});
        let containers: Vec<Value> = containers.iter().map(named).collect();
        json!({
            "metadata": {"name": "p", "namespace": "a"},
            "spec": {"initContainers": [{"name": "first"}], "containers": containers},
        })
    }

    #[test]
    fn kubelet_listens_at_the_preferred_address_of_the_node_or_at_the_given_one() {
        let at =
            |addresses: &[(&str, &str)], port| kubelet(&node(addresses, port), None).unwrap().to_string();
        assert_eq!(at(&[("Hostname", "n"), ("InternalIP", "10.0.0.1")], 10251), "10.0.0.1:10251");
        assert_eq!(at(&[("Hostname", "n")], 0), "n:10250");
        assert_eq!(at(&[("InternalIP", "fd00::1")], 1), "[fd00::1]:1");
        let error = kubelet(&node(&[("ExternalDNS", "n.example")], 1), None).unwrap_err();
        let expected = "no preferred addresses found; known addresses: [{ExternalDNS n.example}]";
        assert_eq!((error.code.as_u16(), error.message.as_str()), (500, expected));
        let given = kubelet(&node(&[("InternalIP", "10.0.0.1")], 10251), Some("::1".parse().unwrap()));
        assert_eq!(given.unwrap().to_string(), "[::1]:10251");
    }

    #[test]
    fn container_is_the_requested_or_only_one() {
        assert_eq!(container(&pod(&["c"]), None).unwrap(), "c");
        assert_eq!(container(&pod(&["c"]), Some("first")).unwrap(), "first");
        let refused = |pod: Value, requested| container(&pod, requested).unwrap_err().message;
        assert_eq!(refused(pod(&["c"]), Some("x")), "container x is not valid for pod p");
        let expected = "a container name must be specified for pod p, choose one of: [first c d]";
        assert_eq!(refused(pod(&["c", "d"]), None), expected);
        assert_eq!(refused(pod(&[]), None), "a container name must be specified for pod p");
    }

    #[test]
    fn stream_parameters_are_translated_to_those_of_the_kubelet() {
        for (part, sent, expected) in [
            (
                "exec",
                "command=sh&command=-c&command=a%26b+c&stdin=true&stdout=1&tty=false",
                "command=sh&command=-c&command=a%26b+c&input=1&output=1",
            ),
            ("attach", "command=x&stderr=true&stdout=true&tty=true&container=c", "output=1&error=1&tty=1"),
            ("portforward", "ports=80&ports=81,82", "port=80%2C81%2C82"),
            ("portforward", "", ""),
        ] {
            assert_eq!(stream_query(part, &Query::parse(sent)).unwrap(), expected, "{part} {sent}");
        }
        let refused = stream_query("portforward", &Query::parse("ports=many")).unwrap_err();
        assert_eq!(refused.message, "ports: \"many\" is not a port number");
        assert_eq!(stream_path("exec", &pod(&["c"]), Some("c"), "tty=1"), "/exec/a/p/c?tty=1");
        assert_eq!(stream_path("portForward", &pod(&["c"]), None, ""), "/portForward/a/p");
    }

    #[test]
    fn proxied_name_may_contain_scheme_and_port() {
        let parse = SchemeNamePort::parse;
        assert_eq!(parse("n"), Some(SchemeNamePort { scheme: "", name: "n", port: "" }));
        assert_eq!(parse("https:n:443").map(|requested| requested.channel()), Some(Channel::Tls));
        assert_eq!(
            parse("n:80").map(|requested| (requested.port, requested.channel())),
            Some(("80", Channel::Plain))
        );
        for bad in ["", "ftp:n:1", "a:b:c:d", ":80"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!(first_port(&pod(&["c"])), Some(8080));
    }

    #[test]
    fn proxied_path_and_query_are_forwarded_unchanged() {
        let after = |path: &str| proxied(&path.parse().unwrap(), 5);
        assert_eq!(after("/api/v1/nodes/n/proxy/a%2Fb//c/?d=e%20f"), "/a%2Fb//c/?d=e%20f");
        assert_eq!(after("/api/v1/nodes/n/proxy/"), "/");
        assert_eq!(after("/api/v1/nodes/n/proxy"), "");
    }
}
