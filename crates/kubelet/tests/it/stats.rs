//! Measurements as monitoring sees them: real containers that use resources, queried over the ports, and read by unmodified
//! Prometheus tools.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::node::{FOREVER, IMAGE, Node, free_port, http_get, shell, shell_pod, uid};

/// Volumes are walked at each request.
fn node() -> Node {
    Node::start_with(json!({"volumeStatsAggPeriod": "1ms"}))
}

fn summary(node: &Node) -> Result<Value, String> {
    serde_json::from_str(&node.get("/stats/summary")?).map_err(|error| error.to_string())
}

/// The summary of one container, together with its pod.
fn measured(node: &Node, pod: &str, container: &str) -> Result<(Value, Value), String> {
    let summary = summary(node)?;
    let named = |list: &Value, name: &str, at: &str| {
        list.as_array().into_iter().flatten().find(|item| item.pointer(at) == Some(&json!(name))).cloned()
    };
    let pod = named(&summary["pods"], &format!("{pod}-node"), "/podRef/name");
    let pod = pod.ok_or_else(|| format!("no such pod in {summary:#}"))?;
    let container = named(&pod["containers"], container, "/name");
    let container = container.ok_or_else(|| format!("no such container in {pod:#}"))?;
    Ok((pod, container))
}

fn number(value: &Value, at: &str) -> Result<u64, String> {
    value.pointer(at).and_then(Value::as_u64).ok_or_else(|| format!("no number at {at} in {value:#}"))
}

/// Waits for the file, then runs the script and keeps running.
fn gated(work: &str) -> String {
    format!("until [ -e /gate/open ]; do sleep 0.1; done; {work}; {FOREVER}")
}

fn gated_pod(node: &Node, name: &str, work: &str) -> Value {
    std::fs::create_dir_all(node.path(name)).expect("a directory for the gate");
    let mut pod = shell_pod(name, &gated(work));
    pod["spec"]["volumes"] =
        json!([{"name": "gate", "hostPath": {"path": node.path(name)}}, {"name": "data", "emptyDir": {}}]);
    pod["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "gate", "mountPath": "/gate"}, {"name": "data", "mountPath": "/data"}]);
    pod
}

fn open_gate(node: &Node, name: &str) {
    std::fs::write(node.path(name).join("open"), "").expect("the gate opens");
}

/// Deep enough that a list of full paths would take 800 MB. On tmpfs, so that creating and removing it takes seconds.
#[test]
fn disk_usage_of_200000_directories_under_a_long_path_takes_less_than_30_mb() {
    use std::os::fd::OwnedFd;

    use rustix::fs::{Mode, OFlags, mkdirat, openat};

    const DIRECTORIES: u64 = 200_000;
    let node = node();
    let mut pod = shell_pod("wide", FOREVER);
    pod["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {"medium": "Memory"}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    node.apply("wide", &pod);
    let uid = uid(&node.running("wide"));
    let inodes = |node: &Node| {
        let (pod, _) = measured(node, "wide", "main")?;
        number(&pod, "/volume/0/inodesUsed")
    };
    node.eventually("the volume is measured", inodes);
    let before = crate::streaming::memory(&node, "VmHWM");
    let volume = node.path("root/pods").join(&uid).join("volumes/kubernetes.io~empty-dir/data");
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut here: OwnedFd = rustix::fs::open(&volume, directory, Mode::empty()).expect("the volume");
    for _ in 0..38 {
        let name = "d".repeat(100);
        mkdirat(&here, &name, Mode::RWXU).expect("a directory");
        here = openat(&here, &name, directory, Mode::empty()).expect("a directory");
    }
    for n in 0..DIRECTORIES {
        mkdirat(&here, n.to_string(), Mode::RWXU).expect("a directory");
    }
    // It would keep the volume from being unmounted.
    drop(here);
    node.eventually("the summary counts them", |node| match inodes(node)? {
        used if used > DIRECTORIES => Ok(()),
        used => Err(used.to_string()),
    });
    let grown = crate::streaming::memory(&node, "VmHWM").saturating_sub(before);
    assert!(grown < 30_000, "{grown} kB more than {before} kB");
    node.delete("wide");
    node.wait_until_gone("wide", &uid);
}

#[test]
fn stats_summary_shows_cpu_usage_of_the_busy_container_only() {
    let node = node();
    let mut pod = gated_pod(&node, "busy", "while :; do :; done");
    pod["spec"]["containers"].as_array_mut().expect("containers").push(shell("calm", FOREVER));
    node.apply("busy", &pod);
    node.running("busy");
    let cpu = |node: &Node, name: &str| {
        let (_, container) = measured(node, "busy", name)?;
        number(&container, "/cpu/usageCoreNanoSeconds")
    };
    let before = node.eventually("the container is measured", |node| cpu(node, "main"));
    open_gate(&node, "busy");
    node.eventually("a second of CPU is used", |node| {
        let used = cpu(node, "main")?;
        if used > before + 1_000_000_000 { Ok(()) } else { Err(format!("{used} after {before}")) }
    });
    let rate = node.eventually("the rate shows it", |node| {
        let (pod, container) = measured(node, "busy", "main")?;
        let rate = number(&container, "/cpu/usageNanoCores")?;
        // The machine has other work meanwhile.
        if rate > 50_000_000 {
            Ok((rate, number(&pod, "/cpu/usageNanoCores")?))
        } else {
            Err(rate.to_string())
        }
    });
    assert!(rate.1 >= rate.0, "the pod uses what its containers use: {rate:?}");
    let calm = cpu(&node, "calm").expect("it is measured");
    assert!(calm < 1_000_000_000, "{calm}");
    let node_cpu =
        number(&summary(&node).expect("a summary"), "/node/cpu/usageCoreNanoSeconds").expect("CPU");
    assert!(node_cpu > before + 1_000_000_000, "{node_cpu}");
}

#[test]
fn stats_summary_memory_follows_an_allocation_and_available_is_limit_minus_working_set() {
    const TAKEN: u64 = 24 << 20;
    let node = node();
    // Doubling a variable takes anonymous memory of the shell itself.
    let take = "x=0123456789abcdef; while [ ${#x} -lt 16777216 ]; do x=$x$x; done; y=$x$x";
    let mut pod = gated_pod(&node, "greedy", take);
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"memory": "256Mi"}});
    node.apply("greedy", &pod);
    node.running("greedy");
    let memory = |node: &Node| {
        let (_, container) = measured(node, "greedy", "main")?;
        let of = |name: &str| number(&container, &format!("/memory/{name}"));
        Ok::<_, String>([of("workingSetBytes")?, of("rssBytes")?, of("availableBytes")?, of("usageBytes")?])
    };
    let [before, ..] = node.eventually("the container is measured", memory);
    open_gate(&node, "greedy");
    let [working_set, rss, available, usage] = node.eventually("memory is taken", |node| {
        let after = memory(node)?;
        if after[0] > before + TAKEN { Ok(after) } else { Err(format!("{after:?} after {before}")) }
    });
    assert!(rss > TAKEN && usage >= working_set, "{rss} {usage} {working_set}");
    assert_eq!(available, (256 << 20) - working_set);
}

#[test]
fn stats_summary_counts_bytes_of_volume_root_filesystem_and_log() {
    const WRITTEN: u64 = 8 << 20;
    let node = node();
    let write = "dd if=/dev/zero of=/data/file bs=1048576 count=8 2>/dev/null; \
                 dd if=/dev/zero of=/tmp-file bs=1048576 count=8 2>/dev/null; \
                 i=0; while [ $i -lt 2000 ]; do echo \"a line of the log that takes its place $i\"; i=$((i+1)); done";
    node.apply("writer", &gated_pod(&node, "writer", write));
    node.running("writer");
    let volume = |pod: &Value| {
        let volumes = pod["volume"].as_array().cloned().unwrap_or_default();
        volumes.into_iter().find(|volume| volume["name"] == "data").ok_or_else(|| format!("{pod:#}"))
    };
    let before = node.eventually("the volume is measured", |node| {
        number(&volume(&measured(node, "writer", "main")?.0)?, "/usedBytes")
    });
    assert!(before < WRITTEN, "{before}");
    open_gate(&node, "writer");
    let (pod, container) = node.eventually("the written bytes are measured", |node| {
        let (pod, container) = measured(node, "writer", "main")?;
        let used = [
            number(&volume(&pod)?, "/usedBytes")?,
            number(&container, "/rootfs/usedBytes")?,
            // A hundred thousand bytes of lines.
            number(&container, "/logs/usedBytes")? * 80,
        ];
        if used.iter().all(|used| *used >= WRITTEN) { Ok((pod, container)) } else { Err(format!("{used:?}")) }
    });
    let data = volume(&pod).expect("the volume");
    assert!(number(&data, "/capacityBytes") > Ok(WRITTEN), "{data:#}");
    assert!(number(&data, "/inodesUsed") >= Ok(2), "{data:#}");
    let ephemeral = number(&pod, "/ephemeral-storage/usedBytes").expect("ephemeral storage");
    assert!(ephemeral >= 2 * WRITTEN, "{ephemeral}");
    assert!(number(&container, "/rootfs/inodesUsed") >= Ok(1), "{container:#}");
    let names: Vec<&Value> = pod["volume"].as_array().expect("volumes").iter().map(|v| &v["name"]).collect();
    assert_eq!(names, [&json!("data")], "a hostPath is the node's own");
    let summary = summary(&node).expect("a summary");
    for at in ["/node/fs/capacityBytes", "/node/runtime/imageFs/capacityBytes", "/node/rlimit/curproc"] {
        assert!(number(&summary, at) > Ok(0), "{at}: {summary:#}");
    }
    let metrics = node.get("/metrics").expect("metrics");
    assert!(
        metrics
            .contains("kubelet_container_log_filesystem_used_bytes{container=\"main\",namespace=\"default\"")
    );
}

#[test]
fn stats_summary_counts_network_bytes_of_a_pod() {
    let node = node();
    let mut server = shell_pod(
        "server",
        "mkdir /www; dd if=/dev/zero of=/www/file bs=1048576 count=4 2>/dev/null; httpd -f -p 80 -h /www & wait $!",
    );
    server["spec"]["containers"][0]["readinessProbe"] =
        json!({"httpGet": {"port": 80, "path": "/file"}, "periodSeconds": 1});
    node.apply("server", &server);
    let pod = node.running("server");
    let address = pod["status"]["podIP"].as_str().expect("an address").to_owned();
    let counters = |node: &Node| {
        let (pod, _) = measured(node, "server", "main")?;
        Ok::<_, String>((number(&pod, "/network/rxBytes")?, number(&pod, "/network/txBytes")?))
    };
    let before = node.eventually("the network is measured", counters);
    let mut stream = std::net::TcpStream::connect((&*address, 80)).expect("the pod is reached");
    stream.write_all(b"GET /file HTTP/1.0\r\n\r\n").expect("sent");
    let mut answer = Vec::new();
    std::io::Read::read_to_end(&mut stream, &mut answer).expect("answered");
    assert!(answer.len() > 4 << 20, "{}", answer.len());
    node.eventually("the sent bytes are counted", |node| {
        let after = counters(node)?;
        let is_counted = after.1 >= before.1 + (4 << 20) && after.0 > before.0;
        if is_counted { Ok(()) } else { Err(format!("{after:?} after {before:?}")) }
    });
}

/// Samples by name with labels.
fn samples(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let samples: Vec<(String, String)> = lines
        .filter_map(|line| {
            let end = line.rfind('}').map_or_else(|| line.find(' '), |end| Some(end + 1))?;
            Some((line[..end].to_owned(), line[end..].trim().to_owned()))
        })
        .collect();
    let count = samples.len();
    let by_name: BTreeMap<String, String> = samples.into_iter().collect();
    assert_eq!(by_name.len(), count, "no sample is repeated");
    by_name
}

/// What `kubectl top` needs: metrics-server reads exactly these names, and drops items that lack one of them.
#[test]
fn resource_metrics_have_the_families_of_metrics_server() {
    let node = node();
    let mut pod = shell_pod("web", FOREVER);
    pod["spec"]["containers"].as_array_mut().expect("containers").push(shell("side", FOREVER));
    node.apply("web", &pod);
    node.running("web");
    let samples = node.eventually("both containers are measured", |node| {
        let samples = samples(&node.get("/metrics/resource")?);
        let measured = |name: &str| {
            let key = format!("container_memory_working_set_bytes{{container=\"{name}\",namespace=\"default\",pod=\"web-node\"}}");
            samples.contains_key(&key)
        };
        if measured("main") && measured("side") { Ok(samples.clone()) } else { Err(format!("{samples:?}")) }
    });
    let of = "{container=\"main\",namespace=\"default\",pod=\"web-node\"}";
    let pod = "{namespace=\"default\",pod=\"web-node\"}";
    for name in [
        "node_cpu_usage_seconds_total".to_owned(),
        "node_memory_working_set_bytes".to_owned(),
        format!("container_cpu_usage_seconds_total{of}"),
        format!("container_memory_working_set_bytes{of}"),
        format!("container_start_time_seconds{of}"),
        format!("pod_cpu_usage_seconds_total{pod}"),
        format!("pod_memory_working_set_bytes{pod}"),
    ] {
        let value = samples.get(&name).unwrap_or_else(|| panic!("no {name} in {samples:?}"));
        let mut words = value.split(' ');
        let number: f64 = words.next().and_then(|word| word.parse().ok()).expect("a number");
        assert!(number > 0.0, "{name} {value}");
        assert_eq!(
            words.next().is_some(),
            !name.starts_with("container_start_time"),
            "the time of the sample: {value}"
        );
    }
    assert_eq!(samples["resource_scrape_error"], "0");
}

#[test]
fn probes_are_counted_by_their_outcome() {
    let node = node();
    let mut pod = shell_pod("probed", FOREVER);
    pod["spec"]["containers"][0]["readinessProbe"] =
        json!({"exec": {"command": ["/bin/sh", "-c", "[ -e /ready ]"]}, "periodSeconds": 1});
    node.apply("probed", &pod);
    let found = node.pod_when("probed", "runs", |pod| pod["status"]["phase"] == "Running");
    let labels = |result: &str| {
        let uid = uid(&found);
        format!(
            "prober_probe_total{{container=\"main\",namespace=\"default\",pod=\"probed-node\",pod_uid=\"{uid}\",\
             probe_type=\"Readiness\",result=\"{result}\"}}"
        )
    };
    let count = |node: &Node, result: &str| {
        let samples = samples(&node.get("/metrics/probes")?);
        let value = samples.get(&labels(result)).ok_or_else(|| format!("{samples:?}"))?;
        value.parse::<u64>().map_err(|error| error.to_string())
    };
    node.eventually("failures are counted", |node| count(node, "failed"));
    assert!(count(&node, "successful").is_err(), "events that never happened are not counted");
    let root = format!("/proc/{}/root/ready", node.container_pid(&found, "main"));
    std::fs::write(root, "").expect("the container becomes ready");
    node.eventually("successes are counted", |node| count(node, "successful"));
    let text = node.get("/metrics/probes").expect("metrics");
    assert!(text.contains("prober_probe_duration_seconds_bucket{container=\"main\""), "{text}");
    assert!(text.contains("\nprocess_start_time_seconds "), "{text}");
    node.delete("probed");
    node.wait_until_gone("probed", &uid(&found));
    let text = node.get("/metrics/probes").expect("metrics");
    assert!(!text.contains("probed-node"), "{text}");
}

#[test]
fn cadvisor_metrics_name_the_cgroup_of_every_container() {
    let node = node();
    let mut pod = shell_pod("web", FOREVER);
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "500m", "memory": "64Mi"}});
    node.apply("web", &pod);
    node.running("web");
    let text = node.eventually("the container is reported", |node| {
        let text = node.get("/metrics/cadvisor")?;
        if text.contains("container=\"main\"") { Ok(text) } else { Err(text) }
    });
    let samples = samples(&text);
    let of = |name: &str, filters: &[&str]| -> f64 {
        let fits =
            |key: &&String| key.starts_with(&format!("{name}{{")) && filters.iter().all(|f| key.contains(f));
        let key =
            samples.keys().find(fits).unwrap_or_else(|| panic!("no {name} with {filters:?} in\n{text}"));
        samples[key].split(' ').next().and_then(|word| word.parse().ok()).expect("a number")
    };
    let main = ["container=\"main\"", "namespace=\"default\"", "pod=\"web-node\""];
    assert!(of("container_cpu_usage_seconds_total", &[&main[..], &["cpu=\"total\""]].concat()) > 0.0);
    assert!(of("container_memory_working_set_bytes", &main) > 0.0);
    assert_eq!(of("container_spec_memory_limit_bytes", &main), f64::from(64 << 20));
    assert_eq!(of("container_spec_cpu_quota", &main), 50_000.0);
    assert_eq!(of("container_spec_cpu_period", &main), 100_000.0);
    assert!(of("container_cpu_cfs_periods_total", &main) >= 0.0);
    assert!(of("container_processes", &main) >= 1.0);
    assert!(of("container_threads", &main) >= 1.0);
    assert!(of("container_file_descriptors", &main) >= 1.0);
    assert!(of("container_ulimits_soft", &main) >= 1.0);
    assert!(of("container_start_time_seconds", &main) > 1.6e9);
    assert!(of("container_last_seen", &main) > 1.6e9);
    assert!(
        of(
            "container_memory_failures_total",
            &[&main[..], &["failure_type=\"pgfault\"", "scope=\"container\""]].concat()
        ) > 0.0
    );
    let sandbox = ["container=\"\"", "pod=\"web-node\"", "interface=\"eth0\""];
    assert!(of("container_network_receive_bytes_total", &sandbox) >= 0.0);
    let has_no_image = |line: &&str| {
        line.contains("interface=\"eth0\"")
            && line.contains("pod=\"web-node\"")
            && line.contains("image=\"\"")
    };
    assert_eq!(text.lines().find(has_no_image), None, "sandboxes have the pause image");
    assert!(of("container_memory_usage_bytes", &["/kubepods/burstable\","]) >= 0.0);
    assert!(of("container_cpu_usage_seconds_total", &["id=\"/\""]) > 0.0);
    assert!(of("machine_cpu_cores", &["boot_id=\""]) >= 1.0);
    assert!(of("machine_memory_bytes", &["machine_id=\""]) > 0.0);
    assert_eq!(samples["container_scrape_error"], "0");
    assert!(text.contains(&format!("image=\"{IMAGE}\"")), "{text}");
}

/// Where `scripts/setup` puts programs that it extracts from a package without installing it.
pub(crate) fn program(name: &str) -> Command {
    let own = PathBuf::from("/usr/local/lib/kubelet-rs").join(name);
    if own.exists() { Command::new(own) } else { Command::new(name) }
}

/// Kubernetes' own names that break promtool's rules; dashboards need them all the same.
const KNOWN_LINTS: &[&str] = &[
    "cadvisor_version_info ",
    "container_cpu_load_d_average_10s ",
    "container_fs_inodes_total ",
    "container_memory_failcnt ",
    "kubelet_certificate_manager_client_expiration_renew_errors ",
    "kubelet_containers_per_pod_count ",
    "kubelet_cpu_manager_exclusive_cpu_allocation_count ",
    "kubelet_evented_pleg_connection_error_count ",
    "kubelet_evented_pleg_connection_success_count ",
    "kubelet_pleg_discard_events ",
    "kubelet_pod_resources_endpoint_errors_get ",
    "kubelet_pod_resources_endpoint_errors_get_allocatable ",
    "kubelet_pod_resources_endpoint_errors_list ",
    "kubelet_pod_resources_endpoint_requests_get ",
    "kubelet_pod_resources_endpoint_requests_get_allocatable ",
    "kubelet_pod_resources_endpoint_requests_list ",
    "kubelet_preemptions ",
    "kubelet_server_expiration_renew_errors ",
    "kubelet_topology_manager_admission_duration_ms ",
];

#[test]
fn metrics_pass_promtool_check() {
    let node = node();
    node.apply("web", &shell_pod("web", FOREVER));
    node.running("web");
    for path in ["/metrics", "/metrics/resource", "/metrics/cadvisor", "/metrics/probes", "/metrics/slis"] {
        let text = node.get(path).expect("metrics");
        samples(&text);
        let mut promtool = program("promtool");
        promtool
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = promtool.spawn().expect("promtool runs; scripts/setup brings it");
        child.stdin.take().expect("its input").write_all(text.as_bytes()).expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        let findings =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        // Exit code 3: the text is valid, and names or help texts break a rule.
        assert!(matches!(output.status.code(), Some(0 | 3)), "{path}: {findings}\n{text}");
        let new: Vec<&str> = findings
            .lines()
            .filter(|line| !KNOWN_LINTS.iter().any(|known| line.starts_with(known)))
            .collect();
        assert_eq!(new, Vec::<&str>::new(), "{path}");
    }
}

struct Prometheus(std::process::Child, u16);

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have exited by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Prometheus {
    fn scraping(node: &Node) -> Self {
        let job = |path: &str| {
            json!({
                "job_name": path, "metrics_path": path, "scheme": "https",
                "tls_config": {"insecure_skip_verify": true},
                "static_configs": [{"targets": [format!("127.0.0.1:{}", node.main_port())]}],
            })
        };
        let paths = ["/metrics", "/metrics/resource", "/metrics/cadvisor", "/metrics/probes"];
        // JSON is YAML.
        let config = json!({"global": {"scrape_interval": "1s"}, "scrape_configs": paths.map(job)});
        let file = node.path("prometheus.yml");
        std::fs::write(&file, config.to_string()).expect("the configuration is written");
        let (port, log) = (free_port(), std::fs::File::create(node.path("prometheus.log")).expect("a log"));
        let child = program("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", node.path("prometheus").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        Self(child.expect("prometheus runs; scripts/setup brings it"), port)
    }

    fn query(&self, query: &str) -> Result<Vec<Value>, String> {
        let query: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let text = http_get("127.0.0.1", self.1, &format!("/api/v1/query?query={query}"))?;
        let answer: Value = serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
        Ok(answer["data"]["result"].as_array().cloned().unwrap_or_default())
    }
}

#[test]
fn prometheus_scrapes_all_endpoints_and_evaluates_queries() {
    let node = node();
    let mut pod = shell_pod("busy", "while :; do :; done");
    pod["spec"]["containers"][0]["readinessProbe"] =
        json!({"exec": {"command": ["true"]}, "periodSeconds": 1});
    node.apply("busy", &pod);
    node.running("busy");
    let prometheus = Prometheus::scraping(&node);
    let queries = [
        ("up == 1", 4),
        // Queries of stock dashboards.
        (
            "sum by (pod, container) (rate(container_cpu_usage_seconds_total{job=\"/metrics/cadvisor\", image!=\"\", container!=\"\"}[1m])) > 0.01",
            1,
        ),
        (
            "container_memory_working_set_bytes{job=\"/metrics/cadvisor\", image!=\"\", container=\"main\"} > 0",
            1,
        ),
        ("rate(node_cpu_usage_seconds_total[1m]) > 0", 1),
        ("sum by (result) (prober_probe_total{probe_type=\"Readiness\", result=\"successful\"}) > 0", 1),
        ("kubelet_running_pods == 1", 1),
        (
            "histogram_quantile(0.99, sum(rate(kubelet_pleg_relist_duration_seconds_bucket[1m])) by (instance, le)) > 0",
            1,
        ),
        ("sum(rate(kubelet_runtime_operations_total{operation_type=\"list_containers\"}[1m])) > 0", 1),
        ("process_resident_memory_bytes{job=\"/metrics\"} > 1e6", 1),
    ];
    for (query, series) in queries {
        node.eventually(&format!("prometheus answers {query}"), |_| {
            let found = prometheus.query(query)?;
            if found.len() == series { Ok(()) } else { Err(format!("{found:?}")) }
        });
    }
}
