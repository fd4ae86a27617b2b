//! The hostname of a pod (docs/behaviour/pod-environment.md). Not used for pods in the node's network namespace, which have
//! the node's name.

use config::Features;
use model::PodRef;
use model::containers::spec_of;
use model::k8s::Pod;

use base_core::names::{label_problem, subdomain_problem};

/// Linux limits a hostname to 64 characters; DNS labels are limited to 63.
const MAX_LABEL: usize = 63;
const MAX_FQDN: usize = 64;

/// The hostname of a pod, and its DNS domain, if it has a subdomain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodHostname {
    pub name: String,
    /// `<subdomain>.<namespace>.svc.<cluster domain>`, or empty.
    pub domain: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostnameError {
    #[error("pod Hostname {name:?} is not a valid DNS label: {problem}")]
    Hostname { name: String, problem: &'static str },
    #[error("pod Subdomain {name:?} is not a valid DNS label: {problem}")]
    Subdomain { name: String, problem: &'static str },
    #[error("hostname for pod {pod:?} was invalid: {name:?}")]
    Empty { pod: String, name: String },
    #[error(
        "failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too long ({MAX_FQDN} is the max \
         characters supported)"
    )]
    TooLong { fqdn: String },
    #[error("pod HostnameOverride {name:?} is not a valid DNS subdomain: {problem}")]
    Override { name: String, problem: &'static str },
}

/// The pod's hostname: its override, else `spec.hostname`, else the pod's name cut to a DNS label.
///
/// A configured name is not a DNS label, or the truncated name is empty.
/// What was written is no DNS label, or nothing is left of a name after cutting.
pub fn compute_hostname(
    pod: &Pod,
    cluster_domain: &str,
    features: Features,
) -> Result<PodHostname, HostnameError> {
    let spec = spec_of(pod);
    let who = PodRef::of(pod);
    let overridden =
        spec.hostname_override.clone().filter(|name| features.hostname_override && !name.is_empty());
    if let Some(name) = overridden {
        // KEP-4762 speaks of 64 characters, and the API server accepts them; the Go kubelet cuts them to 63.
        return match subdomain_problem(&name) {
            Some(problem) => Err(HostnameError::Override { name, problem }),
            None => Ok(PodHostname { name: cut_to_label(&who, name)?, domain: String::new() }),
        };
    }
    let given = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    let name = match given(&spec.hostname) {
        Some(name) => match label_problem(&name) {
            Some(problem) => return Err(HostnameError::Hostname { name, problem }),
            None => name,
        },
        None => who.name.to_string(),
    };
    let domain = match given(&spec.subdomain) {
        Some(name) => match label_problem(&name) {
            Some(problem) => return Err(HostnameError::Subdomain { name, problem }),
            None => format!("{name}.{}.svc.{cluster_domain}", who.namespace),
        },
        None => String::new(),
    };
    Ok(PodHostname { name: cut_to_label(&who, name)?, domain })
}

impl PodHostname {
    /// The hostname that the kernel gets: the short name, or the full one where the pod asks for it and has a domain.
    ///
    /// # Errors
    /// The full name is longer than Linux allows.
    pub fn kernel_name(&self, as_fqdn: bool) -> Result<String, HostnameError> {
        if !as_fqdn || self.domain.is_empty() {
            return Ok(self.name.clone());
        }
        let fqdn = format!("{}.{}", self.name, self.domain);
        if fqdn.len() > MAX_FQDN { Err(HostnameError::TooLong { fqdn }) } else { Ok(fqdn) }
    }
}

fn cut_to_label(who: &PodRef, name: String) -> Result<String, HostnameError> {
    if name.len() <= MAX_LABEL {
        return Ok(name);
    }
    let end = name.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= MAX_LABEL).last();
    let cut = name[..end.unwrap_or(0)].trim_end_matches(['-', '.']);
    if cut.is_empty() {
        return Err(HostnameError::Empty { pod: who.name.to_string(), name });
    }
    Ok(cut.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn pod(name: &str, spec: &serde_json::Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec})).unwrap()
    }

    #[track_caller]
    fn check(name: &str, spec: &str, expected: &str) {
        let mut spec: serde_json::Value = serde_json::from_str(spec).unwrap();
        spec["containers"] = json!([]);
        let pod = pod(name, &spec);
        let fqdn = spec_of(&pod).set_hostname_as_fqdn.unwrap_or(false);
        let found =
            compute_hostname(&pod, "cluster.local", Features::default()).and_then(|h| h.kernel_name(fqdn));
        assert_eq!(found.unwrap_or_else(|e| format!("! {e}")), expected);
    }

    #[test]
    fn hostname_is_the_pod_name_unless_the_spec_sets_one() {
        check("web-0", "{}", "web-0");
        check("web-0", r#"{"hostname": "db"}"#, "db");
        check("web-0", r#"{"hostname": "db", "subdomain": "s"}"#, "db");
        check("web-0", r#"{"hostnameOverride": "db.example.org"}"#, "db.example.org");
    }

    #[test]
    fn an_override_counts_only_with_its_gate() {
        let pod = pod("web-0", &json!({"hostnameOverride": "db.example.org", "containers": []}));
        let name = |hostname_override| {
            let features = Features { hostname_override, ..Features::default() };
            compute_hostname(&pod, "cluster.local", features).map(|found| found.name)
        };
        assert_eq!((name(true), name(false)), (Ok("db.example.org".to_owned()), Ok("web-0".to_owned())));
    }

    #[test]
    fn long_names_are_cut_to_a_label_that_ends_well() {
        check(&"a".repeat(70), "{}", &"a".repeat(63));
        check(&format!("{}-.-bcd", "a".repeat(61)), "{}", &"a".repeat(61));
        let dots = ".".repeat(70);
        check(&dots, "{}", &format!("! hostname for pod {dots:?} was invalid: {dots:?}"));
    }

    #[test]
    fn set_hostname_as_fqdn_gives_the_kernel_the_full_name() {
        let full = r#"{"hostname": "db", "subdomain": "s", "setHostnameAsFQDN": true}"#;
        check("p", full, "db.s.ns.svc.cluster.local");
        check("p", r#"{"setHostnameAsFQDN": true}"#, "p");
        let long = "x".repeat(50);
        check(
            "p",
            &format!(r#"{{"hostname": "{long}", "subdomain": "s", "setHostnameAsFQDN": true}}"#),
            &format!(
                "! failed to construct FQDN from pod hostname and cluster domain, FQDN {long}.s.ns.svc.cluster.local is \
                 too long (64 is the max characters supported)"
            ),
        );
    }

    #[test]
    fn hostname_that_is_not_a_dns_label_is_rejected() {
        let rule = label_problem("A").unwrap();
        check(
            "p",
            r#"{"hostname": "A.b"}"#,
            &format!("! pod Hostname \"A.b\" is not a valid DNS label: {rule}"),
        );
        check(
            "p",
            r#"{"subdomain": "-"}"#,
            &format!("! pod Subdomain \"-\" is not a valid DNS label: {rule}"),
        );
    }

    #[test]
    fn hostname_override_is_a_dns_subdomain_and_cut_to_63_characters() {
        let long = "o".repeat(65);
        check("p", &format!(r#"{{"hostnameOverride": "{long}"}}"#), &long[..63]);
        check("p", r#"{"hostnameOverride": "a.b", "setHostnameAsFQDN": true, "subdomain": "s"}"#, "a.b");
        let rule = subdomain_problem("A").unwrap();
        check(
            "p",
            r#"{"hostnameOverride": "A.b"}"#,
            &format!("! pod HostnameOverride \"A.b\" is not a valid DNS subdomain: {rule}"),
        );
    }

    proptest! {
        #[test]
        fn a_hostname_always_fits(name in "\\PC{0,90}") {
            let pod = pod(&name, &json!({"containers": []}));
            if let Ok(found) = compute_hostname(&pod, "c", Features::default()) {
                prop_assert!(found.name.len() <= 63);
            }
        }
    }
}
