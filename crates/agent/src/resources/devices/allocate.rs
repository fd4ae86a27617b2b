//! Handing devices out: what is chosen for a pod is agreed with the plugins and written down before anything of it starts.

use kubelet_core::allocations::OtherPods;
use kubelet_core::devices::allocate_response::merge_responses;
use kubelet_core::devices::assign::{
    Claims, compute_pod_devices, compute_preference, compute_preferred, has_its_devices, next_to_ask, up_to,
};
use kubelet_core::devices::{DeviceShortage, PodDevices};
use model::PodUid;
use model::containers::ContainerRef;
use model::devices::{AllocateResponse, PluginOptions};
use model::k8s::Pod;

use super::{Devices, Registered};

impl Devices {
    /// Chooses devices for a pod that is being judged.
    ///
    /// # Errors
    /// There are too few.
    pub fn choose(&self, pod: &Pod, others: &OtherPods<'_>) -> Result<PodDevices, DeviceShortage> {
        self.read(|registry| {
            let claims = Claims { registry, others: &others.devices, own: others.own_devices };
            compute_pod_devices(pod, &claims)
        })
    }

    /// Sees to it that the pod has its devices, that their plugins have agreed, and that this is on disk.
    ///
    /// # Errors
    /// There are too few, a plugin does not agree, or the disk does not take it; the text is complete.
    pub async fn ensure(&self, pod: &Pod, uid: &PodUid) -> Result<(), String> {
        let mut has_asked = false;
        loop {
            // Where nothing is to be had, this has nothing to wait for.
            let chosen = self.shared.admissions.choose_devices(uid, |others| self.choose(pod, others));
            let Some(chosen) = chosen else { return Ok(()) };
            let chosen = chosen.map_err(|why| why.to_string())?;
            let Some((container, resource)) = next_to_ask(pod, &chosen) else { break };
            self.ask(pod, uid, (&container, &resource)).await?;
            has_asked = true;
        }
        if has_asked { self.written_down().await } else { Ok(()) }
    }

    /// Asks the plugin for the devices that were chosen for a container, or for others that it likes better.
    async fn ask(&self, pod: &Pod, uid: &PodUid, (container, resource): (&str, &str)) -> Result<(), String> {
        let Registered { plugin, options, .. } =
            self.registered(resource).ok_or_else(|| format!("no device plugin serves {resource}"))?;
        if options.has_preferences {
            let mut asked = None;
            self.rechoose(pod, uid, container, |claims| {
                asked = compute_preference(claims, container, resource);
                claims.own.clone()
            });
            if let Some(asked) = asked {
                let preferred = plugin.preferred(&asked.available, &asked.needed, asked.wanted).await;
                let preferred = preferred.map_err(|error| error.to_string())?;
                self.rechoose(pod, uid, container, |claims| {
                    compute_preferred(claims, (container, resource), &preferred)
                });
            }
        }
        let ids = self.ids(uid, container, resource);
        let began = self.shared.clock.mono();
        let response = plugin.allocate(&ids).await;
        let took = self.shared.clock.mono().saturating_since(began);
        self.shared.metrics.devices.allocated(resource, took);
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

    /// Changes what was chosen up to that container; what comes after it is chosen again then.
    fn rechoose(
        &self,
        pod: &Pod,
        uid: &PodUid,
        container: &str,
        choose: impl FnOnce(&Claims<'_>) -> PodDevices,
    ) {
        self.shared.admissions.set_devices(uid, |others| {
            let own = up_to(pod, container, others.own_devices.clone());
            self.read(|registry| choose(&Claims { registry, others: &others.devices, own: &own }))
        });
    }

    fn registered(&self, resource: &str) -> Option<Registered> {
        self.shared.table.lock().plugins.get(resource).cloned()
    }

    fn ids(&self, uid: &PodUid, container: &str, resource: &str) -> Vec<String> {
        let devices = self.shared.admissions.devices_of(uid).unwrap_or_default();
        let given = devices.get(container, resource);
        given.map(|given| given.devices.keys().cloned().collect()).unwrap_or_default()
    }

    /// Waits until all that was handed out so far is on disk.
    async fn written_down(&self) -> Result<(), String> {
        let change = *self.shared.admissions.device_changes().borrow();
        let mut saved = self.shared.saved.subscribe();
        // The sender is ours.
        let Ok(saved) = saved.wait_for(|saved| saved.change >= change).await else { return Ok(()) };
        saved.error.clone().map_or(Ok(()), |why| Err(format!("write checkpoint: {why}")))
    }

    /// What is to be seen of its devices in a container that starts now; plugins that want to know of it are told.
    ///
    /// # Errors
    /// It has not the devices that it asks for, or a plugin wants it not to start; the text is complete.
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
            // What an earlier kubelet handed out was lost, or a plugin has come since.
            self.ensure(pod, uid).await?;
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
                let told = plugin.pre_start(&ids).await;
                told.map_err(|error| {
                    format!("device plugin PreStartContainer rpc failed with err: {error}")
                })?;
            }
        }
        Ok(merge_responses(given.values().filter_map(|given| given.response.as_ref())))
    }
}
