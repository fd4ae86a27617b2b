//! Services as the kubelet uses them: address and ports, for environment variables. All else is dropped when one is decoded, because
//! anyone may store megabytes of it.

use serde::Deserialize;

/// A Service with more ports is malformed: each of them makes four variables or more, and no process can have that many.
pub const MAX_SERVICE_PORTS: usize = 1000;
/// The address of a Service that has none on purpose.
const HEADLESS: &str = "None";

/// A Service of the API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "ServiceJson")]
pub struct ServiceObject {
    pub namespace: String,
    pub name: String,
    pub resource_version: String,
    pub entry: ServiceEntry,
}

/// What is kept of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceEntry {
    /// Empty without an address.
    pub cluster_ip: Box<str>,
    /// Empty without an address.
    pub ports: Box<[ServicePortEntry]>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ServicePortEntry {
    #[serde(default)]
    pub name: Box<str>,
    pub port: i32,
    #[serde(default)]
    pub protocol: ServiceProtocol,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ServiceProtocol {
    #[default]
    Tcp,
    Udp,
    Sctp,
}

impl ServiceProtocol {
    /// `TCP`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}

#[derive(Deserialize)]
struct ServiceJson {
    metadata: MetadataJson,
    spec: Option<SpecJson>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetadataJson {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    resource_version: String,
}

#[derive(Deserialize)]
struct SpecJson {
    #[serde(rename = "clusterIP")]
    cluster_ip: Option<Box<str>>,
    ports: Option<Vec<ServicePortEntry>>,
}

impl TryFrom<ServiceJson> for ServiceObject {
    type Error = String;

    fn try_from(json: ServiceJson) -> Result<Self, String> {
        let (ip, ports) = json.spec.map_or((None, None), |spec| (spec.cluster_ip, spec.ports));
        let ports = ports.unwrap_or_default();
        if ports.len() > MAX_SERVICE_PORTS {
            let count = ports.len();
            return Err(format!("spec.ports: {count} ports, at most {MAX_SERVICE_PORTS} are allowed"));
        }
        let ip = ip.filter(|ip| !ip.is_empty() && **ip != *HEADLESS);
        let entry = ip.map(|cluster_ip| ServiceEntry { cluster_ip, ports: ports.into_boxed_slice() });
        let MetadataJson { namespace, name, resource_version } = json.metadata;
        Ok(Self { namespace, name, resource_version, entry: entry.unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(spec: serde_json::Value) -> Result<ServiceEntry, String> {
        let metadata = json!({"name": "db", "managedFields": 7, "annotations": 7});
        let service = serde_json::from_value::<ServiceObject>(json!({"metadata": metadata, "spec": spec}));
        service.map(|service| service.entry).map_err(|error| error.to_string())
    }

    #[test]
    fn service_is_decoded_as_far_as_variables_need_it() {
        let ports = json!([{"port": 80, "nodePort": "x"}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
        let found = entry(json!({"clusterIP": "10.0.0.1", "ports": &ports, "selector": 7})).unwrap();
        assert_eq!(&*found.cluster_ip, "10.0.0.1");
        let shown =
            |port: &ServicePortEntry| format!("{} {} {}", port.name, port.port, port.protocol.as_str());
        assert_eq!(found.ports.iter().map(shown).collect::<Vec<_>>(), [" 80 TCP", "dns 53 UDP"]);
        for ip in [json!("None"), json!(""), json!(null)] {
            assert_eq!(entry(json!({"clusterIP": ip, "ports": &ports})), Ok(ServiceEntry::default()));
        }
        assert_eq!(entry(json!(null)), Ok(ServiceEntry::default()));
    }

    #[test]
    fn service_with_too_many_ports_is_malformed() {
        let ports = |count: usize| vec![json!({"port": 1}); count];
        assert!(entry(json!({"clusterIP": "10.0.0.1", "ports": ports(1000)})).is_ok());
        let error = entry(json!({"clusterIP": "10.0.0.1", "ports": ports(1001)})).unwrap_err();
        assert_eq!(error, "spec.ports: 1001 ports, at most 1000 are allowed");
    }
}
