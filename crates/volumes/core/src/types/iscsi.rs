//! `iscsi`: a disk of an iSCSI target.

use model::k8s::Volume;
use model::path_component_problem;

use super::{ClaimedVolume, VolumePlan, VolumeSource, VolumeType};
use crate::csi::plan::SecretName;
use crate::iscsi::{IscsiDisk, IscsiPlan, PLUGIN, own_iface, with_port};
use crate::mount_arguments::check_fs_type;
use crate::planned_pod::PlannedPod;

const DEFAULT_FS: &str = "ext4";
const DEFAULT_IFACE: &str = "default";

pub(super) struct Iscsi;

impl VolumeType for Iscsi {
    fn plugin_dir(&self) -> &'static str {
        "kubernetes.io~iscsi"
    }

    fn plugin_name(&self) -> &'static str {
        PLUGIN
    }

    fn plan(&self, pod: PlannedPod<'_>, volume: &Volume) -> Option<Result<VolumePlan, String>> {
        let source = volume.iscsi.as_ref()?;
        let namespace = pod.pod.metadata.namespace.clone().unwrap_or_default();
        let secret = source.secret_ref.as_ref();
        let facts = Facts {
            name: &volume.name,
            target: (&source.target_portal, source.portals.as_deref(), &source.iqn, source.lun),
            iface: source.iscsi_interface.as_deref(),
            initiator: source.initiator_name.as_deref(),
            chap: (source.chap_auth_discovery == Some(true), source.chap_auth_session == Some(true)),
            secret: secret.map(|secret| SecretName { namespace, name: secret.name.clone() }),
            fs_type: source.fs_type.as_deref(),
            options: &[],
            is_device: false,
        };
        Some(plan(facts, source.read_only == Some(true)))
    }

    fn claimed_plan(&self, claimed: &ClaimedVolume<'_>) -> Option<Result<VolumePlan, String>> {
        let source = claimed.spec.iscsi.as_ref()?;
        let own = claimed.spec.claim_ref.as_ref().and_then(|claim| claim.namespace.clone());
        let secret = source.secret_ref.as_ref().map(|secret| SecretName {
            // The pod is in the namespace of its claim.
            namespace: secret.namespace.clone().filter(|name| !name.is_empty()).or(own).unwrap_or_default(),
            name: secret.name.clone().unwrap_or_default(),
        });
        let facts = Facts {
            name: claimed.name,
            target: (&source.target_portal, source.portals.as_deref(), &source.iqn, source.lun),
            iface: source.iscsi_interface.as_deref(),
            initiator: source.initiator_name.as_deref(),
            chap: (source.chap_auth_discovery == Some(true), source.chap_auth_session == Some(true)),
            secret,
            fs_type: source.fs_type.as_deref(),
            options: claimed.mount_options,
            is_device: claimed.is_device,
        };
        Some(plan(facts, claimed.read_only))
    }

    fn marks_claimed_volumes(&self) -> bool {
        true
    }
}

/// What the volume of a pod's spec and a PersistentVolume have in common.
struct Facts<'a> {
    name: &'a str,
    target: (&'a str, Option<&'a [String]>, &'a str, i32),
    iface: Option<&'a str>,
    initiator: Option<&'a str>,
    chap: (bool, bool),
    secret: Option<SecretName>,
    fs_type: Option<&'a str>,
    options: &'a [String],
    is_device: bool,
}

fn plan(facts: Facts<'_>, read_only: bool) -> Result<VolumePlan, String> {
    let (target_portal, more, iqn, lun) = facts.target;
    let portals: Vec<String> = [target_portal]
        .into_iter()
        .chain(more.into_iter().flatten().map(String::as_str))
        .map(with_port)
        .collect();
    let init_iface = facts.iface.filter(|iface| !iface.is_empty()).unwrap_or(DEFAULT_IFACE);
    let initiator = facts.initiator.unwrap_or_default();
    let iface = match initiator {
        "" => init_iface.to_owned(),
        _ => own_iface(portals.first().map(String::as_str).unwrap_or_default(), facts.name),
    };
    // They are in paths, and arguments of a program.
    for value in portals.iter().map(String::as_str).chain([iqn, init_iface, &iface, initiator]) {
        let problem = path_component_problem(value).filter(|_| !value.is_empty() || value == iqn);
        let problem = problem.or_else(|| value.starts_with('-').then_some("may not begin with '-'"));
        if let Some(problem) = problem {
            return Err(format!("{PLUGIN}: {value:?} cannot be used: {problem}"));
        }
    }
    let fs_type = facts.fs_type.filter(|fs_type| !fs_type.is_empty()).unwrap_or(DEFAULT_FS);
    check_fs_type(fs_type)?;
    let disk = IscsiDisk {
        vol_name: facts.name.to_owned(),
        iqn: iqn.to_owned(),
        lun: lun.to_string(),
        init_iface: init_iface.to_owned(),
        iface,
        initiator_name: initiator.to_owned(),
        portals,
        metrics_provider: None,
    };
    let plan = IscsiPlan {
        disk,
        target_portal: target_portal.to_owned(),
        chap_discovery: facts.chap.0,
        chap_session: facts.chap.1,
        secret: facts.secret,
        fs_type: fs_type.to_owned(),
        options: facts.options.to_vec(),
        is_device: facts.is_device,
    };
    Ok(VolumePlan {
        volume_type: &Iscsi,
        name: facts.name.to_owned(),
        read_only,
        is_relabelled: !read_only && !facts.is_device,
        source: VolumeSource::Iscsi(Box::new(plan)),
    })
}
