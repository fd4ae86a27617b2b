//! Gathers the facts that the Node object is computed from: the machine, the runtime and the settings.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use api_agent::volumes_in_use::{VolumesInUse, WantedVolumes};
use base_agent::context::Context;
use base_agent::error_chain::chain;
use base_core::declared_features::compute_declared_features;
use config::{Features, NodeFlags};
use kubelet_core::node::{NodeImage, NodeInputs, NodeMachine};
use model::MonoTime;
use model::k8s::{NodeRuntimeHandler, NodeRuntimeHandlerFeatures};
use model::request::ImageObservation;
use ports::Clock;
use ports::host::MachineInfo;
use ports::runtime::{RuntimeHandler, RuntimeResult};
use resources_agent::devices::Devices;
use resources_core::admission::pressure::NodePressure;
use resources_core::quantities::DeviceAmounts;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::node::machine::machine_facts;
use crate::node_handle::NodeHandle;
use crate::node_view::OtherProblems;
use crate::pods::pleg::PlegHandle;

/// Interval of image listings; images change only by pulls and removals.
const IMAGES_FOR: Duration = Duration::from_secs(30);
/// How long a status of the node waits for a call to the runtime.
const MAX_CALL_WAIT: Duration = Duration::from_secs(1);
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);

fn declared_features(features: Features, has_host_network: bool) -> Vec<String> {
    compute_declared_features(features, has_host_network).into_iter().map(str::to_owned).collect()
}

/// What other tasks publish about this node.
#[derive(Clone, Debug)]
pub(crate) struct NodeSources {
    pub(crate) node: NodeHandle,
    pub(crate) pleg: PlegHandle,
    pub(crate) devices: Devices,
    pub(crate) volumes_in_use: VolumesInUse,
    /// Why the CSINode keeps the node from being ready.
    pub(crate) csi_node: watch::Receiver<Option<String>>,
}

impl NodeSources {
    /// Everything that keeps the node from being ready, as messages for its Ready condition; empty when it is.
    pub(super) fn problems(&self, now: MonoTime) -> Vec<String> {
        let others = OtherProblems {
            pleg: self.pleg.problem(now),
            storage: self.csi_node.borrow().clone(),
            is_shutting_down: *self.node.shutting_down.borrow(),
            cgroups: self.node.cgroup_problems.texts(),
        };
        self.node.view.borrow().problems(others, now)
    }
}

/// The owned facts; [`GatheredFacts::view`] borrows them for a decision.
#[derive(Debug)]
pub(super) struct GatheredFacts {
    machine: NodeMachine,
    hostname: String,
    resolved_ips: Vec<IpAddr>,
    own_ips: Vec<IpAddr>,
    default_route_ip: Option<IpAddr>,
    runtime_version: String,
    images: Vec<NodeImage>,
    images_listed_at: Option<MonoTime>,
    /// The listing under way, if any: at most one.
    image_listing: JoinSet<(MonoTime, RuntimeResult<Vec<ImageObservation>>)>,
    handlers: Vec<NodeRuntimeHandler>,
    supplemental_groups_policy: Option<bool>,
    declared_features: Vec<String>,
    devices: BTreeMap<String, DeviceAmounts>,
    volumes_in_use: WantedVolumes,
    problems: Vec<String>,
    pressure: NodePressure,
}

impl GatheredFacts {
    /// Gathers the facts that do not change while the process runs.
    pub(super) async fn new(ctx: &Context) -> Self {
        let info = ctx.machine.info();
        let storage = ctx.files.filesystem_bytes(&ctx.settings.paths.root).await;
        if let Err(error) = &storage {
            tracing::warn!(err = chain(error), "Failed to get the storage capacity of the node");
        }
        Self {
            hostname: hostname(&ctx.settings.flags, &info),
            machine: machine_facts(info, storage.ok()),
            resolved_ips: Vec::new(),
            own_ips: Vec::new(),
            default_route_ip: None,
            runtime_version: String::new(),
            images: Vec::new(),
            images_listed_at: None,
            image_listing: JoinSet::new(),
            handlers: Vec::new(),
            supplemental_groups_policy: None,
            declared_features: declared_features(ctx.node_facts.features, false),
            devices: BTreeMap::new(),
            volumes_in_use: WantedVolumes::default(),
            problems: Vec::new(),
            pressure: NodePressure::default(),
        }
    }

    /// Updates the facts that may have changed.
    pub(super) async fn refresh(&mut self, ctx: &Context, sources: &NodeSources) {
        self.refresh_addresses(ctx).await;
        self.refresh_images(ctx).await;
        self.pressure = *sources.node.pressure.borrow();
        self.devices = sources.devices.amounts();
        self.volumes_in_use = sources.volumes_in_use.wanted();
        self.problems = sources.problems(ctx.clock.mono());
        let view = sources.node.view.borrow();
        let version = &view.version;
        if !version.version.is_empty() {
            self.runtime_version = format!("{}://{}", version.name, version.version);
        }
        if view.last_ready.is_some() {
            self.handlers = view.status.handlers.iter().map(handler).collect();
            self.supplemental_groups_policy = Some(view.status.supplemental_groups_policy);
            let has_host_network = view.status.user_namespaces_host_network;
            self.declared_features = declared_features(ctx.node_facts.features, has_host_network);
        }
    }

    /// The node name is resolved only if no address is configured.
    async fn refresh_addresses(&mut self, ctx: &Context) {
        let given = ctx.settings.flags.node_ips();
        let is_given = given.first().is_some_and(|ip| !ip.is_unspecified());
        self.default_route_ip = ctx.machine.default_route_ip(given.first().is_some_and(IpAddr::is_ipv6));
        if !is_given && self.hostname.parse::<IpAddr>().is_err() {
            let name = &ctx.settings.node_name;
            self.resolved_ips = ctx.net.resolve(name, RESOLVE_TIMEOUT).await.unwrap_or_else(|error| {
                tracing::debug!(err = %error, "Failed to resolve the node name, using the address of the default route");
                Vec::new()
            });
        }
        let candidates: Vec<IpAddr> = given.iter().chain(&self.resolved_ips).copied().collect();
        self.own_ips = ctx.machine.own_addresses(&candidates);
    }

    /// A runtime that does not answer must not delay the status of the node, whose readiness it decides. A listing that takes longer
    /// than a moment is for a later status.
    async fn refresh_images(&mut self, ctx: &Context) {
        let now = ctx.clock.mono();
        let is_due = self.images_listed_at.is_none_or(|at| now.saturating_since(at) >= IMAGES_FOR);
        if self.image_listing.is_empty() && is_due {
            let runtime = ctx.runtime.clone();
            self.image_listing.spawn(async move { (now, runtime.list_images().await) });
        }
        match finished_soon(&mut self.image_listing, ctx.clock).await {
            Some((listed_at, Ok(images))) => {
                self.images_listed_at = Some(listed_at);
                self.images = images
                    .into_iter()
                    .map(|image| NodeImage {
                        repo_digests: image.repo_digests,
                        repo_tags: image.repo_tags,
                        size_bytes: image.size_bytes,
                    })
                    .collect();
            }
            Some((_, Err(error))) => {
                tracing::warn!(err = %error, "Failed to list images, keeping the node status images")
            }
            None => {}
        }
    }

    pub(super) fn view<'a>(&'a self, ctx: &'a Context) -> NodeInputs<'a> {
        NodeInputs {
            name: &ctx.settings.node_name,
            hostname: &self.hostname,
            config: ctx.config(),
            flags: &ctx.settings.flags,
            machine: &self.machine,
            resolved_ips: &self.resolved_ips,
            default_route_ip: self.default_route_ip,
            interface_ips: &self.own_ips,
            runtime_version: &self.runtime_version,
            images: &self.images,
            runtime_handlers: &self.handlers,
            supplemental_groups_policy: self.supplemental_groups_policy,
            declared_features: &self.declared_features,
            devices: &self.devices,
            volumes_in_use: &self.volumes_in_use.names,
            knows_volumes_in_use: self.volumes_in_use.is_complete,
            pressure: self.pressure,
            problems: &self.problems,
            now: ctx.clock.now().wall,
        }
    }

    /// The pressure conditions, as last gathered.
    pub(super) const fn pressure(&self) -> NodePressure {
        self.pressure
    }

    /// Capacity and allocatable amounts of devices, as last gathered.
    pub(super) const fn devices(&self) -> &BTreeMap<String, DeviceAmounts> {
        &self.devices
    }

    /// The volumes in use, as last gathered.
    pub(super) const fn volumes_in_use(&self) -> &WantedVolumes {
        &self.volumes_in_use
    }

    /// What keeps the node from being ready, as last gathered.
    pub(super) fn problems(&self) -> &[String] {
        &self.problems
    }
}

/// The result of the call in the set, if it ends within [`MAX_CALL_WAIT`]; otherwise it goes on.
pub(super) async fn finished_soon<T: Send + 'static>(call: &mut JoinSet<T>, clock: Clock) -> Option<T> {
    tokio::select! {
        Some(done) = call.join_next(), if !call.is_empty() => done.ok(),
        () = clock.sleep_until(clock.mono() + MAX_CALL_WAIT), if !call.is_empty() => None,
        else => None,
    }
}

/// `--hostname-override` or the hostname, as for the node's name, but not normalised to a DNS name.
pub(crate) fn hostname(flags: &NodeFlags, machine: &MachineInfo) -> String {
    let given = flags.hostname_override.trim();
    if given.is_empty() { machine.hostname.trim().to_lowercase() } else { given.to_lowercase() }
}

fn handler(handler: &RuntimeHandler) -> NodeRuntimeHandler {
    NodeRuntimeHandler {
        name: Some(handler.name.clone()),
        features: Some(NodeRuntimeHandlerFeatures {
            recursive_read_only_mounts: Some(handler.recursive_read_only_mounts),
            user_namespaces: Some(handler.user_namespaces),
        }),
    }
}
