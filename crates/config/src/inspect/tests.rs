//! A command line, files and a machine in; findings, origins and changes out.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};

use expect_test::{Expect, expect};
use jiff::Timestamp;

use super::*;
use crate::MachineFacts;

#[derive(Default)]
struct Memory(BTreeMap<PathBuf, String>);

impl Memory {
    fn with(mut self, path: &str, body: &str) -> Self {
        let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        self.0.insert(path.into(), format!("{head}{body}"));
        self
    }
}

impl Files for Memory {
    fn read(&self, path: &Path) -> io::Result<String> {
        self.0.get(path).cloned().ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn list_conf_files(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(self.0.keys().filter(|path| path.starts_with(dir)).cloned().collect())
    }

    fn list_dir(&self, _: &Path) -> io::Result<Option<Vec<PathBuf>>> {
        Ok(None)
    }

    fn current_dir(&self) -> io::Result<PathBuf> {
        Ok("/".into())
    }
}

fn of(line: &str, files: &Memory) -> Inspection {
    inspect(line.split_whitespace().map(str::to_owned), files)
}

fn text(inspection: &Inspection) -> String {
    let line = |finding: &Finding| {
        let more = |name: &str, text: &str| match text {
            "" => String::new(),
            text => format!("\n    {name}: {text}"),
        };
        let (allowed, advice) = (more("allowed", &finding.allowed), more("do", &finding.advice));
        format!("{finding} [{:?} {}]{allowed}{advice}\n", finding.kind, finding.setting)
    };
    inspection.findings.iter().map(line).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "expect! makes values")]
#[track_caller]
fn check(line: &str, files: &Memory, expected: Expect) {
    expected.assert_eq(&text(&of(line, files)));
}

#[test]
fn everything_that_is_wrong_is_reported_at_once_with_its_place() {
    let files = Memory::default()
        .with(
            "/k.yaml",
            "maxPod: 3\nmaxPods: -1\nclusterDNS: 10.0.0.1\nport: 70000\nport: 10250\nhairpinMode: wild\n\
             featureGates:\n  NodeSwap: true\n  EventedPleg: true\ncontentType: application/json\n\
             shutdownGracePeriodCriticalPods: 20s\n",
        )
        .with("/d/10.conf", "maxOpenFiles: -4\n  broken\n")
        .with("/d/20.conf", "registryPullQPS: fast\nkubeAPIQPS: -3\n");
    check(
        "--config /k.yaml --config-dir /d --max-podz 3 --container-runtime=docker --sync-frequency soon --hairpin-mode none",
        &files,
        expect![[r#"
            error: unknown flag: --max-podz (did you mean --max-pods?) [Unknown --max-podz]
            error: unknown flag: --container-runtime was removed from Kubernetes; use --container-runtime-endpoint [Unknown --container-runtime]
                do: use --container-runtime-endpoint
            error: invalid argument "soon" for "--sync-frequency" flag: must be a duration such as 1h30m or 100ms [Invalid --sync-frequency]
                allowed: a duration such as 1h30m or 100ms
            warning: Flag --hairpin-mode has been deprecated, set hairpinMode in the file given by --config instead [Deprecated --hairpin-mode]
            warning: /k.yaml:7:7: port is set twice, the last one counts [Conflicting port]
            warning: /k.yaml:3:9: unknown field maxPod is ignored (did you mean maxPods?) [Unknown maxPod]
                allowed: maxPods
            error: /k.yaml:5:13: clusterDNS: invalid type: string "10.0.0.1", expected a list [Invalid clusterDNS]
                allowed: a list
            error: /d/10.conf:3:15: maxOpenFiles: invalid type: string "-4 broken", expected a whole number [Invalid maxOpenFiles]
                allowed: a whole number
            error: /d/20.conf:3:18: registryPullQPS: invalid type: string "fast", expected a whole number from -2147483648 to 2147483647 [Invalid registryPullQPS]
                allowed: a whole number from -2147483648 to 2147483647
            note: /k.yaml:8:14: --hairpin-mode overrides hairpinMode "wild" of this file [Conflicting hairpinMode]
            warning: /k.yaml:9:1: Setting GA feature gate NodeSwap=true. It will be removed in a future release. [Deprecated featureGates]
            error: /k.yaml:9:1: unrecognized feature gate: EventedPleg (did you mean EventedPLEG?) [Unknown featureGates]
            error: /k.yaml:13:34: shutdownGracePeriodCriticalPods is 20s, but must be at most shutdownGracePeriod 0s [Invalid shutdownGracePeriodCriticalPods]
                allowed: at most shutdownGracePeriod 0s
            error: /d/20.conf:4:13: kubeAPIQPS (--kube-api-qps) is -3, but must be 0 or more [Invalid kubeAPIQPS]
                allowed: 0 or more
            error: /k.yaml:4:10: maxPods (--max-pods) is -1, but must be 0 or more [Invalid maxPods]
                allowed: 0 or more
        "#]],
    );
    check(
        "--config /absent.yaml",
        &files,
        expect![[r#"
        error: /absent.yaml: cannot read configuration file /absent.yaml: entity not found [Unreadable configuration file]
    "#]],
    );
}

#[test]
fn configuration_without_problems_has_no_findings_and_notes_what_a_flag_overrides() {
    let files = Memory::default().with("/k.yaml", "maxPods: 20\nclusterDNS: [10.0.0.10]\n");
    let fine = of("--config /k.yaml", &files);
    assert_eq!((text(&fine).as_str(), fine.severity()), ("", Severity::Note));
    assert_eq!(fine.resolved.map(|resolved| resolved.kubelet.max_pods), Some(20));
    check(
        "--config /k.yaml --max-pods 30",
        &files,
        expect![[r#"
        warning: Flag --max-pods has been deprecated, set maxPods in the file given by --config instead [Deprecated --max-pods]
        note: /k.yaml:3:10: --max-pods overrides maxPods 20 of this file [Conflicting maxPods]
    "#]],
    );
}

#[test]
fn settings_have_the_origin_of_their_value_and_no_secrets() {
    let files = Memory::default()
        .with("/k.yaml", "maxPods: 20\nsyncFrequency: 5s\nauthentication:\n  anonymous:\n    enabled: true\nstaticPodURLHeader: {Authorization: [secret]}\n")
        .with("/d/10.conf", "maxPods: 25\nsyncFrequency: null\n");
    let found = of("--config /k.yaml --config-dir /d --port 10251 --root-dir /srv", &files);
    let shown = |name: &str| {
        let setting = found.settings.iter().find(|setting| setting.name == name).expect(name);
        format!("{} from {}", setting.value, setting.origin)
    };
    assert_eq!(shown("maxPods"), "25 from /d/10.conf:3:10");
    assert_eq!(shown("syncFrequency"), "\"1m0s\" from default");
    assert_eq!(shown("authentication.anonymous.enabled"), "true from /k.yaml:7:14");
    assert_eq!(shown("port"), "10251 from --port");
    assert_eq!(shown("--root-dir"), "\"/srv\" from --root-dir");
    assert_eq!(shown("--cert-dir"), "\"/var/lib/kubelet/pki\" from default");
    assert_eq!(shown("staticPodURLHeader"), "\"<redacted>\" from /k.yaml:8:21");
    assert!(!format!("{:?}", found.settings).contains("secret"));
}

#[test]
fn machine_that_cannot_do_what_is_configured_is_reported() {
    let body = "tlsCertFile: /pki/cert.pem\ntlsPrivateKeyFile: /pki/key.pem\nstaticPodPath: /m\nsystemReserved: {memory: 9Gi, cpu: \"1\"}\n\
                readOnlyPort: 10255\nauthentication: {x509: {clientCAFile: /pki/ca.pem}}\n";
    let mut found = of("--config /k.yaml --kubeconfig /kubeconfig", &Memory::default().with("/k.yaml", body));
    let now = Timestamp::from_second(1_000_000_000).unwrap();
    let later = |seconds: i64| Timestamp::from_second(1_000_000_000 + seconds).unwrap();
    let missing = || Some("No such file or directory".to_owned());
    let port = |port, holder: &str| PortInUse {
        address: "127.0.0.1".parse().unwrap(),
        port,
        holder: holder.to_owned(),
    };
    found.add_machine(&Machine {
        facts: MachineFacts { cgroup_v1: true, swap_on: true },
        ports: vec![port(10250, "kubelet (pid 7)"), port(10255, "nginx (pid 8)"), port(80, "")],
        sockets: [("/run/containerd/containerd.sock".into(), Some("connection refused".to_owned()))].into(),
        cgroup_driver: Some("systemd".to_owned()),
        files: [
            ("/m".into(), missing()),
            ("/pki/key.pem".into(), missing()),
            ("/kubeconfig".into(), missing()),
            ("/etc/resolv.conf".into(), None),
        ]
        .into(),
        certificates: [("/pki/cert.pem".into(), Ok(later(3600))), ("/pki/ca.pem".into(), Ok(later(-1)))]
            .into(),
        name_servers: Some(vec!["127.0.0.53".to_owned()]),
        node_disk: Some(Space { bytes: 1000, available_bytes: 50, inodes: 100, free_inodes: 50 }),
        memory_bytes: Some(8 << 30),
        memory_available_bytes: Some(50 << 20),
        cpus: Some(4),
        now,
    });
    expect![[r#"
        error: this machine uses cgroup v1, which failCgroupV1 (--fail-cgroupv1) true forbids: move to cgroup v2, or set it to false [Impossible failCgroupV1]
        error: running with swap on is not supported, please disable swap or set failSwapOn (--fail-swap-on) to false [Impossible failSwapOn]
        warning: port 10250 is in use by kubelet (pid 7) [Impossible port]
            do: Stop that kubelet before this one starts.
        error: /k.yaml:7:15: readOnlyPort 10255 is in use by nginx (pid 8) [Impossible readOnlyPort]
            do: Stop that process, or choose another port.
        error: containerRuntimeEndpoint unix:///run/containerd/containerd.sock does not answer: connection refused [Impossible containerRuntimeEndpoint]
            do: Start the container runtime, or correct the path of its socket.
        warning: cgroupDriver cgroupfs is not used: the container runtime reports systemd [Impossible cgroupDriver]
            do: Set cgroupDriver to that of the container runtime.
        error: --kubeconfig /kubeconfig: No such file or directory [Impossible --kubeconfig]
            do: Write the file, or correct its path.
        warning: /k.yaml:5:16: staticPodPath /m: No such file or directory [Impossible staticPodPath]
            do: Make the directory, or correct its path.
        error: /k.yaml:4:20: tlsPrivateKeyFile /pki/key.pem: No such file or directory [Impossible tlsPrivateKeyFile]
            do: Write the file, or correct its path.
        error: /k.yaml:8:39: authentication.x509.clientCAFile /pki/ca.pem ended at 2001-09-09T01:46:39Z [Impossible authentication.x509.clientCAFile]
            do: Renew the certificate.
        warning: /k.yaml:3:14: tlsCertFile /pki/cert.pem ends at 2001-09-09T02:46:40Z [Impossible tlsCertFile]
            do: Renew the certificate.
        warning: resolvConf /etc/resolv.conf has the name server 127.0.0.53, which pods cannot reach [Impossible resolvConf]
            do: With systemd-resolved, use /run/systemd/resolve/resolv.conf.
        error: evictionHard memory.available is 100Mi (104857600), but only 52428800 bytes of memory are free [Impossible evictionHard]
            do: Free some, or lower the threshold: no pod would start.
        error: evictionHard nodefs.available is 10% (100), but only 50 bytes of the disk are free [Impossible evictionHard]
            do: Free some, or lower the threshold: no pod would start.
        warning: imageGCHighThresholdPercent is 85, and 95 % of the disk are in use [Impossible imageGCHighThresholdPercent]
            do: Unused images are removed as soon as the kubelet runs.
        error: /k.yaml:6:17: systemReserved and kubeReserved keep 9663676416 of memory from pods, but this machine has 8589934592 [Impossible systemReserved]
            do: Reserve less: pods would have nothing.
    "#]].assert_eq(&text(&found));
    assert_eq!(found.severity(), Severity::Error);
}

#[test]
fn machine_of_which_nothing_is_known_gives_no_findings() {
    let mut found = of("--config /k.yaml", &Memory::default().with("/k.yaml", ""));
    found.add_machine(&Machine::default());
    assert_eq!(text(&found), "");
}

#[test]
fn changes_say_what_a_restart_does_and_the_strongest_come_first() {
    let old = KubeletConfiguration::default();
    let mut new = KubeletConfiguration {
        max_pods: 50,
        cpu_manager_policy: "static".to_owned(),
        port: 10251,
        ..old.clone()
    };
    new.sync_frequency = crate::GoDuration::from_secs(30);
    new.static_pod_url_header = [("Authorization".to_owned(), vec!["secret".to_owned()])].into();
    let lines: Vec<String> = compute_changes(&old, &new).iter().map(ToString::to_string).collect();
    expect![[r#"
        cpuManagerPolicy: "none" -> "static"
            Drain the node first, and remove cpu_manager_state from the root directory: the kubelet does not start with the state of another policy.
        port: 10250 -> 10251
            The node reports the new port; firewalls and monitoring have to know.
        maxPods: 110 -> 50
            Pods that run stay; if there are more than the new number, the next one is refused.
        staticPodURLHeader: {} -> "<redacted>"
            Takes effect with the restart; pods run on.
        syncFrequency: "1m0s" -> "30s"
            Takes effect with the restart; pods run on.
    "#]].assert_eq(&(lines.join("\n") + "\n"));
    assert!(compute_changes(&old, &old).is_empty());
}
