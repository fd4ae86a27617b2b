//! Values of the label `operation_type` for calls to the container runtime.

const NAMES: &[(&str, &str)] = &[
    ("Attach", "attach"),
    ("CheckpointContainer", "checkpoint_container"),
    ("ContainerStats", "container_stats"),
    ("ContainerStatus", "container_status"),
    ("CreateContainer", "create_container"),
    ("Exec", "exec"),
    ("ExecSync", "exec_sync"),
    ("GetContainerEvents", "get_container_events"),
    ("ImageFsInfo", "image_fs_info"),
    ("ImageStatus", "image_status"),
    ("ListContainerStats", "list_container_stats"),
    ("ListContainers", "list_containers"),
    ("ListImages", "list_images"),
    ("ListMetricDescriptors", "list_metric_descriptors"),
    ("ListPodSandbox", "list_podsandbox"),
    ("ListPodSandboxMetrics", "list_podsandbox_metrics"),
    ("ListPodSandboxStats", "list_podsandbox_stats"),
    ("PodSandboxStats", "podsandbox_stats"),
    ("PodSandboxStatus", "podsandbox_status"),
    ("PortForward", "port_forward"),
    ("PullImage", "pull_image"),
    ("RemoveContainer", "remove_container"),
    ("RemoveImage", "remove_image"),
    ("RemovePodSandbox", "remove_podsandbox"),
    ("ReopenContainerLog", "reopen_container_log"),
    ("RunPodSandbox", "run_podsandbox"),
    ("RuntimeConfig", "runtime_config"),
    ("StartContainer", "start_container"),
    ("Status", "status"),
    ("StopContainer", "stop_container"),
    ("StopPodSandbox", "stop_podsandbox"),
    ("UpdateContainerResources", "update_container"),
    ("UpdatePodSandboxResources", "update_podsandbox_resources"),
    ("UpdateRuntimeConfig", "update_runtime_config"),
    ("Version", "version"),
];

/// The label value for a CRI call; `other` if it has none.
#[must_use]
pub fn operation_type(call: &str) -> &'static str {
    NAMES.iter().find(|(known, _)| *known == call).map_or("other", |(_, name)| name)
}
