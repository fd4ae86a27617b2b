//! Effects of a security context on the container's process, read from the process itself.

use serde_json::{Value, json};

use crate::node::{FOREVER, Node, once_pod, shell, shell_pod};

/// The `/proc` status of the container's first process.
const STATUS: &str = "grep -E '^(CapEff|Seccomp|NoNewPrivs|Groups):' /proc/self/status";

/// A pod with a container security context that prints its `/proc/self/status`.
fn status_pod(name: &str, context: Value) -> Value {
    let mut pod = once_pod(name, STATUS);
    pod["spec"]["containers"][0]["securityContext"] = context;
    pod
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
        .unwrap_or_default()
}

fn capabilities(status: &str) -> u64 {
    u64::from_str_radix(field(status, "CapEff"), 16).expect("a mask of capabilities")
}

const NET_ADMIN: u64 = 1 << 12;
const SYS_ADMIN: u64 = 1 << 21;
const CHOWN: u64 = 1;

#[test]
fn security_context_sets_capabilities_seccomp_and_privileges() {
    let node = Node::start();
    let contexts = [
        ("plain", json!({})),
        ("none", json!({"capabilities": {"drop": ["ALL"]}})),
        ("added", json!({"capabilities": {"add": ["NET_ADMIN"], "drop": ["CHOWN"]}})),
        ("one", json!({"capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]}})),
        ("locked", json!({"allowPrivilegeEscalation": false})),
        ("filtered", json!({"seccompProfile": {"type": "RuntimeDefault"}})),
        ("unfiltered", json!({"seccompProfile": {"type": "Unconfined"}})),
        ("mighty", json!({"privileged": true})),
    ];
    for (name, context) in &contexts {
        node.apply(name, &status_pod(name, context.clone()));
    }
    let [plain, none, added, one, locked, filtered, unfiltered, mighty] =
        contexts.each_ref().map(|(name, _)| node.output(name));
    assert_ne!(capabilities(&plain) & CHOWN, 0, "{plain}");
    assert_eq!(capabilities(&plain) & (NET_ADMIN | SYS_ADMIN), 0, "{plain}");
    assert_eq!(capabilities(&none), 0);
    assert_eq!(capabilities(&added), (capabilities(&plain) | NET_ADMIN) & !CHOWN);
    assert_eq!(capabilities(&one), NET_ADMIN);
    assert_ne!(capabilities(&mighty) & SYS_ADMIN, 0, "{mighty}");
    assert_eq!((field(&plain, "NoNewPrivs"), field(&locked, "NoNewPrivs")), ("0", "1"));
    assert_eq!((field(&filtered, "Seccomp"), field(&unfiltered, "Seccomp")), ("2", "0"));
    assert_eq!((field(&plain, "Seccomp"), field(&mighty, "Seccomp")), ("0", "0"));
}

#[test]
fn seccomp_default_applies_to_containers_without_a_profile() {
    let node = Node::start_with(json!({"seccompDefault": true}));
    node.apply("plain", &status_pod("plain", json!({})));
    node.apply("free", &status_pod("free", json!({"seccompProfile": {"type": "Unconfined"}})));
    let mut of_pod = status_pod("of-pod", json!({}));
    of_pod["spec"]["securityContext"] = json!({"seccompProfile": {"type": "Unconfined"}});
    node.apply("of-pod", &of_pod);
    let seccomp = ["plain", "free", "of-pod"].map(|name| field(&node.output(name), "Seccomp").to_owned());
    assert_eq!(seccomp, ["2", "0", "0"]);
}

#[test]
fn localhost_seccomp_profile_is_applied() {
    let node = Node::start();
    let profiles = node.path("root/seccomp");
    std::fs::create_dir_all(&profiles).expect("a directory");
    let profile = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}],
    });
    std::fs::write(profiles.join("no-mkdir.json"), profile.to_string()).expect("written");
    let mut pod = once_pod("profiled", "mkdir /tmp/x || echo refused");
    pod["spec"]["securityContext"] =
        json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "no-mkdir.json"}});
    node.apply("profiled", &pod);
    assert!(node.output("profiled").contains("refused"));
}

#[test]
fn read_only_root_filesystem_and_masked_proc_paths() {
    let node = Node::start();
    let script = "touch /probe 2>&1; wc -c < /proc/timer_list; touch /proc/sys/kernel/domainname 2>&1; \
                  echo x 2>&1 > /proc/sys/kernel/domainname; true";
    let mut pod = once_pod("fixed", script);
    pod["spec"]["containers"][0]["securityContext"] = json!({"readOnlyRootFilesystem": true});
    node.apply("fixed", &pod);
    node.apply("usual", &once_pod("usual", "touch /probe && echo written"));
    let fixed = node.output("fixed");
    assert!(fixed.contains("/probe: Read-only file system"), "{fixed}");
    assert!(fixed.lines().any(|line| line == "0"), "a masked file is empty: {fixed}");
    assert!(fixed.contains("/proc/sys/kernel/domainname: Read-only file system"), "{fixed}");
    assert_eq!(node.output("usual"), "written\n");
}

#[test]
fn supplemental_groups_and_fs_group_follow_the_pod_security_context() {
    let node = Node::start();
    let script = "id -u; id -g; grep ^Groups /proc/self/status; stat -c '%g %a' /scratch /memory; \
                  touch /scratch/mine && stat -c %g /scratch/mine";
    let mut pod = once_pod("grouped", script);
    pod["spec"]["securityContext"] = json!({
        "runAsUser": 1234, "runAsGroup": 5678, "fsGroup": 4444, "supplementalGroups": [7777],
    });
    pod["spec"]["volumes"] =
        json!([{"name": "scratch", "emptyDir": {}}, {"name": "memory", "emptyDir": {"medium": "Memory"}}]);
    pod["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "scratch", "mountPath": "/scratch"}, {"name": "memory", "mountPath": "/memory"}]);
    node.apply("grouped", &pod);
    let output = node.output("grouped");
    let lines: Vec<&str> = output.lines().map(str::trim).collect();
    assert_eq!(&lines[..2], ["1234", "5678"]);
    let groups: Vec<&str> = lines[2].split_whitespace().skip(1).collect();
    assert!(groups.contains(&"4444") && groups.contains(&"7777"), "{groups:?}");
    assert_eq!(&lines[3..], ["4444 2777", "4444 3777", "4444"], "{output}");
}

#[test]
fn safe_sysctl_is_set_and_an_unsafe_one_only_if_allowed() {
    let node = Node::start_with(json!({"allowedUnsafeSysctls": ["net.core.*"]}));
    let mut pod =
        once_pod("tuned", "cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/net/core/somaxconn");
    pod["spec"]["securityContext"] = json!({"sysctls": [
        {"name": "net.ipv4.ip_unprivileged_port_start", "value": "77"},
        {"name": "net.core.somaxconn", "value": "1023"},
    ]});
    node.apply("tuned", &pod);
    assert_eq!(node.output("tuned"), "77\n1023\n");
}

fn own(namespace: &str) -> String {
    let link = std::fs::read_link(format!("/proc/self/ns/{namespace}")).expect("a namespace");
    link.display().to_string()
}

const NAMESPACES: &str = "for n in net pid ipc uts; do readlink /proc/self/ns/$n; done";

#[test]
fn pod_shares_only_the_requested_host_namespaces() {
    let node = Node::start();
    let all = ["net", "pid", "ipc", "uts"];
    let requested = [("hostNetwork", vec!["net", "uts"]), ("hostPID", vec!["pid"]), ("hostIPC", vec!["ipc"])];
    for (field, _) in &requested {
        let name = field.to_lowercase();
        let mut pod = once_pod(&name, NAMESPACES);
        pod["spec"][field] = true.into();
        node.apply(&name, &pod);
    }
    node.apply("isolated", &once_pod("isolated", NAMESPACES));
    let shared = |name: &str| -> Vec<&str> {
        let output = node.output(name);
        all.into_iter().zip(output.lines()).filter(|(n, theirs)| own(n) == *theirs).map(|(n, _)| n).collect()
    };
    assert_eq!(shared("isolated"), Vec::<&str>::new());
    for (field, expected) in requested {
        assert_eq!(shared(&field.to_lowercase()), expected, "{field}");
    }
}

#[test]
fn host_network_pod_has_hostname_addresses_hosts_file_and_resolver_of_the_host() {
    let node = Node::start_with(json!({"clusterDNS": ["192.0.2.53"], "clusterDomain": "cluster.test"}));
    let script = "hostname; head -1 /etc/hosts; grep nameserver /etc/resolv.conf";
    let mut pod = once_pod("hosted", script);
    pod["spec"]["hostNetwork"] = true.into();
    pod["spec"]["hostAliases"] = json!([{"ip": "192.0.2.7", "hostnames": ["custom.example"]}]);
    node.apply("hosted", &pod);
    pod["metadata"]["name"] = "in-cluster".into();
    pod["spec"]["dnsPolicy"] = "ClusterFirstWithHostNet".into();
    node.apply("in-cluster", &pod);
    let mut third = once_pod("custom", "cat /etc/resolv.conf");
    third["spec"]["dnsPolicy"] = "None".into();
    third["spec"]["dnsConfig"] = json!({"nameservers": ["192.0.2.9"], "searches": ["a.test"], "options": [{"name": "ndots", "value": "3"}]});
    node.apply("custom", &third);

    let hosted = node.output("hosted");
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("the host's name");
    assert_eq!(hosted.lines().next(), Some(name.trim()));
    assert!(hosted.contains("# Kubernetes-managed hosts file (host network)."), "{hosted}");
    assert!(hosted.contains("nameserver 192.0.2.1"), "{hosted}");
    let status = &node.pod("hosted").expect("the pod")["status"];
    assert_eq!(status["podIP"], status["hostIP"]);
    let in_cluster = node.output("in-cluster");
    assert!(in_cluster.contains("nameserver 192.0.2.53"), "{in_cluster}");
    let custom = node.output("custom");
    assert_eq!(custom, "search a.test\nnameserver 192.0.2.9\noptions ndots:3\n");
}

#[test]
fn cluster_dns_sets_the_search_path_of_the_namespace() {
    let node = Node::start_with(json!({"clusterDNS": ["192.0.2.53"], "clusterDomain": "cluster.test"}));
    let mut pod = once_pod("resolved", "cat /etc/resolv.conf; hostname -f; hostname");
    pod["spec"]["hostname"] = "me".into();
    pod["spec"]["subdomain"] = "sub".into();
    node.apply("resolved", &pod);
    let mut renamed = once_pod("renamed", "hostname");
    renamed["spec"]["hostnameOverride"] = "other.example.test".into();
    node.apply("renamed", &renamed);
    assert_eq!(node.output("renamed"), "other.example.test\n");
    let output = node.output("resolved");
    let search = "search default.svc.cluster.test svc.cluster.test cluster.test example.test";
    assert!(output.contains(search) && output.contains("nameserver 192.0.2.53"), "{output}");
    assert!(output.contains("options ndots:5"), "{output}");
    assert!(output.contains("me.sub.default.svc.cluster.test\nme\n"), "{output}");
}

#[test]
fn share_process_namespace_lets_containers_see_each_others_processes() {
    let node = Node::start();
    for (name, shares) in [("shared", true), ("apart", false)] {
        let count = "while :; do ps -o comm,args | grep -c '[e]xec-marker'; sleep 0.5; done";
        let mut pod = shell_pod(name, count);
        let marker = "trap 'exit 0' TERM; : exec-marker; while :; do sleep 3600 & wait $!; done";
        pod["spec"]["containers"].as_array_mut().expect("containers").push(shell("other", marker));
        pod["spec"]["shareProcessNamespace"] = shares.into();
        node.apply(name, &pod);
    }
    for (name, expected) in [("shared", "1"), ("apart", "0")] {
        let pod = node.running(name);
        // Both containers have started: what counts is printed from now on.
        let before = node.logs(&pod, "main").lines().count() + 1;
        node.eventually("the processes are counted", |node| {
            let output = node.logs(&pod, "main");
            if output.lines().nth(before) == Some(expected) { Ok(()) } else { Err(output) }
        });
    }
    node.apply("plain", &shell_pod("plain", FOREVER));
    node.running("plain");
}

#[test]
fn invalid_security_context_is_rejected_with_its_field() {
    let node = Node::start();
    node.apply("unmasked", &status_pod("unmasked", json!({"procMount": "Unmasked"})));
    node.apply("both", &status_pod("both", json!({"privileged": true, "allowPrivilegeEscalation": false})));
    let expected = [
        "`hostUsers` must be false to use `Unmasked`",
        "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
    ];
    node.eventually("both problems are visible", |node| {
        let problems = crate::server::get(node, "/debug/manifests")?.body;
        let all = expected.iter().all(|text| problems.contains(text));
        if all { Ok(()) } else { Err(problems) }
    });
}
