//! `emptyDir`: a directory of the pod's own, on disk, in memory or of huge pages.

use model::Amount;
use model::k8s::{EmptyDirVolumeSource, Pod, Quantity, Volume};

use super::{VolumePlan, VolumeSource, VolumeType};
use crate::planned_pod::PlannedPod;

pub(super) struct EmptyDir;

impl VolumeType for EmptyDir {
    fn plugin_dir(&self) -> &'static str {
        "kubernetes.io~empty-dir"
    }

    fn plugin_name(&self) -> &'static str {
        "kubernetes.io/empty-dir"
    }

    fn plan(&self, pod: PlannedPod<'_>, volume: &Volume) -> Option<Result<VolumePlan, String>> {
        let source = volume.empty_dir.as_ref()?;
        Some(medium(pod, source).map(|medium| VolumePlan {
            volume_type: &EmptyDir,
            name: volume.name.clone(),
            read_only: false,
            is_relabelled: true,
            source: VolumeSource::EmptyDir(EmptyDirPlan { medium }),
        }))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmptyDirPlan {
    pub medium: Medium,
}

/// Where the files of a directory of the pod's own are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// The disk that the pod's directory is on.
    Disk,
    /// 0: the kernel's default size.
    Memory {
        size_bytes: u64,
    },
    HugePages {
        page_bytes: u64,
    },
}

fn medium(pod: PlannedPod<'_>, source: &EmptyDirVolumeSource) -> Result<Medium, String> {
    let name = source.medium.as_deref().unwrap_or_default();
    match name.strip_prefix("HugePages") {
        Some(size) => huge_pages(pod, name, size.strip_prefix('-')),
        None if name.is_empty() => Ok(Medium::Disk),
        None if name == "Memory" => Ok(Medium::Memory { size_bytes: size_with(pod, source) }),
        None => Err(format!("unknown storage medium {name:?}")),
    }
}

/// The smaller of the volume's own limit and the memory limit of the pod's cgroup; 0 where neither is set.
#[must_use]
pub fn memory_size(pod: &Pod, source: &EmptyDirVolumeSource) -> u64 {
    size_with(pod.into(), source)
}

fn size_with(pod: PlannedPod<'_>, source: &EmptyDirVolumeSource) -> u64 {
    let own = source.size_limit.as_ref().and_then(|q| Amount::of(q).ok()).map(Amount::units);
    let of_pod = pod.memory_limit().map(Amount::units);
    let size = [own, of_pod].into_iter().flatten().filter(|size| *size > 0).min();
    size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0)
}

/// The size of a tmpfs: not more than the allocatable memory of the node, which is also the default; 0 if neither is known.
#[must_use]
pub fn size_on_node(size_bytes: u64, allocatable: Option<&Quantity>) -> u64 {
    let of_node = allocatable.and_then(|quantity| Amount::of(quantity).ok());
    let of_node = of_node.and_then(|amount| u64::try_from(amount.units()).ok()).unwrap_or(0);
    [size_bytes, of_node].into_iter().filter(|size| *size > 0).min().unwrap_or(0)
}

/// Pages of the size that the medium names, or of the only size that the pod and its containers request.
fn huge_pages(pod: PlannedPod<'_>, medium: &str, size: Option<&str>) -> Result<Medium, String> {
    let requested = pod.huge_pages();
    let page_bytes = match size {
        Some(size) => {
            let bytes = Amount::parse(size).ok().and_then(|amount| u64::try_from(amount.units()).ok());
            bytes.filter(|bytes| requested.contains(bytes))
        }
        None if requested.len() > 1 => {
            return Err(format!(
                "medium: {medium} can't be used if container requests multiple huge page sizes"
            ));
        }
        None => requested.first().copied(),
    };
    match page_bytes {
        Some(page_bytes) => Ok(Medium::HugePages { page_bytes }),
        None => Err(format!(
            "medium {medium}: hugePages storage requested, but there is no resource request for huge pages"
        )),
    }
}

/// The medium of volumes whose contents may be secret: not on disk.
pub(super) fn in_memory(pod: PlannedPod<'_>) -> Medium {
    Medium::Memory { size_bytes: size_with(pod, &EmptyDirVolumeSource::default()) }
}
