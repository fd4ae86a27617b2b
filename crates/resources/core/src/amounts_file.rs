//! The files `allocated_pods_state` and `actuated_pods_state` of the Go kubelet (docs/behaviour/resize.md): which CPU and memory is
//! allocated to the containers of each pod, and which is in force.
//!
//! Owns the format: a JSON document with its data as text, and the checksum of that text.

use std::collections::BTreeMap;

use model::PodUid;
use model::containers::all_containers;
use model::k8s::{Pod, ResourceRequirements};
use serde::{Deserialize, Serialize};

use super::go_checksum::{GoValue, go_checksum};
use crate::amounts::{Actuated, Amounts, is_resizable};

pub const ALLOCATED: &str = "allocated_pods_state";
pub const ACTUATED: &str = "actuated_pods_state";

/// The resources of one pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodResources {
    #[serde(rename = "ContainerResources", default)]
    pub containers: Option<BTreeMap<String, ResourceRequirements>>,
    #[serde(rename = "PodLevelResources", default)]
    pub pod: Option<ResourceRequirements>,
}

/// The resources of all pods.
pub type Entries = BTreeMap<PodUid, PodResources>;

#[derive(Serialize, Deserialize)]
struct Document {
    data: String,
    checksum: u64,
}

#[derive(Deserialize)]
struct Data {
    #[serde(default)]
    entries: Option<BTreeMap<String, PodResources>>,
}

/// As [`Data`]. Hundreds of pods are not copied to be written.
#[derive(Serialize)]
struct DataToWrite<'a> {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    entries: BTreeMap<&'a str, &'a PodResources>,
}

impl PodResources {
    /// What is allocated to the pod.
    #[must_use]
    pub fn allocated_to(pod: &Pod, features: config::Features) -> Self {
        let resizable = all_containers(pod).filter(|container| is_resizable(container.kind, features));
        let containers = resizable.map(|c| (c.name().to_owned(), c.resources().cloned().unwrap_or_default()));
        let of_pod = pod.spec.as_ref().and_then(|spec| spec.resources.clone());
        Self { containers: Some(containers.collect()), pod: of_pod.filter(|_| features.pod_level_resize) }
    }

    /// What is in force. Resources that no resize changes, such as devices, and requests of zero are not in the amounts: like the Go
    /// kubelet, the file has them as they are allocated, unless another amount of the container is in force.
    #[must_use]
    pub fn in_force(actuated: &Actuated, allocated: Option<&Self>) -> Self {
        let containers = allocated.and_then(|pod| pod.containers.as_ref());
        let of_container = |name: &str, amounts: Amounts| {
            let allocated = containers.and_then(|all| all.get(name));
            allocated.filter(|all| Amounts::of(Some(all)) == amounts).cloned()
        };
        let all = actuated.containers().map(|(name, amounts)| {
            let resources = of_container(name, amounts).unwrap_or_else(|| amounts.to_requirements());
            (name.to_owned(), resources)
        });
        let allocated = allocated.and_then(|pod| pod.pod.as_ref());
        let of_pod = actuated.pod.map(|amounts| {
            let allocated = allocated.filter(|all| Amounts::of(Some(all)) == amounts).cloned();
            allocated.unwrap_or_else(|| amounts.to_requirements())
        });
        Self {
            containers: Some(all.collect()),
            pod: of_pod.filter(|resources| *resources != ResourceRequirements::default()),
        }
    }

    #[must_use]
    pub fn to_actuated(&self) -> Actuated {
        let all = self.containers.iter().flatten();
        let all = all.map(|(name, resources)| (name.clone(), Amounts::of(Some(resources))));
        Actuated::of(all, Some(Amounts::of(self.pod.as_ref())))
    }

    /// The pod with these resources; `None` if it has them.
    #[must_use]
    pub fn allocate_to(&self, pod: &Pod, features: config::Features) -> Option<Pod> {
        let mut changed = pod.clone();
        let spec = changed.spec.as_mut()?;
        if features.pod_level_resize {
            spec.resources.clone_from(&self.pod);
        }
        for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
            let Some(resources) = self.containers.as_ref().and_then(|all| all.get(&container.name)) else {
                continue;
            };
            if container.resources.clone().unwrap_or_default() != *resources {
                container.resources = Some(resources.clone());
            }
        }
        (changed.spec != pod.spec).then_some(changed)
    }
}

/// The content of a file.
#[must_use]
pub fn write(entries: &Entries) -> String {
    let data = DataToWrite { entries: entries.iter().map(|(uid, pod)| (uid.as_str(), pod)).collect() };
    // Maps with texts as keys and quantities can always be encoded.
    let data = serde_json::to_string(&data).unwrap_or_default();
    let checksum = checksum_of(&data).into();
    serde_json::to_string(&Document { data, checksum }).unwrap_or_default()
}

/// The resources in a file.
///
/// # Errors
/// It is damaged.
pub fn parse(text: &str) -> Result<Entries, String> {
    let document: Document = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if document.checksum != u64::from(checksum_of(&document.data)) {
        return Err("checkpoint is corrupted".to_owned());
    }
    let data: Data = serde_json::from_str(&document.data).map_err(|error| error.to_string())?;
    Ok(data.entries.into_iter().flatten().map(|(uid, pod)| (PodUid::new(uid), pod)).collect())
}

fn checksum_of(data: &str) -> u32 {
    go_checksum("string", &GoValue::plain(data))
}

#[cfg(test)]
mod tests {
    use config::Features;
    use serde_json::json;

    use super::*;

    /// The file of the Go kubelet's test of older formats.
    const OF_GO: &str = r#"{"data":"{\"entries\":{\"pod1\":{\"ContainerResources\":{\"container1\":{\"requests\":{\"cpu\":\"1Ki\",\"memory\":\"1Ki\"}}}}}}","checksum":1178570812}"#;

    #[test]
    fn file_of_the_go_kubelet_is_read() {
        let entries = parse(OF_GO).unwrap();
        let requests = json!({"requests": {"cpu": "1Ki", "memory": "1Ki"}});
        assert_eq!(
            json!(entries[&PodUid::new("pod1")]),
            json!({"ContainerResources": {"container1": requests}, "PodLevelResources": null})
        );
    }

    #[test]
    fn damaged_file_is_refused() {
        assert_eq!(parse(&OF_GO.replace("1Ki", "2Ki")).unwrap_err(), "checkpoint is corrupted");
        assert!(parse("{").is_err() && parse("").is_err());
    }

    #[test]
    fn written_file_is_read_back() {
        let pod = json!({"metadata": {"uid": "u"}, "spec": {
            "resources": {"limits": {"cpu": "2"}},
            "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "250m", "memory": "1Gi"}}}],
            "ephemeralContainers": [{"name": "e"}],
        }});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let features = Features { resize_init_containers: false, ..Features::default() };
        let allocated = PodResources::allocated_to(&pod, features);
        let entries = Entries::from([(PodUid::new("u"), allocated)]);
        let text = write(&entries);
        assert_eq!(parse(&text).unwrap(), entries);
        assert!(text.starts_with(
            r#"{"data":"{\"entries\":{\"u\":{\"ContainerResources\":{\"c\":{\"requests\":{\"cpu\":\"250m\",\"memory\":\"1Gi\"}},\"s\":{}},\"PodLevelResources\":{\"limits\":{\"cpu\":\"2\"}}}}}","checksum":"#
        ), "{text}");
        assert_eq!(parse(&write(&Entries::new())).unwrap(), Entries::new());
    }

    #[test]
    fn amounts_in_force_are_read_back() {
        let amounts =
            Amounts { cpu_request: 250, cpu_limit: 0, memory_request: 1 << 30, memory_limit: 2 << 30 };
        let actuated = Actuated::of([("c".to_owned(), amounts)], Some(Amounts::default()));
        assert_eq!(PodResources::in_force(&actuated, None).to_actuated(), actuated);
    }

    #[test]
    fn resources_in_force_keep_devices_and_requests_of_zero_as_allocated() {
        let pod = json!({"spec": {
            "resources": {"requests": {"cpu": "0", "memory": "16Mi"}},
            "containers": [
                {"name": "device", "resources": {"limits": {"example.com/thing": "1"}}},
                {"name": "zero", "resources": {"requests": {"cpu": "0", "memory": "8Mi"}}},
                {"name": "resizing", "resources": {"requests": {"cpu": "2"}}},
            ],
        }});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let allocated = PodResources::allocated_to(&pod, Features::default());
        let before = Amounts { cpu_request: 1000, ..Amounts::default() };
        let mut actuated = allocated.to_actuated();
        actuated.set("resizing", before);
        let mut expected = allocated.clone();
        let requests = json!({"requests": {"cpu": "1"}});
        let of_resizing = expected.containers.as_mut().unwrap().get_mut("resizing").unwrap();
        *of_resizing = serde_json::from_value(requests).unwrap();
        assert_eq!(PodResources::in_force(&actuated, Some(&allocated)), expected);
    }

    #[test]
    fn pod_gets_the_resources_that_were_allocated_to_it() {
        let pod = |cpu: &str| -> Pod {
            let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
            serde_json::from_value(json!({"spec": {"containers": [container, {"name": "d"}]}})).unwrap()
        };
        let allocated = PodResources::allocated_to(&pod("1"), Features::default());
        assert_eq!(allocated.allocate_to(&pod("2"), Features::default()), Some(pod("1")));
        assert_eq!(allocated.allocate_to(&pod("1"), Features::default()), None);
    }
}
