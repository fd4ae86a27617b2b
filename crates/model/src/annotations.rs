//! Label and annotation keys that Kubernetes components share (docs/behaviour/container-runtime.md and static-pods.md). A node
//! that changes over between this kubelet and the Go one adopts its containers through exactly these keys.

/// On sandboxes and containers: their pod.
pub const POD_NAME_LABEL: &str = "io.kubernetes.pod.name";
pub const POD_NAMESPACE_LABEL: &str = "io.kubernetes.pod.namespace";
pub const POD_UID_LABEL: &str = "io.kubernetes.pod.uid";
/// On containers: their name in the pod.
pub const CONTAINER_NAME_LABEL: &str = "io.kubernetes.container.name";

pub const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
pub const CONTAINER_RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
pub const CONTAINER_TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
pub const CONTAINER_TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
pub const CONTAINER_PRE_STOP_HANDLER: &str = "io.kubernetes.container.preStopHandler";
pub const CONTAINER_PORTS: &str = "io.kubernetes.container.ports";
pub const POD_TERMINATION_GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
pub const POD_DELETION_GRACE_PERIOD: &str = "io.kubernetes.pod.deletionGracePeriod";

/// On pods: their config source and the hash of their content.
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";
pub const CONFIG_SEEN: &str = "kubernetes.io/config.seen";
pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";
/// On the Node: for how many seconds ConfigMaps and Secrets are cached.
pub const OBJECT_TTL: &str = "node.alpha.kubernetes.io/ttl";
/// On PersistentVolumes: a supplemental group for containers that use them.
pub const VOLUME_GID: &str = "pv.beta.kubernetes.io/gid";
/// On PersistentVolumes: mount options, separated by commas (deprecated in favour of a field).
pub const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";
/// Only in this kubelet: the manifest file of the pod.
pub const CONFIG_FILE: &str = "kubelet-rs/config.file";
/// The deprecated way to choose an AppArmor profile; the container's name follows.
pub const APPARMOR_ANNOTATION_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
