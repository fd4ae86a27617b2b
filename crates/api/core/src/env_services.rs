//! Service environment variables (docs/behaviour/pod-environment.md), in both forms: `{SVC}_SERVICE_HOST`, and that of
//! Docker links.

use std::collections::BTreeMap;

use model::containers::spec_of;
use model::k8s::Pod;
use model::service::{ServiceEntry, ServicePortEntry};

/// Namespace and name of the API server's Service: pods of every namespace get its variables.
pub const MASTER_SERVICE: (&str, &str) = ("default", "kubernetes");

/// A Service with its name.
#[derive(Clone, Copy, Debug)]
pub struct NamedService<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub entry: &'a ServiceEntry,
}

/// Whether the pod gets the variables of all services in its namespace.
#[must_use]
pub fn wants_service_links(pod: &Pod) -> bool {
    spec_of(pod).enable_service_links != Some(false)
}

/// The variables of a pod: of the services in its namespace unless `enableServiceLinks` is false, and always of the API
/// server's.
#[must_use]
pub fn service_variables<'a>(
    pod: &Pod,
    services: impl IntoIterator<Item = NamedService<'a>>,
) -> BTreeMap<String, String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let wants_links = wants_service_links(pod);
    let mut chosen: BTreeMap<&str, NamedService<'_>> = BTreeMap::new();
    // Services without a cluster IP have no variables.
    for service in services.into_iter().filter(|service| !service.entry.cluster_ip.is_empty()) {
        let is_master = (service.namespace, service.name) == MASTER_SERVICE;
        let is_linked = wants_links && service.namespace == namespace;
        // A service of the pod's own namespace replaces the one of the default namespace.
        if is_linked || (is_master && !chosen.contains_key(service.name)) {
            chosen.insert(service.name, service);
        }
    }
    chosen.into_values().flat_map(variables).collect()
}

fn variables(service: NamedService<'_>) -> Vec<(String, String)> {
    let prefix = variable_name(service.name);
    let ServiceEntry { cluster_ip: ip, ports } = service.entry;
    let Some(first) = ports.first() else { return Vec::new() };
    let mut all = vec![
        (format!("{prefix}_SERVICE_HOST"), ip.to_string()),
        (format!("{prefix}_SERVICE_PORT"), first.port.to_string()),
        (format!("{prefix}_PORT"), url(ip, first)),
    ];
    for port in ports {
        if !port.name.is_empty() {
            all.push((format!("{prefix}_SERVICE_PORT_{}", variable_name(&port.name)), port.port.to_string()));
        }
        let link = format!("{prefix}_PORT_{}_{}", port.port, port.protocol.as_str());
        all.push((format!("{link}_PROTO"), port.protocol.as_str().to_lowercase()));
        all.push((format!("{link}_PORT"), port.port.to_string()));
        all.push((format!("{link}_ADDR"), ip.to_string()));
        all.push((link, url(ip, port)));
    }
    all
}

fn url(ip: &str, port: &ServicePortEntry) -> String {
    let host = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
    format!("{}://{host}:{}", port.protocol.as_str().to_lowercase(), port.port)
}

fn variable_name(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use model::ServiceObject;
    use serde_json::{Value, json};

    use super::*;

    fn named(services: &[ServiceObject]) -> Vec<NamedService<'_>> {
        let services = services.iter();
        services
            .map(|ServiceObject { namespace, name, entry, .. }| NamedService { namespace, name, entry })
            .collect()
    }

    fn service(namespace: &str, name: &str, ip: &str, ports: &Value) -> ServiceObject {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": namespace}, "spec": {"clusterIP": ip, "ports": ports},
        }))
        .unwrap()
    }

    #[track_caller]
    fn check(namespace: &str, links: Option<bool>, services: &[ServiceObject], expected: &Expect) {
        let pod: Pod = serde_json::from_value(
            json!({"metadata": {"namespace": namespace}, "spec": {"containers": [], "enableServiceLinks": links}}),
        )
        .unwrap();
        let shown: Vec<_> =
            service_variables(&pod, named(services)).iter().map(|(k, v)| format!("{k}={v}")).collect();
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
        let found = service_variables(&pod, named(&all));
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
