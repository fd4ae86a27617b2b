//! Configuration files and drop-ins, and their precedence.

use crate::support::{Memory, outcome, resolve};
use expect_test::{Expect, expect};

#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "reads better at the many places of use")]
fn check(line: &str, files: &Memory, expected: Expect) {
    expected.assert_eq(&outcome(line, files));
}

#[test]
fn file_overrides_defaults_drop_ins_override_the_file_and_flags_override_all() {
    let files = Memory::default()
        .with(
            "/k.yaml",
            "maxPods: 10\npodsPerCore: 1\noomScoreAdj: -1\nclusterDomain: file\nclusterDNS: [10.0.0.1]\n",
        )
        .with("/d/10.conf", "podsPerCore: 2\noomScoreAdj: -2\nclusterDNS: [10.0.0.2, 10.0.0.3]\n")
        .with("/d/sub/20.conf", "oomScoreAdj: -3\n")
        .with("/d/30.yaml", "oomScoreAdj: -4\n");
    let kubelet =
        resolve("--config /k.yaml --config-dir /d --oom-score-adj=-5", &files).expect("valid").kubelet;
    assert_eq!(kubelet.cluster_domain, "file", "the file over the default");
    assert_eq!(kubelet.max_pods, 10);
    assert_eq!(kubelet.pods_per_core, 2, "a drop-in over the file");
    assert_eq!(kubelet.cluster_dns, ["10.0.0.2", "10.0.0.3"], "lists are replaced");
    assert_eq!(kubelet.oom_score_adj, -5, "the flag over all");
    let without_flag = resolve("--config /k.yaml --config-dir /d", &files).expect("valid").kubelet;
    assert_eq!(without_flag.oom_score_adj, -3, "the last drop-in over the first");
}

#[test]
fn feature_gates_are_merged_and_the_flag_overrides_the_file() {
    let files = Memory::default()
        .with("/k.yaml", "featureGates: {EventedPLEG: true, CSIVolumeHealth: true, PodsAPI: true}\n")
        .with("/d/1.conf", "featureGates: {CSIVolumeHealth: false, CRIListStreaming: true}\n");
    let line = "--config /k.yaml --config-dir /d --feature-gates=EventedPLEG=false,ContainerStopSignals=true";
    let gates = resolve(line, &files).expect("valid").gates;
    let on = |name| gates.enabled(name);
    assert!(!on("EventedPLEG") && !on("CSIVolumeHealth"));
    assert!(on("PodsAPI") && on("CRIListStreaming") && on("ContainerStopSignals"));
}

#[test]
fn null_in_a_drop_in_resets_a_field_to_its_default() {
    let files = Memory::default()
        .with("/k.yaml", "maxPods: 10\nauthentication: {anonymous: {enabled: true}}\n")
        .with("/d/1.conf", "maxPods: null\nauthentication: {anonymous: null}\n");
    let kubelet = resolve("--config /k.yaml --config-dir /d", &files).expect("valid").kubelet;
    assert_eq!(kubelet.max_pods, 110);
    assert!(!kubelet.authentication.anonymous.enabled);
}

#[test]
fn a_file_may_be_json_with_tabs() {
    let text = "{\n\t\"kind\": \"KubeletConfiguration\",\n\t\"apiVersion\": \"kubelet.config.k8s.io/v1beta1\",\n\t\"maxPods\": 3\n}";
    let files = Memory::default().raw("/k.json", text);
    assert_eq!(resolve("--config /k.json", &files).expect("valid").kubelet.max_pods, 3);
}

#[test]
fn file_of_another_kind_is_rejected() {
    let one = |text: &str| Memory::default().raw("/k.yaml", text);
    check(
        "--config /k.yaml",
        &one(""),
        expect![[r#"
        /k.yaml: the file is empty: it must hold a KubeletConfiguration of kubelet.config.k8s.io/v1beta1
    "#]],
    );
    check(
        "--config /k.yaml",
        &one("# nothing\n"),
        expect![[r#"
        /k.yaml: the file is empty: it must hold a KubeletConfiguration of kubelet.config.k8s.io/v1beta1
    "#]],
    );
    check(
        "--config /k.yaml",
        &one("- 1\n"),
        expect![[r#"
        /k.yaml: the file must hold a KubeletConfiguration, with a field on each line
    "#]],
    );
    check(
        "--config /k.yaml",
        &one("maxPods: 1\n"),
        expect![[r#"
        /k.yaml: apiVersion is missing: it must be kubelet.config.k8s.io/v1beta1
        /k.yaml: kind is missing: it must be KubeletConfiguration
    "#]],
    );
    check(
        "--config /k.yaml",
        &one("kind: Pod\napiVersion: v1\n"),
        expect![[r#"
            /k.yaml:2:13: apiVersion is "v1", but must be kubelet.config.k8s.io/v1beta1
            /k.yaml:1:7: kind is "Pod", but must be KubeletConfiguration
        "#]],
    );
    check(
        "--config /k.yaml",
        &one("a: [\n"),
        expect![[r#"
            /k.yaml:1:4: not valid YAML: unclosed bracket '['
        "#]],
    );
    check(
        "--config /other.yaml",
        &one(""),
        expect![[r#"
        cannot read configuration file /other.yaml: no such file
    "#]],
    );
    let files = Memory::default().with("/k.yaml", "").raw("/d/1.conf", "maxPods: 1\n").raw("/d/2.conf", "");
    check(
        "--config /k.yaml --config-dir /d",
        &files,
        expect![[r#"
        /d/1.conf: apiVersion is missing: it must be kubelet.config.k8s.io/v1beta1
        /d/1.conf: kind is missing: it must be KubeletConfiguration
        /d/2.conf: the file is empty: it must hold a KubeletConfiguration of kubelet.config.k8s.io/v1beta1
    "#]],
    );
}

#[test]
fn every_field_of_a_wrong_type_is_reported() {
    let files = Memory::default().with(
        "/k.yaml",
        "maxPods: many\nsyncFrequency: 5\nauthentication: {anonymous: {enabled: maybe}, webhook: yes}\n\
         clusterDNS: 10.0.0.1\nregisterWithTaints: [[a, b, c]]\nreservedMemory: [{numaNode: 0, limits: {memory: 1Xi}}]\n\
         systemReserved: {cpu: 1}\nreadOnlyPort: 99999999999\nfeatureGates: {EventedPLEG: on-ish}\n",
    );
    check(
        "--config /k.yaml",
        &files,
        expect![[r#"
            /k.yaml:5:39: field authentication.anonymous.enabled: invalid type: string "maybe", expected true or false
            /k.yaml:5:56: field authentication.webhook: is true, but must have fields of its own
            /k.yaml:6:13: field clusterDNS: invalid type: string "10.0.0.1", expected a list
            /k.yaml:11:29: field featureGates[EventedPLEG]: invalid type: string "on-ish", expected true or false
            /k.yaml:3:10: field maxPods: invalid type: string "many", expected a whole number from -2147483648 to 2147483647
            /k.yaml:10:15: field readOnlyPort: invalid value: integer `99999999999`, expected a whole number from -2147483648 to 2147483647
            /k.yaml:7:21: field registerWithTaints: every item must have fields of its own
            /k.yaml:8:17: field reservedMemory: quantity "1Xi" is not a number with an optional suffix (n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei, e<exp>)
            /k.yaml:4:16: field syncFrequency: invalid type: integer `5`, expected a duration such as 1h30m or 100ms
            /k.yaml:9:23: field systemReserved[cpu]: invalid type: integer `1`, expected a string (put it in quotes)
        "#]],
    );
}

#[test]
fn unknown_and_duplicate_fields_are_ignored_with_a_warning() {
    let files = Memory::default().with(
        "/k.yaml",
        "maxPods: 1\nmaxPods: 2\nmaxPod: 3\nauthentication: {x508: {}, anonymous: {enabled: true, enabled: false}}\nregisterWithTaints: [{key: a, key: b, effect: NoExecute}]\nlogging: {vmodule: [{filePatern: a, filePattern: b, verbosity: 1}]}\n",
    );
    check(
        "--config /k.yaml",
        &files,
        expect![[r#"
            authentication.anonymous.enabled = false
            authentication.webhook.enabled = true
            authorization.mode = "Webhook"
            evictionHard = {"imagefs.available":"15%","imagefs.inodesFree":"5%","memory.available":"100Mi","nodefs.available":"10%","nodefs.inodesFree":"5%"}
            logging.vmodule = [{"filePattern":"b","verbosity":1}]
            maxPods = 2
            readOnlyPort = 0
            registerWithTaints = [{"effect":"NoExecute","key":"b"}]
            node config = "/k.yaml"
            warning: /k.yaml:4:10: duplicate field "maxPods", the last one counts
            warning: /k.yaml:6:64: duplicate field "authentication.anonymous.enabled", the last one counts
            warning: /k.yaml:7:36: duplicate field "registerWithTaints[0].key", the last one counts
            warning: /k.yaml:6:24: unknown field "authentication.x508" is ignored (did you mean authentication.x509?)
            warning: /k.yaml:5:9: unknown field "maxPod" is ignored (did you mean maxPods?)
            warning: /k.yaml:8:34: unknown field "logging.vmodule[0].filePatern" is ignored (did you mean filePattern?)
        "#]],
    );
}

#[test]
fn unknown_fields_are_reported_together_with_errors() {
    let warning = "/k.yaml:3:9: unknown field \"maxPod\" is ignored (did you mean maxPods?)";
    for (body, error) in [
        (
            "maxPod: 3\nmaxPods: -1\n",
            "invalid configuration: maxPods (--max-pods) is -1, but must be 0 or more",
        ),
        (
            "maxPod: 3\nclusterDNS: 10.0.0.1\n",
            "/k.yaml:4:13: field clusterDNS: invalid type: string \"10.0.0.1\", expected a list",
        ),
    ] {
        let files = Memory::default().with("/k.yaml", body);
        let line = ["--config", "/k.yaml"].map(str::to_owned);
        let errors = config::from_args(line.into_iter(), &files).expect_err("it has errors");
        assert_eq!((errors.to_string().as_str(), &errors.warnings[..]), (error, &[warning.to_owned()][..]));
    }
}

/// `kubelet.go` logs such an entry and continues.
#[test]
fn invalid_cluster_dns_entry_is_warned_about_and_left_out() {
    let files =
        Memory::default().with("/k.yaml", "clusterDNS: [dns.local, 10.096.0.010, 'fd00::a', '', 10.0.0]\n");
    let resolved = resolve("--config /k.yaml", &files).expect("valid");
    let ips: Vec<String> = resolved.kubelet.cluster_dns_ips().map(|ip| ip.to_string()).collect();
    assert_eq!(ips, ["10.96.0.10", "fd00::a"]);
    let warnings =
        ["\"dns.local\"", "\"\"", "\"10.0.0\""].map(|entry| format!("Invalid clusterDNS IP {entry}"));
    assert_eq!(resolved.warnings, warnings);
}

#[test]
fn relative_paths_are_relative_to_the_directory_of_the_file() {
    let files = Memory::default()
        .with(
            "/work/etc/k.yaml",
            "staticPodPath: manifests\nauthentication: {x509: {clientCAFile: ../ca.crt}}\n",
        )
        .with("/d/1.conf", "tlsCertFile: tls.crt\n");
    check(
        "--config etc/k.yaml --config-dir /d",
        &files,
        expect![[r#"
            authentication.anonymous.enabled = false
            authentication.webhook.enabled = true
            authentication.x509.clientCAFile = "/work/etc/../ca.crt"
            authorization.mode = "Webhook"
            evictionHard = {"imagefs.available":"15%","imagefs.inodesFree":"5%","memory.available":"100Mi","nodefs.available":"10%","nodefs.inodesFree":"5%"}
            readOnlyPort = 0
            staticPodPath = "/work/etc/manifests"
            tlsCertFile = "/d/tls.crt"
            node config = "etc/k.yaml"
            node configDir = "/d"
        "#]],
    );
}

#[test]
fn defaults_that_depend_on_another_field() {
    let one = |body: &str| Memory::default().with("/k.yaml", body);
    let kubelet = |body: &str| resolve("--config /k.yaml", &one(body)).expect("valid").kubelet;
    assert_eq!(kubelet("nodeStatusUpdateFrequency: 7s\n").node_status_report_frequency.to_string(), "7s");
    assert!(!kubelet("maxParallelImagePulls: 2\n").serialize_image_pulls);
    assert!(kubelet("maxParallelImagePulls: 1\n").serialize_image_pulls);
    assert_eq!(kubelet("evictionHard: {}\n").eviction_hard.len(), 0);
    let merged = kubelet("evictionHard: {memory.available: 1Gi}\nmergeDefaultEvictionSettings: true\n");
    assert_eq!(merged.effective_eviction_hard()["memory.available"], "1Gi");
    assert_eq!(merged.effective_eviction_hard().len(), 5);
    assert_eq!(kubelet("containerLogMaxSize: 1Mi\n").container_log_max_bytes(), 1 << 20);
    assert_eq!(kubelet("").image_endpoint(), "unix:///run/containerd/containerd.sock");
    assert_eq!(kubelet("imageServiceEndpoint: unix:///i.sock\n").image_endpoint(), "unix:///i.sock");
}

#[test]
fn config_file_of_kubeadm_is_accepted() {
    let files = Memory::default().raw(
        "/var/lib/kubelet/config.yaml",
        r#"apiVersion: kubelet.config.k8s.io/v1beta1
authentication:
  anonymous:
    enabled: false
  webhook:
    cacheTTL: 0s
    enabled: true
  x509:
    clientCAFile: /etc/kubernetes/pki/ca.crt
authorization:
  mode: Webhook
  webhook:
    cacheAuthorizedTTL: 0s
    cacheUnauthorizedTTL: 0s
cgroupDriver: systemd
clusterDNS:
- 10.96.0.10
clusterDomain: cluster.local
containerRuntimeEndpoint: ""
cpuManagerReconcilePeriod: 0s
crashLoopBackOff: {}
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
httpCheckFrequency: 0s
imageMaximumGCAge: 0s
imageMinimumGCAge: 0s
kind: KubeletConfiguration
logging:
  flushFrequency: 0
  options:
    json:
      infoBufferSize: "0"
    text:
      infoBufferSize: "0"
  verbosity: 0
memorySwap: {}
nodeStatusReportFrequency: 0s
nodeStatusUpdateFrequency: 0s
rotateCertificates: true
runtimeRequestTimeout: 0s
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
staticPodPath: /etc/kubernetes/manifests
streamingConnectionIdleTimeout: 0s
syncFrequency: 0s
volumeStatsAggPeriod: 0s
"#,
    );
    check(
        "--config /var/lib/kubelet/config.yaml",
        &files,
        expect![[r#"
            authentication.anonymous.enabled = false
            authentication.webhook.enabled = true
            authentication.x509.clientCAFile = "/etc/kubernetes/pki/ca.crt"
            authorization.mode = "Webhook"
            cgroupDriver = "systemd"
            clusterDNS = ["10.96.0.10"]
            clusterDomain = "cluster.local"
            evictionHard = {"imagefs.available":"15%","imagefs.inodesFree":"5%","memory.available":"100Mi","nodefs.available":"10%","nodefs.inodesFree":"5%"}
            readOnlyPort = 0
            rotateCertificates = true
            staticPodPath = "/etc/kubernetes/manifests"
            node config = "/var/lib/kubelet/config.yaml"
        "#]],
    );
}

#[test]
fn settings_without_effect_are_reported_once() {
    let files = Memory::default().with(
        "/k.yaml",
        "cgroupsPerQOS: false\nenforceNodeAllocatable: []\nevictionHard: {}\nmaxPods: 5\ncontentType: application/json\n\
         enableContentionProfiling: false\n",
    );
    let resolved =
        resolve("--config /k.yaml --housekeeping-interval=5s --contention-profiling=false", &files)
            .expect("valid");
    assert_eq!(resolved.not_yet, ["contentType", "--housekeeping-interval"]);
    let quiet = Memory::default().with("/k.yaml", "cgroupsPerQOS: false\nenforceNodeAllocatable: [none]\n");
    assert_eq!(resolve("--config /k.yaml", &quiet).expect("valid").not_yet_warning(), None);
}

/// As an operator of a cluster writes it once for all components.
#[test]
fn feature_gates_that_components_share_are_accepted_from_a_file() {
    let gates = "AllBeta: true, GangScheduling: true, GenericWorkload: true, TopologyAwareWorkloadScheduling: true, \
                 WorkloadWithJob: true, ShardedListAndWatch: true, ConstrainedImpersonation: true, \
                 DRADeviceTaintRules: true, MutablePVNodeAffinity: true, HPAScaleToZero: true, SELinuxMount: false, \
                 WindowsHostNetwork: false, InPlacePodVerticalScaling: true, RuntimeClassInImageCriApi: false";
    let files = Memory::default().with("/k.yaml", &format!("featureGates: {{{gates}}}\n"));
    let resolved = resolve("--config /k.yaml", &files).expect("valid");
    assert_eq!(resolved.not_yet, [""; 0]);
    assert!(
        resolved.gates.enabled("TopologyAwareWorkloadScheduling") && !resolved.gates.enabled("SELinuxMount")
    );
    let warned: Vec<&str> = resolved.warnings.iter().filter_map(|text| text.split(' ').nth(4)).collect();
    assert_eq!(
        warned,
        ["InPlacePodVerticalScaling=true.", "WindowsHostNetwork=false."],
        "{:?}",
        resolved.warnings
    );
}

#[test]
fn gates_without_effect_are_reported_when_they_differ_from_their_default() {
    let not_yet = |gates: &str| {
        resolve(&format!("--feature-gates={gates}"), &Memory::default()).expect("valid").not_yet
    };
    assert_eq!(
        not_yet("DRAPrioritizedList=false,DRAExtendedResource=false"),
        ["featureGates.DRAExtendedResource", "featureGates.DRAPrioritizedList"],
        "always on"
    );
    assert_eq!(not_yet("DRAExtendedResource=true,CSIVolumeHealth=true"), [""; 0]);
    // The Go kubelet does not look at them, or it works here.
    let of_others = "DRADeviceTaints=false,DRAPartitionableDevices=false,DRAResourceClaimDeviceStatus=false,\
                     DRADeviceBindingConditions=false,DRAResourceClaimGranularStatusAuthorization=false,\
                     DRANodeAllocatableResources=true,GenericWorkload=true,DRAWorkloadResourceClaims=true,\
                     WatchListClient=false";
    assert_eq!(not_yet(of_others), [""; 0]);
    assert_eq!(not_yet("HostnameOverride=false,HPAScaleToZero=true"), [""; 0], "works; is none of ours");
}

#[test]
fn api_of_a_single_node_decides_who_may_use_its_kubelet() {
    let alone = "authentication: {webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n";
    let files = Memory::default().with("/k.yaml", alone);
    let access = |line: &str| {
        let kubelet = resolve(line, &files).expect("valid").kubelet;
        let authority = kubelet.authentication.x509.client_ca_file;
        (authority, kubelet.authentication.webhook.enabled, kubelet.authorization.mode)
    };
    let own = "/var/lib/kubelet/single-node/ca.crt".to_owned();
    assert_eq!(access("--config /k.yaml --single-node"), (own, true, "Webhook".to_owned()));
    let off = "--config /k.yaml --single-node --single-node=false";
    assert_eq!(access(off), (String::new(), false, "AlwaysAllow".to_owned()));
}
