use serde_json::{Value, json};

use super::*;
use crate::plan::{SpecPlan, spec_plan};

/// Each source of a volume that the API has, with what makes it.
const SOURCES: [(&str, &str); 30] = [
    ("awsElasticBlockStore", "kubernetes.io/csi"),
    ("azureDisk", "kubernetes.io/csi"),
    ("azureFile", "kubernetes.io/csi"),
    ("cephfs", "not offered"),
    ("cinder", "kubernetes.io/csi"),
    ("configMap", "kubernetes.io/configmap"),
    ("csi", "kubernetes.io/csi"),
    ("downwardAPI", "kubernetes.io/downward-api"),
    ("emptyDir", "kubernetes.io/empty-dir"),
    ("ephemeral", "claim"),
    ("fc", "kubernetes.io/fc"),
    ("flexVolume", "kubernetes.io/flexvolume"),
    ("flocker", "not offered"),
    ("gcePersistentDisk", "kubernetes.io/csi"),
    ("gitRepo", "not offered"),
    ("glusterfs", "not offered"),
    ("hostPath", "kubernetes.io/host-path"),
    // The runtime mounts images: `volumes::image`.
    ("image", "not offered"),
    ("iscsi", "kubernetes.io/iscsi"),
    ("nfs", "kubernetes.io/nfs"),
    ("persistentVolumeClaim", "claim"),
    ("photonPersistentDisk", "not offered"),
    ("portworxVolume", "kubernetes.io/csi"),
    ("projected", "kubernetes.io/projected"),
    ("quobyte", "not offered"),
    ("rbd", "not offered"),
    ("scaleIO", "not offered"),
    ("secret", "kubernetes.io/secret"),
    ("storageos", "not offered"),
    ("vsphereVolume", "kubernetes.io/csi"),
];

/// The fields of a source that the API requires, and that some type reads.
fn source(name: &str) -> Value {
    match name {
        "awsElasticBlockStore" | "cinder" | "portworxVolume" => json!({"volumeID": "v"}),
        "azureDisk" => json!({"diskName": "d", "diskURI": "u"}),
        "csi" => json!({"driver": "d"}),
        "fc" => json!({"wwids": ["3600508b400105e210000900000490000"]}),
        "flexVolume" => json!({"driver": "vendor/driver"}),
        "gcePersistentDisk" => json!({"pdName": "d"}),
        "hostPath" => json!({"path": "/x"}),
        "iscsi" => json!({"targetPortal": "10.0.0.1", "iqn": "iqn.2014-12.com.example:a", "lun": 0}),
        "nfs" => json!({"server": "nas", "path": "/e"}),
        "persistentVolumeClaim" => json!({"claimName": "c"}),
        "vsphereVolume" => json!({"volumePath": "p"}),
        _ => json!({}),
    }
}

/// A field that is new in the model does not compile here: give it a type, or an entry in `SOURCES`.
fn sources_of_the_model() -> usize {
    let Volume {
        aws_elastic_block_store: _,
        azure_disk: _,
        azure_file: _,
        cephfs: _,
        cinder: _,
        config_map: _,
        csi: _,
        downward_api: _,
        empty_dir: _,
        ephemeral: _,
        fc: _,
        flex_volume: _,
        flocker: _,
        gce_persistent_disk: _,
        git_repo: _,
        glusterfs: _,
        host_path: _,
        image: _,
        iscsi: _,
        name: _,
        nfs: _,
        persistent_volume_claim: _,
        photon_persistent_disk: _,
        portworx_volume: _,
        projected: _,
        quobyte: _,
        rbd: _,
        scale_io: _,
        secret: _,
        storageos: _,
        vsphere_volume: _,
    } = Volume::default();
    30
}

#[test]
fn each_volume_source_of_the_api_has_a_type_a_claim_or_is_refused() {
    assert_eq!(SOURCES.len(), sources_of_the_model());
    for (name, expected) in SOURCES {
        let volume = json!({"name": "v", name: source(name)});
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [], "volumes": [volume]}});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let volume = &spec_of(&pod).volumes.as_deref().expect("volumes")[0];
        let found = match spec_plan(&pod, volume) {
            Ok(SpecPlan::Volume(plan)) => plan.volume_type.plugin_name(),
            Ok(SpecPlan::Claim(_)) => "claim",
            Err(_) => "not offered",
        };
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn volume_types_have_one_name_in_paths_and_in_metrics_and_no_two_share_it() {
    for (number, volume_type) in VOLUME_TYPES.into_iter().enumerate() {
        let (dir, name) = (volume_type.plugin_dir(), volume_type.plugin_name());
        assert_eq!(dir, name.replace('/', "~"));
        assert!(is_known_plugin(dir) && plugin_name(dir) == name, "{name}");
        assert!(VOLUME_TYPES[..number].iter().all(|other| other.plugin_dir() != dir), "{name}");
    }
    assert!(!is_known_plugin("kubernetes.io~rbd"));
    assert_eq!(plugin_name("kubernetes.io~rbd"), "unknown");
}

#[test]
fn each_volume_type_makes_volumes_of_pods_or_claimed_volumes() {
    let of_spec = SOURCES.map(|(_, name)| name);
    let of_claims = ["hostPath", "local", "nfs"].map(|name| {
        let spec = match name {
            "local" => json!({"local": {"path": "/x"}}),
            name => json!({name: source(name)}),
        };
        let spec: PersistentVolumeSpec = serde_json::from_value(spec).expect("a spec");
        let claimed = ClaimedVolume {
            name: "pv",
            spec: &spec,
            is_device: false,
            mount_options: &[],
            read_only: false,
            is_migrated: false,
        };
        let plan = VOLUME_TYPES.iter().find_map(|volume_type| volume_type.claimed_plan(&claimed));
        plan.expect("a type").expect("a plan").volume_type.plugin_name()
    });
    for volume_type in VOLUME_TYPES {
        let name = volume_type.plugin_name();
        assert!(of_spec.contains(&name) || of_claims.contains(&name), "{name} makes no volume");
    }
    for name in of_claims {
        assert!(VOLUME_TYPES.iter().any(|volume_type| volume_type.plugin_name() == name), "{name}");
    }
}
