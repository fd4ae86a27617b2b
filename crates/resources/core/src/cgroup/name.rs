//! Names of cgroups (docs/behaviour/resources-and-qos.md). With systemd a slice's name contains the names of all slices
//! above it, separated by dashes; so dashes inside a part are written as underscores.

use model::cgroup::CgroupPath;
use model::{CgroupDriver, PodUid, QosClass};

const ALL_PODS: &str = "kubepods";
const SLICE: &str = ".slice";

/// The names of this node's cgroups: fixed once the driver is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupNames {
    driver: CgroupDriver,
    /// `cgroupRoot` in parts; empty for the root of the hierarchy.
    root: Vec<String>,
}

impl CgroupNames {
    /// `cgroup_root`: the setting, `""` and `/` mean the same.
    #[must_use]
    pub fn new(driver: CgroupDriver, cgroup_root: &str) -> Self {
        let parts = cgroup_root.split('/').filter(|part| !part.is_empty());
        Self { driver, root: parts.map(str::to_owned).collect() }
    }

    /// The configured cgroup root; `None` if it is the root of the hierarchy.
    #[must_use]
    pub fn root(&self) -> Option<CgroupPath> {
        (!self.root.is_empty()).then(|| self.below_root(&[]))
    }

    /// The cgroup of all pods.
    #[must_use]
    pub fn all_pods(&self) -> CgroupPath {
        self.below_root(&[ALL_PODS])
    }

    /// The cgroup of all pods of a class; Guaranteed pods have no cgroup of their own class.
    #[must_use]
    pub fn qos_cgroup(&self, class: QosClass) -> CgroupPath {
        match class_name(class) {
            Some(name) => self.below_root(&[ALL_PODS, name]),
            None => self.all_pods(),
        }
    }

    #[must_use]
    pub fn pod(&self, class: QosClass, uid: &PodUid) -> CgroupPath {
        let pod = format!("pod{uid}");
        match class_name(class) {
            Some(name) => self.below_root(&[ALL_PODS, name, &pod]),
            None => self.below_root(&[ALL_PODS, &pod]),
        }
    }

    /// All possible cgroups of a pod of that UID: its QoS class is unknown once its spec is gone.
    #[must_use]
    pub fn candidates_of(&self, uid: &PodUid) -> [CgroupPath; 3] {
        [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort].map(|class| self.pod(class, uid))
    }

    /// A configured cgroup that the kubelet did not make: a path, or with systemd the name of a slice.
    #[must_use]
    pub fn existing(&self, text: &str) -> CgroupPath {
        let name = text.rsplit('/').next().unwrap_or_default();
        match (self.driver, name.strip_suffix(SLICE)) {
            (CgroupDriver::Systemd, Some(name)) => slice(name),
            (CgroupDriver::Systemd | CgroupDriver::Cgroupfs, _) => {
                CgroupPath::directory(format!("/{}", text.trim_matches('/')))
            }
        }
    }

    fn below_root(&self, parts: &[&str]) -> CgroupPath {
        let all = self.root.iter().map(String::as_str).chain(parts.iter().copied());
        match self.driver {
            CgroupDriver::Cgroupfs => {
                CgroupPath::directory(all.map(|part| format!("/{part}")).collect::<String>())
            }
            CgroupDriver::Systemd => {
                // A root given as slices is used unchanged.
                let parts: Vec<String> =
                    all.map(|part| part.strip_suffix(SLICE).unwrap_or(part).replace('-', "_")).collect();
                slice(&parts.join("-"))
            }
        }
    }
}

/// The pod whose cgroup has this as its last part: `pod1234`, or `kubepods-burstable-pod1234.slice`.
#[must_use]
pub fn pod_of(name: &str) -> Option<PodUid> {
    let uid = match name.strip_suffix(SLICE) {
        Some(slice) => {
            let (above, last) = slice.rsplit_once('-')?;
            above.split('-').find(|part| *part == ALL_PODS)?;
            last.strip_prefix("pod")?.replace('_', "-")
        }
        None => name.strip_prefix("pod")?.to_owned(),
    };
    (!uid.is_empty()).then(|| PodUid::from(uid))
}

const fn class_name(class: QosClass) -> Option<&'static str> {
    match class {
        QosClass::Guaranteed => None,
        QosClass::Burstable => Some("burstable"),
        QosClass::BestEffort => Some("besteffort"),
    }
}

/// `a-b` is `/a.slice/a-b.slice`.
fn slice(name: &str) -> CgroupPath {
    let mut path = String::new();
    let ends = name.match_indices('-').map(|(at, _)| at).chain([name.len()]);
    for end in ends {
        path.push('/');
        path.push_str(name.get(..end).unwrap_or(name));
        path.push_str(SLICE);
    }
    CgroupPath { path: path.into(), is_slice: true }
}
