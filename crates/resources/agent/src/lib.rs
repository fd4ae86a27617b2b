//! Resources of the node: admitted pods and their allocations, devices, and CPUs and memory that pods have for themselves.
#![forbid(unsafe_code)]

pub mod admissions;
mod amounts;
pub mod cgroup_values;
pub mod claims;
mod cpusets;
pub mod devices;
pub mod metrics;
mod pins;

use std::sync::Arc;

use base_agent::cache::PodCache;
use base_agent::context::Context;
use base_agent::plugin_handler::PluginHandlers;
use ports::{Cluster, HostError, Plugins};
use resources_core::cpus::CpuPolicy;
use resources_core::quantities::Amounts;
use resources_core::topology::PolicyKind;

use admissions::Admissions;
use amounts::AmountFiles;
use claims::Claims;
use claims::reconcile::KnownPods;
use cpusets::Cpusets;
use devices::Devices;
use devices::registration::DevicePluginHandler;
use metrics::PinMetrics;
use pins::PinFiles;

/// The tables of what pods hold of the node, and the files that remember it. Clones share all of it.
#[derive(Clone, Debug)]
pub struct Resources {
    pub admissions: Admissions,
    pub devices: Devices,
    pub claims: Claims,
    /// Exclusive CPUs and memory on disk.
    pub pin_files: PinFiles,
    /// CPU and memory in force on disk.
    pub amount_files: AmountFiles,
    pub cpusets: Cpusets,
}

impl Resources {
    /// Restores what an earlier kubelet gave to pods, and starts the tasks that keep it true. Node Allocatable reserves `reserved`
    /// of the machine; a standalone kubelet has no `cluster`.
    ///
    /// # Errors
    /// What an earlier kubelet saved cannot be used on this machine, or the socket for device plugins cannot be opened.
    pub async fn start(
        ctx: &Arc<Context>,
        plugins: &Arc<dyn Plugins>,
        reserved: &Amounts,
        known: KnownPods,
        cluster: Option<Arc<dyn Cluster>>,
    ) -> Result<Self, HostError> {
        let devices = Devices::load(ctx, plugins.clone()).await?;
        let admissions = devices.admissions();
        let resources = Self {
            pin_files: PinFiles::load(ctx, admissions.clone(), reserved).await?,
            amount_files: AmountFiles::new(ctx.clone(), admissions.clone()),
            claims: Claims::load(ctx, plugins.clone(), devices.health_listeners()).await?,
            cpusets: Cpusets::default(),
            devices,
            admissions,
        };
        let amounts = amounts::load(ctx).await?;
        resources.admissions.remember_amounts(amounts, ctx.node_facts.features);
        ctx.tasks.spawn("resources of pods", resources.amount_files.clone().keep());
        resources.start_pinning(ctx, known.cache.clone());
        resources.devices.start(known.sources_ready.clone())?;
        resources.claims.start(known, cluster);
        Ok(resources)
    }

    /// Starts what a kubelet needs that gives pods exclusive CPUs and memory.
    fn start_pinning(&self, ctx: &Arc<Context>, cache: PodCache) {
        let policies = self.admissions.read(|table| table.pinned().0.clone());
        if !policies.are_none() {
            ctx.tasks.spawn("CPU and memory state", self.pin_files.clone().keep());
        }
        let metrics = ctx.metrics.get::<PinMetrics>();
        if policies.topology().kind() != PolicyKind::None {
            metrics.alignment_exists();
        }
        if let CpuPolicy::Static(_) = policies.cpus() {
            metrics.exclusive_cpus_exist();
            let cpusets = self.cpusets.clone();
            ctx.tasks.spawn("cpusets", cpusets.keep(ctx.clone(), self.admissions.clone(), cache));
        }
    }

    /// The handlers of the types of plugins that provide resources.
    #[must_use]
    pub fn plugin_handlers(&self) -> PluginHandlers {
        let device_plugins = DevicePluginHandler { devices: self.devices.clone() };
        PluginHandlers::from([
            (devices::registration::KIND, Arc::new(device_plugins) as _),
            (claims::registration::KIND, Arc::new(self.claims.clone()) as _),
        ])
    }
}
