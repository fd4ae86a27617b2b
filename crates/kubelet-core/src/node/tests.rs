//! Facts in, a Node out. The facts are those of one small machine; each case changes what it tests.

use resources_core::quantities::Quantities;
use std::time::Duration;

use api_core::strategic_patch::compute_strategic_patch;
use expect_test::{Expect, expect};
use model::MonoTime;
use model::k8s::Node;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

mod upstream;

struct Case {
    config: KubeletConfiguration,
    flags: NodeFlags,
    machine: NodeMachine,
    resolved: Vec<IpAddr>,
    route: Option<IpAddr>,
    interfaces: Vec<IpAddr>,
    hostname: String,
    devices: BTreeMap<String, DeviceAmounts>,
    images: Vec<NodeImage>,
    pressure: NodePressure,
    problems: Vec<String>,
    volumes_in_use: BTreeSet<String>,
    knows_volumes_in_use: bool,
    second: i64,
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

impl Case {
    fn new() -> Self {
        let machine = NodeMachine {
            cpus: 4,
            memory_bytes: 8 << 30,
            ephemeral_storage_bytes: Some(100 << 30),
            architecture: "amd64".into(),
            boot_id: "boot-1".into(),
            ..NodeMachine::default()
        };
        Self {
            config: KubeletConfiguration::default(),
            flags: NodeFlags::default(),
            machine,
            resolved: Vec::new(),
            route: Some(ip("192.168.0.7")),
            interfaces: vec![ip("192.168.0.7"), ip("192.168.0.8"), ip("fd00::7")],
            hostname: "n1".into(),
            devices: BTreeMap::new(),
            images: Vec::new(),
            pressure: NodePressure::default(),
            problems: Vec::new(),
            volumes_in_use: BTreeSet::new(),
            knows_volumes_in_use: true,
            second: 1000,
        }
    }

    fn with<T>(self, then: impl FnOnce(&NodeInputs<'_>) -> T) -> T {
        then(&NodeInputs {
            name: "n1",
            hostname: &self.hostname,
            config: &self.config,
            flags: &self.flags,
            machine: &self.machine,
            resolved_ips: &self.resolved,
            default_route_ip: self.route,
            interface_ips: &self.interfaces,
            runtime_version: "containerd://1.6.20",
            images: &self.images,
            runtime_handlers: &[],
            supplemental_groups_policy: Some(true),
            declared_features: &["Z".to_owned(), "A".to_owned()],
            devices: &self.devices,
            volumes_in_use: &self.volumes_in_use,
            knows_volumes_in_use: self.knows_volumes_in_use,
            pressure: self.pressure,
            problems: &self.problems,
            now: Timestamp::from_second(self.second).unwrap(),
        })
    }

    fn initial(self) -> Node {
        self.with(compute_initial_node).node
    }

    fn over(self, existing: &Node) -> NodeOutcome {
        self.with(|inputs| compute_node_status(existing, inputs, false))
    }
}

fn case(change: impl FnOnce(&mut Case)) -> Case {
    let mut case = Case::new();
    change(&mut case);
    case
}

fn node(value: &Value) -> Node {
    serde_json::from_value(value.clone()).unwrap()
}

fn event_reasons(outcome: &NodeOutcome) -> Vec<&'static str> {
    outcome.events.iter().map(|event| event.reason).collect()
}

#[test]
fn node_for_admission_has_labels_taints_and_resources_of_the_initial_node() {
    let case = case(|case| {
        case.flags.node_labels = [("rack".to_owned(), "r7".to_owned())].into();
        case.flags.cloud_provider = "external".to_owned();
        case.config.register_with_taints =
            vec![config::Taint { key: "tier".into(), effect: "NoExecute".into(), ..Default::default() }];
    });
    let settings = NodeSettings {
        name: "n1",
        hostname: &case.hostname,
        config: &case.config,
        flags: &case.flags,
        machine: &case.machine,
    };
    let own = compute_node_for_admission(&settings);
    let shown = json!({"labels": own.metadata.labels, "taints": own.spec.as_ref().unwrap().taints});
    expect![[r#"
        {
          "labels": {
            "beta.kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": "n1",
            "kubernetes.io/os": "linux",
            "rack": "r7"
          },
          "taints": [
            {
              "effect": "NoExecute",
              "key": "tier"
            },
            {
              "effect": "NoSchedule",
              "key": "node.cloudprovider.kubernetes.io/uninitialized",
              "value": "true"
            }
          ]
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&shown).unwrap());
    let initial = case.initial();
    assert_eq!((&own.metadata, &own.spec), (&initial.metadata, &initial.spec));
    let allocatable = |node: Node| node.status.unwrap().allocatable.unwrap();
    assert_eq!(allocatable(own), allocatable(initial));
}

#[test]
fn initial_node_has_labels_capacity_conditions_and_system_info() {
    let node = Case::new().initial();
    let expected = expect![[r#"
        {
          "apiVersion": "v1",
          "kind": "Node",
          "metadata": {
            "annotations": {
              "volumes.kubernetes.io/controller-managed-attach-detach": "true"
            },
            "labels": {
              "beta.kubernetes.io/arch": "amd64",
              "beta.kubernetes.io/os": "linux",
              "kubernetes.io/arch": "amd64",
              "kubernetes.io/hostname": "n1",
              "kubernetes.io/os": "linux"
            },
            "name": "n1"
          },
          "spec": {}
        }"#]];
    let without_status = Node { status: None, ..node.clone() };
    expected.assert_eq(&serde_json::to_string_pretty(&without_status).unwrap());
    let status = node.status.unwrap();
    let shown = json!({
        "addresses": status.addresses, "features": status.features, "declared": status.declared_features,
        "port": status.daemon_endpoints, "kubelet": status.node_info.map(|i| i.kubelet_version),
    });
    expect![[r#"{"addresses":[{"address":"192.168.0.7","type":"InternalIP"},{"address":"n1","type":"Hostname"}],"declared":["A","Z"],"features":{"supplementalGroupsPolicy":true},"kubelet":"v1.36.2","port":{"kubeletEndpoint":{"Port":10250}}}"#]]
        .assert_eq(&shown.to_string());
}

#[test]
fn labels_taints_and_provider_are_those_of_the_flags() {
    let node = case(|c| {
        c.flags.node_labels = BTreeMap::from([("example.com/rack".into(), "7".into())]);
        c.flags.cloud_provider = "external".into();
        c.config.provider_id = "cloud://7".into();
        c.config.enable_controller_attach_detach = false;
        c.config.register_with_taints = serde_json::from_value(json!([
            {"key": "a", "value": "b", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"},
            {"key": "a", "effect": "NoExecute"}
        ]))
        .unwrap();
    })
    .initial();
    assert_eq!(node.metadata.labels.as_ref().unwrap()["example.com/rack"], "7");
    assert_eq!(node.metadata.annotations, None);
    expect![[r#"{"providerID":"cloud://7","taints":[{"effect":"NoSchedule","key":"a","value":"b"},{"effect":"NoExecute","key":"a"},{"effect":"NoSchedule","key":"node.cloudprovider.kubernetes.io/uninitialized","value":"true"}]}"#]]
        .assert_eq(&json!(node.spec).to_string());
}

#[track_caller]
fn check_addresses(change: impl FnOnce(&mut Case), existing: &[&str], expected: &str) {
    let existing: Vec<_> = existing
        .iter()
        .map(|ip| model::k8s::NodeAddress { type_: "ExternalIP".into(), address: (*ip).into() })
        .collect();
    let found = case(change).with(|inputs| compute_addresses(inputs, &existing));
    let shown = match found {
        Ok(found) => {
            let list = found.addresses.iter().map(|a| format!("{}={}", a.type_, a.address));
            list.chain(found.provided_ip.map(|ip| format!("({ip})"))).collect::<Vec<_>>().join(" ")
        }
        Err(error) => error.to_string(),
    };
    assert_eq!(shown, expected);
}

#[test]
fn node_address_is_the_flag_the_name_its_resolution_or_the_default_route() {
    check_addresses(|_| {}, &["1.2.3.4"], "InternalIP=192.168.0.7 Hostname=n1");
    check_addresses(|c| c.flags.node_ip = "192.168.0.8".into(), &[], "InternalIP=192.168.0.8 Hostname=n1");
    check_addresses(
        |c| c.flags.node_ip = "192.168.0.8,fd00::7".into(),
        &[],
        "InternalIP=192.168.0.8 InternalIP=fd00::7 Hostname=n1",
    );
    check_addresses(|c| c.hostname = "10.1.1.1".into(), &[], "InternalIP=10.1.1.1 Hostname=10.1.1.1");
    let resolved = || vec![ip("127.0.1.1"), ip("fd00::7"), ip("192.168.0.8")];
    check_addresses(|c| c.resolved = resolved(), &[], "InternalIP=192.168.0.8 Hostname=n1");
    check_addresses(
        |c| {
            c.resolved = resolved();
            c.flags.node_ip = "::".into();
        },
        &[],
        "InternalIP=fd00::7 Hostname=n1",
    );
    check_addresses(
        |c| c.route = None,
        &[],
        "can't get ip address of node n1: set --node-ip, make the name resolvable, or add a default route",
    );
}

/// The tables of `setters_test.go` (TestNodeAddress, TestNodeAddress_NoCloudProvider): node IPs, annotation before,
/// addresses and annotation after.
#[test]
fn node_address_table_of_the_go_kubelet() {
    const PROVIDED: &str = "alpha.kubernetes.io/provided-node-ip";
    let v4 = "InternalIP=192.168.0.7 Hostname=n1";
    let v6 = "InternalIP=2001:db2::2 Hostname=n1";
    let table = [
        (true, "10.0.0.1", "192.168.0.7", "", "InternalIP=10.0.0.1 Hostname=n1", "10.0.0.1"),
        (false, "0.0.0.0", "192.168.0.7", "", v4, ""),
        (false, "::", "2001:db2::2", "", v6, ""),
        (true, "0.0.0.0", "192.168.0.7", "", v4, ""),
        (true, "::", "2001:db2::2", "", v6, ""),
        (false, "", "192.168.0.7", "", v4, ""),
        (false, "", "2001:db2::2", "", v6, ""),
        (true, "", "192.168.0.7", "", "Hostname=n1", ""),
        (true, "", "2001:db2::2", "", "Hostname=n1", ""),
        (false, "10.1.1.1", "192.168.0.7", "", "InternalIP=10.1.1.1 Hostname=n1", ""),
        (false, "10.1.1.1", "192.168.0.7", "10.1.1.3", "InternalIP=10.1.1.1 Hostname=n1", ""),
        (true, "10.1.1.1", "192.168.0.7", "10.1.1.3", "InternalIP=10.1.1.1 Hostname=n1", "10.1.1.1"),
        (true, "0.0.0.0", "192.168.0.7", "10.1.1.3", v4, ""),
        (
            true,
            "2600:1f14:1d4:d101::ba3d,10.1.1.2",
            "192.168.0.7",
            "",
            "InternalIP=2600:1f14:1d4:d101::ba3d InternalIP=10.1.1.2 Hostname=n1",
            "2600:1f14:1d4:d101::ba3d,10.1.1.2",
        ),
        (
            true,
            "10.1.1.1,2600:1f14:1d4:d101::ba3d",
            "192.168.0.7",
            "10.1.1.1",
            "InternalIP=10.1.1.1 InternalIP=2600:1f14:1d4:d101::ba3d Hostname=n1",
            "10.1.1.1,2600:1f14:1d4:d101::ba3d",
        ),
        (
            true,
            "10.1.1.1",
            "192.168.0.7",
            "10.1.1.1,2600:1f14:1d4:d101::ba3d",
            "InternalIP=10.1.1.1 Hostname=n1",
            "10.1.1.1",
        ),
    ];
    for (is_external, node_ip, route, before, addresses, after) in table {
        let annotations = if before.is_empty() { json!({}) } else { json!({PROVIDED: before}) };
        let existing = node(&json!({"metadata": {"name": "n1", "annotations": annotations}}));
        let outcome = case(|c| {
            if is_external {
                c.flags.cloud_provider = "external".into();
            }
            c.flags.node_ip = node_ip.into();
            c.route = Some(ip(route));
            let given = node_ip.split(',').filter(|ip| !ip.is_empty()).map(ip);
            c.interfaces = given.collect();
        })
        .over(&existing);
        assert_eq!(outcome.address_error, None, "{node_ip}");
        let found = outcome.node.status.unwrap().addresses.unwrap_or_default();
        let found: Vec<_> = found.iter().map(|a| format!("{}={}", a.type_, a.address)).collect();
        assert_eq!(found.join(" "), addresses, "{is_external} {node_ip}");
        let annotations = outcome.node.metadata.annotations.unwrap_or_default();
        assert_eq!(annotations.get(PROVIDED).map_or("", String::as_str), after, "{is_external} {node_ip}");
    }
}

/// `kubelet_node_status.go`, updateNode: after registration, too.
#[test]
fn wrong_os_and_arch_labels_are_corrected() {
    let labels = json!({"kubernetes.io/os": "windows", "kubernetes.io/arch": "arm64", "mine": "1"});
    let found = Case::new().over(&node(&json!({"metadata": {"name": "n1", "labels": labels}})));
    let expected = json!({"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "mine": "1"});
    assert_eq!(json!(found.node.metadata.labels), expected);
}

/// The Node of the recordings: a share of a disk is computed in single precision.
#[test]
fn allocatable_ephemeral_storage_of_the_recording() {
    let found = case(|c| {
        c.machine.ephemeral_storage_bytes = Some(264_212_084 << 10);
        c.machine.memory_bytes = 24_684_096 << 10;
        c.config.eviction_hard = BTreeMap::from([
            ("nodefs.available".to_owned(), "2%".to_owned()),
            ("memory.available".to_owned(), "100Mi".to_owned()),
        ]);
    })
    .initial();
    let allocatable = found.status.unwrap().allocatable.unwrap();
    assert_eq!(allocatable["ephemeral-storage"].0, "265142110657");
    assert_eq!(allocatable["memory"].0, "24581696Ki");
}

#[test]
fn invalid_node_ip_is_rejected() {
    for (given, expected) in [
        ("127.0.0.1", "failed to validate nodeIP: nodeIP can't be loopback address"),
        ("224.0.0.1", "failed to validate nodeIP: nodeIP can't be a multicast address"),
        ("169.254.1.1", "failed to validate nodeIP: nodeIP can't be a link-local unicast address"),
        ("fe80::1", "failed to validate nodeIP: nodeIP can't be a link-local unicast address"),
        (
            "10.9.9.9",
            "failed to validate nodeIP: node IP: \"10.9.9.9\" not found in the host's network interfaces",
        ),
    ] {
        check_addresses(|c| c.flags.node_ip = given.into(), &[], expected);
    }
    let kept = case(|c| c.flags.node_ip = "10.9.9.9".into())
        .over(&node(&json!({"status": {"addresses": [{"type": "InternalIP", "address": "1.1.1.1"}]}})));
    assert!(kept.address_error.is_some());
    assert_eq!(kept.node.status.unwrap().addresses.unwrap()[0].address, "1.1.1.1");
}

#[test]
fn external_cloud_provider_decides_the_addresses() {
    let external = |c: &mut Case| c.flags.cloud_provider = "external".into();
    check_addresses(external, &[], "Hostname=n1");
    check_addresses(external, &["1.2.3.4"], "ExternalIP=1.2.3.4");
    let given = |c: &mut Case| {
        external(c);
        c.flags.node_ip = "192.168.0.8".into();
    };
    check_addresses(given, &[], "InternalIP=192.168.0.8 Hostname=n1 (192.168.0.8)");
    check_addresses(given, &["1.2.3.4"], "ExternalIP=1.2.3.4 (192.168.0.8)");
}

#[track_caller]
fn check_resources(change: impl FnOnce(&mut Case), existing: &Value, expected: &Expect) {
    let status = case(change).over(&node(&json!({"status": {"capacity": existing}}))).node.status.unwrap();
    let (capacity, mut allocatable) = (status.capacity.unwrap(), status.allocatable.unwrap());
    let lines: Vec<_> = capacity
        .iter()
        .map(|(name, all)| format!("{name} {} of {}", allocatable.remove(name).unwrap_or_default().0, all.0))
        .collect();
    assert_eq!(allocatable, BTreeMap::new());
    expected.assert_eq(&lines.join(", "));
}

#[test]
fn allocatable_is_capacity_less_reserved_and_hard_eviction_thresholds() {
    check_resources(
        |_| {},
        &json!({}),
        &expect!["cpu 4 of 4, ephemeral-storage 100Gi of 100Gi, memory 8Gi of 8Gi, pods 110 of 110"],
    );
    check_resources(
        |c| {
            c.config.kube_reserved =
                BTreeMap::from([("cpu".into(), "100m".into()), ("memory".into(), "1Gi".into())]);
            c.config.system_reserved = BTreeMap::from([("cpu".into(), "150m".into())]);
            c.config.eviction_hard = BTreeMap::from([
                ("memory.available".into(), "100Mi".into()),
                ("nodefs.available".into(), "10%".into()),
                ("nodefs.inodesFree".into(), "5%".into()),
            ]);
        },
        &json!({}),
        &expect![
            "cpu 3750m of 4, ephemeral-storage 96636764000 of 100Gi, memory 7068Mi of 8Gi, pods 110 of 110"
        ],
    );
    check_resources(
        |c| {
            c.config.reserved_system_cpus = "0,2-3".into();
            c.config.kube_reserved =
                BTreeMap::from([("cpu".into(), "3900m".into()), ("memory".into(), "9Gi".into())]);
            c.config.pods_per_core = 10;
            c.config.local_storage_capacity_isolation = false;
            c.machine.hugepages = BTreeMap::from([("2Mi".into(), 64 << 20)]);
        },
        &json!({}),
        &expect!["cpu 1 of 4, hugepages-2Mi 64Mi of 64Mi, memory 0 of 8Gi, pods 40 of 40"],
    );
}

#[test]
fn huge_pages_are_memory_that_pods_cannot_use_otherwise() {
    check_resources(
        |c| c.machine.hugepages = BTreeMap::from([("1Gi".into(), 2 << 30)]),
        &json!({"hugepages-2Mi": "1Gi"}),
        &expect![
            "cpu 4 of 4, ephemeral-storage 100Gi of 100Gi, hugepages-1Gi 2Gi of 2Gi, memory 6Gi of 8Gi, pods 110 of 110"
        ],
    );
}

#[test]
fn devices_are_capacity_and_extended_resources_of_other_clients_stay() {
    check_resources(
        |c| {
            let amounts = DeviceAmounts { capacity: 4, allocatable: 3 };
            c.devices = BTreeMap::from([("vendor.com/gpu".into(), amounts)]);
            c.devices.insert("vendor.com/gone".into(), DeviceAmounts::default());
        },
        &json!({"vendor.com/gone": "2", "example.com/licence": "5"}),
        &expect![
            "cpu 4 of 4, ephemeral-storage 100Gi of 100Gi, example.com/licence 5 of 5, memory 8Gi of 8Gi, pods 110 of 110, vendor.com/gone 0 of 0, vendor.com/gpu 3 of 4"
        ],
    );
}

#[test]
fn largest_images_come_first_with_digests_before_tags() {
    let image = |digests: &[&str], tags: &[&str], size_bytes| {
        let list = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        NodeImage { repo_digests: list(digests), repo_tags: list(tags), size_bytes }
    };
    let images = [
        image(&[], &["small:1"], 1),
        image(&["big@1", "big@2"], &["big:1", "big:2", "big:3", "big:4"], 9),
        image(&["b@1"], &[], 5),
        image(&["a@1"], &[], 5),
    ];
    let shown = |max| {
        let list = compute_images(&images, max);
        list.iter().map(|i| i.names.clone().unwrap_or_default().join("+")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(shown(-1), "big@1+big@2+big:1+big:2+big:3 a@1 b@1 small:1");
    assert_eq!(shown(2), "big@1+big@2+big:1+big:2+big:3 a@1");
    assert_eq!(shown(0), "");
}

fn conditions(node: &Node) -> String {
    let shown = node.status.iter().flat_map(|s| s.conditions.iter().flatten()).map(|c| {
        let second = |t: &Option<model::k8s::Time>| t.as_ref().map_or(-1, |t| t.0.as_second());
        let (beat, turn) = (second(&c.last_heartbeat_time), second(&c.last_transition_time));
        format!("{}={} {} {beat}/{turn}", c.type_, c.status, c.reason.as_deref().unwrap_or_default())
    });
    shown.collect::<Vec<_>>().join("\n")
}

#[test]
fn conditions_keep_their_transition_time_until_they_change() {
    let first = Case::new().with(compute_initial_node);
    expect![[r#"
        MemoryPressure=False KubeletHasSufficientMemory 1000/1000
        DiskPressure=False KubeletHasNoDiskPressure 1000/1000
        PIDPressure=False KubeletHasSufficientPID 1000/1000
        Ready=True KubeletReady 1000/1000"#]]
    .assert_eq(&conditions(&first.node));
    assert_eq!(
        event_reasons(&first),
        ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"]
    );
    let second = case(|c| {
        c.second = 1010;
        c.pressure.disk = true;
        c.problems = vec!["PLEG is not healthy".into(), "node is shutting down".into()];
    })
    .over(&first.node);
    expect![[r#"
        MemoryPressure=False KubeletHasSufficientMemory 1010/1000
        DiskPressure=True KubeletHasDiskPressure 1010/1010
        PIDPressure=False KubeletHasSufficientPID 1010/1000
        Ready=False KubeletNotReady 1010/1010"#]]
    .assert_eq(&conditions(&second.node));
    assert_eq!(event_reasons(&second), ["NodeHasDiskPressure", "NodeNotReady"]);
    assert_eq!(second.events[1].message, "Node n1 status is now: NodeNotReady");
    let message = second.node.status.as_ref().unwrap().conditions.as_ref().unwrap()[3].message.clone();
    assert_eq!(message.as_deref(), Some("[PLEG is not healthy, node is shutting down]"));
    let third = case(|c| c.second = 1020).over(&second.node);
    assert_eq!(event_reasons(&third), ["NodeHasNoDiskPressure", "NodeReady"]);
}

#[test]
fn conditions_of_other_clients_stay() {
    let existing = node(&json!({"status": {"conditions": [
        {"type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated"}]}}));
    let outcome = Case::new().over(&existing);
    assert!(
        conditions(&outcome.node).starts_with("NetworkUnavailable=False RouteCreated -1/-1\nMemoryPressure")
    );
}

#[test]
fn node_without_a_native_resource_is_not_ready() {
    let outcome = case(|c| c.machine.ephemeral_storage_bytes = None).with(compute_initial_node);
    let conditions = outcome.node.status.unwrap().conditions.unwrap();
    assert_eq!(
        conditions[3].message.as_deref(),
        Some("missing node capacity for resources: ephemeral-storage")
    );
}

#[test]
fn reboot_and_cordon_events_are_emitted_once() {
    let mut first = Case::new().initial();
    let rebooted = case(|c| c.machine.boot_id = "boot-2".into()).over(&first);
    assert_eq!(rebooted.events[0].message, "Node n1 has been rebooted, boot id: boot-2");
    assert!(rebooted.events[0].is_warning);
    assert_eq!(
        event_reasons(&case(|c| c.machine.boot_id = "boot-2".into()).over(&rebooted.node)),
        <[&str; 0]>::default()
    );
    first.spec.get_or_insert_default().unschedulable = Some(true);
    assert_eq!(event_reasons(&Case::new().over(&first)), ["NodeNotSchedulable"]);
    assert!(Case::new().with(|inputs| compute_node_status(&first, inputs, true)).events.is_empty());
}

#[track_caller]
fn check_reconciled(existing: &Value, resets: bool, expected: &Expect) {
    let initial = case(|c| {
        c.flags.node_labels = BTreeMap::from([("example.com/own".into(), "new".into())]);
        c.config.register_with_taints =
            serde_json::from_value(json!([{"key": "a", "effect": "NoSchedule"}])).unwrap();
    })
    .initial();
    let mut full = json!(Case::new().initial());
    merge(&mut full, existing);
    let patch = compute_reconciliation(&initial, &node(&full), resets);
    expected.assert_eq(&patch.unwrap_or_default().to_string());
}

fn merge(target: &mut Value, with: &Value) {
    match (target, with) {
        (Value::Object(target), Value::Object(with)) => {
            for (key, value) in with {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (target, with) => *target = with.clone(),
    }
}

#[test]
fn existing_node_is_reconciled_without_overwriting_other_clients() {
    check_reconciled(&json!({}), false, &expect!["null"]);
    check_reconciled(
        &json!({"metadata": {"labels": {"example.com/own": "old", "example.com/user": "u"}, "annotations": {"x": "y"}},
                "spec": {"taints": [{"key": "user", "effect": "NoExecute"}], "unschedulable": true}}),
        false,
        &expect!["null"],
    );
    check_reconciled(
        &json!({"metadata": {"labels": {"kubernetes.io/hostname": "other", "kubernetes.io/os": "plan9"},
                             "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "false"}}}),
        false,
        &expect![[
            r#"{"metadata":{"annotations":{"volumes.kubernetes.io/controller-managed-attach-detach":"true"},"labels":{"kubernetes.io/hostname":"n1","kubernetes.io/os":"linux"}}}"#
        ]],
    );
}

#[test]
fn extended_resources_are_reset_until_device_plugins_register_again() {
    let existing = json!({"status": {
        "capacity": {"vendor.com/gpu": "4", "hugepages-2Mi": "1Gi"},
        "allocatable": {"vendor.com/gpu": "3", "hugepages-2Mi": "1Gi"}}});
    check_reconciled(
        &existing,
        true,
        &expect![[
            r#"{"status":{"allocatable":{"hugepages-2Mi":null,"vendor.com/gpu":"0"},"capacity":{"hugepages-2Mi":null,"vendor.com/gpu":"0"}}}"#
        ]],
    );
    check_reconciled(
        &existing,
        false,
        &expect![[r#"{"status":{"allocatable":{"hugepages-2Mi":null},"capacity":{"hugepages-2Mi":null}}}"#]],
    );
}

#[test]
fn empty_values_of_the_api_server_are_no_change_of_the_node() {
    let first = Case::new().initial();
    let mut in_api = json!(first);
    in_api["status"]["config"] = json!({});
    in_api["status"]["volumesAttached"] = json!([]);
    in_api["status"]["phase"] = Value::Null;
    in_api["status"]["allocatable"]["cpu"] = json!("4000m");
    if in_api["metadata"]["annotations"].is_null() {
        in_api["metadata"]["annotations"] = json!({});
    }
    let in_api: Node = serde_json::from_value(in_api).unwrap();
    assert!(!status_differs(&in_api, &first));
    assert_eq!(compute_node_patch(&in_api, &first), None);
}

#[test]
fn a_heartbeat_alone_is_no_change_but_is_sent_with_the_next_report() {
    let first = Case::new().initial();
    let later = case(|c| c.second = 1010).over(&first).node;
    assert!(!status_differs(&first, &later));
    let patch = compute_node_patch(&first, &later).unwrap();
    assert_eq!(patch["status"]["conditions"].as_array().unwrap().len(), 4);
    assert_eq!(
        patch["status"]["conditions"][3],
        json!({"type": "Ready", "lastHeartbeatTime": "1970-01-01T00:16:50Z"})
    );
    let moved = case(|c| c.flags.node_ip = "192.168.0.8".into()).over(&first).node;
    assert!(status_differs(&first, &moved));
    expect![[r#"{"status":{"addresses":[{"address":"192.168.0.8","type":"InternalIP"},{"address":"n1","type":"Hostname"},{"$patch":"replace"}]}}"#]]
        .assert_eq(&compute_node_patch(&first, &moved).unwrap().to_string());
}

#[test]
fn unchanged_node_status_is_sent_at_the_report_frequency() {
    let minutes = |n: u64| MonoTime::from_start(Duration::from_secs(60 * n));
    let frequency = Duration::from_secs(300);
    let mut reports = StatusReports::default();
    assert_eq!(compute_status_report(&reports, false, minutes(0)), StatusReport::Send);
    for (has_changed, random, due) in [(false, 0.9, 10), (true, 0.1, 8), (true, 0.7, 11)] {
        reports.record_sent(has_changed, frequency, random, minutes(5));
        assert_eq!(
            compute_status_report(&reports, false, minutes(5)),
            StatusReport::Wait { until: minutes(due) }
        );
        assert_eq!(compute_status_report(&reports, false, minutes(due)), StatusReport::Send);
        assert_eq!(compute_status_report(&reports, true, minutes(6)), StatusReport::Send);
    }
}

#[test]
fn pod_cidrs_are_sent_to_the_runtime_when_they_change() {
    let node = node(&json!({"spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24", "fd00::/64"]}}));
    assert_eq!(compute_pod_cidr_update(&node, "").as_deref(), Some("10.0.0.0/24,fd00::/64"));
    assert_eq!(compute_pod_cidr_update(&node, "10.0.0.0/24,fd00::/64"), None);
    assert_eq!(compute_pod_cidr_update(&Node::default(), "10.0.0.0/24"), None);
}

fn any_existing() -> impl Strategy<Value = Value> {
    let text = || prop::sample::select(vec!["1", "2", "n1"]);
    let labels = prop::sample::subsequence(
        vec!["kubernetes.io/hostname", "kubernetes.io/os", "beta.kubernetes.io/arch", "user/a", "user/b"],
        0..=5,
    );
    let resources = prop::sample::subsequence(vec!["cpu", "hugepages-2Mi", "vendor.com/gpu", "pods"], 0..=4);
    (labels, resources, text()).prop_map(|(labels, resources, value)| {
        let map = |names: &[&str]| {
            names.iter().map(|n| ((*n).to_owned(), json!(value))).collect::<serde_json::Map<_, _>>()
        };
        json!({"metadata": {"name": "n1", "labels": map(&labels)},
               "status": {"capacity": map(&resources), "allocatable": map(&resources)},
               "spec": {"unschedulable": true}})
    })
}

proptest! {
    #[test]
    fn registration_changes_neither_the_spec_nor_labels_of_other_clients(existing in any_existing(), resets: bool) {
        let patch = compute_reconciliation(&Case::new().initial(), &node(&existing), resets).unwrap_or_default();
        prop_assert!(patch.get("spec").is_none());
        let labels = patch["metadata"].get("labels").cloned().unwrap_or_default();
        prop_assert!(labels.as_object().into_iter().flatten().all(|(name, v)| !name.starts_with("user") && !v.is_null()));
    }

    #[test]
    fn the_status_of_the_same_facts_is_the_same(existing in any_existing(), memory: bool, ready: bool) {
        let facts = || case(|c| {
            c.pressure.memory = memory;
            c.problems = if ready { Vec::new() } else { vec!["no".into()] };
        });
        let first = facts().over(&node(&existing)).node;
        let again = facts().over(&first);
        prop_assert_eq!(compute_strategic_patch(&json!(first), &json!(again.node), &[]), None);
        prop_assert_eq!(again.events.iter().filter(|e| e.reason != "NodeNotSchedulable").count(), 0);
    }

    #[test]
    fn allocatable_is_between_zero_and_capacity(memory in 0..1_u64 << 40, reserved in 0..1_u64 << 41, huge in 0..1_u64 << 40) {
        let status = case(|c| {
            c.machine.memory_bytes = memory;
            c.machine.hugepages = BTreeMap::from([("2Mi".into(), huge)]);
            c.config.system_reserved = BTreeMap::from([("memory".into(), reserved.to_string())]);
        }).initial().status.unwrap();
        let amount = |list: &Option<Quantities>| model::Amount::of(&list.as_ref().unwrap()["memory"]).unwrap();
        prop_assert!(amount(&status.allocatable) <= amount(&status.capacity));
        prop_assert!(amount(&status.allocatable) >= model::Amount::ZERO);
    }
}

/// `setters_test.go` (TestVolumesInUse), and the union until the volumes of the last run are known.
#[test]
fn volumes_in_use_are_sorted_and_kept_until_this_kubelet_knows_them() {
    let existing = node(&json!({"status": {
        "volumesInUse": ["kubernetes.io/csi/d^old"],
        "volumesAttached": [{"name": "kubernetes.io/csi/d^old", "devicePath": ""}],
    }}));
    let in_use = |names: &[&str], is_known: bool| {
        let outcome = case(|case| {
            case.volumes_in_use = names.iter().map(|name| format!("kubernetes.io/csi/d^{name}")).collect();
            case.knows_volumes_in_use = is_known;
        })
        .over(&existing);
        let patch = compute_node_patch(&existing, &outcome.node).unwrap();
        assert_eq!(patch["status"].get("volumesAttached"), None, "the controller owns it");
        let names = outcome.node.status.unwrap().volumes_in_use.unwrap_or_default();
        names.iter().map(|name| name.rsplit('^').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(in_use(&["b", "a"], true), ["a", "b"]);
    assert_eq!(in_use(&["b", "a"], false), ["a", "b", "old"]);
    assert_eq!(in_use(&[], false), ["old"]);
    assert_eq!(in_use(&[], true), [""; 0]);
}

#[test]
fn annotation_and_labels_of_csi_drivers_survive_registration_and_status() {
    let existing = node(&json!({"metadata": {
        "annotations": {"csi.volume.kubernetes.io/nodeid": "{\"d.example\":\"id\"}"},
        "labels": {"topology.d.example/zone": "z1", "topology.kubernetes.io/zone": "z1"},
    }}));
    let kept = |patch: Option<Value>| {
        let metadata = patch.map(|patch| patch["metadata"].clone()).unwrap_or_default();
        assert_eq!(metadata["annotations"].get("csi.volume.kubernetes.io/nodeid"), None, "{metadata}");
        for label in ["topology.d.example/zone", "topology.kubernetes.io/zone"] {
            assert_eq!(metadata["labels"].get(label), None, "{metadata}");
        }
    };
    kept(compute_reconciliation(&Case::new().initial(), &existing, true));
    kept(compute_node_patch(&existing, &Case::new().over(&existing).node));
}
