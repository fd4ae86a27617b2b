//! The request for one container.

use base_core::node_facts::NodeFacts;
use std::collections::BTreeMap;

use config::Features;
use logs_core::log_paths;
use model::ContainerId;
use model::containers::ContainerRef;
use model::env_value::EnvValue;
use model::k8s::Pod;
use model::request::{ContainerRequest, ImageObservation};

use super::mounts::{HostPaths, VolumeMountPoint, container_devices, container_mounts};
use super::{ConfigError, PodFacts, labels, resources, security};
use crate::pods::env::CommandExpander;

/// The inputs of a container request.
#[derive(Clone, Copy, Debug)]
pub struct ContainerInputs<'a> {
    pub pod: &'a Pod,
    pub container: ContainerRef<'a>,
    pub node: &'a NodeFacts,
    pub facts: &'a PodFacts,
    pub restart_count: u32,
    /// The hash of the container's name and image by `pod::hash`.
    pub hash: u32,
    /// The image reference that the pull returned.
    pub image_ref: &'a str,
    /// The same image as the runtime reports it.
    pub image: &'a ImageObservation,
    /// From [`crate::pods::env::compute_env`].
    pub env: &'a [(String, EnvValue)],
    /// The pod's volumes on the host, by name.
    pub volumes: &'a BTreeMap<String, VolumeMountPoint>,
    /// Host paths of bound sub-paths, by index in `volumeMounts`.
    pub sub_paths: &'a BTreeMap<usize, String>,
    /// The file on the host for the termination message.
    pub termination_log: Option<&'a str>,
    /// The running instance of `targetContainerName`, for an ephemeral container with a target.
    pub target: Option<&'a ContainerId>,
}

/// Computes the request for a container.
///
/// # Errors
/// The spec cannot be satisfied; the message of waiting reason `CreateContainerConfigError`.
pub fn compute_container_request(inputs: &ContainerInputs<'_>) -> Result<ContainerRequest, ConfigError> {
    let ContainerInputs { pod, container, node, facts, restart_count, hash, image_ref, image, .. } = *inputs;
    let ContainerInputs { env, volumes, sub_paths, termination_log, target, .. } = *inputs;
    let selinux_enabled = node.selinux_enabled;
    let host = HostPaths { volumes, sub_paths, termination_log, selinux_enabled };
    let mut expander = CommandExpander::new(env)?;
    Ok(ContainerRequest {
        name: container.name().to_owned(),
        attempt: restart_count,
        image: image_ref.to_owned(),
        user_specified_image: container.image().to_owned(),
        command: expander.expand(container.command())?,
        args: expander.expand(container.args())?,
        working_dir: container.working_dir().to_owned(),
        env: env.to_vec(),
        mounts: container_mounts(&container, host, facts)?,
        devices: container_devices(&container, volumes),
        cdi_devices: Vec::new(),
        labels: labels::container_labels(pod, &container),
        annotations: labels::container_annotations(pod, &container, hash, restart_count),
        log_path: log_paths::container_log(container.name(), restart_count),
        stdin: container.stdin(),
        stdin_once: container.stdin_once(),
        tty: container.tty(),
        resources: resources::container_resources(pod, &container, node),
        security: security::container_security(pod, &container, image, target, node, facts)?,
        stop_signal: stop_signal(&container, node.features),
    })
}

/// The stop signal of the container, if the spec sets one and the feature gate is enabled; else the image's is used.
fn stop_signal(container: &ContainerRef<'_>, features: Features) -> Option<String> {
    container.lifecycle().filter(|_| features.container_stop_signals).and_then(|l| l.stop_signal.clone())
}
