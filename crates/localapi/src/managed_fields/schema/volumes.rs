//! PersistentVolumes, their claims, and the volumes of a pod.

use super::Fields;
use super::Type::{Keyed, Leaf, Map, Struct};
use super::keys::{BY_STATUS_REASON, BY_TYPE};
use super::meta::OBJECT_META;

pub(super) static AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE: Fields =
    Fields::leaves("fsType partition readOnly volumeID");

pub(super) static AZURE_DISK_VOLUME_SOURCE: Fields =
    Fields::leaves("cachingMode diskName diskURI fsType kind readOnly");

pub(super) static AZURE_FILE_VOLUME_SOURCE: Fields = Fields::leaves("readOnly secretName shareName");

pub(super) static CEPH_FS_VOLUME_SOURCE: Fields =
    Fields::leaves("monitors path readOnly secretFile secretRef user");

pub(super) static CINDER_VOLUME_SOURCE: Fields = Fields::leaves("fsType readOnly secretRef volumeID");

pub(super) static CONFIG_MAP_VOLUME_SOURCE: Fields =
    Fields::leaves("defaultMode defaultUser items name optional");

pub(super) static CSI_VOLUME_SOURCE: Fields = Fields {
    leaves: "driver fsType nodePublishSecretRef readOnly",
    nested: &[("volumeAttributes", Map(&Leaf))],
};

pub(super) static DOWNWARD_API_VOLUME_SOURCE: Fields = Fields::leaves("defaultMode defaultUser items");

pub(super) static EMPTY_DIR_VOLUME_SOURCE: Fields = Fields::leaves("medium mode sizeLimit");

pub(super) static TYPED_OBJECT_REFERENCE: Fields = Fields::leaves("apiGroup kind name namespace");

pub(super) static VOLUME_RESOURCE_REQUIREMENTS: Fields =
    Fields { leaves: "", nested: &[("limits", Map(&Leaf)), ("requests", Map(&Leaf))] };

pub(super) static PERSISTENT_VOLUME_CLAIM_SPEC: Fields = Fields {
    leaves: "accessModes dataSource selector storageClassName volumeAttributesClassName volumeMode \
        volumeName",
    nested: &[
        ("dataSourceRef", Struct(&TYPED_OBJECT_REFERENCE)),
        ("resources", Struct(&VOLUME_RESOURCE_REQUIREMENTS)),
    ],
};

pub(super) static PERSISTENT_VOLUME_CLAIM_TEMPLATE: Fields = Fields {
    leaves: "",
    nested: &[("metadata", Struct(&OBJECT_META)), ("spec", Struct(&PERSISTENT_VOLUME_CLAIM_SPEC))],
};

pub(super) static EPHEMERAL_VOLUME_SOURCE: Fields =
    Fields { leaves: "", nested: &[("volumeClaimTemplate", Struct(&PERSISTENT_VOLUME_CLAIM_TEMPLATE))] };

pub(super) static FC_VOLUME_SOURCE: Fields = Fields::leaves("fsType lun readOnly targetWWNs wwids");

pub(super) static FLEX_VOLUME_SOURCE: Fields =
    Fields { leaves: "driver fsType readOnly secretRef", nested: &[("options", Map(&Leaf))] };

pub(super) static FLOCKER_VOLUME_SOURCE: Fields = Fields::leaves("datasetName datasetUUID");

pub(super) static GCE_PERSISTENT_DISK_VOLUME_SOURCE: Fields =
    Fields::leaves("fsType partition pdName readOnly");

pub(super) static GIT_REPO_VOLUME_SOURCE: Fields = Fields::leaves("directory repository revision");

pub(super) static GLUSTERFS_VOLUME_SOURCE: Fields = Fields::leaves("endpoints path readOnly");

pub(super) static HOST_PATH_VOLUME_SOURCE: Fields = Fields::leaves("path type");

pub(super) static IMAGE_VOLUME_SOURCE: Fields = Fields::leaves("pullPolicy reference");

pub(super) static ISCSI_VOLUME_SOURCE: Fields = Fields::leaves(
    "chapAuthDiscovery chapAuthSession fsType initiatorName iqn iscsiInterface lun portals \
    readOnly secretRef targetPortal",
);

pub(super) static NFS_VOLUME_SOURCE: Fields = Fields::leaves("path readOnly server");

pub(super) static PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE: Fields = Fields::leaves("claimName readOnly");

pub(super) static PHOTON_PERSISTENT_DISK_VOLUME_SOURCE: Fields = Fields::leaves("fsType pdID");

pub(super) static PORTWORX_VOLUME_SOURCE: Fields = Fields::leaves("fsType readOnly volumeID");

pub(super) static PROJECTED_VOLUME_SOURCE: Fields = Fields::leaves("defaultMode defaultUser sources");

pub(super) static QUOBYTE_VOLUME_SOURCE: Fields =
    Fields::leaves("group readOnly registry tenant user volume");

pub(super) static RBD_VOLUME_SOURCE: Fields =
    Fields::leaves("fsType image keyring monitors pool readOnly secretRef user");

pub(super) static SCALE_IO_VOLUME_SOURCE: Fields = Fields::leaves(
    "fsType gateway protectionDomain readOnly secretRef sslEnabled storageMode storagePool \
    system volumeName",
);

pub(super) static SECRET_VOLUME_SOURCE: Fields =
    Fields::leaves("defaultMode defaultUser items optional secretName");

pub(super) static STORAGE_OS_VOLUME_SOURCE: Fields =
    Fields::leaves("fsType readOnly secretRef volumeName volumeNamespace");

pub(super) static VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE: Fields =
    Fields::leaves("fsType storagePolicyID storagePolicyName volumePath");

pub(super) static VOLUME: Fields = Fields {
    leaves: "name",
    nested: &[
        ("awsElasticBlockStore", Struct(&AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE)),
        ("azureDisk", Struct(&AZURE_DISK_VOLUME_SOURCE)),
        ("azureFile", Struct(&AZURE_FILE_VOLUME_SOURCE)),
        ("cephfs", Struct(&CEPH_FS_VOLUME_SOURCE)),
        ("cinder", Struct(&CINDER_VOLUME_SOURCE)),
        ("configMap", Struct(&CONFIG_MAP_VOLUME_SOURCE)),
        ("csi", Struct(&CSI_VOLUME_SOURCE)),
        ("downwardAPI", Struct(&DOWNWARD_API_VOLUME_SOURCE)),
        ("emptyDir", Struct(&EMPTY_DIR_VOLUME_SOURCE)),
        ("ephemeral", Struct(&EPHEMERAL_VOLUME_SOURCE)),
        ("fc", Struct(&FC_VOLUME_SOURCE)),
        ("flexVolume", Struct(&FLEX_VOLUME_SOURCE)),
        ("flocker", Struct(&FLOCKER_VOLUME_SOURCE)),
        ("gcePersistentDisk", Struct(&GCE_PERSISTENT_DISK_VOLUME_SOURCE)),
        ("gitRepo", Struct(&GIT_REPO_VOLUME_SOURCE)),
        ("glusterfs", Struct(&GLUSTERFS_VOLUME_SOURCE)),
        ("hostPath", Struct(&HOST_PATH_VOLUME_SOURCE)),
        ("image", Struct(&IMAGE_VOLUME_SOURCE)),
        ("iscsi", Struct(&ISCSI_VOLUME_SOURCE)),
        ("nfs", Struct(&NFS_VOLUME_SOURCE)),
        ("persistentVolumeClaim", Struct(&PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE)),
        ("photonPersistentDisk", Struct(&PHOTON_PERSISTENT_DISK_VOLUME_SOURCE)),
        ("portworxVolume", Struct(&PORTWORX_VOLUME_SOURCE)),
        ("projected", Struct(&PROJECTED_VOLUME_SOURCE)),
        ("quobyte", Struct(&QUOBYTE_VOLUME_SOURCE)),
        ("rbd", Struct(&RBD_VOLUME_SOURCE)),
        ("scaleIO", Struct(&SCALE_IO_VOLUME_SOURCE)),
        ("secret", Struct(&SECRET_VOLUME_SOURCE)),
        ("storageos", Struct(&STORAGE_OS_VOLUME_SOURCE)),
        ("vsphereVolume", Struct(&VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE)),
    ],
};

pub(super) static AZURE_FILE_PERSISTENT_VOLUME_SOURCE: Fields =
    Fields::leaves("readOnly secretName secretNamespace shareName");

pub(super) static CEPH_FS_PERSISTENT_VOLUME_SOURCE: Fields =
    Fields::leaves("monitors path readOnly secretFile secretRef user");

pub(super) static CINDER_PERSISTENT_VOLUME_SOURCE: Fields =
    Fields::leaves("fsType readOnly secretRef volumeID");

pub(super) static OBJECT_REFERENCE: Fields =
    Fields::leaves("apiVersion fieldPath kind name namespace resourceVersion uid");

pub(super) static CSI_PERSISTENT_VOLUME_SOURCE: Fields = Fields {
    leaves: "controllerExpandSecretRef controllerPublishSecretRef driver fsType nodeExpandSecretRef \
        nodePublishSecretRef nodeStageSecretRef readOnly volumeHandle",
    nested: &[("volumeAttributes", Map(&Leaf))],
};

pub(super) static FLEX_PERSISTENT_VOLUME_SOURCE: Fields =
    Fields { leaves: "driver fsType readOnly secretRef", nested: &[("options", Map(&Leaf))] };

pub(super) static GLUSTERFS_PERSISTENT_VOLUME_SOURCE: Fields =
    Fields::leaves("endpoints endpointsNamespace path readOnly");

pub(super) static ISCSI_PERSISTENT_VOLUME_SOURCE: Fields = Fields::leaves(
    "chapAuthDiscovery chapAuthSession fsType initiatorName iqn iscsiInterface lun portals \
    readOnly secretRef targetPortal",
);

pub(super) static LOCAL_VOLUME_SOURCE: Fields = Fields::leaves("fsType path");

pub(super) static VOLUME_NODE_AFFINITY: Fields = Fields::leaves("required");

pub(super) static RBD_PERSISTENT_VOLUME_SOURCE: Fields =
    Fields::leaves("fsType image keyring monitors pool readOnly secretRef user");

pub(super) static SCALE_IO_PERSISTENT_VOLUME_SOURCE: Fields = Fields::leaves(
    "fsType gateway protectionDomain readOnly secretRef sslEnabled storageMode storagePool \
    system volumeName",
);

pub(super) static STORAGE_OS_PERSISTENT_VOLUME_SOURCE: Fields =
    Fields::leaves("fsType readOnly secretRef volumeName volumeNamespace");

pub(super) static PERSISTENT_VOLUME_SPEC: Fields = Fields {
    leaves: "accessModes mountOptions persistentVolumeReclaimPolicy storageClassName \
        volumeAttributesClassName volumeMode",
    nested: &[
        ("awsElasticBlockStore", Struct(&AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE)),
        ("azureDisk", Struct(&AZURE_DISK_VOLUME_SOURCE)),
        ("azureFile", Struct(&AZURE_FILE_PERSISTENT_VOLUME_SOURCE)),
        ("capacity", Map(&Leaf)),
        ("cephfs", Struct(&CEPH_FS_PERSISTENT_VOLUME_SOURCE)),
        ("cinder", Struct(&CINDER_PERSISTENT_VOLUME_SOURCE)),
        ("claimRef", Struct(&OBJECT_REFERENCE)),
        ("csi", Struct(&CSI_PERSISTENT_VOLUME_SOURCE)),
        ("fc", Struct(&FC_VOLUME_SOURCE)),
        ("flexVolume", Struct(&FLEX_PERSISTENT_VOLUME_SOURCE)),
        ("flocker", Struct(&FLOCKER_VOLUME_SOURCE)),
        ("gcePersistentDisk", Struct(&GCE_PERSISTENT_DISK_VOLUME_SOURCE)),
        ("glusterfs", Struct(&GLUSTERFS_PERSISTENT_VOLUME_SOURCE)),
        ("hostPath", Struct(&HOST_PATH_VOLUME_SOURCE)),
        ("iscsi", Struct(&ISCSI_PERSISTENT_VOLUME_SOURCE)),
        ("local", Struct(&LOCAL_VOLUME_SOURCE)),
        ("nfs", Struct(&NFS_VOLUME_SOURCE)),
        ("nodeAffinity", Struct(&VOLUME_NODE_AFFINITY)),
        ("photonPersistentDisk", Struct(&PHOTON_PERSISTENT_DISK_VOLUME_SOURCE)),
        ("portworxVolume", Struct(&PORTWORX_VOLUME_SOURCE)),
        ("quobyte", Struct(&QUOBYTE_VOLUME_SOURCE)),
        ("rbd", Struct(&RBD_PERSISTENT_VOLUME_SOURCE)),
        ("scaleIO", Struct(&SCALE_IO_PERSISTENT_VOLUME_SOURCE)),
        ("storageos", Struct(&STORAGE_OS_PERSISTENT_VOLUME_SOURCE)),
        ("vsphereVolume", Struct(&VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE)),
    ],
};

pub(super) static PERSISTENT_VOLUME_CLAIM_CONDITION: Fields =
    Fields::leaves("lastProbeTime lastTransitionTime message reason status type");

pub(super) static VOLUME_HEALTH_CONDITION: Fields = Fields::leaves("message reason status");

pub(super) static VOLUME_HEALTH_STATUS: Fields = Fields {
    leaves: "lastTransitionTime",
    nested: &[("healthConditions", Keyed(BY_STATUS_REASON, &Struct(&VOLUME_HEALTH_CONDITION)))],
};

pub(super) static MODIFY_VOLUME_STATUS: Fields = Fields::leaves("status targetVolumeAttributesClassName");

pub(super) static PERSISTENT_VOLUME_CLAIM_STATUS: Fields = Fields {
    leaves: "accessModes currentVolumeAttributesClassName phase",
    nested: &[
        ("allocatedResourceStatuses", Map(&Leaf)),
        ("allocatedResources", Map(&Leaf)),
        ("capacity", Map(&Leaf)),
        ("conditions", Keyed(BY_TYPE, &Struct(&PERSISTENT_VOLUME_CLAIM_CONDITION))),
        ("healthStatus", Struct(&VOLUME_HEALTH_STATUS)),
        ("modifyVolumeStatus", Struct(&MODIFY_VOLUME_STATUS)),
    ],
};

pub(super) static PERSISTENT_VOLUME_CLAIM: Fields = Fields {
    leaves: "apiVersion kind",
    nested: &[
        ("metadata", Struct(&OBJECT_META)),
        ("spec", Struct(&PERSISTENT_VOLUME_CLAIM_SPEC)),
        ("status", Struct(&PERSISTENT_VOLUME_CLAIM_STATUS)),
    ],
};

pub(super) static PERSISTENT_VOLUME_STATUS: Fields =
    Fields::leaves("lastPhaseTransitionTime message phase reason");

pub(super) static PERSISTENT_VOLUME: Fields = Fields {
    leaves: "apiVersion kind",
    nested: &[
        ("metadata", Struct(&OBJECT_META)),
        ("spec", Struct(&PERSISTENT_VOLUME_SPEC)),
        ("status", Struct(&PERSISTENT_VOLUME_STATUS)),
    ],
};
