//! Requests off the wire. Missing parts are read as their defaults, as in a real runtime.

use cri_api::v1 as wire;
use model::observation::NamespaceMode;
use model::request::{
    ContainerRequest, ContainerSecurity, Device, DnsRequest, IdMapping, ImageRequest, LinuxResources, Mount,
    MountedImage, Namespaces, PortMapping, Propagation, Protocol, RegistryAuth, RunAs, SandboxRequest,
    SandboxSecurity, SecurityProfile, SelinuxLabel, SupplementalGroupsPolicy, UserNamespace,
};
use model::{ContainerId, PodRef};

pub(super) fn sandbox(from: wire::PodSandboxConfig, runtime_handler: String) -> SandboxRequest {
    let metadata = from.metadata.unwrap_or_default();
    let dns = from.dns_config.unwrap_or_default();
    let linux = from.linux.unwrap_or_default();
    SandboxRequest {
        pod: PodRef::new(&metadata.namespace, &metadata.name, metadata.uid),
        attempt: metadata.attempt,
        hostname: from.hostname,
        log_directory: from.log_directory,
        dns: DnsRequest { servers: dns.servers, searches: dns.searches, options: dns.options },
        port_mappings: from.port_mappings.into_iter().map(port_mapping).collect(),
        labels: from.labels,
        annotations: from.annotations,
        cgroup_parent: linux.cgroup_parent,
        sysctls: linux.sysctls,
        security: sandbox_security(linux.security_context.unwrap_or_default()),
        overhead: linux.overhead.map(resources),
        resources: linux.resources.map(resources),
        runtime_handler,
    }
}

fn port_mapping(from: wire::PortMapping) -> PortMapping {
    let protocol = match from.protocol() {
        wire::Protocol::Tcp => Protocol::Tcp,
        wire::Protocol::Udp => Protocol::Udp,
        wire::Protocol::Sctp => Protocol::Sctp,
    };
    PortMapping {
        protocol,
        container_port: from.container_port,
        host_port: from.host_port,
        host_ip: from.host_ip,
    }
}

fn sandbox_security(from: wire::LinuxSandboxSecurityContext) -> SandboxSecurity {
    let supplemental_groups_policy = groups_policy(from.supplemental_groups_policy());
    SandboxSecurity {
        namespaces: namespaces(from.namespace_options.unwrap_or_default()),
        selinux: from.selinux_options.map(selinux),
        run_as_user: from.run_as_user.map(|value| value.value),
        run_as_group: from.run_as_group.map(|value| value.value),
        supplemental_groups: from.supplemental_groups,
        supplemental_groups_policy,
        privileged: from.privileged,
        seccomp: from.seccomp.map(profile),
    }
}

pub(super) fn container(from: wire::ContainerConfig) -> ContainerRequest {
    let stop_signal = from.stop_signal();
    let metadata = from.metadata.unwrap_or_default();
    let image = from.image.unwrap_or_default();
    let linux = from.linux.unwrap_or_default();
    ContainerRequest {
        name: metadata.name,
        attempt: metadata.attempt,
        image: image.image,
        user_specified_image: image.user_specified_image,
        command: from.command,
        args: from.args,
        working_dir: from.working_dir,
        env: from.envs.into_iter().map(|env| (env.key, env.value.into())).collect(),
        mounts: from.mounts.into_iter().map(mount).collect(),
        devices: from.devices.into_iter().map(device).collect(),
        cdi_devices: from.cdi_devices.into_iter().map(|device| device.name).collect(),
        labels: from.labels,
        annotations: from.annotations,
        log_path: from.log_path,
        stdin: from.stdin,
        stdin_once: from.stdin_once,
        tty: from.tty,
        resources: resources(linux.resources.unwrap_or_default()),
        security: container_security(linux.security_context.unwrap_or_default()),
        stop_signal: (stop_signal != wire::Signal::RuntimeDefault).then(|| api_signal(stop_signal)),
    }
}

/// As the API spells it: `SIGRTMIN+3`.
fn api_signal(signal: wire::Signal) -> String {
    signal.as_str_name().replace("PLUS", "+").replace("MINUS", "-")
}

fn mount(from: wire::Mount) -> Mount {
    let propagation = match from.propagation() {
        wire::MountPropagation::PropagationPrivate => Propagation::Private,
        wire::MountPropagation::PropagationHostToContainer => Propagation::HostToContainer,
        wire::MountPropagation::PropagationBidirectional => Propagation::Bidirectional,
    };
    Mount {
        container_path: from.container_path,
        host_path: from.host_path,
        read_only: from.readonly,
        recursive_read_only: from.recursive_read_only,
        selinux_relabel: from.selinux_relabel,
        propagation,
        image: from.image.map(|image| MountedImage {
            reference: image.image,
            user_specified_image: image.user_specified_image,
            annotations: image.annotations,
            runtime_handler: image.runtime_handler,
        }),
        image_sub_path: from.image_sub_path,
    }
}

fn device(from: wire::Device) -> Device {
    Device { container_path: from.container_path, host_path: from.host_path, permissions: from.permissions }
}

fn container_security(from: wire::LinuxContainerSecurityContext) -> ContainerSecurity {
    let supplemental_groups_policy = groups_policy(from.supplemental_groups_policy());
    let capabilities = from.capabilities.unwrap_or_default();
    ContainerSecurity {
        namespaces: namespaces(from.namespace_options.unwrap_or_default()),
        add_capabilities: capabilities.add_capabilities,
        drop_capabilities: capabilities.drop_capabilities,
        privileged: from.privileged,
        run_as: RunAs {
            uid: from.run_as_user.map(|value| value.value),
            username: from.run_as_username,
            gid: from.run_as_group.map(|value| value.value),
        },
        supplemental_groups: from.supplemental_groups,
        supplemental_groups_policy,
        read_only_rootfs: from.readonly_rootfs,
        no_new_privs: from.no_new_privs,
        masked_paths: from.masked_paths,
        readonly_paths: from.readonly_paths,
        selinux: from.selinux_options.map(selinux),
        seccomp: from.seccomp.map(profile),
        apparmor: from.apparmor.map(profile),
    }
}

const fn groups_policy(from: wire::SupplementalGroupsPolicy) -> SupplementalGroupsPolicy {
    match from {
        wire::SupplementalGroupsPolicy::Merge => SupplementalGroupsPolicy::Merge,
        wire::SupplementalGroupsPolicy::Strict => SupplementalGroupsPolicy::Strict,
    }
}

fn selinux(from: wire::SeLinuxOption) -> SelinuxLabel {
    SelinuxLabel { user: from.user, role: from.role, kind: from.r#type, level: from.level }
}

fn profile(from: wire::SecurityProfile) -> SecurityProfile {
    use wire::security_profile::ProfileType;
    match from.profile_type() {
        ProfileType::RuntimeDefault => SecurityProfile::RuntimeDefault,
        ProfileType::Unconfined => SecurityProfile::Unconfined,
        ProfileType::Localhost => SecurityProfile::Localhost(from.localhost_ref),
    }
}

fn namespaces(from: wire::NamespaceOption) -> Namespaces {
    let mode = |mode: wire::NamespaceMode| match mode {
        wire::NamespaceMode::Pod => NamespaceMode::Pod,
        wire::NamespaceMode::Container => NamespaceMode::Container,
        wire::NamespaceMode::Node => NamespaceMode::Node,
        wire::NamespaceMode::Target => NamespaceMode::Target(ContainerId::new(&from.target_id)),
    };
    Namespaces {
        network: mode(from.network()),
        pid: mode(from.pid()),
        ipc: mode(from.ipc()),
        user: from.userns_options.as_ref().map(user_namespace).unwrap_or_default(),
    }
}

fn user_namespace(from: &wire::UserNamespace) -> UserNamespace {
    let mappings = |wire: &[wire::IdMapping]| {
        let mapping = |m: &wire::IdMapping| IdMapping {
            host_id: m.host_id,
            container_id: m.container_id,
            length: m.length,
        };
        wire.iter().map(mapping).collect::<Vec<_>>()
    };
    match from.mode() {
        wire::NamespaceMode::Node => UserNamespace::Node,
        wire::NamespaceMode::Pod | wire::NamespaceMode::Container | wire::NamespaceMode::Target => {
            UserNamespace::Pod { uids: mappings(&from.uids), gids: mappings(&from.gids) }
        }
    }
}

pub(super) fn resources(from: wire::LinuxContainerResources) -> LinuxResources {
    let set = |value: i64| (value != 0).then_some(value);
    LinuxResources {
        cpu_shares: set(from.cpu_shares),
        cpu_quota: set(from.cpu_quota),
        cpu_period: set(from.cpu_period),
        memory_limit_bytes: set(from.memory_limit_in_bytes),
        memory_swap_limit_bytes: set(from.memory_swap_limit_in_bytes),
        oom_score_adj: set(from.oom_score_adj),
        cpuset_cpus: from.cpuset_cpus,
        cpuset_mems: from.cpuset_mems,
        hugepage_limits: from.hugepage_limits.into_iter().map(|page| (page.page_size, page.limit)).collect(),
        unified: from.unified,
    }
}

pub(super) fn image(from: Option<wire::ImageSpec>) -> ImageRequest {
    let from = from.unwrap_or_default();
    ImageRequest { image: from.image, annotations: from.annotations, runtime_handler: from.runtime_handler }
}

pub(super) fn auth(from: wire::AuthConfig) -> RegistryAuth {
    RegistryAuth {
        username: from.username,
        password: from.password,
        auth: from.auth,
        server_address: from.server_address,
        identity_token: from.identity_token,
        registry_token: from.registry_token,
    }
}
