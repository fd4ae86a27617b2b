//! Observes a node before this kubelet starts on it, for `kubelet takeover --check`: the root directory, the manifests and the runtime.
//!
//! Changes nothing, and decides nothing: that is `kubelet_core::takeover`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use base_agent::error_chain::chain;
use base_agent::settings::Settings;
use base_core::node_facts::NodeFacts;
use futures_util::{StreamExt, stream};
use kubelet_core::takeover::{
    Assigned, CgroupFacts, CgroupLocation, DEVICES, FileReport, FoundCgroup, FoundDirectory, FoundPod,
    FoundVolume, GO_DEVICES, RootEntry, StateSettings, TakeoverInputs, TakeoverReport, compute_file,
    compute_takeover, source_in,
};
use model::k8s::Pod;
use model::{CgroupDriver, PodObservation, PodRef, PodSource, PodUid};
use ports::runtime::Scope;
use ports::{Cgroups, Clock, Files, Host, HostError, Runtime, RuntimeError};
use resources_core::amounts_file::{ACTUATED, ALLOCATED};
use resources_core::cgroup::CgroupNames;
use resources_core::claims::checkpoint::DRA_STATE_FILE;
use resources_core::claims::health_file::HEALTH_STATE_FILE;
use resources_core::cpus::CPU_STATE_FILE;
use resources_core::memory::checkpoint::FILE as MEMORY_STATE_FILE;
use sources_core::static_pod::{Origin, parse_manifest};

use crate::pods::pleg;

/// The files that are read.
const STATE_FILES: [&str; 7] =
    [CPU_STATE_FILE, MEMORY_STATE_FILE, ALLOCATED, ACTUATED, DEVICES, DRA_STATE_FILE, HEALTH_STATE_FILE];
/// State files are small; the largest is that of the devices.
const LIMIT: usize = 16 << 20;
/// Pods that are inspected at the same time.
const MAX_INSPECTIONS: usize = 8;

/// The ports that are only read.
#[derive(Clone, Debug)]
pub struct CheckPorts {
    pub runtime: Arc<dyn Runtime>,
    pub host: Host,
    pub cgroups: Arc<dyn Cgroups>,
    pub clock: Clock,
}

#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error("failed to read {path}: {why}")]
    File { path: String, why: String },
    #[error("failed to ask the container runtime: {0}")]
    Runtime(#[from] RuntimeError),
}

/// What a start with these settings would do.
///
/// # Errors
/// The root directory or the runtime cannot be read: then nothing is known.
pub async fn check(
    ports: &CheckPorts,
    settings: &Settings,
    facts: &NodeFacts,
) -> Result<TakeoverReport, CheckError> {
    let node = Node { ports, settings, facts };
    let cgroups = node.cgroup_facts().await?;
    let Manifests { pods: static_pods, errors: manifest_errors, has_unreadable_path } =
        node.manifests().await;
    let pods = node.pods(cgroups).await?;
    let (files, assigned) = node.files().await?;
    let devices_elsewhere = node.devices_elsewhere().await?;
    Ok(compute_takeover(&TakeoverInputs {
        pods: &pods,
        static_pods: &static_pods,
        manifest_errors: &manifest_errors,
        has_unreadable_path,
        has_api: !settings.flags.standalone(),
        has_url: !facts.config.static_pod_url.is_empty(),
        files,
        assigned,
        devices_elsewhere: devices_elsewhere.as_deref(),
        cgroups,
        features: facts.features,
        now: ports.clock.now(),
    }))
}

/// The pods of all manifests, and what is wrong with the others.
#[derive(Default)]
struct Manifests {
    pods: Vec<Pod>,
    errors: Vec<String>,
    has_unreadable_path: bool,
}

struct Node<'a> {
    ports: &'a CheckPorts,
    settings: &'a Settings,
    facts: &'a NodeFacts,
}

fn failed(path: &Path) -> impl Fn(HostError) -> CheckError + '_ {
    move |error| CheckError::File { path: path.display().to_string(), why: chain(&error) }
}

/// A directory that does not exist has no entries.
fn or_empty<T>(result: Result<Vec<T>, HostError>) -> Result<Vec<T>, HostError> {
    match result {
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        result => result,
    }
}

impl Node<'_> {
    fn disk(&self) -> &dyn Files {
        &*self.ports.host.files
    }

    async fn cgroup_facts(&self) -> Result<CgroupFacts, CheckError> {
        let of_runtime = match self.ports.runtime.cgroup_driver().await {
            Ok(driver) => Some(driver),
            Err(RuntimeError::Unimplemented { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let configured = CgroupDriver::parse(&self.facts.config.cgroup_driver);
        Ok(CgroupFacts { configured: configured.unwrap_or(CgroupDriver::Cgroupfs), of_runtime })
    }

    async fn manifests(&self) -> Manifests {
        let path = Path::new(&self.facts.config.static_pod_path);
        if path.as_os_str().is_empty() {
            return Manifests::default();
        }
        let files = match self.disk().read_manifests(path).await {
            Ok(files) => files,
            Err(error) => {
                let errors = vec![chain(&error)];
                return Manifests { errors, has_unreadable_path: true, ..Manifests::default() };
            }
        };
        let (mut pods, mut errors) = (Vec::new(), Vec::new());
        for file in files {
            let origin = Origin::File(file.path.display().to_string());
            let features = self.facts.features;
            match file.content.map(|text| parse_manifest(&text, &origin, &self.settings.node_name, features))
            {
                Ok(Ok(manifest)) => pods.extend(manifest.pods),
                Ok(Err(problems)) => errors.extend(problems.iter().map(ToString::to_string)),
                Err(why) => errors.push(format!("{origin}: {why}")),
            }
        }
        Manifests { pods, errors, has_unreadable_path: false }
    }

    /// The pods of the runtime and of the root directory.
    async fn pods(&self, cgroups: CgroupFacts) -> Result<Vec<FoundPod>, CheckError> {
        let root = self.settings.paths.pods();
        let dirs = or_empty(self.disk().list_dir(&root).await).map_err(failed(&root))?;
        let dirs: BTreeSet<PodUid> =
            dirs.into_iter().filter(|entry| entry.is_dir).map(|entry| entry.name.into()).collect();
        let mut pods: BTreeMap<PodUid, PodRef> =
            dirs.iter().map(|uid| (uid.clone(), PodRef::new("", "", uid.clone()))).collect();
        pods.extend(pleg::identities(&*self.ports.runtime, &Scope::Node).await?);
        let driver = cgroups.of_runtime.unwrap_or(cgroups.configured);
        let names = CgroupNames::new(driver, &self.facts.config.cgroup_root);
        let found = stream::iter(pods.into_values())
            .map(|pod| self.pod(pod, &names, &dirs))
            .buffered(MAX_INSPECTIONS)
            .collect::<Vec<_>>()
            .await;
        found.into_iter().collect()
    }

    async fn pod(
        &self,
        pod: PodRef,
        names: &CgroupNames,
        dirs: &BTreeSet<PodUid>,
    ) -> Result<FoundPod, CheckError> {
        let observed = pleg::inspect(&*self.ports.runtime, &self.ports.clock, &pod, None).await?;
        let (source, actual) = self.recorded(&observed).await?;
        let exists = !self.facts.config.cgroups_per_qos || self.has_cgroup(names, &pod.uid).await;
        let location = match exists {
            true => CgroupLocation::Here,
            false if names.candidates_of(&pod.uid).iter().any(|cgroup| *cgroup.path == *actual) => {
                CgroupLocation::Removed
            }
            false => CgroupLocation::Elsewhere,
        };
        let dir = if dirs.contains(&pod.uid) { Some(self.directory(&pod.uid).await?) } else { None };
        Ok(FoundPod { observed, source, dir, cgroup: FoundCgroup { actual, location } })
    }

    /// What the runtime keeps of the request for the sandbox: the source of the pod, and its cgroup.
    async fn recorded(&self, observed: &PodObservation) -> Result<(Option<PodSource>, String), CheckError> {
        let Some(sandbox) = observed.sandboxes.first() else { return Ok(Default::default()) };
        match self.ports.runtime.sandbox_info(&sandbox.id).await {
            Ok(info) => Ok(source_in(&info)),
            Err(error) if error.is_not_found() => Ok(Default::default()),
            Err(error) => Err(error.into()),
        }
    }

    async fn has_cgroup(&self, names: &CgroupNames, uid: &PodUid) -> bool {
        for cgroup in names.candidates_of(uid) {
            if self.ports.cgroups.exists(&cgroup).await {
                return true;
            }
        }
        false
    }

    async fn directory(&self, uid: &PodUid) -> Result<FoundDirectory, CheckError> {
        let dir = self.settings.paths.pod(uid);
        let entries = or_empty(self.disk().list_names(&dir).await).map_err(failed(&dir))?;
        let is_own = entries.iter().any(|name| name == "pod.json");
        let mut volumes = Vec::new();
        let below = dir.join("volumes");
        for plugin_dir in or_empty(self.disk().list_names(&below).await).map_err(failed(&below))? {
            let of_type = below.join(&plugin_dir);
            for name in or_empty(self.disk().list_names(&of_type).await).map_err(failed(&of_type))? {
                let path = of_type.join(&name);
                let is_mounted = self.ports.host.mounts.is_mount_point(&path).await.map_err(failed(&path))?;
                volumes.push(FoundVolume { plugin_dir: plugin_dir.clone(), name, is_mounted });
            }
        }
        Ok(FoundDirectory { is_own, volumes })
    }

    /// The entries of the root directory and what is made of them; and what the state files assign to pods.
    async fn files(&self) -> Result<(Vec<FileReport>, Assigned), CheckError> {
        let root = &self.settings.paths.root;
        let settings = StateSettings {
            config: &self.facts.config,
            has_pod_level_managers: self.facts.features.pod_level_resource_managers
                && self.facts.features.pod_level_resources,
        };
        let (mut reports, mut assigned) = (Vec::new(), Assigned::default());
        let entries = or_empty(self.disk().list_dir(root).await).map_err(failed(root))?;
        let entries = entries.into_iter().map(|entry| (entry.name, entry.is_dir));
        let devices = [(DEVICES.to_owned(), false)].into_iter();
        for (path, is_dir) in entries.chain(devices) {
            let is_read = STATE_FILES.contains(&&*path);
            let text = match self.read(&root.join(&path), is_read).await? {
                None if is_read => continue,
                text => text,
            };
            let entry = RootEntry { path, text, is_dir };
            assigned.add(&entry, settings);
            reports.extend(compute_file(&entry, settings));
        }
        reports.sort_by(|a, b| a.path.cmp(&b.path));
        Ok((reports, assigned))
    }

    /// What the Go kubelet has of devices outside this root directory.
    async fn devices_elsewhere(&self) -> Result<Option<String>, CheckError> {
        let path = Path::new(GO_DEVICES);
        let is_elsewhere = self.settings.paths.root.join(DEVICES) != path;
        self.read(path, is_elsewhere).await
    }

    async fn read(&self, path: &Path, is_read: bool) -> Result<Option<String>, CheckError> {
        if !is_read {
            return Ok(None);
        }
        match self.disk().read_file(path, LIMIT, false).await {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(failed(path)(error)),
        }
    }
}
