//! FlexVolume drivers of this node: programs in the directory `volumePluginDir`, found when a volume needs them.
//!
//! Owns: what a driver reported about itself, until its program is replaced. There is no task and no watch: a node without such volumes
//! never reads the directory, which is created when the kubelet starts. Arguments and answers are decided in
//! `volumes_core::flex`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base_agent::context::Context;
use base_agent::error_chain::chain;
use jiff::Timestamp;
use model::PodUid;
use model::k8s::PersistentVolumeClaim;
use parking_lot::Mutex;
use ports::HostError;
use volumes_core::csi::expansion;
use volumes_core::flex::{
    Answer, CallError, Capabilities, Command, PLUGIN, directory_name, parse_answer, program_name,
};

use super::{exists, program};

/// As long as the Go kubelet lets a driver wait for a device. It waits forever for everything else.
const DEADLINE: Duration = Duration::from_secs(600);
const DRIVER_DIR_MODE: u32 = 0o755;
const NO_PLUGIN: &str = "no volume plugin matched";
/// Below a driver's directory: the devices that it has mounted.
const MOUNTS: &str = "mounts";

/// Drivers that were used; not more than the directory has.
#[derive(Debug, Default)]
pub(super) struct FlexDrivers {
    known: Mutex<BTreeMap<String, Known>>,
    /// Volumes that may grow, by their unique names, as long as pods use them.
    growing: Mutex<BTreeMap<String, Growing>>,
}

#[derive(Debug, Default)]
struct Growing {
    known: Option<expansion::Known>,
    pods: BTreeSet<PodUid>,
}

#[derive(Clone, Debug)]
struct Known {
    /// When its program was changed.
    changed: Option<Timestamp>,
    capabilities: Capabilities,
    unsupported: BTreeSet<Command>,
}

/// A driver that is installed.
#[derive(Debug)]
pub(super) struct FlexDriver<'a> {
    ctx: &'a Context,
    drivers: &'a FlexDrivers,
    name: String,
    program: PathBuf,
    pub capabilities: Capabilities,
}

impl FlexDrivers {
    /// Finds the driver, and asks for its capabilities if it is new.
    ///
    /// # Errors
    /// It is not installed, or cannot be used.
    pub(crate) async fn get<'a>(&'a self, ctx: &'a Context, driver: &str) -> Result<FlexDriver<'a>, String> {
        let Some(program) = installed(ctx, driver).await else {
            self.known.lock().remove(driver);
            return Err(NO_PLUGIN.to_owned());
        };
        // Without the time, the driver is asked once.
        let changed = ctx.files.metadata(&program).await.ok().map(|metadata| metadata.modified);
        let known = self.known.lock().get(driver).filter(|known| known.changed == changed).cloned();
        let capabilities = Capabilities::default();
        let mut found = FlexDriver { ctx, drivers: self, name: driver.to_owned(), program, capabilities };
        if let Some(known) = known {
            found.capabilities = known.capabilities;
            return Ok(found);
        }
        let answer = found.run(Command::Init, Vec::new()).await.map_err(|err| {
            tracing::error!(driver, err = %err, "Failed to initialize FlexVolume driver");
            NO_PLUGIN.to_owned()
        })?;
        found.capabilities = answer.capabilities;
        let new = Known { changed, capabilities: found.capabilities, unsupported: BTreeSet::new() };
        let mut known = self.known.lock();
        // Another volume may have asked at the same time, and found out more since.
        let known = known.entry(driver.to_owned()).or_insert_with(|| new.clone());
        if known.changed != changed {
            *known = new;
        }
        Ok(found)
    }
}

impl FlexDrivers {
    /// The pod uses a volume that may grow.
    pub(super) fn add_growing(&self, unique_name: &str, pod: PodUid) {
        self.growing.lock().entry(unique_name.to_owned()).or_default().pods.insert(pod);
    }

    pub(super) fn is_growing(&self, unique_name: &str, pod: &PodUid) -> bool {
        self.growing.lock().get(unique_name).is_some_and(|growing| growing.pods.contains(pod))
    }

    /// The pod has volumes that may grow: they are looked at with each of its syncs.
    pub(super) fn has_growing(&self, pod: &PodUid) -> bool {
        self.growing.lock().values().any(|growing| growing.pods.contains(pod))
    }

    pub(crate) fn release(&self, pod: &PodUid) {
        self.growing.lock().retain(|_, growing| {
            growing.pods.remove(pod);
            !growing.pods.is_empty()
        });
    }

    pub(crate) fn known(&self, unique_name: &str, claim: &PersistentVolumeClaim) -> expansion::Known {
        let mut growing = self.growing.lock();
        let of_claim = || expansion::Known::of(claim);
        growing
            .get_mut(unique_name)
            .map_or_else(of_claim, |growing| *growing.known.get_or_insert_with(of_claim))
    }

    pub(crate) fn change(&self, unique_name: &str, change: impl FnOnce(&mut expansion::Known)) {
        if let Some(known) =
            self.growing.lock().get_mut(unique_name).and_then(|growing| growing.known.as_mut())
        {
            change(known);
        }
    }
}

impl FlexDriver<'_> {
    /// # Errors
    /// The driver does not support the command, failed, or timed out.
    pub(crate) async fn call(&self, command: Command, args: Vec<String>) -> Result<Answer, CallError> {
        let is_unsupported = |known: &Known| known.unsupported.contains(&command);
        if self.drivers.known.lock().get(&self.name).is_some_and(is_unsupported) {
            return Err(CallError::NotSupported);
        }
        let answer = self.run(command, args).await;
        if answer == Err(CallError::NotSupported)
            && let Some(known) = self.drivers.known.lock().get_mut(&self.name)
        {
            known.unsupported.insert(command);
        }
        answer
    }

    /// Unmounts what the driver mounted on the path, and removes the directory. Idempotent.
    pub(crate) async fn unmount(&self, command: Command, path: &Path) -> Result<(), String> {
        match self.call(command, vec![path.display().to_string()]).await {
            Ok(_) => {}
            Err(CallError::NotSupported) => {
                self.ctx.mounts.unmount_tree(path).await.map_err(|error| chain(&error))?;
            }
            Err(error @ (CallError::Failed(_) | CallError::NotFinished(_))) => return Err(error.to_string()),
        }
        super::remove_empty(self.ctx, path, None).await.map_err(|error| chain(&error))
    }

    async fn run(&self, command: Command, args: Vec<String>) -> Result<Answer, CallError> {
        let args = [command.name().to_owned()].into_iter().chain(args).collect();
        let call = program(&self.program.to_string_lossy(), args, DEADLINE);
        match self.ctx.processes.run(&call).await {
            Ok(end) if end.output.is_empty() => parse_answer(command, end.code, end.stderr.as_bytes()),
            Ok(end) => parse_answer(command, end.code, &end.output),
            Err(HostError::NotFinished(text)) => Err(CallError::NotFinished(text)),
            Err(error @ (HostError::Io { .. } | HostError::Invalid(_))) => {
                Err(CallError::Failed(chain(&error)))
            }
        }
    }
}

/// Creates the directory of drivers, where their installers expect it.
pub(super) async fn ensure_driver_dir(ctx: Arc<Context>) {
    let path = Path::new(&ctx.config().volume_plugin_dir);
    let created = match exists(&ctx, path).await {
        Ok(true) => return,
        Ok(false) => {
            tracing::warn!(path = %path.display(), "Flexvolume plugin directory does not exist. Recreating");
            ctx.files.ensure_dir(path, DRIVER_DIR_MODE).await
        }
        Err(error) => Err(error),
    };
    if let Err(error) = created {
        let err = chain(&error);
        tracing::error!(path = %path.display(), err, "Failed to create the directory of FlexVolume drivers");
    }
}

/// The program of the driver, if it is there.
pub(crate) async fn installed(ctx: &Context, driver: &str) -> Option<PathBuf> {
    let directory = Path::new(&ctx.config().volume_plugin_dir).join(directory_name(driver));
    let names = ctx.files.list_names(&directory).await.unwrap_or_default();
    let name = program_name(driver);
    names.iter().any(|known| known == name).then(|| directory.join(name))
}

/// The drivers and volumes whose devices are mounted for all pods, as the disk shows them.
pub(super) async fn mounted_devices(ctx: &Context) -> Vec<(String, String)> {
    let root = ctx.settings.paths.root.join("plugins").join(PLUGIN);
    let (files, mut found) = (&*ctx.files, Vec::new());
    for vendor in files.list_names(&root).await.unwrap_or_default() {
        let below = files.list_names(&root.join(&vendor)).await.unwrap_or_default();
        // A driver without a vendor has its mounts here.
        let drivers = below.iter().map(|name| match name.as_str() {
            MOUNTS => vendor.clone(),
            name => format!("{vendor}/{name}"),
        });
        for driver in drivers {
            let mounts = root.join(&driver).join(MOUNTS);
            let volumes = files.list_names(&mounts).await.unwrap_or_default();
            found.extend(volumes.into_iter().map(|volume| (driver.clone(), volume)));
        }
    }
    found
}
