//! Device plugins: their registration, the devices they report, and the allocation of devices to pods.
//!
//! Owns the connections to plugins, the registry of their devices, and the checkpoint on disk. The devices of each pod are
//! in the allocations in [`Admissions`]. Decisions are made in `resources_core::devices`. Sleeps until a plugin or a pod needs
//! it.

mod allocate;
mod health;
pub mod registration;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use base_agent::context::Context;
use base_agent::damaged::{self, StateFile};
use base_agent::error_chain::chain;
use base_agent::metrics::Metrics;
use base_agent::tasks::TaskSet;
use futures_util::StreamExt;
use model::PodUid;
use model::devices::PluginOptions;
use parking_lot::Mutex;
use ports::node_api::NodeDevice;
use ports::plugins::{DevicePlugin, DeviceRegistration, PluginError, Plugins, Registrar};
use ports::{Clock, Files, HostError};
use resources_core::allocations::Allocations;
use resources_core::devices::checkpoint::{FILE, Remembered, parse_checkpoint, write_checkpoint};
use resources_core::devices::registry::check_registration;
use resources_core::devices::{Connection, Registry};
use resources_core::quantities::DeviceAmounts;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::admissions::Admissions;
use crate::metrics::DeviceMetrics;

pub use health::HealthListener;
pub(crate) use health::HealthListeners;

const DIR: &str = "device-plugins";
const CHECKPOINT_LIMIT: usize = 16 << 20;
const CHECKPOINT_MODE: u32 = 0o600;
/// Plugins that can be registered at once.
const MAX_PLUGINS: usize = 256;

/// A handle; clones share all of it.
#[derive(Clone, Debug)]
pub struct Devices {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    table: Mutex<Table>,
    admissions: Admissions,
    plugins: Arc<dyn Plugins>,
    files: Arc<dyn Files>,
    clock: Clock,
    tasks: TaskSet,
    metrics: Metrics,
    dir: PathBuf,
    /// There was no checkpoint of an earlier run.
    is_new: bool,
    is_serving: AtomicBool,
    /// The pod status has the health of devices.
    reports_health: bool,
    listeners: HealthListeners,
    /// Counts changes of the registry.
    changed: watch::Sender<u64>,
    saved: watch::Sender<Saved>,
}

#[derive(Debug, Default)]
struct Table {
    registry: Registry,
    plugins: BTreeMap<String, Registered>,
}

#[derive(Clone, Debug)]
struct Registered {
    plugin: Arc<dyn DevicePlugin>,
    options: PluginOptions,
    connection: Connection,
    /// Cancelled when another plugin registers the same resource, or this one is deregistered.
    replaced: CancellationToken,
}

/// State of the checkpoint on disk.
#[derive(Clone, Debug, Default)]
struct Saved {
    /// The last change of device allocations that is on disk.
    change: u64,
    error: Option<String>,
}

impl Devices {
    /// Reads the checkpoint of an earlier run of the kubelet.
    ///
    /// # Errors
    /// The directory of device plugins cannot be created, or the checkpoint cannot be read.
    pub async fn load(ctx: &Context, plugins: Arc<dyn Plugins>) -> Result<Self, HostError> {
        let dir = ctx.settings.paths.root.join(DIR);
        ctx.files.make_dir(&dir, 0o750).await?;
        let (remembered, is_new) = load_checkpoint(&*ctx.files, &*plugins, &dir.join(FILE)).await?;
        let Remembered { pods, resources } = remembered;
        let registry = Registry::remembering(resources, ctx.clock.mono());
        let shared = Shared {
            table: Mutex::new(Table { registry, plugins: BTreeMap::new() }),
            admissions: Admissions::new(Allocations::remembering(pods)),
            plugins,
            files: ctx.files.clone(),
            clock: ctx.clock,
            tasks: ctx.tasks.clone(),
            metrics: ctx.metrics.clone(),
            dir,
            is_new,
            is_serving: AtomicBool::new(false),
            reports_health: ctx.node_facts.features.device_health,
            listeners: HealthListeners::default(),
            changed: watch::Sender::new(0),
            saved: watch::Sender::new(Saved::default()),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Has the devices of each pod.
    #[must_use]
    pub fn admissions(&self) -> Admissions {
        self.shared.admissions.clone()
    }

    /// Opens the registration socket and writes the checkpoint, until the tasks stop. `complete` becomes true when every
    /// desired pod has requested its admission slot.
    ///
    /// # Errors
    /// The socket cannot be opened.
    pub fn start(&self, complete: watch::Receiver<bool>) -> Result<(), HostError> {
        let shared = &self.shared;
        let serve = shared.plugins.serve_registration(&shared.dir, Arc::new(self.clone()));
        let serve = serve.map_err(|error| HostError::Invalid(format!("device plugins: {error}")))?;
        shared.is_serving.store(true, Ordering::Relaxed);
        let devices = self.clone();
        shared.tasks.spawn("registration of device plugins", async move {
            serve.await;
            devices.shared.is_serving.store(false, Ordering::Relaxed);
            tracing::error!("Device plugin registration server stopped");
        });
        shared.tasks.spawn("devices", self.clone().run(complete));
        Ok(())
    }

    /// Capacity and allocatable amount of each resource, for the Node.
    #[must_use]
    pub fn amounts(&self) -> BTreeMap<String, DeviceAmounts> {
        self.read(Registry::amounts)
    }

    /// Notifies of every change of the registry.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changed.subscribe()
    }

    /// There was no checkpoint of an earlier run.
    #[must_use]
    pub fn are_new(&self) -> bool {
        self.shared.is_new
    }

    /// Whether plugins can register.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.shared.is_serving.load(Ordering::Relaxed)
    }

    /// The devices of a container.
    #[must_use]
    pub fn of_container(&self, uid: &PodUid, container: &str) -> Vec<NodeDevice> {
        let devices = self.shared.admissions.devices_of(uid).unwrap_or_default();
        let given = devices.containers.get(container).into_iter().flatten();
        let each = given.flat_map(|(resource, given)| given.devices.iter().map(move |d| (resource, d)));
        each.map(|(resource, (id, numa_nodes))| NodeDevice {
            resource: resource.clone(),
            id: id.clone(),
            numa_nodes: numa_nodes.clone(),
        })
        .collect()
    }

    /// The healthy devices, allocated or not.
    #[must_use]
    pub fn allocatable(&self) -> Vec<NodeDevice> {
        self.read(|registry| {
            let each = registry.resources().flat_map(|name| registry.healthy(name).map(move |id| (name, id)));
            each.map(|(resource, id)| NodeDevice {
                resource: resource.to_owned(),
                id: id.to_owned(),
                numa_nodes: registry.numa_nodes(resource, id).to_vec(),
            })
            .collect()
        })
    }

    /// Each resource of a plugin, whether the plugin is connected, and its devices: how many are healthy, and all.
    #[must_use]
    pub fn plugins(&self) -> Vec<(String, bool, usize, usize)> {
        let table = self.shared.table.lock();
        let of_resource = |name: &str| {
            let (healthy, all) = (table.registry.healthy(name).count(), table.registry.devices(name).count());
            (name.to_owned(), table.plugins.contains_key(name), healthy, all)
        };
        table.registry.resources().map(of_resource).collect()
    }

    /// Reads the registry. The table is locked meanwhile.
    pub fn read<T>(&self, read: impl FnOnce(&Registry) -> T) -> T {
        read(&self.shared.table.lock().registry)
    }

    fn change(&self, change: impl FnOnce(&mut Table) -> bool) -> bool {
        let has_changed = self.change_and_notify(change);
        if has_changed {
            self.shared.changed.send_modify(|count| *count += 1);
        }
        has_changed
    }

    /// Connects to a plugin, and applies the devices it reports from now on.
    ///
    /// # Errors
    /// The plugin does not answer. The text is returned to the plugin.
    pub async fn connect(&self, resource: &str, socket: &std::path::Path) -> Result<(), String> {
        let shared = &self.shared;
        let plugin = shared.plugins.connect(socket).await.map_err(|error| error.to_string())?;
        let options = plugin.options().await;
        let options = options.map_err(|error| format!("failed to get device plugin options: {error}"))?;
        let replaced = CancellationToken::new();
        let connection = {
            let mut table = shared.table.lock();
            if table.plugins.len() >= MAX_PLUGINS && !table.plugins.contains_key(resource) {
                return Err(format!("the limit of {MAX_PLUGINS} device plugins is reached"));
            }
            let connection = table.registry.connected(resource);
            let new = Registered { plugin: plugin.clone(), options, connection, replaced: replaced.clone() };
            if let Some(old) = table.plugins.insert(resource.to_owned(), new) {
                old.replaced.cancel();
            }
            connection
        };
        shared.changed.send_modify(|count| *count += 1);
        tracing::info!(resource, socket = %socket.display(), "Registered device plugin");
        let (devices, resource) = (self.clone(), resource.to_owned());
        shared.tasks.spawn_isolated("device plugin", async move {
            tokio::select! {
                () = replaced.cancelled() => {}
                () = devices.follow(&resource, connection, &*plugin) => {}
            }
        });
        Ok(())
    }

    /// The plugin of the resource is deregistered: its devices are unhealthy from now on.
    pub fn disconnect(&self, resource: &str) {
        let now = self.shared.clock.mono();
        let was_connected = self.change(|table| {
            let Some(registered) = table.plugins.remove(resource) else { return false };
            registered.replaced.cancel();
            table.registry.vanished(resource, registered.connection, now)
        });
        if was_connected {
            tracing::info!(resource, "Deregistered device plugin, its devices are unhealthy");
        }
    }

    /// Applies the devices that the plugin reports, until it disconnects.
    async fn follow(&self, resource: &str, connection: Connection, plugin: &dyn DevicePlugin) {
        let ended = self.listen_to(resource, connection, plugin).await;
        let why = ended.err().map_or_else(
            || "the plugin closed its ListAndWatch stream".to_owned(),
            |error| error.to_string(),
        );
        let now = self.shared.clock.mono();
        self.change(|table| {
            let was_it = table.registry.vanished(resource, connection, now);
            if was_it {
                table.plugins.remove(resource);
            }
            was_it
        });
        tracing::warn!(resource, err = why, "Device plugin disconnected, its devices are unhealthy");
    }

    async fn listen_to(
        &self,
        resource: &str,
        connection: Connection,
        plugin: &dyn DevicePlugin,
    ) -> Result<(), PluginError> {
        let mut lists = plugin.devices().await?;
        while let Some(devices) = lists.next().await {
            let devices = devices?;
            let count = devices.len();
            if self.change(|table| table.registry.listed(resource, connection, devices)) {
                tracing::info!(resource, count, "Device plugin reported its devices");
            }
        }
        Ok(())
    }

    /// Writes the checkpoint after changes, and removes resources whose plugins do not come back.
    async fn run(self, mut complete: watch::Receiver<bool>) {
        let (mut device_changes, mut registry_changes) =
            (self.shared.admissions.device_changes(), self.changes());
        let mut is_complete = false;
        let mut on_disk = if self.shared.is_new { self.checkpoint() } else { String::new() };
        loop {
            let change = *device_changes.borrow_and_update();
            registry_changes.mark_unchanged();
            self.save(change, &mut on_disk).await;
            let wake_at = self.read(Registry::wake_at);
            let wake = self.shared.clock.sleep_until_some(wake_at);
            tokio::select! {
                Ok(()) = device_changes.changed() => {}
                Ok(()) = registry_changes.changed() => {}
                Ok(_) = complete.wait_for(|complete| *complete), if !is_complete => {
                    is_complete = true;
                    self.shared.admissions.forget_unclaimed();
                }
                () = wake => {
                    let now = self.shared.clock.mono();
                    self.change(|table| table.registry.drop_expired(now));
                }
            }
        }
    }

    fn checkpoint(&self) -> String {
        self.shared.admissions.read(|allocations| {
            self.read(|registry| {
                write_checkpoint(allocations.devices(), registry, |response| {
                    self.shared.plugins.pack(response)
                })
            })
        })
    }

    /// Writes the checkpoint if it differs from the one on disk, and notifies tasks that wait for that.
    async fn save(&self, change: u64, on_disk: &mut String) {
        let text = self.checkpoint();
        let mut error = None;
        if text != *on_disk {
            let path = self.shared.dir.join(FILE);
            match self.shared.files.write_durably(&path, text.as_bytes(), CHECKPOINT_MODE).await {
                Ok(()) => *on_disk = text,
                Err(why) => {
                    let why = chain(&why);
                    tracing::error!(err = why, "Failed to write device checkpoint");
                    error = Some(why);
                }
            }
        }
        self.shared.saved.send_replace(Saved { change, error });
    }
}

/// The checkpoint of an earlier run, and whether there was none. A damaged one counts as missing: running pods keep their devices, but
/// the kubelet does not know them. One that the disk does not return ends the start: what is in it is in use, and the next try may find
/// it.
async fn load_checkpoint(
    files: &dyn Files,
    plugins: &dyn Plugins,
    path: &std::path::Path,
) -> Result<(Remembered, bool), HostError> {
    let unpack = |bytes: &[u8]| plugins.unpack(bytes);
    let parse = |bytes: &[u8]| {
        parse_checkpoint(&String::from_utf8_lossy(bytes), unpack).map_err(|error| chain(&error))
    };
    Ok(match damaged::load(files, path, CHECKPOINT_LIMIT, "device checkpoint", parse).await? {
        StateFile::Missing => (Remembered::default(), true),
        StateFile::Damaged => (Remembered::default(), false),
        StateFile::Intact(remembered) => (remembered, false),
    })
}

#[async_trait]
impl Registrar for Devices {
    async fn register(&self, registration: DeviceRegistration) -> Result<(), String> {
        let DeviceRegistration { version, endpoint, resource } = registration;
        self.shared.metrics.get::<DeviceMetrics>().registered(&resource);
        let checked = check_registration(&version, &resource, &endpoint).map_err(|error| error.to_string());
        let registered = match checked {
            Ok(()) => self.connect(&resource, &self.shared.dir.join(&endpoint)).await,
            refused @ Err(_) => refused,
        };
        if let Err(why) = &registered {
            tracing::warn!(resource, endpoint, err = why, "Failed to register device plugin");
        }
        registered
    }
}
