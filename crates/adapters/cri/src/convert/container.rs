//! Converts containers: requests to CRI messages, listings and statuses back.

use std::sync::Arc;

use cri_api::v1 as wire;
use model::observation::{ImageMount, ObservedUser};
use model::request::{ContainerRequest, Device, Mount, Propagation};
use model::{ContainerId, ContainerObservation, ContainerRecord, ContainerState, SandboxId};

use super::{created_at, first_set, resources, security, time};

/// A longer message of a container is truncated: the runtime may return up to 16 MiB.
const MAX_MESSAGE: usize = 16 << 10;

pub(crate) fn config(from: &ContainerRequest) -> wire::ContainerConfig {
    wire::ContainerConfig {
        metadata: Some(wire::ContainerMetadata { name: from.name.clone(), attempt: from.attempt }),
        image: Some(wire::ImageSpec {
            image: from.image.clone(),
            user_specified_image: from.user_specified_image.clone(),
            ..Default::default()
        }),
        command: from.command.clone(),
        args: from.args.clone(),
        working_dir: from.working_dir.clone(),
        envs: from
            .env
            .iter()
            .map(|(key, value)| wire::KeyValue { key: key.clone(), value: value.as_bytes().to_vec() })
            .collect(),
        mounts: from.mounts.iter().map(mount).collect(),
        devices: from.devices.iter().map(device).collect(),
        labels: from.labels.clone(),
        annotations: from.annotations.clone(),
        log_path: from.log_path.clone(),
        stdin: from.stdin,
        stdin_once: from.stdin_once,
        tty: from.tty,
        linux: Some(wire::LinuxContainerConfig {
            resources: Some(resources::resources(&from.resources)),
            security_context: Some(security::container_security(&from.security)),
        }),
        cdi_devices: from.cdi_devices.iter().map(|name| wire::CdiDevice { name: name.clone() }).collect(),
        stop_signal: from.stop_signal.as_deref().map_or(wire::Signal::RuntimeDefault, signal).into(),
    }
}

fn mount(from: &Mount) -> wire::Mount {
    let propagation = match from.propagation {
        Propagation::Private => wire::MountPropagation::PropagationPrivate,
        Propagation::HostToContainer => wire::MountPropagation::PropagationHostToContainer,
        Propagation::Bidirectional => wire::MountPropagation::PropagationBidirectional,
    };
    wire::Mount {
        container_path: from.container_path.clone(),
        host_path: from.host_path.clone(),
        readonly: from.read_only,
        selinux_relabel: from.selinux_relabel,
        propagation: propagation.into(),
        recursive_read_only: from.recursive_read_only,
        image: from.image.clone().map(|image| wire::ImageSpec {
            image: image.reference,
            user_specified_image: image.user_specified_image,
            annotations: image.annotations,
            runtime_handler: image.runtime_handler,
            ..Default::default()
        }),
        image_sub_path: from.image_sub_path.clone(),
        ..Default::default()
    }
}

fn device(from: &Device) -> wire::Device {
    wire::Device {
        container_path: from.container_path.clone(),
        host_path: from.host_path.clone(),
        permissions: from.permissions.clone(),
    }
}

/// `SIGTERM`, `SIGRTMIN+3`: the API's spelling. For a signal that the CRI does not have the runtime uses its default.
fn signal(name: &str) -> wire::Signal {
    let cri_name = name.replace('+', "PLUS").replace('-', "MINUS");
    wire::Signal::from_str_name(&cri_name).unwrap_or(wire::Signal::RuntimeDefault)
}

/// In the API's spelling; `None` if the runtime reports none.
fn stop_signal(from: i32) -> Option<String> {
    let known = wire::Signal::try_from(from).ok().filter(|signal| *signal != wire::Signal::RuntimeDefault)?;
    Some(known.as_str_name().replace("PLUS", "+").replace("MINUS", "-"))
}

/// A status, or `None` without the kubelet's labels. The caller passes the sandbox, which is not part of the message.
pub(crate) fn observation(
    from: wire::ContainerStatus,
    sandbox_id: SandboxId,
) -> Option<ContainerObservation> {
    let metadata = from.metadata?;
    let record = ContainerRecord::from_annotations(&from.annotations);
    Some(ContainerObservation {
        id: ContainerId::from(from.id),
        sandbox_id,
        name: Arc::from(metadata.name),
        state: state(from.state),
        created_at: created_at(from.created_at),
        started_at: time(from.started_at),
        finished_at: time(from.finished_at),
        exit_code: from.exit_code,
        reason: from.reason,
        // Kept with each observation; a status shows 4 KiB.
        message: model::text::cut_owned(from.message, MAX_MESSAGE),
        image: from.image.map(image_as_written).unwrap_or_default(),
        image_id: first_set(from.image_ref, from.image_id),
        log_path: from.log_path,
        message_file: message_file(&from.mounts, &record),
        record,
        user: from.user.and_then(|user| user.linux).map(observed_user),
        resources: from
            .resources
            .and_then(|resources| resources.linux)
            .as_ref()
            .and_then(resources::observed),
        stop_signal: stop_signal(from.stop_signal),
        // Copied: collected from the mounts themselves, the list would keep their memory for as long as the container exists.
        recursive_read_only_mounts: from
            .mounts
            .iter()
            .filter(|mount| mount.recursive_read_only)
            .map(|mount| mount.container_path.clone())
            .collect(),
        image_mounts: from.mounts.iter().filter_map(image_mount).collect(),
    })
}

fn image_mount(from: &wire::Mount) -> Option<ImageMount> {
    let image = from.image.as_ref().filter(|image| !image.image.is_empty())?;
    Some(ImageMount {
        container_path: from.container_path.clone(),
        image: image.image.clone(),
        image_ref: None,
    })
}

/// What is mounted where the container writes its termination message.
fn message_file(mounts: &[wire::Mount], record: &ContainerRecord) -> String {
    let path = &record.termination_message_path;
    let mount = mounts.iter().find(|mount| !path.is_empty() && mount.container_path == *path);
    mount.map(|mount| mount.host_path.clone()).unwrap_or_default()
}

fn image_as_written(from: wire::ImageSpec) -> String {
    first_set(from.user_specified_image, from.image)
}

fn observed_user(from: wire::LinuxContainerUser) -> ObservedUser {
    ObservedUser { uid: from.uid, gid: from.gid, supplemental_groups: from.supplemental_groups }
}

pub(crate) fn state(from: i32) -> ContainerState {
    match wire::ContainerState::try_from(from) {
        Ok(wire::ContainerState::ContainerCreated) => ContainerState::Created,
        Ok(wire::ContainerState::ContainerRunning) => ContainerState::Running,
        Ok(wire::ContainerState::ContainerExited) => ContainerState::Exited,
        Ok(wire::ContainerState::ContainerUnknown) | Err(_) => ContainerState::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_signals_are_spelled_as_in_the_api() {
        assert_eq!(signal("SIGTERM"), wire::Signal::Sigterm);
        assert_eq!(signal("SIGRTMIN"), wire::Signal::Sigrtmin);
        assert_eq!(signal("SIGRTMIN+3"), wire::Signal::Sigrtminplus3);
        assert_eq!(signal("SIGRTMAX-14"), wire::Signal::Sigrtmaxminus14);
        assert_eq!(signal("SIGNONSENSE"), wire::Signal::RuntimeDefault);
        let reported = |signal: wire::Signal| stop_signal(signal.into());
        assert_eq!(reported(wire::Signal::Sigterm).as_deref(), Some("SIGTERM"));
        assert_eq!(reported(wire::Signal::Sigrtminplus3).as_deref(), Some("SIGRTMIN+3"));
        assert_eq!(reported(wire::Signal::Sigrtmaxminus14).as_deref(), Some("SIGRTMAX-14"));
        assert_eq!(reported(wire::Signal::RuntimeDefault), None, "an older runtime");
        assert_eq!(stop_signal(1000), None, "a newer one");
    }

    #[test]
    fn image_id_of_a_status_is_the_image_ref_of_the_runtime() {
        let spec = |image: &str, user: &str| {
            Some(wire::ImageSpec {
                image: image.to_owned(),
                user_specified_image: user.to_owned(),
                ..Default::default()
            })
        };
        let seen = |image, image_ref: &str, image_id: &str| {
            let status = wire::ContainerStatus {
                metadata: Some(wire::ContainerMetadata::default()),
                image,
                image_ref: image_ref.to_owned(),
                image_id: image_id.to_owned(),
                ..Default::default()
            };
            let observed = observation(status, SandboxId::new("s")).unwrap();
            (observed.image, observed.image_id)
        };
        let pair = |image: &str, id: &str| (image.to_owned(), id.to_owned());
        assert_eq!(seen(spec("sha256:1", "nginx:1"), "ref", "id"), pair("nginx:1", "ref"));
        assert_eq!(seen(spec("nginx:1", ""), "", "id"), pair("nginx:1", "id"));
        assert_eq!(seen(None, "", ""), pair("", ""));
    }

    #[test]
    fn container_that_never_ran_has_no_times() {
        let status = wire::ContainerStatus {
            metadata: Some(wire::ContainerMetadata { name: "app".to_owned(), attempt: 1 }),
            created_at: 5,
            ..Default::default()
        };
        let observed = observation(status, SandboxId::new("s")).unwrap();
        assert_eq!((observed.started_at, observed.finished_at), (None, None));
        assert_eq!(observed.created_at.as_nanosecond(), 5);
        assert_eq!(observed.state, ContainerState::Created);
    }

    #[test]
    fn new_container_state_is_unknown() {
        assert_eq!(state(4), ContainerState::Unknown);
        assert_eq!(state(-1), ContainerState::Unknown);
    }
}
