//! Volumes whose size the filesystem counts: which are counted, and under which project.
//!
//! A project is a number that a directory passes on to all that is made in it; a filesystem with project quotas keeps count
//! of what each project has. Never: asking the filesystem. A volume that no filesystem counts is walked.

use std::collections::BTreeSet;

use config::Features;
use model::containers::spec_of;
use model::k8s::{Pod, Volume};
use model::stats::TreeUsage;

use super::plan::{SpecPlan, spec_plan};
use super::types::{EmptyDirPlan, Medium, VolumeSource};

/// Smaller numbers are left to the administrator of the node.
pub const FIRST_PROJECT: u32 = 1_048_577;

/// The filesystem is to count the volume, if it can: an `emptyDir` on disk, of a pod with a user namespace. Other pods may have
/// the right to move their files to another project.
#[must_use]
pub fn is_counted(pod: &Pod, volume: &Volume, features: Features) -> bool {
    features.quota_monitoring && spec_of(pod).host_users == Some(false) && is_empty_dir_on_disk(pod, volume)
}

fn is_empty_dir_on_disk(pod: &Pod, volume: &Volume) -> bool {
    match spec_plan(pod, volume) {
        Ok(SpecPlan::Volume(plan)) => {
            plan.source == VolumeSource::EmptyDir(EmptyDirPlan { medium: Medium::Disk })
        }
        Ok(SpecPlan::Claim(_)) | Err(_) => false,
    }
}

/// The directory's project is one that a kubelet gave it.
#[must_use]
pub const fn is_ours(project: u32) -> bool {
    project >= FIRST_PROJECT
}

/// The first project that no volume has, for a new volume.
#[must_use]
pub fn free_project(taken: &BTreeSet<u32>) -> Option<u32> {
    let mut free = FIRST_PROJECT;
    for project in taken.range(FIRST_PROJECT..) {
        if *project > free {
            break;
        }
        free = project.checked_add(1)?;
    }
    Some(free)
}

/// The usage that the filesystem counted, unless it counted nothing: there is at least the directory.
#[must_use]
pub const fn believable(counted: TreeUsage) -> Option<TreeUsage> {
    if counted.inodes == 0 { None } else { Some(counted) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn counted(is_on: bool, host_users: Value, source: Value) -> bool {
        let mut volume = json!({"name": "v"});
        volume.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
        let spec = json!({"hostUsers": host_users, "containers": [], "volumes": [volume]});
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
        let features = Features { quota_monitoring: is_on, ..Features::default() };
        is_counted(&pod, &spec_of(&pod).volumes.as_ref().unwrap()[0], features)
    }

    #[test]
    fn project_quota_tracks_only_disk_empty_dirs_of_pods_with_a_user_namespace() {
        let disk = || json!({"emptyDir": {}});
        assert!(counted(true, json!(false), disk()));
        assert!(counted(true, json!(false), json!({"emptyDir": {"sizeLimit": "1Gi"}})));
        let others = [
            (false, json!(false), disk(), "the gate is off"),
            (true, json!(true), disk(), "users of the node"),
            (true, json!(null), disk(), "which is the default"),
            (true, json!(false), json!({"emptyDir": {"medium": "Memory"}}), "in memory"),
            (true, json!(false), json!({"hostPath": {"path": "/x"}}), "not the pod's own"),
            (true, json!(false), json!({"configMap": {"name": "c"}}), "small"),
        ];
        for (is_on, host_users, source, why) in others {
            assert!(!counted(is_on, host_users, source), "{why}");
        }
    }

    #[test]
    fn new_volume_gets_the_first_free_project_id() {
        let first = |taken: &[u32]| free_project(&taken.iter().copied().collect());
        let n = FIRST_PROJECT;
        assert_eq!(first(&[]), Some(n));
        assert_eq!(first(&[0, 7, n - 1]), Some(n), "smaller ones are not ours");
        assert_eq!(first(&[n, n + 1, n + 3]), Some(n + 2));
        assert_eq!(first(&[n + 1]), Some(n));
        assert_eq!(first(&[u32::MAX]), Some(n));
        assert!(!is_ours(0) && !is_ours(n - 1) && is_ours(n));
    }

    #[test]
    fn quota_usage_without_inodes_is_ignored() {
        assert_eq!(believable(TreeUsage { bytes: 4096, inodes: 0 }), None);
        let used = TreeUsage { bytes: 0, inodes: 1 };
        assert_eq!(believable(used), Some(used));
    }
}
