//! Service environment variables (docs/behaviour/pod-environment.md), in both forms: `{SVC}_SERVICE_HOST`, and that of
//! Docker links.

use std::collections::BTreeMap;

use model::containers::spec_of;
use model::k8s::{Pod, Service, ServicePort};

/// Pods of every namespace get the variables of the service `kubernetes`.
const MASTER: (&str, &str) = ("default", "kubernetes");

/// The variables of a pod: of the services in its namespace unless `enableServiceLinks` is false, and always of the API
/// server's.
#[must_use]
pub fn service_variables(pod: &Pod, services: &[&Service]) -> BTreeMap<String, String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let wants_links = spec_of(pod).enable_service_links != Some(false);
    let mut chosen: BTreeMap<&str, (&Service, &str)> = BTreeMap::new();
    for service in services {
        let Some(ip) = cluster_ip(service) else { continue };
        let of = |field: &'static str, text: &Option<String>| text.as_deref() == Some(field);
        let is_master = of(MASTER.0, &service.metadata.namespace) && of(MASTER.1, &service.metadata.name);
        let is_linked = wants_links && service.metadata.namespace.as_deref() == Some(namespace);
        let name = service.metadata.name.as_deref().unwrap_or_default();
        // A service of the pod's own namespace replaces the one of the default namespace.
        if is_linked || (is_master && !chosen.contains_key(name)) {
            chosen.insert(name, (service, ip));
        }
    }
    chosen.into_iter().flat_map(|(name, (service, ip))| variables(name, ip, service)).collect()
}

/// Services without a cluster IP have no variables.
fn cluster_ip(service: &Service) -> Option<&str> {
    let ip = service.spec.as_ref()?.cluster_ip.as_deref()?;
    (!ip.is_empty() && ip != "None").then_some(ip)
}

fn variables(name: &str, ip: &str, service: &Service) -> Vec<(String, String)> {
    let prefix = variable_name(name);
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    let Some(first) = ports.first() else { return Vec::new() };
    let mut all = vec![
        (format!("{prefix}_SERVICE_HOST"), ip.to_owned()),
        (format!("{prefix}_SERVICE_PORT"), first.port.to_string()),
        (format!("{prefix}_PORT"), url(ip, first)),
    ];
    for port in ports {
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            all.push((format!("{prefix}_SERVICE_PORT_{}", variable_name(name)), port.port.to_string()));
        }
        let link = format!("{prefix}_PORT_{}_{}", port.port, protocol(port).to_uppercase());
        all.push((format!("{link}_PROTO"), protocol(port).to_lowercase()));
        all.push((format!("{link}_PORT"), port.port.to_string()));
        all.push((format!("{link}_ADDR"), ip.to_owned()));
        all.push((link, url(ip, port)));
    }
    all
}

fn protocol(port: &ServicePort) -> &str {
    port.protocol.as_deref().unwrap_or("TCP")
}

fn url(ip: &str, port: &ServicePort) -> String {
    let host = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
    format!("{}://{host}:{}", protocol(port).to_lowercase(), port.port)
}

fn variable_name(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::{Value, json};

    use super::*;

    fn service(namespace: &str, name: &str, ip: &str, ports: &Value) -> Service {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": namespace}, "spec": {"clusterIP": ip, "ports": ports},
        }))
        .unwrap()
    }

    #[track_caller]
    fn check(namespace: &str, links: Option<bool>, services: &[Service], expected: &Expect) {
        let pod: Pod = serde_json::from_value(
            json!({"metadata": {"namespace": namespace}, "spec": {"containers": [], "enableServiceLinks": links}}),
        )
        .unwrap();
        let all: Vec<_> = services.iter().collect();
        let shown: Vec<_> = service_variables(&pod, &all).iter().map(|(k, v)| format!("{k}={v}")).collect();
        expected.assert_eq(&shown.join("\n"));
    }

    #[test]
    fn service_variables_have_both_forms() {
        let ports = json!([{"port": 80}, {"port": 53, "name": "dns-udp", "protocol": "UDP"}]);
        check(
            "ns",
            None,
            &[service("ns", "my-db", "10.0.0.1", &ports)],
            &expect![[r#"
            MY_DB_PORT=tcp://10.0.0.1:80
            MY_DB_PORT_53_UDP=udp://10.0.0.1:53
            MY_DB_PORT_53_UDP_ADDR=10.0.0.1
            MY_DB_PORT_53_UDP_PORT=53
            MY_DB_PORT_53_UDP_PROTO=udp
            MY_DB_PORT_80_TCP=tcp://10.0.0.1:80
            MY_DB_PORT_80_TCP_ADDR=10.0.0.1
            MY_DB_PORT_80_TCP_PORT=80
            MY_DB_PORT_80_TCP_PROTO=tcp
            MY_DB_SERVICE_HOST=10.0.0.1
            MY_DB_SERVICE_PORT=80
            MY_DB_SERVICE_PORT_DNS_UDP=53"#]],
        );
    }

    fn hosts(namespace: &str, links: Option<bool>) -> String {
        let ports = json!([{"port": 1}]);
        let all = [
            service("default", "kubernetes", "10.0.0.1", &ports),
            service("default", "other", "10.0.0.2", &ports),
            service("ns", "a", "10.0.0.3", &ports),
            service("ns", "headless", "None", &ports),
            service("ns", "external", "", &ports),
            service("own", "kubernetes", "10.0.0.9", &ports),
        ];
        let pod: Pod = serde_json::from_value(
            json!({"metadata": {"namespace": namespace}, "spec": {"containers": [], "enableServiceLinks": links}}),
        )
        .unwrap();
        let found = service_variables(&pod, &all.iter().collect::<Vec<_>>());
        let hosts = found.iter().filter(|(name, _)| name.ends_with("_HOST"));
        hosts.map(|(name, ip)| format!("{name}={ip}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_pod_sees_its_namespace_and_always_the_api_server() {
        assert_eq!(hosts("ns", None), "A_SERVICE_HOST=10.0.0.3 KUBERNETES_SERVICE_HOST=10.0.0.1");
        assert_eq!(hosts("ns", Some(true)), hosts("ns", None));
        assert_eq!(hosts("ns", Some(false)), "KUBERNETES_SERVICE_HOST=10.0.0.1");
        assert_eq!(hosts("own", None), "KUBERNETES_SERVICE_HOST=10.0.0.9");
        assert_eq!(hosts("own", Some(false)), "KUBERNETES_SERVICE_HOST=10.0.0.1");
        assert_eq!(hosts("default", None), "KUBERNETES_SERVICE_HOST=10.0.0.1 OTHER_SERVICE_HOST=10.0.0.2");
    }

    #[test]
    fn an_address_of_version_six_stands_in_brackets() {
        let one = service("ns", "a", "fd00::1", &json!([{"port": 1}]));
        check(
            "ns",
            None,
            &[one],
            &expect![[r#"
            A_PORT=tcp://[fd00::1]:1
            A_PORT_1_TCP=tcp://[fd00::1]:1
            A_PORT_1_TCP_ADDR=fd00::1
            A_PORT_1_TCP_PORT=1
            A_PORT_1_TCP_PROTO=tcp
            A_SERVICE_HOST=fd00::1
            A_SERVICE_PORT=1"#]],
        );
    }
}
