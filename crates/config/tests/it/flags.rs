//! The command line: what a line of arguments resolves to.

use crate::support::{Memory, invoke, outcome, resolve};
use config::flags::{FLAGS, Kind, Target};
use config::{Invocation, version_line};
use expect_test::{Expect, expect};
use proptest::prelude::*;

#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "reads better at the many places of use")]
fn check(line: &str, expected: Expect) {
    expected.assert_eq(&outcome(line, &Memory::default()));
}

#[test]
fn flag_value_follows_an_equals_sign_or_is_the_next_argument_and_underscores_are_dashes() {
    check(
        "--hostname-override=a --root_dir /data",
        expect![[r#"
        node hostnameOverride = "a"
        node rootDir = "/data"
    "#]],
    );
    check(
        "--hostname_override a --hostname-override b",
        expect![[r#"
        node hostnameOverride = "b"
    "#]],
    );
    check(
        "--cert-dir= --node-ip 10.0.0.1,fd00::1",
        expect![[r#"
        node certDir = ""
        node nodeIp = "10.0.0.1,fd00::1"
    "#]],
    );
}

#[test]
fn boolean_flags_need_no_value() {
    check(
        "--fail-cgroupv1=false --seccomp-default",
        expect![[r#"
        failCgroupV1 = false
        seccompDefault = true
    "#]],
    );
    check(
        "--exit-on-lock-contention --lock-file /run/lock/kubelet",
        expect![[r#"
        node exitOnLockContention = true
        node lockFile = "/run/lock/kubelet"
    "#]],
    );
    check(
        "--seccomp-default=maybe",
        expect![[r#"
        invalid argument "maybe" for "--seccomp-default" flag: must be true or false
    "#]],
    );
    check(
        "--seccomp-default false",
        expect![[r#"
        unknown command "false"
    "#]],
    );
}

#[test]
fn the_log_level_has_a_short_form() {
    check(
        "-v3",
        expect![[r#"
        logging.verbosity = 3
    "#]],
    );
    check(
        "-v=4",
        expect![[r#"
        logging.verbosity = 4
    "#]],
    );
    check(
        "-v 5",
        expect![[r#"
        logging.verbosity = 5
    "#]],
    );
    check(
        "--v=6 --vmodule=pleg*=5,kubelet=2 --log-flush-frequency 1m",
        expect![[r#"
            logging.flushFrequency = "1m0s"
            logging.verbosity = 6
            logging.vmodule = [{"filePattern":"pleg*","verbosity":5},{"filePattern":"kubelet","verbosity":2}]
        "#]],
    );
    check(
        "-v",
        expect![[r#"
        flag needs an argument: --v takes a whole number of 0 or more
    "#]],
    );
    check(
        "-v=-1",
        expect![[r#"
        invalid argument "-1" for "--v" flag: must be a whole number of 0 or more
    "#]],
    );
    check(
        "-x3",
        expect![[r#"
        unknown flag: -x in -x3
    "#]],
    );
}

#[test]
fn deprecated_flags_work_with_a_warning() {
    check(
        "--pod-manifest-path=/etc/kubernetes/manifests --runonce",
        expect![[r#"
        runOnce = true
        staticPodPath = "/etc/kubernetes/manifests"
        warning: Flag --pod-manifest-path has been deprecated, set staticPodPath in the file given by --config instead
        warning: Flag --runonce has been deprecated, set runOnce in the file given by --config instead
    "#]],
    );
    check(
        "--minimum-container-ttl-duration 1m --maximum-dead-containers 7",
        expect![[r#"
        node maximumDeadContainers = 7
        node minimumContainerTtl = "1m0s"
        warning: Flag --maximum-dead-containers has been deprecated, it will be removed in a future release
        warning: Flag --minimum-container-ttl-duration has been deprecated, it will be removed in a future release
    "#]],
    );
    check(
        "--storage-driver-user root --enable-load-reader",
        expect![[r#"
        warning: Flag --enable-load-reader has been deprecated, it has no effect
        warning: Flag --storage-driver-user has been deprecated, it has no effect
    "#]],
    );
}

#[test]
fn flag_values_of_every_kind_are_parsed() {
    check(
        "--cluster-dns 10.0.0.10,fd00::a --cluster-dns=10.0.0.11",
        expect![[r#"
        clusterDNS = ["10.0.0.10","fd00::a","10.0.0.11"]
        warning: Flag --cluster-dns has been deprecated, set clusterDNS in the file given by --config instead
    "#]],
    );
    check(
        "--system-reserved cpu=100m,memory=1Gi --system-reserved pid=100",
        expect![[r#"
            systemReserved = {"cpu":"100m","memory":"1Gi","pid":"100"}
            warning: Flag --system-reserved has been deprecated, set systemReserved in the file given by --config instead
        "#]],
    );
    check(
        "--eviction-hard memory.available<100Mi,nodefs.available<10%",
        expect![[r#"
            evictionHard = {"memory.available":"100Mi","nodefs.available":"10%"}
            warning: Flag --eviction-hard has been deprecated, set evictionHard in the file given by --config instead
        "#]],
    );
    check(
        "--manifest-url-header A:1,B:2 --manifest-url-header A:3",
        expect![[r#"
        staticPodURLHeader = {"A":["1","3"],"B":["2"]}
        warning: Flag --manifest-url-header has been deprecated, set staticPodURLHeader in the file given by --config instead
    "#]],
    );
    check(
        "--feature-gates EventedPLEG=true,EnvFiles=false",
        expect![[r#"
            featureGates = {"EnvFiles":false,"EventedPLEG":true}
            warning: Flag --feature-gates has been deprecated, set featureGates in the file given by --config instead
        "#]],
    );
    check(
        "--register-with-taints a=b:NoSchedule,c:NoExecute",
        expect![[r#"
            registerWithTaints = [{"effect":"NoSchedule","key":"a","value":"b"},{"effect":"NoExecute","key":"c"}]
            warning: Flag --register-with-taints has been deprecated, set registerWithTaints in the file given by --config instead
        "#]],
    );
    check(
        "--reserved-memory 0:memory=1Gi,hugepages-1Gi=2Gi;1:memory=2Gi",
        expect![[r#"
            reservedMemory = [{"limits":{"hugepages-1Gi":"2Gi","memory":"1Gi"},"numaNode":0},{"limits":{"memory":"2Gi"},"numaNode":1}]
            warning: Flag --reserved-memory has been deprecated, set reservedMemory in the file given by --config instead
        "#]],
    );
    check(
        "--enforce-node-allocatable= --cgroups-per-qos=false --max-open-files 0x10",
        expect![[r#"
        cgroupsPerQOS = false
        enforceNodeAllocatable = []
        maxOpenFiles = 16
        warning: Flag --cgroups-per-qos has been deprecated, set cgroupsPerQOS in the file given by --config instead
        warning: Flag --enforce-node-allocatable has been deprecated, set enforceNodeAllocatable in the file given by --config instead
        warning: Flag --max-open-files has been deprecated, set maxOpenFiles in the file given by --config instead
    "#]],
    );
}

#[test]
fn all_flag_errors_are_reported_with_the_allowed_values() {
    check(
        "--sync-frequency 5 --max-pods many --max-pods 99999999999 --eviction-hard memory.available=1 \
         --register-with-taints a=b:Never --reserved-memory memory=1Gi --vmodule=x --v=x --address here \
         --feature-gates A --node-labels",
        expect![[r#"
            invalid argument "5" for "--sync-frequency" flag: must be a duration such as 1h30m or 100ms
            invalid argument "many" for "--max-pods" flag: must be a whole number from -2147483648 to 2147483647
            invalid argument "99999999999" for "--max-pods" flag: must be a whole number from -2147483648 to 2147483647
            invalid argument "memory.available=1" for "--eviction-hard" flag: "memory.available=1" is invalid: must be thresholds such as memory.available<100Mi,nodefs.available<10%
            invalid argument "a=b:Never" for "--register-with-taints" flag: "a=b:Never" is invalid: must be taints such as key=value:Effect with the effect NoSchedule, PreferNoSchedule or NoExecute
            invalid argument "memory=1Gi" for "--reserved-memory" flag: "memory=1Gi" is invalid: must be reservations such as 0:memory=1Gi,hugepages-1Gi=2Gi;1:memory=2Gi
            invalid argument "x" for "--vmodule" flag: "x" is invalid: must be patterns such as file=level,file=level
            invalid argument "x" for "--v" flag: must be a whole number of 0 or more
            invalid argument "here" for "--address" flag: must be an IP address
            invalid argument "A" for "--feature-gates" flag: "A" is invalid: must be gates such as GateA=true,GateB=false
            flag needs an argument: --node-labels takes pairs such as key=value,key=value
        "#]],
    );
}

#[test]
fn local_socket_is_for_root_or_one_group_and_never_for_others() {
    check(
        "--local-socket-mode=0666 --local-socket-group=a:b",
        expect![[r#"
            invalid configuration: --local-socket-mode is "0666", but must be 0600 (root only) or 0660 (root and the group of --local-socket-group)
            invalid configuration: --local-socket-group is "a:b", but must be the name of a group of this machine, or its number
        "#]],
    );
    check(
        "--local-socket-group=admins",
        expect![[r#"
        invalid configuration: --local-socket-group needs --local-socket-mode=0660, because with 0600 only root may open the socket
    "#]],
    );
    let resolved = resolve("--local-socket-mode=0660 --local-socket-group=admins", &Memory::default());
    let flags = resolved.expect("it is valid").flags.clone();
    assert_eq!((flags.local_socket_mode(), &*flags.local_socket_group), (0o660, "admins"));
    let usual = resolve("", &Memory::default()).expect("it is valid");
    assert_eq!(usual.flags.local_socket_mode(), 0o600);
}

#[test]
fn unknown_flags_and_commands_are_errors() {
    check(
        "--hostname-overide x run",
        expect![[r#"
            unknown flag: --hostname-overide (did you mean --hostname-override?)
            unknown command "run"
        "#]],
    );
    check(
        "--nonsense=1 --port 10250 -- --port more",
        expect![[r#"
        unknown flag: --nonsense
        unknown command "--port"
        unknown command "more"
    "#]],
    );
}

#[test]
fn removed_flags_are_errors_with_their_replacement() {
    check(
        "--container-runtime=remote --pod_infra_container_image=x --network-plugin=cni --cni-bin-dir=/x \
         --docker-endpoint=x --allow-privileged --cloud-config=x --dynamic-config-dir=x --logtostderr",
        expect![[r#"
            unknown flag: --container-runtime was removed from Kubernetes; use --container-runtime-endpoint
            unknown flag: --pod-infra-container-image was removed from Kubernetes; set the sandbox image in the container runtime
            unknown flag: --network-plugin was removed from Kubernetes; set up CNI in the container runtime
            unknown flag: --cni-bin-dir was removed from Kubernetes; set up CNI in the container runtime
            unknown flag: --docker-endpoint was removed from Kubernetes; use a CRI runtime through --container-runtime-endpoint
            unknown flag: --allow-privileged was removed from Kubernetes; use pod security admission
            unknown flag: --cloud-config was removed from Kubernetes; set it for the external cloud controller manager
            unknown flag: --dynamic-config-dir was removed from Kubernetes; use --config and --config-dir
            unknown flag: --logtostderr was removed from Kubernetes; remove it: the log always goes to standard error
        "#]],
    );
    for name in [
        "keep-terminated-pod-volumes",
        "master-service-namespace",
        "register-schedulable",
        "host-network-sources",
        "azure-container-registry-config",
        "experimental-kernel-memcg-notification",
        "experimental-qos-reserved",
        "experimental-check-node-capabilities-before-mount",
        "cadvisor-port",
        "really-crash-for-testing",
        "non-masquerade-cidr",
        "iptables-masquerade-bit",
        "iptables-drop-bit",
    ] {
        let errors = outcome(&format!("--{name}=x"), &Memory::default());
        assert!(
            errors.starts_with(&format!("unknown flag: --{name} was removed from Kubernetes; ")),
            "{errors}"
        );
    }
}

#[test]
fn version_and_help_override_running_but_not_errors() {
    let requested = |line| invoke(line, &Memory::default());
    assert_eq!(requested("--version"), Ok(Invocation::Version { raw: false }));
    assert_eq!(requested("--version=raw"), Ok(Invocation::Version { raw: true }));
    assert_eq!(version_line(), "Kubernetes v1.36.2");
    assert!(matches!(requested("--version -h"), Ok(Invocation::Help(_))));
    assert!(matches!(requested("--version=false"), Ok(Invocation::Run(_))));
    assert_eq!(requested("--help pods"), Err("unknown command \"pods\"".to_owned()));
    check(
        "--version=cooked",
        expect![[r#"
        invalid argument "cooked" for "--version" flag: must be true, false or raw
    "#]],
    );
}

#[test]
fn help_shows_every_flag_once_under_its_topic() {
    let Ok(Invocation::Help(text)) = invoke("--help", &Memory::default()) else { panic!("no help") };
    for flag in FLAGS {
        let line = format!("--{}", flag.name);
        let entries = text
            .lines()
            .filter(|text| text.starts_with("  ") && !text.starts_with("        "))
            .filter(|text| {
                text.split_whitespace().find(|word| word.starts_with("--")).is_some_and(|word| word == line)
            });
        assert_eq!(entries.count(), 1, "{line}");
    }
    let start: String = text.lines().take(15).map(|line| format!("{line}\n")).collect();
    expect![[r#"
        The kubelet runs pods on this node. It takes them from static manifests and, given --kubeconfig, from an
        API server, and keeps their containers running through a CRI runtime.

        Usage:
          kubelet [flags]

        Configuration:
              --config string
                The KubeletConfiguration file, in YAML or JSON, as an absolute path or relative to the
                working directory. Without it the built-in defaults apply. Command line flags override its
                values.
              --config-dir string
                Directory of drop-in files (*.conf), which override the values of the configuration file.
                They are applied in lexical order.
              --feature-gates gate=bool,…
    "#]].assert_eq(&start);
    let logging: String = text
        .lines()
        .skip_while(|line| *line != "Logging:")
        .take(10)
        .map(|line| format!("{line}\n"))
        .collect();
    expect![[r#"
        Logging:
          -v, --v int
                Log level verbosity. (default 0)
              --vmodule file=level,…
                Log levels for source files, as file=level,… Only with the text format.
              --log-flush-frequency duration
                Maximum time between log flushes. (default 5s)
              --logging-format string
                Log format: text or json. (default text) (DEPRECATED: set logging.format in the file given
                by --config)
    "#]]
    .assert_eq(&logging);
}

/// A value that is valid for every flag of a kind.
fn sample(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool | Kind::Version => "true",
        Kind::Text => "text",
        Kind::Int32 | Kind::Int64 | Kind::Level => "7",
        Kind::Duration => "7s",
        Kind::Ip => "10.1.2.3",
        Kind::List => "a,b",
        Kind::Map => "a=b",
        Kind::Thresholds => "memory.available<1Gi",
        Kind::Headers => "a:b",
        Kind::Gates => "EventedPLEG=true",
        Kind::Taints => "a=b:NoExecute",
        Kind::ReservedMemory => "0:memory=1Gi",
        Kind::VModule => "a=7",
        Kind::Quantity => "7Ki",
    }
}

#[test]
fn every_flag_sets_its_field() {
    for flag in FLAGS {
        if matches!(flag.target, Target::Action) {
            continue;
        }
        let line = format!("--{}={}", flag.name, sample(flag.kind));
        // Validation may reject the sample, but its type must be that of the field.
        if let Err(errors) = resolve(&line, &Memory::default()) {
            assert!(!errors.contains("invalid type"), "{line}: {errors}");
            assert!(errors.contains(flag.name), "{line}: {errors}");
        }
    }
}

#[test]
fn flag_table_has_no_duplicate_names_and_fields() {
    let mut names: Vec<&str> = FLAGS.iter().map(|flag| flag.name).collect();
    let mut fields: Vec<&str> = FLAGS.iter().filter_map(config::flags::Flag::field).collect();
    for list in [&mut names, &mut fields] {
        list.sort_unstable();
        assert!(list.windows(2).all(|pair| pair[0] != pair[1]));
    }
}

#[test]
fn every_flag_of_the_go_kubelet_is_accepted() {
    let flags = "config config-dir kubeconfig bootstrap-kubeconfig hostname-override node-ip cert-dir cloud-provider \
        root-dir seccomp-default node-labels lock-file exit-on-lock-contention runtime-cgroups \
        image-credential-provider-config image-credential-provider-bin-dir provider-id fail-cgroupv1 v vmodule \
        log-flush-frequency housekeeping-interval max-housekeeping-interval version help \
        minimum-container-ttl-duration maximum-dead-containers-per-container maximum-dead-containers \
        experimental-mounter-path experimental-allocatable-ignore-eviction application-metrics-count-limit boot-id-file \
        container-hints containerd containerd-namespace enable-load-reader event-storage-age-limit \
        event-storage-event-limit global-housekeeping-interval log-cadvisor-usage machine-id-file storage-driver-user \
        storage-driver-password storage-driver-host storage-driver-db storage-driver-table storage-driver-secure \
        storage-driver-buffer-duration enable-server fail-swap-on pod-manifest-path sync-frequency \
        file-check-frequency http-check-frequency manifest-url manifest-url-header address port read-only-port \
        container-runtime-endpoint image-service-endpoint anonymous-auth authentication-token-webhook \
        authentication-token-webhook-cache-ttl client-ca-file authorization-mode \
        authorization-webhook-cache-authorized-ttl authorization-webhook-cache-unauthorized-ttl tls-cert-file \
        tls-private-key-file tls-cipher-suites tls-min-version rotate-server-certificates rotate-certificates \
        registry-qps registry-burst event-qps event-burst enable-debugging-handlers contention-profiling healthz-port \
        healthz-bind-address oom-score-adj cluster-domain cluster-dns volume-plugin-dir \
        streaming-connection-idle-timeout node-status-update-frequency node-status-max-images \
        minimum-image-ttl-duration image-gc-high-threshold image-gc-low-threshold volume-stats-agg-period feature-gates \
        kubelet-cgroups system-cgroups cgroups-per-qos cgroup-driver cgroup-root cpu-manager-policy \
        cpu-manager-policy-options cpu-manager-reconcile-period memory-manager-policy reserved-memory \
        topology-manager-policy topology-manager-policy-options topology-manager-scope qos-reserved \
        runtime-request-timeout hairpin-mode max-pods pods-per-core pod-cidr pod-max-pids resolv-conf runonce \
        cpu-cfs-quota cpu-cfs-quota-period enable-controller-attach-detach make-iptables-util-chains \
        container-log-max-size container-log-max-files allowed-unsafe-sysctls kernel-memcg-notification \
        local-storage-capacity-isolation max-open-files kube-api-content-type kube-api-qps kube-api-burst \
        serialize-image-pulls eviction-hard eviction-soft eviction-soft-grace-period \
        eviction-pressure-transition-period eviction-max-pod-grace-period eviction-minimum-reclaim \
        protect-kernel-defaults reserved-cpus system-reserved kube-reserved enforce-node-allocatable \
        system-reserved-cgroup kube-reserved-cgroup register-node register-with-taints logging-format";
    for name in flags.split_whitespace() {
        assert!(config::flags::find(name).is_some(), "--{name}");
    }
}

proptest! {
    #[test]
    fn no_command_line_makes_the_parser_panic(args in prop::collection::vec("\\PC{0,20}", 0..8)) {
        let _ = config::from_args(args.into_iter(), &Memory::default());
    }

    #[test]
    fn no_value_makes_a_flag_panic(index in 0..FLAGS.len(), value in "[-+0-9a-z:;,=<>%.µé]{0,24}") {
        let arg = format!("--{}={value}", FLAGS[index].name);
        let _ = config::from_args(std::iter::once(arg), &Memory::default());
    }
}
