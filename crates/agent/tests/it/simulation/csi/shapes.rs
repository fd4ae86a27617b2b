//! The volumes of the simulation: two drivers, their claims, and the pods that use them.

use fakes::FakeCsiDriver;
use model::digest::sha256_hex;
use model::k8s::{CSIDriver, Node, PersistentVolume, PersistentVolumeClaim, VolumeAttachment};
use serde_json::{Value, json};

use crate::csi::from;
use crate::pods::{Manifest, container_with, pod};
use crate::world::{PODS, World};

pub(super) const ROOT: &str = "/var/lib/kubelet";
/// Stages its volumes.
pub(super) const DISK: &str = "disk.example.com";
/// Has inline volumes, too; whether it stages others is part of the seed.
pub(super) const FILES: &str = "files.example.com";

/// What distinguishes runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// Volumes of [`DISK`] are attached by a controller.
    pub(super) is_attached: bool,
    pub(super) files_stages: bool,
    /// [`FILES`] mounts nothing where it stages a volume.
    pub(super) stages_without_mount: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Filesystem,
    /// For one pod at a time.
    ForOnePod,
    Device,
    Inline,
}

/// A volume of a pod: a claim, or an inline volume of that name.
#[derive(Clone, Copy, Debug)]
pub(super) struct PodVolume {
    name: &'static str,
    driver: &'static str,
    kind: Kind,
}

const OWN: PodVolume = PodVolume { name: "own", driver: DISK, kind: Kind::Filesystem };
const SHARED: PodVolume = PodVolume { name: "shared", driver: DISK, kind: Kind::Filesystem };
const FIRST: PodVolume = PodVolume { name: "first", driver: DISK, kind: Kind::Filesystem };
const SECOND: PodVolume = PodVolume { name: "second", driver: FILES, kind: Kind::Filesystem };
const RAW: PodVolume = PodVolume { name: "raw", driver: DISK, kind: Kind::Device };
const SINGLE: PodVolume = PodVolume { name: "single", driver: DISK, kind: Kind::ForOnePod };
const INLINE: PodVolume = PodVolume { name: "inline", driver: FILES, kind: Kind::Inline };

const VOLUMES: [PodVolume; 7] = [OWN, SHARED, FIRST, SECOND, RAW, SINGLE, INLINE];

/// By name: what the pod uses.
pub(super) const PODS_OF: [(&str, &[PodVolume]); 8] = [
    ("own", &[OWN]),
    ("shared-a", &[SHARED]),
    ("shared-b", &[SHARED, SECOND]),
    ("both", &[FIRST, SECOND]),
    ("raw-a", &[RAW]),
    ("raw-b", &[RAW, OWN]),
    ("single", &[SINGLE]),
    ("inline", &[INLINE, SHARED]),
];

pub(super) fn volumes_of(pod: &str) -> &'static [PodVolume] {
    PODS_OF.iter().find(|(name, _)| *name == pod).map_or(&[], |(_, volumes)| volumes)
}

impl PodVolume {
    fn handle(self) -> String {
        format!("vol-{}", self.name)
    }

    pub(super) const fn is_device(self) -> bool {
        matches!(self.kind, Kind::Device)
    }

    /// Where the driver publishes it for the pod.
    pub(super) fn target(self, uid: &str) -> String {
        let name = self.name;
        match self.kind {
            Kind::Device => format!("{ROOT}/plugins/kubernetes.io/csi/volumeDevices/publish/pv-{name}/{uid}"),
            Kind::Inline => format!("{PODS}/{uid}/volumes/kubernetes.io~csi/{name}/mount"),
            Kind::Filesystem | Kind::ForOnePod => {
                format!("{PODS}/{uid}/volumes/kubernetes.io~csi/pv-{name}/mount")
            }
        }
    }

    /// What the kubelet keeps about it outside of its pods, below the directory of staged volumes.
    pub(super) fn data(self, frame: Frame) -> Option<String> {
        let handle = self.staged(frame)?;
        Some(match self.kind {
            Kind::Device => format!("volumeDevices/pv-{}/data/vol_data.json", self.name),
            Kind::Inline | Kind::Filesystem | Kind::ForOnePod => {
                format!("{}/{}/vol_data.json", self.driver, sha256_hex(handle.as_bytes()))
            }
        })
    }

    /// The volume that must be staged for it.
    pub(super) fn staged(self, frame: Frame) -> Option<String> {
        let stages = self.driver == DISK || frame.files_stages;
        (stages && self.kind != Kind::Inline).then(|| self.handle())
    }

    fn spec(self) -> Value {
        match self.kind {
            Kind::Inline => json!({"name": self.name, "csi": {"driver": self.driver}}),
            Kind::Filesystem | Kind::ForOnePod | Kind::Device => {
                json!({"name": self.name, "persistentVolumeClaim": {"claimName": self.name}})
            }
        }
    }

    fn put(self, world: &World) {
        let modes = json!([if self.kind == Kind::ForOnePod { "ReadWriteOncePod" } else { "ReadWriteOnce" }]);
        let mode = if self.is_device() { "Block" } else { "Filesystem" };
        let name = self.name;
        let claim: PersistentVolumeClaim = world.api().put(&from(json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"volumeName": format!("pv-{name}"), "volumeMode": mode, "accessModes": modes},
            "status": {"phase": "Bound"},
        })));
        world.api().put(&from::<PersistentVolume>(json!({
            "metadata": {"name": format!("pv-{name}")},
            "spec": {
                "csi": {"driver": self.driver, "volumeHandle": self.handle()},
                "accessModes": modes, "volumeMode": mode,
                "claimRef": {"namespace": "default", "name": name, "uid": claim.metadata.uid},
            },
        })));
    }
}

pub(super) fn manifest(name: &str) -> Manifest {
    let volumes = volumes_of(name);
    let (devices, mounts): (Vec<&PodVolume>, Vec<&PodVolume>) =
        volumes.iter().partition(|volume| volume.is_device());
    let devices: Vec<Value> = devices
        .iter()
        .map(|volume| json!({"name": volume.name, "devicePath": format!("/dev/{}", volume.name)}))
        .collect();
    let mounts: Vec<Value> = mounts
        .iter()
        .map(|volume| json!({"name": volume.name, "mountPath": format!("/{}", volume.name)}))
        .collect();
    let app = container_with("app", json!({"volumeMounts": mounts, "volumeDevices": devices}));
    let specs: Vec<Value> = volumes.iter().map(|volume| volume.spec()).collect();
    pod(name, [app]).spec(json!({"volumes": specs, "terminationGracePeriodSeconds": 5}))
}

/// The objects of the API; the drivers do not run yet.
pub(super) fn put_objects(world: &World, frame: Frame) {
    for (name, attach, modes) in
        [(DISK, frame.is_attached, json!(["Persistent"])), (FILES, false, json!(["Persistent", "Ephemeral"]))]
    {
        let spec = json!({"attachRequired": attach, "podInfoOnMount": true, "fsGroupPolicy": "File", "volumeLifecycleModes": modes});
        world.api().put(&from::<CSIDriver>(json!({"metadata": {"name": name}, "spec": spec})));
    }
    for volume in VOLUMES.into_iter().filter(|volume| volume.kind != Kind::Inline) {
        volume.put(world);
    }
}

/// The name of a volume in the status of the node.
pub(super) fn unique_name(handle: &str) -> String {
    format!("kubernetes.io/csi/{DISK}^{handle}")
}

/// A controller has attached every volume of [`DISK`].
pub(super) fn attach_all(world: &World) {
    let mut attached = Vec::new();
    for volume in VOLUMES.into_iter().filter(|volume| volume.driver == DISK) {
        let name = volumes_core::attachment::attachment_name(&volume.handle(), DISK, "node");
        world.api().put(&from::<VolumeAttachment>(json!({
            "metadata": {"name": name},
            "spec": {"attacher": DISK, "nodeName": "node",
                "source": {"persistentVolumeName": format!("pv-{}", volume.name)}},
            "status": {"attached": true},
        })));
        attached.push(json!({"name": unique_name(&volume.handle()), "devicePath": ""}));
    }
    let mut node: Node = world.node().unwrap();
    node.status.get_or_insert_default().volumes_attached = from(attached.into());
    world.api().put(&node);
}

pub(super) fn drivers(world: &World, frame: Frame) -> [(&'static str, FakeCsiDriver); 2] {
    let (disk, files) =
        (FakeCsiDriver::new().mounting_in(&world.host), FakeCsiDriver::new().mounting_in(&world.host));
    disk.set_capabilities(|capabilities| capabilities.single_node_multi_writer = true);
    files.set_capabilities(|capabilities| capabilities.stage_unstage_volume = frame.files_stages);
    if frame.stages_without_mount {
        files.stage_without_mount();
    }
    [(DISK, disk), (FILES, files)]
}
