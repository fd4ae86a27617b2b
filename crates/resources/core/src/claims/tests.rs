//! The cases of `resourceclaim.Name`, `IsForPod` and `IsReservedForPod`, and of pods with extended resources.

use serde_json::{Value, json};

use super::*;

fn pod(claims: Value) -> Pod {
    let containers =
        json!([{"name": "plain"}, {"name": "claims", "resources": {"claims": [{"name": "gpu"}]}}]);
    let spec = json!({"resourceClaims": claims, "containers": containers});
    let metadata = json!({"name": "p", "namespace": "n", "uid": "u-1"});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a pod")
}

fn status(status: Value) -> PodStatus {
    serde_json::from_value(status).expect("a status")
}

fn names(pod: &Pod, of: Option<&PodStatus>) -> Result<Vec<String>, String> {
    let claims = compute_pod_claims(pod, of).map_err(|error| error.to_string())?;
    let shown =
        |claim: PodClaim| if claim.is_generated { format!("{} (generated)", claim.name) } else { claim.name };
    Ok(claims.into_iter().map(shown).collect())
}

#[test]
fn pod_without_claims_has_none() {
    assert_eq!(names(&pod(json!(null)), None), Ok(vec![]));
}

#[test]
fn claims_are_named_directly_or_by_the_status_of_the_pod() {
    let by_name =
        pod(json!([{"name": "gpu", "resourceClaimName": "a"}, {"name": "nic", "resourceClaimName": "a"}]));
    assert_eq!(names(&by_name, None), Ok(vec!["a".to_owned()]), "each once");
    let by_template = pod(json!([{"name": "gpu", "resourceClaimTemplateName": "t"}]));
    let not_yet = Err("pod \"n/p\": ResourceClaim not created yet".to_owned());
    assert_eq!(names(&by_template, None), not_yet);
    let other = status(json!({"resourceClaimStatuses": [{"name": "other", "resourceClaimName": "b"}]}));
    assert_eq!(names(&by_template, Some(&other)), not_yet);
    let made = status(json!({"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x"}]}));
    assert_eq!(names(&by_template, Some(&made)), Ok(vec!["p-gpu-x (generated)".to_owned()]));
    let none_needed = status(json!({"resourceClaimStatuses": [{"name": "gpu"}]}));
    assert_eq!(names(&by_template, Some(&none_needed)), Ok(vec![]));
}

#[test]
fn claim_without_name_and_template_is_an_error() {
    let expected = "pod \"n/p\", spec.resourceClaim \"gpu\": none of the supported fields are set";
    assert_eq!(names(&pod(json!([{"name": "gpu"}])), None), Err(expected.to_owned()));
}

#[test]
fn extended_resource_backed_by_a_claim_is_one_more_claim() {
    let extended = json!({"resourceClaimName": "p-extended", "requestMappings": []});
    let status = status(json!({"extendedResourceClaimStatus": extended}));
    assert_eq!(names(&pod(json!(null)), Some(&status)), Ok(vec!["p-extended".to_owned()]));
}

/// What [`check_claim`] says of a generated claim `c`.
fn checked(claim: Value) -> Result<Vec<String>, String> {
    checked_in(None, claim)
}

/// The same for a pod in a PodGroup, with support for claims of groups.
fn checked_in(group: Option<&str>, claim: Value) -> Result<Vec<String>, String> {
    let claim: ResourceClaim = serde_json::from_value(claim).expect("a claim");
    let wanted = PodClaim { name: "c".to_owned(), is_generated: true };
    let pod = PodRef::of(&pod(json!(null)));
    let drivers = check_claim(ClaimUser { pod: &pod, group }, &wanted, &claim);
    drivers.map(|drivers| drivers.into_iter().map(str::to_owned).collect()).map_err(|error| error.to_string())
}

#[test]
fn claim_must_be_owned_reserved_and_allocated() {
    let owned = |uid: &str| json!({"uid": "c-1", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": true}]});
    let not_owner = "ResourceClaim n/c was not created for Pod n/p (Pod is not owner)";
    assert_eq!(checked(json!({"metadata": {"uid": "c-1"}})), Err(not_owner.to_owned()));
    assert_eq!(checked(json!({"metadata": owned("u-2")})), Err(not_owner.to_owned()));
    let not_reserved = "pod p (u-1) is not allowed to use ResourceClaim c (c-1)";
    assert_eq!(checked(json!({"metadata": owned("u-1")})), Err(not_reserved.to_owned()));
    let other = json!({"reservedFor": [{"resource": "pods", "name": "p", "uid": "u-2"}]});
    assert_eq!(checked(json!({"metadata": owned("u-1"), "status": other})), Err(not_reserved.to_owned()));
    let reserved = json!([{"resource": "pods", "name": "p", "uid": "u-1"}]);
    let waiting = json!({"reservedFor": reserved});
    let not_allocated = "ResourceClaim c: not allocated";
    assert_eq!(checked(json!({"metadata": owned("u-1"), "status": waiting})), Err(not_allocated.to_owned()));
    let allocated = |drivers: &[&str]| {
        let results: Vec<Value> =
            drivers.iter().map(|driver| json!({"driver": driver, "device": "d"})).collect();
        let status = json!({"reservedFor": reserved, "allocation": {"devices": {"results": results}}});
        checked(json!({"metadata": owned("u-1"), "status": status}))
    };
    assert_eq!(allocated(&["b.org", "a.org", "b.org"]), Ok(vec!["a.org".to_owned(), "b.org".to_owned()]));
    assert_eq!(allocated(&["a.org", ""]), Err("DRA driver name is empty".to_owned()));
}

#[test]
fn claim_of_a_pod_group_is_for_its_pods() {
    let mut of_group = pod(json!(null));
    assert_eq!(pod_group(&of_group), None);
    let spec = of_group.spec.as_mut().unwrap();
    spec.scheduling_group = serde_json::from_value(json!({"podGroupName": "g"})).unwrap();
    assert_eq!(pod_group(&of_group), Some("g"));

    let owned = |api_version: &str, kind: &str, name: &str| json!({"uid": "c-1", "ownerReferences": [{"apiVersion": api_version, "kind": kind, "name": name, "uid": "g-1", "controller": true}]});
    let allocation = json!({"devices": {"results": [{"driver": "a.org", "device": "d"}]}});
    let reserved = |group: &str, resource: &str, name: &str| json!({"reservedFor": [{"apiGroup": group, "resource": resource, "name": name, "uid": "g-1"}], "allocation": allocation});
    let own = owned("scheduling.k8s.io/v1alpha9", "PodGroup", "g");
    let for_group = reserved("scheduling.k8s.io", "podgroups", "g");
    let claim = |metadata: &Value, status: &Value| json!({"metadata": metadata, "status": status});
    assert_eq!(checked_in(Some("g"), claim(&own, &for_group)), Ok(vec!["a.org".to_owned()]));
    let not_owner = "ResourceClaim n/c was not created for Pod n/p (Pod is not owner)";
    assert_eq!(checked_in(None, claim(&own, &for_group)), Err(not_owner.to_owned()), "not supported");
    let neither = |group: &str| {
        Err(format!(
            "ResourceClaim n/c was not created for Pod n/p (neither Pod nor PodGroup {group} is the owner)"
        ))
    };
    assert_eq!(checked_in(Some("h"), claim(&own, &for_group)), neither("h"));
    for other in
        [owned("apps/v1", "PodGroup", "g"), owned("scheduling.k8s.io/v1", "Workload", "g"), json!({})]
    {
        assert_eq!(checked_in(Some("g"), claim(&other, &for_group)), neither("g"), "{other}");
    }
    let not_reserved = Err("pod p (u-1) is not allowed to use ResourceClaim c (c-1)".to_owned());
    for other in [
        reserved("", "podgroups", "g"),
        reserved("scheduling.k8s.io", "pods", "g"),
        reserved("scheduling.k8s.io", "podgroups", "h"),
    ] {
        assert_eq!(checked_in(Some("g"), claim(&own, &other)), not_reserved, "{other}");
    }
}
