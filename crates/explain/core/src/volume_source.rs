//! What a volume of a pod is made from, in two words: its field in the API, and the path or object that it names.

use model::k8s::Volume;

/// The field of the volume in the API, and what it names; the second is empty if there is nothing to name.
#[must_use]
pub fn kind_and_source(volume: &Volume) -> (&'static str, String) {
    network_source(volume).or_else(|| local_source(volume)).unwrap_or(("other", String::new()))
}

/// Volumes that come from this node or from objects of the API.
fn local_source(volume: &Volume) -> Option<(&'static str, String)> {
    let name = |name: &Option<String>| name.clone().unwrap_or_default();
    if let Some(source) = &volume.empty_dir {
        return Some(("emptyDir", name(&source.medium)));
    }
    if let Some(source) = &volume.host_path {
        return Some(("hostPath", source.path.clone()));
    }
    if let Some(source) = &volume.config_map {
        return Some(("configMap", source.name.clone()));
    }
    if let Some(source) = &volume.secret {
        return Some(("secret", name(&source.secret_name)));
    }
    if let Some(source) = &volume.image {
        return Some(("image", name(&source.reference)));
    }
    if volume.projected.is_some() {
        return Some(("projected", String::new()));
    }
    volume.downward_api.is_some().then(|| ("downwardAPI", String::new()))
}

/// Volumes that are attached, or mounted over the network.
fn network_source(volume: &Volume) -> Option<(&'static str, String)> {
    if let Some(source) = &volume.persistent_volume_claim {
        return Some(("persistentVolumeClaim", source.claim_name.clone()));
    }
    if let Some(source) = &volume.csi {
        return Some(("csi", source.driver.clone()));
    }
    if let Some(source) = &volume.nfs {
        return Some(("nfs", format!("{}:{}", source.server, source.path)));
    }
    if let Some(source) = &volume.iscsi {
        return Some(("iscsi", format!("{} {}", source.target_portal, source.iqn)));
    }
    if let Some(source) = &volume.flex_volume {
        return Some(("flexVolume", source.driver.clone()));
    }
    if volume.fc.is_some() {
        return Some(("fc", String::new()));
    }
    volume.ephemeral.is_some().then(|| ("ephemeral", String::new()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn volume_is_named_by_its_field_and_what_it_refers_to() {
        let shown = |source: serde_json::Value| {
            let mut volume = json!({"name": "data"});
            volume.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
            let (kind, source) = kind_and_source(&serde_json::from_value(volume).unwrap());
            format!("{kind} {source}").trim_end().to_owned()
        };
        assert_eq!(shown(json!({"emptyDir": {"medium": "Memory"}})), "emptyDir Memory");
        assert_eq!(shown(json!({"hostPath": {"path": "/srv"}})), "hostPath /srv");
        assert_eq!(shown(json!({"persistentVolumeClaim": {"claimName": "db"}})), "persistentVolumeClaim db");
        assert_eq!(shown(json!({"nfs": {"server": "s", "path": "/p"}})), "nfs s:/p");
        assert_eq!(shown(json!({"projected": {}})), "projected");
        assert_eq!(shown(json!({"rbd": {"image": "i", "monitors": []}})), "other");
    }
}
