//! Pods, with containers, probes and statuses.

use super::Fields;
use super::Type::{Keyed, Leaf, Map, Set, Struct};
use super::keys::{
    BY_CONTAINER_PORT_PROTOCOL, BY_DEVICE_PATH, BY_IP, BY_MOUNT_PATH, BY_NAME, BY_RESOURCE_CLAIM_NAME,
    BY_STATUS_REASON, BY_TOPOLOGY_KEY_WHEN_UNSATISFIABLE, BY_TYPE,
};
use super::meta::OBJECT_META;
use super::volumes::{VOLUME, VOLUME_HEALTH_CONDITION};

pub(super) static NODE_AFFINITY: Fields = Fields::leaves(
    "preferredDuringSchedulingIgnoredDuringExecution \
    requiredDuringSchedulingIgnoredDuringExecution",
);

pub(super) static POD_AFFINITY: Fields = Fields::leaves(
    "preferredDuringSchedulingIgnoredDuringExecution \
    requiredDuringSchedulingIgnoredDuringExecution",
);

pub(super) static POD_ANTI_AFFINITY: Fields = Fields::leaves(
    "preferredDuringSchedulingIgnoredDuringExecution \
    requiredDuringSchedulingIgnoredDuringExecution",
);

pub(super) static AFFINITY: Fields = Fields {
    leaves: "",
    nested: &[
        ("nodeAffinity", Struct(&NODE_AFFINITY)),
        ("podAffinity", Struct(&POD_AFFINITY)),
        ("podAntiAffinity", Struct(&POD_ANTI_AFFINITY)),
    ],
};

pub(super) static ENV_VAR_SOURCE: Fields =
    Fields::leaves("configMapKeyRef fieldRef fileKeyRef resourceFieldRef secretKeyRef");

pub(super) static ENV_VAR: Fields =
    Fields { leaves: "name value", nested: &[("valueFrom", Struct(&ENV_VAR_SOURCE))] };

pub(super) static EXEC_ACTION: Fields = Fields::leaves("command");

pub(super) static HTTP_GET_ACTION: Fields = Fields::leaves("host httpHeaders path port protocol scheme");

pub(super) static SLEEP_ACTION: Fields = Fields::leaves("seconds");

pub(super) static TCP_SOCKET_ACTION: Fields = Fields::leaves("host port");

pub(super) static LIFECYCLE_HANDLER: Fields = Fields {
    leaves: "",
    nested: &[
        ("exec", Struct(&EXEC_ACTION)),
        ("httpGet", Struct(&HTTP_GET_ACTION)),
        ("sleep", Struct(&SLEEP_ACTION)),
        ("tcpSocket", Struct(&TCP_SOCKET_ACTION)),
    ],
};

pub(super) static LIFECYCLE: Fields = Fields {
    leaves: "stopSignal",
    nested: &[("postStart", Struct(&LIFECYCLE_HANDLER)), ("preStop", Struct(&LIFECYCLE_HANDLER))],
};

pub(super) static GRPC_ACTION: Fields = Fields::leaves("mode port service");

pub(super) static PROBE: Fields = Fields {
    leaves: "failureThreshold initialDelaySeconds periodSeconds successThreshold \
        terminationGracePeriodSeconds timeoutSeconds",
    nested: &[
        ("exec", Struct(&EXEC_ACTION)),
        ("grpc", Struct(&GRPC_ACTION)),
        ("httpGet", Struct(&HTTP_GET_ACTION)),
        ("tcpSocket", Struct(&TCP_SOCKET_ACTION)),
    ],
};

pub(super) static CONTAINER_PORT: Fields = Fields::leaves("containerPort hostIP hostPort name protocol");

pub(super) static RESOURCE_CLAIM: Fields = Fields::leaves("name request");

pub(super) static RESOURCE_REQUIREMENTS: Fields = Fields {
    leaves: "",
    nested: &[
        ("claims", Keyed(BY_NAME, &Struct(&RESOURCE_CLAIM))),
        ("limits", Map(&Leaf)),
        ("requests", Map(&Leaf)),
    ],
};

pub(super) static APP_ARMOR_PROFILE: Fields = Fields::leaves("localhostProfile type");

pub(super) static CAPABILITIES: Fields = Fields::leaves("add drop");

pub(super) static SE_LINUX_OPTIONS: Fields = Fields::leaves("level role type user");

pub(super) static SECCOMP_PROFILE: Fields = Fields::leaves("localhostProfile type");

pub(super) static WINDOWS_SECURITY_CONTEXT_OPTIONS: Fields =
    Fields::leaves("gmsaCredentialSpec gmsaCredentialSpecName hostProcess runAsUserName");

pub(super) static SECURITY_CONTEXT: Fields = Fields {
    leaves: "allowPrivilegeEscalation privileged procMount readOnlyRootFilesystem runAsGroup \
        runAsNonRoot runAsUser",
    nested: &[
        ("appArmorProfile", Struct(&APP_ARMOR_PROFILE)),
        ("capabilities", Struct(&CAPABILITIES)),
        ("seLinuxOptions", Struct(&SE_LINUX_OPTIONS)),
        ("seccompProfile", Struct(&SECCOMP_PROFILE)),
        ("windowsOptions", Struct(&WINDOWS_SECURITY_CONTEXT_OPTIONS)),
    ],
};

pub(super) static VOLUME_DEVICE: Fields = Fields::leaves("devicePath name");

pub(super) static VOLUME_MOUNT: Fields = Fields {
    leaves: "mountPath mountPropagation name readOnly recursiveReadOnly subPath subPathExpr",
    nested: &[("bindMountOptions", Set)],
};

pub(super) static CONTAINER: Fields = Fields {
    leaves: "args command envFrom image imagePullPolicy name resizePolicy restartPolicy \
        restartPolicyRules stdin stdinOnce terminationMessagePath terminationMessagePolicy tty \
        workingDir",
    nested: &[
        ("env", Keyed(BY_NAME, &Struct(&ENV_VAR))),
        ("lifecycle", Struct(&LIFECYCLE)),
        ("livenessProbe", Struct(&PROBE)),
        ("ports", Keyed(BY_CONTAINER_PORT_PROTOCOL, &Struct(&CONTAINER_PORT))),
        ("readinessProbe", Struct(&PROBE)),
        ("resources", Struct(&RESOURCE_REQUIREMENTS)),
        ("securityContext", Struct(&SECURITY_CONTEXT)),
        ("startupProbe", Struct(&PROBE)),
        ("volumeDevices", Keyed(BY_DEVICE_PATH, &Struct(&VOLUME_DEVICE))),
        ("volumeMounts", Keyed(BY_MOUNT_PATH, &Struct(&VOLUME_MOUNT))),
    ],
};

pub(super) static POD_DNS_CONFIG: Fields = Fields::leaves("nameservers options searches");

pub(super) static EPHEMERAL_CONTAINER: Fields = Fields {
    leaves: "args command envFrom image imagePullPolicy name resizePolicy restartPolicy \
        restartPolicyRules stdin stdinOnce targetContainerName terminationMessagePath \
        terminationMessagePolicy tty workingDir",
    nested: &[
        ("env", Keyed(BY_NAME, &Struct(&ENV_VAR))),
        ("lifecycle", Struct(&LIFECYCLE)),
        ("livenessProbe", Struct(&PROBE)),
        ("ports", Keyed(BY_CONTAINER_PORT_PROTOCOL, &Struct(&CONTAINER_PORT))),
        ("readinessProbe", Struct(&PROBE)),
        ("resources", Struct(&RESOURCE_REQUIREMENTS)),
        ("securityContext", Struct(&SECURITY_CONTEXT)),
        ("startupProbe", Struct(&PROBE)),
        ("volumeDevices", Keyed(BY_DEVICE_PATH, &Struct(&VOLUME_DEVICE))),
        ("volumeMounts", Keyed(BY_MOUNT_PATH, &Struct(&VOLUME_MOUNT))),
    ],
};

pub(super) static HOST_ALIAS: Fields = Fields::leaves("hostnames ip");

pub(super) static POD_OS: Fields = Fields::leaves("name");

pub(super) static POD_RESOURCE_CLAIM: Fields =
    Fields::leaves("name resourceClaimName resourceClaimTemplateName");

pub(super) static POD_SCHEDULING_GATE: Fields = Fields::leaves("name");

pub(super) static POD_SCHEDULING_GROUP: Fields = Fields::leaves("podGroupName");

pub(super) static POD_SECURITY_CONTEXT: Fields = Fields {
    leaves: "fsGroup fsGroupChangePolicy runAsGroup runAsNonRoot runAsUser seLinuxChangePolicy \
        supplementalGroups supplementalGroupsPolicy sysctls",
    nested: &[
        ("appArmorProfile", Struct(&APP_ARMOR_PROFILE)),
        ("seLinuxOptions", Struct(&SE_LINUX_OPTIONS)),
        ("seccompProfile", Struct(&SECCOMP_PROFILE)),
        ("windowsOptions", Struct(&WINDOWS_SECURITY_CONTEXT_OPTIONS)),
    ],
};

pub(super) static TOPOLOGY_SPREAD_CONSTRAINT: Fields = Fields::leaves(
    "labelSelector matchLabelKeys maxSkew minDomains nodeAffinityPolicy nodeTaintsPolicy \
    topologyKey whenUnsatisfiable",
);

pub(super) static POD_SPEC: Fields = Fields {
    leaves: "activeDeadlineSeconds automountServiceAccountToken dnsPolicy enableServiceLinks hostIPC \
        hostNetwork hostPID hostUsers hostname hostnameOverride nodeName nodeSelector \
        preemptionPolicy priority priorityClassName readinessGates restartPolicy \
        runtimeClassName schedulerName serviceAccount serviceAccountName setHostnameAsFQDN \
        shareProcessNamespace subdomain terminationGracePeriodSeconds tolerations",
    nested: &[
        ("affinity", Struct(&AFFINITY)),
        ("containers", Keyed(BY_NAME, &Struct(&CONTAINER))),
        ("dnsConfig", Struct(&POD_DNS_CONFIG)),
        ("ephemeralContainers", Keyed(BY_NAME, &Struct(&EPHEMERAL_CONTAINER))),
        ("evictionResponders", Keyed(BY_NAME, &Leaf)),
        ("hostAliases", Keyed(BY_IP, &Struct(&HOST_ALIAS))),
        ("imagePullSecrets", Keyed(BY_NAME, &Leaf)),
        ("initContainers", Keyed(BY_NAME, &Struct(&CONTAINER))),
        ("os", Struct(&POD_OS)),
        ("overhead", Map(&Leaf)),
        ("resourceClaims", Keyed(BY_NAME, &Struct(&POD_RESOURCE_CLAIM))),
        ("resources", Struct(&RESOURCE_REQUIREMENTS)),
        ("schedulingGates", Keyed(BY_NAME, &Struct(&POD_SCHEDULING_GATE))),
        ("schedulingGroup", Struct(&POD_SCHEDULING_GROUP)),
        ("securityContext", Struct(&POD_SECURITY_CONTEXT)),
        (
            "topologySpreadConstraints",
            Keyed(BY_TOPOLOGY_KEY_WHEN_UNSATISFIABLE, &Struct(&TOPOLOGY_SPREAD_CONSTRAINT)),
        ),
        ("volumes", Keyed(BY_NAME, &Struct(&VOLUME))),
    ],
};

pub(super) static POD_CONDITION: Fields =
    Fields::leaves("lastProbeTime lastTransitionTime message observedGeneration reason status type");

pub(super) static POD_EXTENDED_RESOURCE_CLAIM_STATUS: Fields =
    Fields::leaves("requestMappings resourceClaimName");

pub(super) static NODE_ALLOCATABLE_MAPPED_RESOURCES: Fields = Fields::leaves("name quantity");

pub(super) static NODE_ALLOCATABLE_OVERHEAD_RESOURCES: Fields = Fields::leaves("name perContainer perPod");

pub(super) static NODE_ALLOCATABLE_RESOURCE_CLAIM_STATUS: Fields = Fields {
    leaves: "resourceClaimName",
    nested: &[
        ("containers", Set),
        ("mapping", Keyed(BY_NAME, &Struct(&NODE_ALLOCATABLE_MAPPED_RESOURCES))),
        ("overhead", Keyed(BY_NAME, &Struct(&NODE_ALLOCATABLE_OVERHEAD_RESOURCES))),
    ],
};

pub(super) static POD_IP: Fields = Fields::leaves("ip");

pub(super) static POD_RESOURCE_CLAIM_STATUS: Fields = Fields::leaves("name resourceClaimName");

pub(super) static POD_VOLUME_HEALTH: Fields = Fields {
    leaves: "lastTransitionTime name",
    nested: &[("healthConditions", Keyed(BY_STATUS_REASON, &Struct(&VOLUME_HEALTH_CONDITION)))],
};

pub(super) static POD_STATUS: Fields = Fields {
    leaves: "containerStatuses ephemeralContainerStatuses hostIP hostIPs initContainerStatuses \
        message nominatedNodeName observedGeneration phase podIP qosClass reason resize \
        startTime",
    nested: &[
        ("allocatedResources", Map(&Leaf)),
        ("conditions", Keyed(BY_TYPE, &Struct(&POD_CONDITION))),
        ("extendedResourceClaimStatus", Struct(&POD_EXTENDED_RESOURCE_CLAIM_STATUS)),
        (
            "nodeAllocatableResourceClaimStatuses",
            Keyed(BY_RESOURCE_CLAIM_NAME, &Struct(&NODE_ALLOCATABLE_RESOURCE_CLAIM_STATUS)),
        ),
        ("podIPs", Keyed(BY_IP, &Struct(&POD_IP))),
        ("resourceClaimStatuses", Keyed(BY_NAME, &Struct(&POD_RESOURCE_CLAIM_STATUS))),
        ("resources", Struct(&RESOURCE_REQUIREMENTS)),
        ("volumeHealth", Keyed(BY_NAME, &Struct(&POD_VOLUME_HEALTH))),
    ],
};

pub(super) static POD: Fields = Fields {
    leaves: "apiVersion kind",
    nested: &[
        ("metadata", Struct(&OBJECT_META)),
        ("spec", Struct(&POD_SPEC)),
        ("status", Struct(&POD_STATUS)),
    ],
};

pub(super) static POD_TEMPLATE_SPEC: Fields =
    Fields { leaves: "", nested: &[("metadata", Struct(&OBJECT_META)), ("spec", Struct(&POD_SPEC))] };

pub(super) static POD_TEMPLATE: Fields = Fields {
    leaves: "apiVersion kind",
    nested: &[("metadata", Struct(&OBJECT_META)), ("template", Struct(&POD_TEMPLATE_SPEC))],
};
