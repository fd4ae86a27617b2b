//! Allocation of devices: the devices chosen for a pod are allocated by their plugins and saved before any container starts.

use crate::metrics::DeviceMetrics;
use model::PodUid;
use model::containers::ContainerRef;
use model::devices::{AllocateResponse, PluginOptions};
use model::k8s::Pod;
use resources_core::allocations::OtherPods;
use resources_core::devices::allocate_response::merge_responses;
use resources_core::devices::assign::{
    Claims, compute_pod_devices, compute_preference, compute_preferred, has_its_devices, next_to_ask,
    rejection, up_to,
};
use resources_core::devices::{DeviceShortage, PodDevices, Registry};
use resources_core::pinned::{Placement, Tally, compute_placement, compute_placement_after};
use resources_core::rejection::Rejection;

use super::{Devices, Registered};

/// Why a pod does not get its devices.
#[derive(Debug, thiserror::Error)]
pub enum NotAllocated {
    /// The text is complete.
    #[error("{0}")]
    Failed(String),
    #[error("{}", .0.message)]
    NotAligned(Rejection),
}

impl NotAllocated {
    #[must_use]
    pub fn rejection(self) -> Rejection {
        match self {
            Self::Failed(why) => rejection(&why),
            Self::NotAligned(rejection) => rejection,
        }
    }
}

impl From<String> for NotAllocated {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl From<Rejection> for NotAllocated {
    fn from(rejection: Rejection) -> Self {
        Self::NotAligned(rejection)
    }
}

fn claims_of<'a>(registry: &'a Registry, others: &'a OtherPods<'_>) -> Claims<'a> {
    Claims { registry, others: &others.devices, own: others.own_devices, hints: others.own_hints }
}

impl Devices {
    /// Chooses the devices of a pod that is being admitted, and the CPUs and memory near them.
    ///
    /// # Errors
    /// There is too little.
    pub fn place(
        &self,
        pod: &Pod,
        others: &OtherPods<'_>,
        tally: &mut Tally,
    ) -> Result<Placement, Rejection> {
        self.read(|registry| {
            compute_placement(pod, others.policies, others.pinned, &claims_of(registry, others), tally)
        })
    }

    /// Does the same for a pod that has run before: until its device plugins register again, it keeps its devices, and gets its CPUs and
    /// memory without them.
    ///
    /// # Errors
    /// There are too few CPUs or too little memory.
    pub fn reallocate(&self, pod: &Pod, others: &OtherPods<'_>) -> Result<Placement, Rejection> {
        self.place(pod, others, &mut Tally::default()).or_else(|_| {
            let no_plugins = Registry::default();
            let claims = claims_of(&no_plugins, others);
            compute_placement(pod, others.policies, others.pinned, &claims, &mut Tally::default())
        })
    }

    fn choose(&self, pod: &Pod, others: &OtherPods<'_>) -> Result<PodDevices, DeviceShortage> {
        self.read(|registry| compute_pod_devices(pod, &claims_of(registry, others)))
    }

    /// Ensures that the pod has its devices, that their plugins have allocated them, and that this is on disk.
    ///
    /// # Errors
    /// There are too few devices, a plugin returned an error, the devices that it prefers leave later containers without aligned
    /// resources, or the checkpoint cannot be written.
    pub async fn ensure(&self, pod: &Pod, uid: &PodUid) -> Result<(), NotAllocated> {
        let mut has_allocated = false;
        loop {
            // A pod without an admission slot needs no devices.
            let chosen = self.shared.admissions.choose_devices(uid, |others| self.choose(pod, others));
            let Some(chosen) = chosen else { return Ok(()) };
            let chosen = chosen.map_err(|why| why.to_string())?;
            let Some((container, resource)) = next_to_ask(pod, &chosen) else { break };
            self.allocate(pod, uid, &container, &resource).await?;
            has_allocated = true;
        }
        if has_allocated { Ok(self.wait_until_saved().await?) } else { Ok(()) }
    }

    /// Allocates the devices that were chosen for a container, or others that the plugin prefers.
    async fn allocate(
        &self,
        pod: &Pod,
        uid: &PodUid,
        container: &str,
        resource: &str,
    ) -> Result<(), NotAllocated> {
        let Registered { plugin, options, .. } = self
            .registered(resource)
            .ok_or_else(|| format!("no device plugin is registered for {resource}"))?;
        if options.has_preferences {
            let mut preference = None;
            self.rechoose(pod, uid, container, |claims| {
                preference = compute_preference(claims, container, resource);
                claims.own.clone()
            });
            if let Some(preference) = preference {
                let preferred =
                    plugin.preferred(&preference.available, &preference.needed, preference.wanted).await;
                let preferred = preferred.map_err(|error| error.to_string())?;
                let before = self.ids(uid, container, resource);
                self.rechoose(pod, uid, container, |claims| {
                    compute_preferred(claims, container, resource, &preferred)
                });
                if self.ids(uid, container, resource) != before {
                    self.place_after(pod, uid, container)?;
                }
            }
        }
        let ids = self.ids(uid, container, resource);
        let began = self.shared.clock.mono();
        let response = plugin.allocate(&ids).await;
        let took = self.shared.clock.mono().saturating_since(began);
        self.shared.metrics.get::<DeviceMetrics>().allocated(resource, took);
        let response = response.map_err(|error| error.to_string())?;
        tracing::info!(podUID = %uid, containerName = container, resource, devices = ?ids, "Allocated devices");
        self.shared.admissions.set_devices(uid, |others| {
            let mut own = others.own_devices.clone();
            if let Some(given) = own.get_mut(container, resource) {
                given.response = Some(response);
            }
            own
        });
        Ok(())
    }

    /// Changes the devices that were chosen up to that container; those of later containers are chosen again afterwards.
    fn rechoose(
        &self,
        pod: &Pod,
        uid: &PodUid,
        container: &str,
        choose: impl FnOnce(&Claims<'_>) -> PodDevices,
    ) {
        self.shared.admissions.set_devices(uid, |others| {
            let own = up_to(pod, container, others.own_devices.clone());
            self.read(|registry| choose(&Claims { own: &own, ..claims_of(registry, others) }))
        });
    }

    /// Aligns the containers after this one again, whose devices have changed.
    fn place_after(&self, pod: &Pod, uid: &PodUid, container: &str) -> Result<(), Rejection> {
        let placed = self.shared.admissions.reallocate(uid, |others| {
            if !others.policies.align_containers() {
                return None;
            }
            self.read(|registry| {
                let claims = claims_of(registry, others);
                Some(compute_placement_after(pod, container, others.policies, others.pinned, &claims))
            })
        });
        placed.unwrap_or(Ok(()))
    }

    fn registered(&self, resource: &str) -> Option<Registered> {
        self.shared.table.lock().plugins.get(resource).cloned()
    }

    fn ids(&self, uid: &PodUid, container: &str, resource: &str) -> Vec<String> {
        let devices = self.shared.admissions.devices_of(uid).unwrap_or_default();
        let given = devices.get(container, resource);
        given.map(|given| given.devices.keys().cloned().collect()).unwrap_or_default()
    }

    /// Waits until all allocations so far are on disk.
    async fn wait_until_saved(&self) -> Result<(), String> {
        let change = *self.shared.admissions.device_changes().borrow();
        let mut saved = self.shared.saved.subscribe();
        // An error means that the sender was dropped, at the end of the process.
        let Ok(saved) = saved.wait_for(|saved| saved.change >= change).await else { return Ok(()) };
        saved.error.clone().map_or(Ok(()), |why| Err(format!("failed to write checkpoint: {why}")))
    }

    /// The allocate responses for a container that starts now, after PreStartContainer calls to plugins that require them.
    ///
    /// # Errors
    /// The container lacks its devices, or a PreStartContainer call failed. The text is complete.
    pub async fn of_starting(
        &self,
        pod: &Pod,
        uid: &PodUid,
        container: &ContainerRef<'_>,
    ) -> Result<AllocateResponse, String> {
        let has_all =
            |devices: &PodDevices| self.read(|registry| has_its_devices(container, registry, devices));
        let mut devices = self.shared.admissions.devices_of(uid).unwrap_or_default();
        if !has_all(&devices) {
            // The checkpoint was lost, or the plugin registered after admission.
            self.ensure(pod, uid).await.map_err(|error| error.to_string())?;
            devices = self.shared.admissions.devices_of(uid).unwrap_or_default();
        }
        let Some(given) = devices.containers.get(container.name()) else {
            return Ok(AllocateResponse::default());
        };
        for (resource, given) in given {
            if let Some(Registered { plugin, options: PluginOptions { pre_start: true, .. }, .. }) =
                self.registered(resource)
            {
                let ids: Vec<String> = given.devices.keys().cloned().collect();
                let pre_started = plugin.pre_start(&ids).await;
                pre_started.map_err(|error| {
                    format!("device plugin PreStartContainer rpc failed with err: {error}")
                })?;
            }
        }
        Ok(merge_responses(given.values().filter_map(|given| given.response.as_ref())))
    }
}
