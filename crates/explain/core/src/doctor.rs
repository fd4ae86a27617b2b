//! What a machine needs before the kubelet starts on it for the first time: one check for each, with what to do about it.
//!
//! The facts are an argument; a fact that is not known gives no check. Owns the words, and how bad each thing is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

/// How bad something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    #[default]
    Fine,
    /// Some pods, or some features, do not work.
    Warning,
    /// The kubelet does not start, or no pod does.
    Error,
}

/// One thing that a machine needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    pub name: &'static str,
    pub health: Health,
    /// One sentence.
    pub what: String,
    /// In the words of whatever reported it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    pub health: Health,
    pub checks: Vec<Check>,
}

/// What the container runtime reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeFacts {
    pub name: String,
    pub version: String,
    /// `systemd` or `cgroupfs`; `None` if it does not report it.
    pub cgroup_driver: Option<String>,
    /// Why it is not ready.
    pub problem: Option<String>,
    /// Why its network is not ready.
    pub network_problem: Option<String>,
}

/// An answer and how long it took, or the error.
pub type Timed<T> = Result<(T, Duration), String>;

/// What is known of the machine.
#[derive(Clone, Debug, Default)]
pub struct DoctorFacts {
    pub is_root: bool,
    /// `containerRuntimeEndpoint`.
    pub endpoint: String,
    pub runtime: Option<Timed<RuntimeFacts>>,
    /// `cgroupDriver`.
    pub configured_driver: String,
    pub is_cgroup_v2: Option<bool>,
    /// Controllers of cgroup v2 that may be used.
    pub controllers: Option<BTreeSet<String>>,
    /// Configurations of network plugins.
    pub network_configurations: Option<usize>,
    /// Whether the kernel has each of these.
    pub kernel_features: BTreeMap<&'static str, bool>,
    /// Of kernel settings, by path below `/proc/sys`.
    pub settings: BTreeMap<&'static str, String>,
    /// The largest number of open files that this process may have.
    pub open_files: Option<u64>,
    /// `maxOpenFiles`.
    pub wanted_open_files: u64,
    pub now: Timestamp,
    /// `None`: not known.
    pub is_clock_synchronized: Option<bool>,
    /// The name that was resolved, and the addresses.
    pub dns: Option<(String, Timed<usize>)>,
    /// The address of the API server, and how long a connection took. `None` for a standalone node.
    pub api: Option<(String, Timed<()>)>,
    /// Errors and warnings of the configuration.
    pub configuration: (usize, usize),
}

/// A slower answer is worth a word.
const SLOW: Duration = Duration::from_secs(1);
/// No machine has an earlier time: 2025-01-01.
const EARLIEST: i64 = 1_735_689_600;
const CONTROLLERS: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];

/// Examines the machine.
#[must_use]
pub fn compute_doctor_report(facts: &DoctorFacts) -> Report {
    let mut checks = vec![user(facts), configuration(facts)];
    checks.extend(runtime(facts));
    checks.extend(cgroups(facts));
    checks.extend(network(facts));
    checks.extend(kernel(facts));
    checks.extend(limits(facts));
    checks.push(clock(facts));
    checks.extend(names(facts));
    checks.extend(api(facts));
    let health = checks.iter().map(|check| check.health).max().unwrap_or_default();
    Report { health, checks }
}

fn fine(name: &'static str, what: impl Into<String>) -> Check {
    Check { name, what: what.into(), ..Check::default() }
}

fn warning(name: &'static str, what: impl Into<String>, remedy: &str) -> Check {
    Check { health: Health::Warning, remedy: remedy.to_owned(), ..fine(name, what) }
}

fn error(name: &'static str, what: impl Into<String>, remedy: &str) -> Check {
    Check { health: Health::Error, remedy: remedy.to_owned(), ..fine(name, what) }
}

fn millis(took: Duration) -> String {
    format!("{} ms", took.as_millis())
}

fn user(facts: &DoctorFacts) -> Check {
    match facts.is_root {
        true => fine("user", "The kubelet would run as root."),
        false => error("user", "The kubelet has to run as root.", "Run it, and this command, as root."),
    }
}

fn configuration(facts: &DoctorFacts) -> Check {
    let remedy = "kubelet config check lists them, with the same flags.";
    match facts.configuration {
        (0, 0) => fine("configuration", "The configuration has no problems."),
        (0, warnings) => {
            warning("configuration", format!("Warnings of the configuration: {warnings}."), remedy)
        }
        (errors, _) => error("configuration", format!("Errors of the configuration: {errors}."), remedy),
    }
}

fn runtime(facts: &DoctorFacts) -> Vec<Check> {
    let (found, took) = match &facts.runtime {
        None => return Vec::new(),
        Some(Ok(found)) => found,
        Some(Err(problem)) => {
            let what = format!("The container runtime does not answer at {}.", facts.endpoint);
            let remedy = "Start it (systemctl start containerd, or crio), and compare its socket with containerRuntimeEndpoint. In containerd, disabled_plugins must not have cri.";
            return vec![Check { error: problem.clone(), ..error("runtime", what, remedy) }];
        }
    };
    let RuntimeFacts { name, version, cgroup_driver, problem, .. } = found;
    let answer = format!("{name} {version} answers in {}.", millis(*took));
    let answers = match problem {
        Some(problem) => {
            let remedy = "Look at its log: journalctl -u containerd, or crio.";
            Check {
                error: problem.clone(),
                ..error("runtime", format!("{name} {version} is not ready."), remedy)
            }
        }
        None if *took > SLOW => {
            warning("runtime", answer, "It is slow: look at the load of this machine and at its disk.")
        }
        None => fine("runtime", answer),
    };
    vec![answers, driver(facts, name, cgroup_driver.as_deref())]
}

fn driver(facts: &DoctorFacts, runtime: &str, reported: Option<&str>) -> Check {
    let configured = &facts.configured_driver;
    match reported {
        None => warning(
            "cgroup driver",
            format!("{runtime} does not report its cgroup driver; {configured} is used."),
            "Update the container runtime, or make sure that its cgroup driver is the same.",
        ),
        Some(driver) if driver == configured => fine("cgroup driver", format!("Both use {driver}.")),
        Some(driver) => warning(
            "cgroup driver",
            format!("{runtime} uses {driver}, which is used instead of cgroupDriver {configured}."),
            "Set cgroupDriver to the same.",
        ),
    }
}

fn cgroups(facts: &DoctorFacts) -> Option<Check> {
    if !facts.is_cgroup_v2? {
        let remedy = "Boot with systemd.unified_cgroup_hierarchy=1, or set failCgroupV1 to false.";
        return Some(warning("cgroups", "This machine has cgroup v1, which is in maintenance mode.", remedy));
    }
    let available = facts.controllers.as_ref()?;
    let missing: Vec<&str> = CONTROLLERS.into_iter().filter(|name| !available.contains(*name)).collect();
    Some(match missing.as_slice() {
        [] => fine("cgroups", "This machine has cgroup v2 with all controllers."),
        missing => error(
            "cgroups",
            format!("cgroup v2 has no controller {}.", missing.join(", ")),
            "Enable it in the kernel (cgroup_enable=memory on some boards), or in cgroup.subtree_control.",
        ),
    })
}

fn network(facts: &DoctorFacts) -> Option<Check> {
    let reported = facts.runtime.as_ref().and_then(|runtime| runtime.as_ref().ok());
    let remedy = "Install a network plugin (its programs in /opt/cni/bin, its configuration in /etc/cni/net.d). Pods of the host network run without.";
    if let Some((RuntimeFacts { network_problem: Some(problem), .. }, _)) = reported {
        let check = warning("pod network", "The network of pods is not ready.", remedy);
        return Some(Check { error: problem.clone(), ..check });
    }
    match (reported, facts.network_configurations) {
        (Some(_), _) => Some(fine("pod network", "The network of pods is ready.")),
        (None, Some(0)) => Some(warning("pod network", "No network plugin is configured.", remedy)),
        (None, Some(count)) => {
            Some(fine("pod network", format!("Configurations of network plugins: {count}.")))
        }
        (None, None) => None,
    }
}

fn kernel(facts: &DoctorFacts) -> Vec<Check> {
    let feature = |(name, is_there): (&&'static str, &bool)| match is_there {
        true => fine(name, format!("The kernel has {name}.")),
        false => warning(
            name,
            format!("The kernel has no {name}."),
            &format!("modprobe {name}, and write its name to a file in /etc/modules-load.d."),
        ),
    };
    let mut checks: Vec<Check> = facts.kernel_features.iter().map(feature).collect();
    let rows = [
        (
            "net/ipv4/ip_forward",
            "Pods reach other machines only if IP forwarding is on.",
            "sysctl -w net.ipv4.ip_forward=1, and write it to a file in /etc/sysctl.d.",
        ),
        (
            "net/bridge/bridge-nf-call-iptables",
            "Services may not work for pods on a bridge.",
            "sysctl -w net.bridge.bridge-nf-call-iptables=1, and write it to a file in /etc/sysctl.d.",
        ),
    ];
    for (path, consequence, remedy) in rows {
        let Some(value) = facts.settings.get(path) else { continue };
        let name = path.replace('/', ".");
        checks.push(match value.as_str() {
            "1" => fine("sysctl", format!("{name} is 1.")),
            value => warning("sysctl", format!("{name} is {value}. {consequence}"), remedy),
        });
    }
    checks
}

fn limits(facts: &DoctorFacts) -> Vec<Check> {
    let wanted = facts.wanted_open_files;
    let files = facts.open_files.map(|most| match most >= wanted {
        true => fine("open files", format!("This process may have {wanted} open files.")),
        false => warning(
            "open files",
            format!("This process may have {most} open files, and maxOpenFiles is {wanted}."),
            "Raise fs.nr_open and LimitNOFILE of the unit, or lower maxOpenFiles.",
        ),
    });
    let rows = [
        ("fs/inotify/max_user_instances", 128, "Programs in pods may fail with \"too many open files\"."),
        ("kernel/pid_max", 32_768, "Pods may fail to start processes."),
    ];
    let numbers = rows.into_iter().filter_map(|(path, least, consequence)| {
        let value: u64 = facts.settings.get(path)?.parse().ok()?;
        let name = path.replace('/', ".");
        Some(match value >= least {
            true => fine("limits", format!("{name} is {value}.")),
            false => {
                let remedy = format!("sysctl -w {name}={least}, or more.");
                warning("limits", format!("{name} is {value}. {consequence}"), &remedy)
            }
        })
    });
    files.into_iter().chain(numbers).collect()
}

fn clock(facts: &DoctorFacts) -> Check {
    let now = facts.now.strftime("%Y-%m-%d %H:%M:%S UTC").to_string();
    let remedy = "Enable a time service: systemctl enable --now systemd-timesyncd, or chronyd.";
    match facts.is_clock_synchronized {
        _ if facts.now.as_second() < EARLIEST => {
            error("clock", format!("The clock is wrong: it is not {now}. No certificate is valid."), remedy)
        }
        Some(false) => warning("clock", format!("The clock is not synchronized; it shows {now}."), remedy),
        Some(true) => fine("clock", format!("The clock is synchronized; it shows {now}.")),
        None => fine("clock", format!("The clock shows {now}; whether it is synchronized is not known.")),
    }
}

fn names(facts: &DoctorFacts) -> Option<Check> {
    let (name, answer) = facts.dns.as_ref()?;
    let remedy = "Look at the name servers in /etc/resolv.conf.";
    Some(match answer {
        Ok((_, took)) if *took > SLOW => {
            warning("DNS", format!("Resolving {name} took {}.", millis(*took)), remedy)
        }
        Ok((count, took)) => {
            fine("DNS", format!("{name} has {count} addresses, found in {}.", millis(*took)))
        }
        Err(problem) => {
            Check { error: problem.clone(), ..warning("DNS", format!("{name} cannot be resolved."), remedy) }
        }
    })
}

fn api(facts: &DoctorFacts) -> Option<Check> {
    let (address, answer) = facts.api.as_ref()?;
    let remedy = "Check the server of the kubeconfig, the route to it, and firewalls.";
    Some(match answer {
        Ok(((), took)) if *took > SLOW => {
            warning("API server", format!("Connecting to {address} took {}.", millis(*took)), remedy)
        }
        Ok(((), took)) => fine("API server", format!("{address} accepts connections, in {}.", millis(*took))),
        Err(problem) => {
            let what = format!("The API server at {address} cannot be reached.");
            Check { error: problem.clone(), ..error("API server", what, remedy) }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(report: &Report) -> String {
        let line = |check: &Check| {
            let mut line = format!("{:?} {}: {}\n", check.health, check.name, check.what);
            for (name, text) in [("error", &check.error), ("do", &check.remedy)] {
                if !text.is_empty() {
                    line += &format!("    {name} {text}\n");
                }
            }
            line
        };
        report.checks.iter().map(line).collect()
    }

    fn good() -> DoctorFacts {
        let took = Duration::from_millis(12);
        let runtime = RuntimeFacts {
            name: "containerd".to_owned(),
            version: "2.1.0".to_owned(),
            cgroup_driver: Some("systemd".to_owned()),
            ..RuntimeFacts::default()
        };
        DoctorFacts {
            is_root: true,
            endpoint: "unix:///run/containerd/containerd.sock".to_owned(),
            runtime: Some(Ok((runtime, took))),
            configured_driver: "systemd".to_owned(),
            is_cgroup_v2: Some(true),
            controllers: Some(CONTROLLERS.map(str::to_owned).into()),
            network_configurations: Some(1),
            kernel_features: [("overlay", true), ("br_netfilter", true)].into(),
            settings: [("net/ipv4/ip_forward", "1".to_owned()), ("kernel/pid_max", "4194304".to_owned())]
                .into(),
            open_files: Some(1 << 20),
            wanted_open_files: 1_000_000,
            now: Timestamp::from_second(1_800_000_000).unwrap(),
            is_clock_synchronized: Some(true),
            dns: Some(("api.example".to_owned(), Ok((2, took)))),
            api: Some(("api.example:6443".to_owned(), Ok(((), took)))),
            configuration: (0, 0),
        }
    }

    #[test]
    fn machine_without_problems_is_fine() {
        let report = compute_doctor_report(&good());
        assert_eq!(report.health, Health::Fine);
        expect_test::expect![[r#"
            Fine user: The kubelet would run as root.
            Fine configuration: The configuration has no problems.
            Fine runtime: containerd 2.1.0 answers in 12 ms.
            Fine cgroup driver: Both use systemd.
            Fine cgroups: This machine has cgroup v2 with all controllers.
            Fine pod network: The network of pods is ready.
            Fine br_netfilter: The kernel has br_netfilter.
            Fine overlay: The kernel has overlay.
            Fine sysctl: net.ipv4.ip_forward is 1.
            Fine open files: This process may have 1000000 open files.
            Fine limits: kernel.pid_max is 4194304.
            Fine clock: The clock is synchronized; it shows 2027-01-15 08:00:00 UTC.
            Fine DNS: api.example has 2 addresses, found in 12 ms.
            Fine API server: api.example:6443 accepts connections, in 12 ms.
        "#]]
        .assert_eq(&text(&report));
    }

    #[test]
    fn each_problem_has_a_remedy() {
        let refused = || "connection refused".to_owned();
        let bad = DoctorFacts {
            is_root: false,
            runtime: Some(Err(refused())),
            controllers: Some(["cpu".to_owned()].into()),
            network_configurations: Some(0),
            kernel_features: [("overlay", false)].into(),
            settings: [
                ("net/ipv4/ip_forward", "0".to_owned()),
                ("fs/inotify/max_user_instances", "64".to_owned()),
            ]
            .into(),
            open_files: Some(1024),
            now: Timestamp::UNIX_EPOCH,
            is_clock_synchronized: Some(false),
            dns: Some(("api.example".to_owned(), Err("no answer within 5 s".to_owned()))),
            api: Some(("api.example:6443".to_owned(), Err(refused()))),
            configuration: (2, 1),
            ..good()
        };
        let report = compute_doctor_report(&bad);
        assert_eq!(report.health, Health::Error);
        assert!(report.checks.iter().all(|check| check.health == Health::Fine || !check.remedy.is_empty()));
        expect_test::expect![[r#"
            Error user: The kubelet has to run as root.
                do Run it, and this command, as root.
            Error configuration: Errors of the configuration: 2.
                do kubelet config check lists them, with the same flags.
            Error runtime: The container runtime does not answer at unix:///run/containerd/containerd.sock.
                error connection refused
                do Start it (systemctl start containerd, or crio), and compare its socket with containerRuntimeEndpoint. In containerd, disabled_plugins must not have cri.
            Error cgroups: cgroup v2 has no controller cpuset, memory, pids.
                do Enable it in the kernel (cgroup_enable=memory on some boards), or in cgroup.subtree_control.
            Warning pod network: No network plugin is configured.
                do Install a network plugin (its programs in /opt/cni/bin, its configuration in /etc/cni/net.d). Pods of the host network run without.
            Warning overlay: The kernel has no overlay.
                do modprobe overlay, and write its name to a file in /etc/modules-load.d.
            Warning sysctl: net.ipv4.ip_forward is 0. Pods reach other machines only if IP forwarding is on.
                do sysctl -w net.ipv4.ip_forward=1, and write it to a file in /etc/sysctl.d.
            Warning open files: This process may have 1024 open files, and maxOpenFiles is 1000000.
                do Raise fs.nr_open and LimitNOFILE of the unit, or lower maxOpenFiles.
            Warning limits: fs.inotify.max_user_instances is 64. Programs in pods may fail with "too many open files".
                do sysctl -w fs.inotify.max_user_instances=128, or more.
            Error clock: The clock is wrong: it is not 1970-01-01 00:00:00 UTC. No certificate is valid.
                do Enable a time service: systemctl enable --now systemd-timesyncd, or chronyd.
            Warning DNS: api.example cannot be resolved.
                error no answer within 5 s
                do Look at the name servers in /etc/resolv.conf.
            Error API server: The API server at api.example:6443 cannot be reached.
                error connection refused
                do Check the server of the kubeconfig, the route to it, and firewalls.
        "#]].assert_eq(&text(&report));
    }

    #[test]
    fn runtime_with_another_driver_and_without_network_is_a_warning() {
        let mut facts = good();
        facts.configured_driver = "cgroupfs".to_owned();
        if let Some(Ok((runtime, _))) = &mut facts.runtime {
            runtime.network_problem = Some("cni plugin not initialized".to_owned());
        }
        let report = compute_doctor_report(&facts);
        assert_eq!(report.health, Health::Warning);
        let text = text(&report);
        assert!(
            text.contains("containerd uses systemd, which is used instead of cgroupDriver cgroupfs."),
            "{text}"
        );
        assert!(text.contains("error cni plugin not initialized"), "{text}");
    }
}
