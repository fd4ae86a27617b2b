//! Configuration fields that affect what the runtime, the manifest sources and the ports of the process see. The runtime is a
//! fake one where a real one would not show it.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use fakes::fake::{Fault, Method};
use fakes::{FakeRuntime, Program};
use fixtures::stretched;
use serde_json::{Value, json};

use crate::node::{
    FOREVER, Node, container, free_port, http_get, names_in, once_pod, restarts, shell_pod, uid,
};
use crate::resources::is_v2;

/// A fake runtime in real time.
fn runtime() -> FakeRuntime {
    FakeRuntime::with_clock(ports::Clock::system())
}

fn fake_pod(name: &str) -> Value {
    let mut pod = shell_pod(name, FOREVER);
    pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
    pod
}

/// A settled pod is inspected only by the resync: relists, once a second, show nothing new.
#[test]
fn unchanged_pod_is_synced_at_sync_frequency() {
    let runtime = runtime();
    let node = Node::on_fake(&runtime, json!({"syncFrequency": "1s"}));
    node.apply("web", &fake_pod("web"));
    node.running("web");
    let (inspections, relists) =
        (runtime.count(Method::PodSandboxStatus), runtime.count(Method::ListPodSandbox));
    node.eventually("the pod is inspected ten times more", |_| {
        let now = runtime.count(Method::PodSandboxStatus) - inspections;
        if now >= 10 { Ok(()) } else { Err(format!("{now} inspections")) }
    });
    // By default that would be one inspection in sixty seconds or more, which is one in sixty relists.
    let relists = runtime.count(Method::ListPodSandbox) - relists;
    assert!(relists <= 60, "ten inspections took {relists} relists");
}

/// A change behind a symbolic link causes no inotify event in the watched directory.
#[test]
fn manifest_changes_without_inotify_are_found_at_file_check_frequency() {
    let node = Node::on_fake(&runtime(), json!({"fileCheckFrequency": "1s"}));
    let target = node.path("elsewhere.json");
    std::fs::write(&target, "{").expect("written");
    std::os::unix::fs::symlink(&target, node.manifest("linked")).expect("linked");
    let shows = |text: &str| {
        node.eventually("the manifest is read again", |node| {
            let problems = crate::server::get(node, "/debug/manifests")?.body;
            if problems.contains(text) { Ok(()) } else { Err(problems) }
        });
    };
    shows("linked.json");
    let began = Instant::now();
    for kind in ["First", "Second", "Third", "Fourth"] {
        std::fs::write(&target, json!({"apiVersion": "v1", "kind": kind}).to_string()).expect("written");
        shows(kind);
    }
    // Each change waits for a poll of its own; by default that would be three times twenty seconds at least.
    assert!(began.elapsed() < Duration::from_secs(50), "{:?}", began.elapsed());
}

#[test]
fn manifest_url_requests_carry_the_static_pod_url_headers() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let url = format!("http://{}/pods", listener.local_addr().expect("an address"));
    let server = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a request");
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).expect("a head");
            head.push(char::from(byte[0]));
        }
        let manifest = fake_pod("remote").to_string();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{manifest}", manifest.len());
        client.write_all(answer.as_bytes()).expect("an answer");
        head
    });
    let headers = json!({"X-Node": ["one", "two"], "Authorization": ["Bearer sesame"]});
    let node = Node::on_fake(&runtime(), json!({"staticPodURL": url, "staticPodURLHeader": headers}));
    node.running("remote");
    let head = server.join().expect("the server ends");
    for line in ["X-Node: one\r\n", "X-Node: two\r\n", "Authorization: Bearer sesame\r\n"] {
        assert!(head.to_lowercase().contains(&line.to_lowercase()), "{line:?} is not in {head:?}");
    }
}

#[test]
fn image_service_endpoint_gets_all_image_calls() {
    let (runtime, images) = (runtime(), runtime());
    // A runtime has what its image service has.
    runtime.image("localhost/web:1");
    images.image("localhost/web:1");
    let mut node = Node::on_fake(&runtime, json!({}));
    node.kill_kubelet();
    let endpoint = node.serve(&images, "images.sock");
    node.configure(json!({"imageServiceEndpoint": endpoint}));
    node.start_kubelet();
    let requests = runtime.count(Method::ImageStatus);
    let mut pod = shell_pod("web", FOREVER);
    pod["spec"]["containers"][0]["image"] = "localhost/web:1".into();
    node.apply("web", &pod);
    node.running("web");
    assert!(images.count(Method::ImageStatus) > 0);
    assert_eq!(runtime.count(Method::ImageStatus), requests);
    assert_eq!((images.running(), runtime.running().len()), (Vec::new(), 1));
}

#[test]
fn crash_loop_back_off_is_capped_by_max_container_restart_period() {
    let runtime = runtime();
    runtime.program("main", Program::exits(1, Duration::ZERO));
    let node = Node::on_fake(&runtime, json!({"crashLoopBackOff": {"maxContainerRestartPeriod": "2s"}}));
    node.apply("crasher", &fake_pod("crasher"));
    let began = Instant::now();
    let pod = node.pod_when("crasher", "waits after its fifth restart", |pod| {
        restarts(pod, "main") >= 5 && container(pod, "main")["state"]["waiting"].is_object()
    });
    let waiting = &container(&pod, "main")["state"]["waiting"];
    let message = waiting["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("back-off 2s restarting failed container=main"), "{waiting}");
    // By default it is 10, 20, 40 and 80 seconds.
    assert!(began.elapsed() < Duration::from_secs(100), "{:?}", began.elapsed());
    assert_eq!(runtime.double_starts(), Vec::<String>::new());
}

/// The runtime under test runs without the hugetlb controller, so the request itself is checked.
#[test]
fn hugepage_limit_of_each_size_is_zero_for_a_container_that_requests_none() {
    let runtime = runtime();
    let node = Node::on_fake(&runtime, json!({}));
    node.apply("small", &fake_pod("small"));
    node.running("small");
    let resources = runtime.resources("small-node", "main").expect("the container was created");
    let sizes = names_in(Path::new("/sys/kernel/mm/hugepages"));
    let limits: BTreeSet<(String, u64)> = resources.hugepage_limits.into_iter().collect();
    assert_eq!(limits.len(), sizes.len(), "a limit for each of {sizes:?}: {limits:?}");
    for (size, limit) in limits {
        assert_eq!(limit, 0, "{size}");
    }
}

#[test]
fn user_namespace_pod_may_use_unmasked_proc_mount() {
    let runtime = runtime();
    let node = Node::on_fake(&runtime, json!({}));
    let mut pod = fake_pod("unmasked");
    pod["spec"]["hostUsers"] = false.into();
    pod["spec"]["containers"][0]["securityContext"] = json!({"procMount": "Unmasked"});
    node.apply("unmasked", &pod);
    node.apply("masked", &fake_pod("masked"));
    let hidden = |name: &str| {
        node.running(name);
        let request = runtime.container_request(&format!("{name}-node"), "main");
        let security = request.expect("the container was created").security;
        (security.masked_paths.len(), security.readonly_paths.len())
    };
    assert_eq!(hidden("unmasked"), (0, 0));
    let (masked, readonly) = hidden("masked");
    assert!(masked > 0 && readonly > 0, "{masked} {readonly}");
}

#[test]
fn configuration_sets_user_namespace_ids_pod_cidr_and_runtime_request_timeout() {
    let runtime = runtime();
    let limits = json!({
        "runtimeRequestTimeout": "2s", "userNamespaces": {"idsPerPod": 131_072}, "podCIDR": "10.1.0.0/24",
    });
    let node = Node::on_fake(&runtime, limits);
    node.eventually("the runtime has the pod CIDR", |_| match runtime.pod_cidr().as_str() {
        "10.1.0.0/24" => Ok(()),
        other => Err(other.to_owned()),
    });
    let mut pod = fake_pod("isolated");
    pod["spec"]["hostUsers"] = false.into();
    node.apply("isolated", &pod);
    let file = node.path("root/pods").join(uid(&node.running("isolated"))).join("userns");
    let ids: Value = serde_json::from_slice(&std::fs::read(file).expect("the mapping is written down"))
        .expect("it is JSON");
    assert_eq!(ids["uidMappings"], json!([{"hostId": 131_072, "containerId": 0, "length": 131_072}]));

    runtime.fault_always(Method::CreateContainer, Some(Fault::Hang));
    let began = Instant::now();
    node.apply("stuck", &fake_pod("stuck"));
    node.pod_when("stuck", "reports that its container could not be created", |pod| {
        container(pod, "main")["state"]["waiting"]["reason"] == "CreateContainerError"
    });
    // By default it is two minutes.
    assert!(began.elapsed() < stretched(Duration::from_secs(60)), "{:?}", began.elapsed());
}

#[test]
fn cpu_cfs_quota_period_sets_the_quota_period() {
    let node = Node::start_with(json!({"cpuCFSQuotaPeriod": "10ms"}));
    let script = "cd /sys/fs/cgroup; cat cpu.max 2>/dev/null || \
                  echo $(cat cpu/cpu.cfs_quota_us) $(cat cpu/cpu.cfs_period_us)";
    let mut pod = once_pod("limited", script);
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "500m", "memory": "64Mi"}});
    node.apply("limited", &pod);
    assert_eq!(node.output("limited"), "5000 10000\n");
}

/// A network namespace, for what would change the network of the machine.
struct OwnNetwork(std::process::Child);

impl OwnNetwork {
    fn of(node: &Node) -> Self {
        let holder = Command::new("unshare").args(["--net", "sleep", "1000"]).spawn().expect("unshare runs");
        let network = Self(holder);
        node.eventually("it has a network of its own", |_| {
            let [own, ours] = [network.path(), "/proc/self/ns/net".to_owned()].map(std::fs::read_link);
            let (own, ours) = (own.map_err(|e| e.to_string())?, ours.map_err(|e| e.to_string())?);
            if own == ours { Err("still that of the machine".to_owned()) } else { Ok(()) }
        });
        network
    }

    fn path(&self) -> String {
        format!("/proc/{}/ns/net", self.0.id())
    }

    /// A program of that name that does its work in that namespace.
    fn wrap(&self, dir: &Path, program: &str) {
        let path = dir.join(program);
        let script = format!(
            "#!/bin/sh\nPATH=/usr/sbin:/usr/bin:/sbin:/bin exec nsenter --net={} {program} \"$@\"\n",
            self.path()
        );
        std::fs::write(&path, script).expect("written");
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("made a program");
    }
}

impl Drop for OwnNetwork {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn iptables_util_chains_are_created_if_configured() {
    let mut node = Node::with_fake(&runtime(), json!({"makeIPTablesUtilChains": true}));
    // The node searches programs there first.
    let (network, programs) = (OwnNetwork::of(&node), node.path("bin"));
    std::fs::create_dir_all(&programs).expect("a directory");
    for program in ["iptables", "ip6tables"] {
        network.wrap(&programs, program);
    }
    node.start_kubelet();
    let shown = |program: &str, table: &str| {
        let output = Command::new(programs.join(program)).args(["-t", table, "-S"]).output();
        String::from_utf8_lossy(&output.expect("it runs").stdout).into_owned()
    };
    let has = |program: &str, table: &str, lines: &[&str]| {
        node.eventually("the chains exist", |_| {
            let text = shown(program, table);
            let missing = lines.iter().find(|line| !text.lines().any(|shown| shown == **line));
            missing.map_or(Ok(()), |line| Err(format!("{program}: no {line:?} in {table}: {text}")))
        });
    };
    let guard = "-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment \"block incoming localnet \
                 connections\" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP";
    has("iptables", "filter", &["-A INPUT -j KUBE-FIREWALL", "-A OUTPUT -j KUBE-FIREWALL", guard]);
    for program in ["iptables", "ip6tables"] {
        has(program, "mangle", &["-N KUBE-IPTABLES-HINT", "-N KUBE-KUBELET-CANARY"]);
        has(program, "nat", &["-N KUBE-KUBELET-CANARY"]);
        has(program, "filter", &["-N KUBE-KUBELET-CANARY"]);
    }
    assert!(!shown("ip6tables", "filter").contains("KUBE-FIREWALL"));
    assert!(!node.kubelet_log().contains("Failed to create iptables chains"), "{}", node.kubelet_log());
}

/// Answers a TLS greeting as plain HTTP servers do, and everything else with success.
fn plain_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.expect("a client");
            let mut start = [0; 5];
            client.read_exact(&mut start).expect("a request");
            let is_tls = start[0] == 0x16;
            // Read to the end, so that closing causes no reset.
            let mut rest = vec![0; usize::from(u16::from_be_bytes([start[3], start[4]]))];
            let _ = if is_tls { client.read_exact(&mut rest) } else { client.read(&mut rest).map(drop) };
            let status = if is_tls { "400 Bad Request" } else { "200 OK" };
            client.write_all(format!("HTTP/1.0 {status}\r\n\r\n").as_bytes()).expect("an answer");
        }
    });
    port
}

#[test]
fn https_hook_falls_back_to_http_and_is_counted() {
    let node = Node::on_fake(&runtime(), json!({}));
    let mut pod = fake_pod("hooked");
    pod["spec"]["containers"][0]["lifecycle"] =
        json!({"postStart": {"httpGet": {"scheme": "HTTPS", "host": "127.0.0.1", "port": plain_server()}}});
    node.apply("hooked", &pod);
    let pod = node.running("hooked");
    assert_eq!(restarts(&pod, "main"), 0);
    node.wait_for_log("LifecycleHTTPFallback");
    let metrics = node.get("/metrics").expect("metrics");
    assert!(metrics.contains("\nkubelet_lifecycle_handler_http_fallbacks_total 1\n"), "{metrics}");
}

#[test]
fn metrics_endpoint_serves_the_metrics_of_the_kubelet() {
    let node = Node::on_fake(&runtime(), json!({}));
    let version = format!("kubelet_cgroup_version {}", if is_v2() { 2 } else { 1 });
    for name in ["one", "two"] {
        node.apply(name, &fake_pod(name));
        node.running(name);
    }
    node.eventually("the list has counted both", |node| {
        let metrics = node.get("/metrics")?;
        let expected = [
            "kubelet_node_name{node=\"node\"} 1",
            &version,
            "kubelet_running_pods 2",
            "kubelet_running_containers{container_state=\"running\"} 2",
            "kubelet_running_containers{container_state=\"exited\"} 0",
            "kubelet_desired_pods{static=\"true\"} 2",
            "kubelet_active_pods{static=\"true\"} 2",
            "kubelet_active_pods{static=\"\"} 0",
            "kubelet_mirror_pods 0",
            "kubelet_managed_ephemeral_containers 0",
            "kubelet_containers_per_pod_count_count 2",
            "kubelet_pod_start_duration_seconds_count 2",
            "kubelet_pod_worker_start_duration_seconds_count 2",
            "kubelet_run_podsandbox_duration_seconds_count{runtime_handler=\"\"} 2",
            "kubelet_runtime_operations_total{operation_type=\"run_podsandbox\"} 2",
            "kubelet_runtime_operations_duration_seconds_count{operation_type=\"create_container\"} 2",
            "kubelet_started_pods_total 2",
            "kubelet_started_pods_errors_total 0",
            "kubelet_started_containers_total{container_type=\"container\"} 2",
            "kubelet_started_containers_total{container_type=\"init_container\"} 0",
            "kubelet_orphaned_runtime_pods_total 0",
        ];
        let absent = expected.iter().find(|line| !metrics.lines().any(|l| l == **line));
        absent.map_or(Ok(()), |line| Err(format!("no {line} in {metrics}")))
    });
}

/// The addresses and TCP ports that the process listens on, in the kernel's format.
fn listeners(pid: u32) -> BTreeSet<String> {
    let fds = names_in(Path::new(&format!("/proc/{pid}/fd")));
    let targets = fds.iter().filter_map(|fd| std::fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok());
    let sockets: BTreeSet<String> = targets.map(|target| target.display().to_string()).collect();
    let tables = ["tcp", "tcp6"].map(|table| std::fs::read_to_string(format!("/proc/net/{table}")));
    let listening = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_ours = fields[3] == "0A" && sockets.contains(&format!("socket:[{}]", fields[9]));
        is_ours.then(|| fields[1].to_owned())
    };
    tables.iter().flatten().flat_map(|table| table.lines().skip(1).filter_map(listening)).collect()
}

#[test]
fn configured_ports_and_addresses_are_opened() {
    let mut node = Node::on_fake(&runtime(), json!({}));
    let other = free_port();
    let mut opened = |fields: Value, ready: &dyn Fn(&Node) -> bool| {
        node.kill_kubelet();
        node.configure(fields);
        node.spawn_kubelet();
        node.eventually("it is up", |node| if ready(node) { Ok(()) } else { Err("not yet".to_owned()) });
        listeners(node.kubelet_pid())
    };
    // 127.0.0.2, least significant byte first.
    let second_loopback = |port: u16| format!("0200007F:{port:04X}");
    let is_healthy = |_: &Node| http_get("127.0.0.2", other, "/healthz") == Ok("ok".to_owned());
    let elsewhere = json!({"enableServer": false, "healthzBindAddress": "127.0.0.2", "healthzPort": other});
    assert_eq!(opened(elsewhere, &is_healthy), [second_loopback(other)].into());
    let read_only = json!({"enableServer": true, "healthzPort": 0, "address": "127.0.0.2"});
    let port = std::cell::Cell::new(0);
    let serves = |node: &Node| {
        port.set(node.port());
        http_get("127.0.0.2", node.port(), "/pods").is_ok()
    };
    let found = opened(read_only, &serves);
    let both = [second_loopback(node.main_port()), second_loopback(port.get())];
    assert_eq!(found, both.into());
}
