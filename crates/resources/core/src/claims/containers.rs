//! What of the pod's claims a container gets: by `resources.claims`, and by the mappings of the claim that the scheduler made for
//! extended resources.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use model::dra::{ClaimDevice, UsedClaim, UsedDevice};
use model::k8s::{ContainerExtendedResourceRequest, Pod, PodExtendedResourceClaimStatus, PodStatus};
use model::{Amount, ContainerRef};

use super::table::ClaimTable;
use super::{ClaimError, named_claims};
use crate::quantities::is_extended_resource;
use crate::requests::container_requests;

/// The prefix of extended resources that have the name of a DeviceClass.
const DEVICE_CLASS_RESOURCE: &str = "deviceclass.resource.kubernetes.io/";

/// A claim of which a container uses the devices of one request, or all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerClaim {
    pub claim: String,
    pub request: Option<String>,
}

/// What the container uses of the pod's claims, in order.
///
/// # Errors
/// A claim has no name yet.
pub fn compute_container_claims(
    pod: &Pod,
    status: Option<&PodStatus>,
    container: &ContainerRef<'_>,
) -> Result<Vec<ContainerClaim>, ClaimError> {
    let mut found = Vec::new();
    let wanted = container.resources().and_then(|resources| resources.claims.as_deref()).unwrap_or_default();
    if !wanted.is_empty() {
        for (entry, claim) in named_claims(pod, status)? {
            let requests = wanted.iter().filter(|wanted| wanted.name == entry);
            found.extend(requests.map(|wanted| ContainerClaim {
                claim: claim.name.clone(),
                request: wanted.request.clone().filter(|request| !request.is_empty()),
            }));
        }
    }
    if let Some(extended) = extended_claim(status) {
        let used = mappings(extended, container).map(|mapping| ContainerClaim {
            claim: extended.resource_claim_name.clone(),
            request: Some(mapping.request_name.clone()),
        });
        found.extend(used);
    }
    Ok(found)
}

/// The claim that the scheduler made for the pod's extended resources.
pub(super) fn extended_claim(status: Option<&PodStatus>) -> Option<&PodExtendedResourceClaimStatus> {
    status.and_then(|status| status.extended_resource_claim_status.as_ref())
}

/// The pod without the extended resources that a claim stands for, for admission and the allocation of devices of plugins; the pod itself
/// if there are none.
#[must_use]
pub fn without_claimed_resources<'a>(pod: &'a Pod, status: Option<&PodStatus>) -> Cow<'a, Pod> {
    let Some(extended) = extended_claim(status) else { return Cow::Borrowed(pod) };
    let mut claimed: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
    for mapping in extended.request_mappings.iter().filter(|mapping| may_be_claimed(&mapping.resource_name)) {
        claimed.entry(&mapping.container_name).or_default().push(&mapping.resource_name);
    }
    let mut rest = pod.clone();
    let spec = rest.spec.get_or_insert_default();
    for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
        let Some(resources) = &mut container.resources else { continue };
        for name in claimed.get(container.name.as_str()).into_iter().flatten() {
            for amounts in [&mut resources.requests, &mut resources.limits].into_iter().flatten() {
                amounts.remove(*name);
            }
        }
    }
    Cow::Owned(rest)
}

fn may_be_claimed(resource: &str) -> bool {
    is_extended_resource(resource) || resource.starts_with(DEVICE_CLASS_RESOURCE)
}

/// The mappings of resources that the container requests.
fn mappings<'a>(
    extended: &'a PodExtendedResourceClaimStatus,
    container: &ContainerRef<'_>,
) -> impl Iterator<Item = &'a ContainerExtendedResourceRequest> {
    let requests = container_requests(container);
    let name = container.name().to_owned();
    extended.request_mappings.iter().filter(move |mapping| {
        let resource = &mapping.resource_name;
        mapping.container_name == name
            && may_be_claimed(resource)
            && requests.get(resource).is_some_and(|amount| *amount > Amount::ZERO)
    })
}

/// The devices that the container gets of one claim, each with its driver.
///
/// # Errors
/// The claim is not prepared on this node.
pub fn devices_of_claim<'a>(
    table: &'a ClaimTable,
    pod: &Pod,
    wanted: &ContainerClaim,
) -> Result<Vec<(&'a str, &'a ClaimDevice)>, ClaimError> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let devices = table.devices(namespace, &wanted.claim, wanted.request.as_deref());
    let missing = || ClaimError::NotPrepared { claim: wanted.claim.clone(), namespace: namespace.to_owned() };
    devices.ok_or_else(missing)
}

/// The CDI names of all devices of claims that the container gets, each once, in order.
///
/// # Errors
/// A claim has no name yet, or is not prepared on this node.
pub fn compute_cdi_devices(
    table: &ClaimTable,
    pod: &Pod,
    status: Option<&PodStatus>,
    container: &ContainerRef<'_>,
) -> Result<Vec<String>, ClaimError> {
    let mut names: Vec<String> = Vec::new();
    let mut seen = BTreeSet::new();
    for wanted in compute_container_claims(pod, status, container)? {
        for (_, device) in devices_of_claim(table, pod, &wanted)? {
            names.extend(device.cdi_devices.iter().filter(|name| seen.insert(name.as_str())).cloned());
        }
    }
    Ok(names)
}

/// The claims that the container uses, each once, in order, with the devices that it gets.
///
/// # Errors
/// A claim has no name yet, or is not prepared on this node.
pub fn compute_used_claims(
    table: &ClaimTable,
    pod: &Pod,
    status: Option<&PodStatus>,
    container: &ContainerRef<'_>,
) -> Result<Vec<UsedClaim>, ClaimError> {
    let mut used: Vec<UsedClaim> = Vec::new();
    let mut seen = BTreeSet::new();
    for wanted in compute_container_claims(pod, status, container)? {
        let known = used.iter().position(|claim| claim.name == wanted.claim);
        let index = known.unwrap_or_else(|| {
            let namespace = pod.metadata.namespace.clone().unwrap_or_default();
            used.push(UsedClaim { name: wanted.claim.clone(), namespace, devices: Vec::new() });
            used.len() - 1
        });
        for (driver, device) in devices_of_claim(table, pod, &wanted)? {
            if let Some(claim) = used.get_mut(index).filter(|_| seen.insert((index, driver, device))) {
                claim.devices.push(UsedDevice { driver: driver.to_owned(), device: device.clone() });
            }
        }
    }
    Ok(used)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use model::PodUid;
    use model::containers::all_containers;
    use model::dra::ClaimId;
    use serde_json::{Value, json};

    use super::*;
    use crate::claims::table::AllocatedClaim;

    fn device(name: &str, requests: &[&str]) -> ClaimDevice {
        ClaimDevice {
            pool: "node".to_owned(),
            name: name.to_owned(),
            share_id: None,
            requests: requests.iter().map(|request| (*request).to_owned()).collect(),
            cdi_devices: vec![format!("example.com/gpu={name}")],
        }
    }

    /// A table in which the claim `a` has three devices of one driver.
    fn table() -> ClaimTable {
        let mut table = ClaimTable::default();
        let id = ClaimId { namespace: "n".to_owned(), name: "a".to_owned(), uid: "c".to_owned() };
        let claim = AllocatedClaim { id: id.clone(), drivers: BTreeSet::from(["d.org".to_owned()]) };
        table.begin_prepare(&PodUid::new("u"), &[claim]).expect("no older claim");
        let devices = vec![device("0", &["small"]), device("1", &["large/first", "other"]), device("2", &[])];
        table.prepared("d.org", &[id], [("c".to_owned(), Ok(devices))].into()).expect("a success");
        table
    }

    #[test]
    fn devices_of_a_driver_take_time_in_proportion_to_their_number() {
        let pod = json!({
            "metadata": {"namespace": "n"},
            "spec": {
                "resourceClaims": [{"name": "gpu", "resourceClaimName": "a"}],
                "containers": [{"name": "c", "resources": {"claims": [{"name": "gpu"}]}}],
            },
        });
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let container = all_containers(&pod).next().expect("a container");
        let run = |count: usize| {
            let mut table = ClaimTable::default();
            let id = ClaimId { namespace: "n".to_owned(), name: "a".to_owned(), uid: "c".to_owned() };
            let claim = AllocatedClaim { id: id.clone(), drivers: BTreeSet::from(["d.org".to_owned()]) };
            table.begin_prepare(&PodUid::new("u"), &[claim]).expect("no older claim");
            let devices = (0..count).map(|i| device(&i.to_string(), &[])).collect();
            table.prepared("d.org", &[id], [("c".to_owned(), Ok(devices))].into()).expect("a success");
            let names = compute_cdi_devices(&table, &pod, None, &container).expect("prepared");
            let used = compute_used_claims(&table, &pod, None, &container).expect("prepared");
            assert_eq!((names.len(), used[0].devices.len()), (count, count));
        };
        assert_eq!(fixtures::growth::grows_too_fast(&mut || run(4000), &mut || run(16_000)), None);
    }

    /// The CDI devices of each container that has any, or why it has none.
    fn given(pod: Value, status: Option<Value>) -> Vec<String> {
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let status: Option<PodStatus> =
            status.map(|status| serde_json::from_value(status).expect("a status"));
        let table = table();
        let of = |container: ContainerRef<'_>| {
            let name = container.name().to_owned();
            match compute_cdi_devices(&table, &pod, status.as_ref(), &container) {
                Ok(devices) if devices.is_empty() => None,
                Ok(devices) => Some(format!("{name}: {}", devices.join(" "))),
                Err(error) => Some(format!("{name}: {error}")),
            }
        };
        all_containers(&pod).filter_map(of).collect()
    }

    fn pod(claim: &str, containers: Value) -> Value {
        let claims = json!([{"name": "gpu", "resourceClaimName": claim}]);
        let metadata = json!({"name": "p", "namespace": "n", "uid": "u"});
        json!({"metadata": metadata, "spec": {"resourceClaims": claims, "containers": containers}})
    }

    fn container(name: &str, request: Option<&str>) -> Value {
        json!({"name": name, "resources": {"claims": [{"name": "gpu", "request": request}]}})
    }

    #[test]
    fn container_gets_devices_of_its_request_and_those_without_requests() {
        let containers = json!([
            {"name": "none"}, container("all", None), container("small", Some("small")),
            container("large", Some("large")), container("unknown", Some("unknown")),
        ]);
        assert_eq!(
            given(pod("a", containers), None),
            [
                "all: example.com/gpu=0 example.com/gpu=1 example.com/gpu=2",
                "small: example.com/gpu=0 example.com/gpu=2",
                "large: example.com/gpu=1 example.com/gpu=2",
                "unknown: example.com/gpu=2",
            ]
        );
    }

    #[test]
    fn claimed_extended_resource_is_left_out_of_the_container_of_its_mapping_only() {
        let with = |name: &str| {
            let amounts = json!({"example.com/gpu": "1", "cpu": "1"});
            json!({"name": name, "resources": {"requests": amounts, "limits": amounts}})
        };
        let spec = json!({"containers": [with("app"), with("other")]});
        let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).expect("a pod");
        let mapping = json!({"containerName": "app", "resourceName": "example.com/gpu", "requestName": "r"});
        let mappings = json!({"resourceClaimName": "a", "requestMappings": [mapping]});
        let status = json!({"extendedResourceClaimStatus": mappings});
        let status: PodStatus = serde_json::from_value(status).expect("a status");
        let rest = without_claimed_resources(&pod, Some(&status));
        let names = all_containers(&rest)
            .map(|container| container_requests(&container).into_keys().collect::<Vec<_>>().join(" "));
        assert_eq!(names.collect::<Vec<_>>(), ["cpu", "cpu example.com/gpu"]);
        assert!(matches!(without_claimed_resources(&pod, None), Cow::Borrowed(_)));
    }

    #[test]
    fn container_is_refused_if_its_claim_is_not_prepared() {
        let containers = json!([{"name": "none"}, container("app", None)]);
        let message = "internal error: unable to get claim info for ResourceClaim b in namespace n";
        assert_eq!(given(pod("b", containers), None), [format!("app: {message}")]);
    }

    #[test]
    fn extended_resource_gives_the_devices_of_its_request_to_containers_that_request_some() {
        let with = |name: &str, count: &str| json!({"name": name, "resources": {"requests": {"example.com/gpu": count}}});
        let mapping = |name: &str| json!({"containerName": name, "resourceName": "example.com/gpu", "requestName": "small"});
        let status = json!({"extendedResourceClaimStatus": {
            "resourceClaimName": "a", "requestMappings": [mapping("app"), mapping("zero")],
        }});
        let containers = json!([with("app", "1"), with("other", "1"), with("zero", "0")]);
        let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": containers}});
        assert_eq!(given(pod, Some(status)), ["app: example.com/gpu=0 example.com/gpu=2"]);
    }
}
