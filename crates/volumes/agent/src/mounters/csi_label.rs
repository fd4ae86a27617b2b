//! Adds a pod to the users of a CSI volume on a node with SELinux: which label the volume is mounted with is decided in
//! `volumes_core::selinux`.

use volumes_core::csi::paths::unique_name;
use volumes_core::csi::plan::CsiPlan;
use volumes_core::csi::rules::DriverRules;
use volumes_core::csi::staging::{Labelled, StagedVolume, VolumeUser};
use volumes_core::selinux::{
    LabelledVolume, Labelling, SelinuxNode, VolumeLabel, access_mode_name, compute_label, mounts_with_label,
};

use super::super::mount_context::{MountContext, MountError};
use crate::metrics::{SelinuxCount, VolumeMetrics};

/// The gate for volumes of all access modes.
const GATE: &str = "SELinuxMount";

/// The pod uses the volume from now on. Returns the label with which its driver mounts it.
///
/// # Errors
/// The volume is, or must be, mounted with another label.
pub(super) fn add_user(
    plan: &CsiPlan,
    rules: &DriverRules,
    mount_context: &MountContext<'_>,
    volume: &StagedVolume,
    user: VolumeUser,
) -> Result<Option<String>, MountError> {
    let ctx = mount_context.ctx;
    let staged = &mount_context.shared.csi.staged;
    let node = SelinuxNode {
        file_label: ctx.node_facts.selinux_file_label.as_deref(),
        all_access_modes: ctx.settings.gates.enabled(GATE),
    };
    let access_modes = Some(&*plan.access_modes);
    let is_supported = rules.selinux_mount;
    let wanted = LabelledVolume { name: mount_context.volume, is_supported, access_modes };
    let is_enforced = mounts_with_label(node, access_modes);
    let count = |what: SelinuxCount| {
        ctx.metrics.get::<VolumeMetrics>().selinux.count(what, &plan.driver, access_mode_name(access_modes));
    };
    let pod = mount_context.pod;
    let labelling = compute_label(node, pod.get(), pod.index(), wanted);
    match labelling {
        Labelling::None => {
            staged.add_user(volume, user);
            Ok(None)
        }
        Labelling::Several(labels) => {
            count(SelinuxCount::PodMismatch { is_refused: is_enforced });
            let error = format!("multiple SELinux labels found: {}", labels.join(","));
            if is_enforced {
                return Err(MountError::Refused(error));
            }
            staged.add_user(volume, user);
            Ok(None)
        }
        Labelling::Label(label) => {
            let outcome = staged.add_labelled_user(volume, user, &label, is_enforced);
            if outcome == Labelled::First && label.wanted.is_some() {
                count(SelinuxCount::Admitted);
            }
            if let Labelled::Conflict { is_refused, .. } = outcome {
                count(SelinuxCount::VolumeMismatch { is_refused });
            }
            check(outcome, plan, label)?;
            Ok(staged.label(volume))
        }
    }
}

/// Refuses a label that the volume cannot have.
fn check(outcome: Labelled, plan: &CsiPlan, label: VolumeLabel) -> Result<(), MountError> {
    match outcome {
        Labelled::Conflict { known, is_refused: true } => {
            let (name, known, wanted) =
                (&plan.spec_name, known.unwrap_or_default(), label.wanted.unwrap_or_default());
            Err(MountError::Refused(format!(
                "conflicting SELinux labels of volume {name}: {known:?} and {wanted:?}"
            )))
        }
        Labelled::Unstaging => {
            let name = unique_name(&plan.driver, &plan.handle);
            Err(MountError::Refused(format!(
                "waiting for unmount of volume {name:?}, because it is already mounted to a different pod with a different \
                 SELinux label"
            )))
        }
        Labelled::First | Labelled::Same | Labelled::Conflict { is_refused: false, .. } => Ok(()),
    }
}
