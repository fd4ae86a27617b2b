//! The cases of the Go kubelet's `TestNodeExpander` and `TestOperationGenerator_nodeExpandVolume`, and of conditions.

use super::*;

const MOUNTING: VolumeUse = VolumeUse { is_mounting: true, read_only: false };
const ONLINE: VolumeUse = VolumeUse { is_mounting: false, read_only: false };

fn size(text: &str) -> Amount {
    Amount::parse(text).unwrap()
}

fn known(text: &str) -> Known {
    Known { size: size(text), ..Known::default() }
}

/// A claim for 2G with that capacity, and with what its controller wrote.
fn claim(capacity: &str, allocated: Option<&str>, status: Option<&str>) -> PersistentVolumeClaim {
    let mut claim = json!({
        "metadata": {"name": "test-vol0", "resourceVersion": "7"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2G"}}},
        "status": {"capacity": {"storage": capacity}},
    });
    if let Some(allocated) = allocated {
        claim["status"]["allocatedResources"] = json!({"storage": allocated});
    }
    if let Some(status) = status {
        claim["status"]["allocatedResourceStatuses"] = json!({"storage": status});
    }
    serde_json::from_value(claim).unwrap()
}

fn shared(mut claim: PersistentVolumeClaim) -> PersistentVolumeClaim {
    claim.spec.as_mut().unwrap().access_modes = Some(vec!["ReadWriteMany".to_owned()]);
    claim
}

fn step(claim: &PersistentVolumeClaim, known: Known, how: VolumeUse) -> Step {
    compute_step(claim, Some(&Quantity("2G".to_owned())), known, how)
}

fn expansion(claim: &PersistentVolumeClaim, known: Known) -> Expansion {
    let Step::Expand(expansion) = step(claim, known, ONLINE) else { panic!("not expanded") };
    expansion
}

fn now() -> Timestamp {
    "2026-01-02T03:04:05.678Z".parse().unwrap()
}

#[test]
fn a_volume_is_expanded_when_its_claim_says_that_it_is_this_nodes_turn() {
    let is_expanded = |step: Step| matches!(step, Step::Expand(_));
    for (claim, expected) in [
        (claim("1G", None, Some(INFEASIBLE)), false),
        (claim("1G", Some("2G"), Some(PENDING)), true),
        (claim("1G", Some("2G"), Some(IN_PROGRESS)), true),
        (claim("1G", Some("2G"), Some("ControllerResizeInProgress")), false),
        (claim("2G", Some("2G"), None), false),
        (claim("2G", Some("2G"), Some(INFEASIBLE)), false),
        (shared(claim("2G", Some("2G"), None)), true),
    ] {
        assert_eq!(is_expanded(step(&claim, known("1G"), ONLINE)), expected, "{claim:?}");
    }
    let mut finished = shared(claim("2G", Some("2G"), None));
    finished.metadata.annotations = Some([(NOT_REQUIRED.to_owned(), "true".to_owned())].into());
    assert_eq!(step(&finished, known("1G"), ONLINE), Step::Done(size("2G")));
    assert_eq!(step(&claim("2G", Some("2G"), None), known("1G"), ONLINE), Step::Done(size("2G")));
}

#[test]
fn a_volume_that_has_not_grown_is_left_alone() {
    for how in [MOUNTING, ONLINE] {
        assert_eq!(step(&claim("2G", None, None), known("2G"), how), Step::None);
        assert_eq!(compute_step(&claim("1G", None, None), None, known("1G"), how), Step::None);
    }
    assert_eq!(step(&claim("2G", None, None), known("1G"), MOUNTING), Step::None, "expanded by another node");
    let unknown = step(&claim("0", None, None), known("0"), ONLINE);
    assert_eq!(unknown, Step::None, "the size of a volume in use must be known");
}

#[test]
fn with_an_older_controller_the_volume_alone_says_its_size() {
    let grown = claim("1G", None, None);
    let Step::Expand(expansion) = step(&grown, known("1G"), MOUNTING) else { panic!("not expanded") };
    assert_eq!((expansion.size, expansion.begin_patch(&grown)), (size("2G"), None));
    assert_eq!(
        expansion.finished_patch(&grown),
        Some(json!({"metadata": {"resourceVersion": "7"}, "status": {"capacity": {"storage": "2G"}}}))
    );
    let unsupported = expansion.after_failure(&grown, FailureKind::Unsupported, "no", now());
    assert_eq!(unsupported, AfterFailure { patch: None, outcome: Outcome::Done });
}

#[test]
fn a_volume_that_is_only_read_is_not_expanded() {
    let how = VolumeUse { read_only: true, ..MOUNTING };
    assert_eq!(step(&claim("1G", None, None), known("1G"), how), Step::ReadOnly(size("2G")));
}

#[test]
fn a_driver_that_refuses_volumes_in_use_is_asked_again_only_with_the_next_mount() {
    let refused = Known { is_refused_in_use: true, ..known("1G") };
    let pending = claim("1G", Some("2G"), Some(PENDING));
    assert_eq!(step(&pending, refused, ONLINE), Step::None);
    assert!(matches!(step(&pending, refused, MOUNTING), Step::Expand(_)));
}

#[test]
fn the_claim_is_marked_before_and_after_its_expansion() {
    let mut claim = claim("1G", Some("2G"), Some(PENDING));
    let conditions = json!([
        {"type": "FileSystemResizePending", "status": "True"},
        {"type": "VolumeModifying", "status": "True"},
    ]);
    claim.status.as_mut().unwrap().conditions = serde_json::from_value(conditions).unwrap();
    let expansion = expansion(&claim, known("1G"));
    assert_eq!(
        expansion.begin_patch(&claim),
        Some(json!({
            "metadata": {"resourceVersion": "7"},
            "status": {"allocatedResourceStatuses": {"storage": "NodeResizeInProgress"}},
        }))
    );
    assert_eq!(
        expansion.finished_patch(&claim),
        Some(json!({
            "metadata": {"resourceVersion": "7"},
            "status": {
                "capacity": {"storage": "2G"},
                "allocatedResourceStatuses": {"storage": null},
                "conditions": [{"$patch": "delete", "type": "FileSystemResizePending"}],
            },
        })),
        "other conditions stay"
    );
}

#[test]
fn a_claim_that_is_in_progress_is_not_marked_again() {
    let claim = claim("1G", Some("2G"), Some(IN_PROGRESS));
    assert_eq!(expansion(&claim, known("1G")).begin_patch(&claim), None);
}

#[test]
fn an_infeasible_expansion_is_left_to_the_controller() {
    let claim = claim("1G", Some("2G"), Some(IN_PROGRESS));
    let after =
        expansion(&claim, known("1G")).after_failure(&claim, FailureKind::Infeasible, "too big", now());
    assert_eq!(after.outcome, Outcome::Failed { is_final: true });
    let expected = json!({"status": {
        "allocatedResourceStatuses": {"storage": "NodeResizeInfeasible"},
        "conditions": [{
            "type": "NodeResizeError",
            "status": "True",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
            "message": "failed to expand pvc with too big",
        }],
    }});
    assert_eq!(after.patch, Some(expected));
}

#[test]
fn another_final_error_is_a_condition_and_only_once() {
    let mut claim = claim("1G", Some("2G"), Some(IN_PROGRESS));
    let expansion = expansion(&claim, known("1G"));
    let after = expansion.after_failure(&claim, FailureKind::Final, "broken", now());
    let patch = after.patch.unwrap();
    assert_eq!(patch["status"]["allocatedResourceStatuses"], Value::Null);
    assert_eq!(patch["status"]["conditions"][0]["message"], "failed to expand pvc with broken");
    claim.status.as_mut().unwrap().conditions =
        serde_json::from_value(patch["status"]["conditions"].clone()).unwrap();
    assert_eq!(expansion.after_failure(&claim, FailureKind::Final, "broken", now()).patch, None);
}

#[test]
fn a_failure_after_the_user_asked_for_another_size_is_infeasible() {
    let mut claim = claim("1G", Some("1500M"), Some(PENDING));
    let failed = Known { has_failed: true, ..known("1G") };
    let after = expansion(&claim, failed).after_failure(&claim, FailureKind::Final, "no", now());
    assert_eq!(after.patch.unwrap()["status"]["allocatedResourceStatuses"]["storage"], INFEASIBLE);
    claim.spec.as_mut().unwrap().resources.as_mut().unwrap().requests =
        Some([("storage".to_owned(), Quantity("1500M".to_owned()))].into());
    let after = expansion(&claim, failed).after_failure(&claim, FailureKind::Final, "no", now());
    assert_eq!(after.patch.unwrap()["status"]["allocatedResourceStatuses"], Value::Null);
}

#[test]
fn an_unknown_result_changes_nothing_and_is_tried_again() {
    let claim = claim("1G", Some("2G"), Some(IN_PROGRESS));
    let after = expansion(&claim, known("1G")).after_failure(&claim, FailureKind::Transient, "slow", now());
    assert_eq!(after, AfterFailure { patch: None, outcome: Outcome::Failed { is_final: false } });
}

#[test]
fn a_shared_volume_needs_no_expansion_where_the_driver_has_none() {
    let claim = shared(claim("2G", Some("2G"), None));
    let expansion = expansion(&claim, known("1G"));
    assert_eq!((expansion.begin_patch(&claim), expansion.finished_patch(&claim)), (None, None));
    let after = expansion.after_failure(&claim, FailureKind::Unsupported, "no", now());
    assert_eq!(after.outcome, Outcome::Done);
}

#[test]
fn the_kind_of_a_failure_is_that_of_its_code() {
    for (code, is_final, expected) in [
        (Some("FailedPrecondition"), true, FailureKind::InUse),
        (Some("InvalidArgument"), true, FailureKind::Infeasible),
        (Some("OutOfRange"), true, FailureKind::Infeasible),
        (Some("NotFound"), true, FailureKind::Infeasible),
        (Some("Internal"), true, FailureKind::Final),
        (Some("Unavailable"), false, FailureKind::Transient),
        (None, false, FailureKind::Transient),
    ] {
        assert_eq!(failure_kind(code, is_final), expected, "{code:?}");
    }
}
