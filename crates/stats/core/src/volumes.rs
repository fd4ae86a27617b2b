//! The families of `/metrics` about disks: persistent volume claims, and container logs.

use std::collections::BTreeMap;

use model::stats::VolumeSample;
use model::{PodRef, PodUid};

use super::exposition::{Kind, Value, family, line};
use super::sample::DiskSample;

type Number = fn(&VolumeSample) -> u64;

const VOLUME: &[(&str, &str, Number)] = &[
    ("kubelet_volume_stats_available_bytes", "Available bytes of the volume.", |v| v.space.available_bytes),
    ("kubelet_volume_stats_capacity_bytes", "Capacity of the volume, in bytes.", |v| v.space.capacity_bytes),
    ("kubelet_volume_stats_inodes", "Maximum number of inodes of the volume.", |v| v.space.inodes),
    ("kubelet_volume_stats_inodes_free", "Free inodes of the volume.", |v| v.space.inodes_free),
    ("kubelet_volume_stats_inodes_used", "Used inodes of the volume.", |v| v.used.inodes),
    ("kubelet_volume_stats_used_bytes", "Used bytes of the volume.", |v| v.used.bytes),
];

/// Volumes are exported by their claims: one without a claim is omitted, one that several pods use is exported once.
pub fn write_disks(text: &mut String, disks: &DiskSample, pods: &BTreeMap<PodUid, PodRef>) {
    let mut claims: BTreeMap<(&str, &str), &VolumeSample> = BTreeMap::new();
    for (uid, of_pod) in &disks.pods {
        let Some(pod) = pods.get(uid) else { continue };
        for volume in &of_pod.volumes {
            if let Some(claim) = &volume.claim {
                claims.entry((&*pod.namespace, claim)).or_insert(volume);
            }
        }
    }
    for (name, help, number) in VOLUME.iter().filter(|_| !claims.is_empty()) {
        family(text, name, Kind::Gauge, help);
        for ((namespace, claim), volume) in &claims {
            let labels = [("namespace", *namespace), ("persistentvolumeclaim", *claim)];
            line(text, name, &labels, Value::Integer(number(volume)), None);
        }
    }
    write_health(text, &claims);
    let name = "kubelet_container_log_filesystem_used_bytes";
    family(text, name, Kind::Gauge, "Bytes used by the container's logs on the filesystem.");
    for (uid, of_pod) in &disks.pods {
        let Some(pod) = pods.get(uid) else { continue };
        for (container, used) in &of_pod.logs {
            let labels = [
                ("container", &**container),
                ("namespace", &*pod.namespace),
                ("pod", &*pod.name),
                ("uid", uid.as_str()),
            ];
            line(text, name, &labels, Value::Integer(used.bytes), None);
        }
    }
}

/// Only volumes whose drivers report their health have it.
fn write_health(text: &mut String, claims: &BTreeMap<(&str, &str), &VolumeSample>) {
    let name = "kubelet_volume_stats_health_status_abnormal";
    let reported = claims.iter().filter_map(|(claim, volume)| Some((*claim, volume.is_abnormal?)));
    for (index, ((namespace, claim), is_abnormal)) in reported.enumerate() {
        if index == 0 {
            family(
                text,
                name,
                Kind::Gauge,
                "Health of the volume: 1 if its driver reports it as abnormal, otherwise 0.",
            );
        }
        let labels = [("namespace", namespace), ("persistentvolumeclaim", claim)];
        line(text, name, &labels, Value::Integer(u64::from(is_abnormal)), None);
    }
}
