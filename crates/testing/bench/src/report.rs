//! The results next to the targets: as a table for people and as JSON for programs.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::Effort;
use crate::burst::{Burst, Replay, Start};
use crate::csi::Csi;
use crate::idle::Idle;
use crate::joining::Joining;
use crate::latency::Latency;
use crate::member::{Member, Stage};
use crate::single_node::{PODS, Rest, SingleNode, Use};
use crate::streams::Streams;

/// A target missed by more than this factor fails a short run: less may come from a busy machine, and from the program of the tests, which is
/// not optimised.
const TOLERANCE: f64 = 3.0;
/// Processor time in seconds a minute before a short run fails. A virtual machine may charge a process that wakes up after a pause six
/// times the time that the same work costs otherwise, so that only a loop that does not become quiet is certain to show.
const MAX_PROCESSOR: f64 = 3.0;
/// Milliseconds that the kubelet adds to the raw calls before a short run fails. Without optimisation its own work takes 26 to 50 by itself, and
/// one program has added 40 to 63 within an hour.
const MAX_ADDED: f64 = 90.0;
/// Requests to the API server a minute before a short run fails: a quiet node renews its lease.
const MAX_REQUESTS: f64 = 15.0;
const MEGABYTE: f64 = 1_000_000.0;
const KILOBYTE: f64 = 1000.0;
/// A tenth of what the Go kubelet 1.36 needs as a member of a cluster: without pods and with 100. Processor time is measured in
/// hundredths of a second.
const TENTH_OF_GO_EMPTY: Bounds = Bounds { private: Some(2.4), processor: Some(0.03) };
const TENTH_OF_GO_FULL: Bounds = Bounds { private: Some(7.7), processor: Some(0.22) };
/// Two minutes after 100 pods have gone; the Go kubelet keeps 37 MB.
const GONE: Bounds = Bounds { private: Some(6.0), processor: None };
/// With the window that follows, this is after the kubelet has returned memory for the last time.
const MEMORY_RETURNED_AFTER: Duration = Duration::from_secs(110);
/// Private memory of a member of a cluster for each pod that it has more than the smallest one, in kilobytes.
const FOR_EACH_FURTHER: f64 = 25.0;
/// Heap that a member may have for each pod before a short run fails, in kilobytes: the target for 100 pods less what it has without any
/// is 61, and other work on the machine leaves up to 0.9 MB of holes between the starts of 100 pods.
const MAX_HEAP_FOR_EACH: f64 = 70.0;
/// Heap that streams may leave behind, in megabytes, before a short run fails. It does not depend on the memory before, which is mostly
/// code.
const MAX_KEPT: f64 = 2.4;
/// Megabytes of private memory more than the target before a short run fails: the loader relocates 3.5 MB more of the program of the tests, and
/// other work on the machine leaves holes.
const MORE_PRIVATE: f64 = 5.5;

/// Megabytes of private memory that a node may have more with its API, and kilobytes for each pod.
const MORE_WITH_API: f64 = 8.0;
const FOR_EACH_WITH_API: f64 = 20.0;
/// Milliseconds that a request to the API may take more than a manifest until the container runs.
const REQUEST_OVER_MANIFEST: f64 = 30.0;

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) effort: Effort,
    pub(crate) latency: Option<Latency>,
    pub(crate) idle: Vec<Idle>,
    pub(crate) members: Vec<Member>,
    pub(crate) joining: Option<Joining>,
    pub(crate) csi: Option<Csi>,
    pub(crate) burst: Option<Burst>,
    pub(crate) streams: Option<Streams>,
    pub(crate) single_node: Option<SingleNode>,
    pub(crate) binary_bytes: u64,
}

/// One line of the report.
#[derive(Debug)]
struct Line {
    what: String,
    value: f64,
    /// The same value by the statistic that a busy machine disturbs least: a short run checks this one.
    smallest: f64,
    unit: &'static str,
    /// At most this, where the project has set a target.
    target: Option<f64>,
    /// A short run fails beyond it, where that is not the target by the tolerance.
    limit: Option<f64>,
}

impl Line {
    fn holds(&self) -> Option<bool> {
        self.target.map(|target| self.value <= target)
    }

    /// What a short run says of a value that it does not tolerate.
    fn excess(&self) -> Option<String> {
        let limit = self.limit.or(self.target.map(|target| target * TOLERANCE))?;
        let Self { what, smallest, unit, .. } = self;
        // A value that is not a number is not tolerated.
        let is_tolerable = *smallest <= limit;
        (!is_tolerable).then(|| format!("{what}: {smallest:.2} {unit}, a short run tolerates {limit:.2}"))
    }
}

impl Report {
    /// What a short run does not tolerate, one line for each value.
    pub(crate) fn excesses(&self) -> Vec<String> {
        self.lines().iter().filter_map(Line::excess).collect()
    }

    pub(crate) fn table(&self) -> String {
        let mut table = String::new();
        for line in self.lines() {
            let target = match (line.target, line.holds()) {
                (Some(target), Some(true)) => format!("at most {target} {}: holds", line.unit),
                (Some(target), Some(false)) => format!("at most {target} {}: MISSED", line.unit),
                (Some(_) | None, _) => String::new(),
            };
            let row = format!("    {:<60} {:>8.2} {:<8} {target}", line.what, line.value, line.unit);
            // Writing to a String cannot fail.
            let _ = writeln!(table, "{}", row.trim_end());
        }
        table
    }

    pub(crate) fn json(&self) -> String {
        let lines: Vec<Value> = self
            .lines()
            .into_iter()
            .map(|line| {
                let holds = line.holds();
                json!({"what": line.what, "value": line.value, "unit": line.unit, "mark": line.target, "holds": holds})
            })
            .collect();
        let samples = self.latency.as_ref().map(|latency| {
            json!({
                "rawMilliseconds": latency.raw,
                "manifestMilliseconds": latency.manifest,
                "ownShareMilliseconds": latency.own,
                "processMilliseconds": latency.process,
            })
        });
        let csi_samples = self.csi.as_ref().map(|csi| {
            json!({
                "withoutVolumesMilliseconds": csi.plain,
                "withTwoVolumesMilliseconds": csi.with_volumes,
                "driverMilliseconds": csi.driver,
                "registeredDriverBytes": csi.registered_bytes,
                "registeredDriverAnonymousBytes": csi.registered_anonymous_bytes,
            })
        });
        let burst_samples = self.burst.as_ref().map(burst_samples);
        let single_node_samples = self.single_node.as_ref().map(
            |single| json!({"manifestMilliseconds": single.manifest, "requestMilliseconds": single.request}),
        );
        let window = self.effort.window.as_secs();
        let report = json!({
            "lines": lines, "samples": samples, "csiSamples": csi_samples, "burstSamples": burst_samples,
            "singleNodeSamples": single_node_samples,
            "idleWindowSeconds": window,
        });
        format!("{report:#}\n")
    }

    fn lines(&self) -> Vec<Line> {
        let mut lines: Vec<Line> = self.latency.iter().flat_map(latency_lines).collect();
        lines.extend(self.idle.iter().map(resident_line));
        lines.extend(self.idle.iter().map(processor_line));
        let waits_for_memory = self.effort.settle_empty >= MEMORY_RETURNED_AFTER;
        lines.extend(self.members.iter().flat_map(|member| member_lines(member, waits_for_memory)));
        if let Some((first, others)) = self.members.split_first() {
            let larger = others.iter().filter(|other| other.pods > first.pods);
            lines.extend(larger.map(|larger| further_line(first, larger)));
        }
        lines.extend(self.joining.iter().flat_map(joining_lines));
        lines.extend(self.csi.iter().flat_map(csi_lines));
        lines.extend(self.burst.iter().flat_map(burst_lines));
        lines.extend(self.streams.iter().flat_map(streams_lines));
        lines.extend(self.single_node.iter().flat_map(single_node_lines));
        let binary = plain("size of the binary", as_f64(self.binary_bytes) / MEGABYTE, "MB");
        // The size of a program that is not optimised says nothing.
        lines.push(Line { target: Some(14.0), limit: Some(f64::INFINITY), ..binary });
        lines
    }
}

fn burst_samples(burst: &Burst) -> Value {
    let start = |start: &Start| {
        json!({
            "allMilliseconds": start.all,
            "startedMilliseconds": start.to_runtime,
            "runningInApiMilliseconds": start.to_api,
            "statusMilliseconds": start.status,
            "kubeletProcessorSeconds": start.kubelet_cpu_seconds,
            "benchProcessorSeconds": start.bench_cpu_seconds,
        })
    };
    let replays = burst.replays.iter().map(|replay| {
        json!({
            "aloneMilliseconds": replay.all,
            "requiredAloneMilliseconds": replay.required,
            "withKubeletMilliseconds": replay.with_kubelet,
            "calls": replay.calls,
            "concurrency": replay.concurrency,
        })
    });
    json!({
        "starts": burst.starts.iter().map(start).collect::<Vec<Value>>(),
        "replays": replays.collect::<Vec<Value>>(),
        "removedMilliseconds": burst.removals,
    })
}

fn plain(what: &str, value: f64, unit: &'static str) -> Line {
    Line { what: what.to_owned(), value, smallest: value, unit, target: None, limit: None }
}

fn latency_lines(latency: &Latency) -> [Line; 10] {
    let Latency { raw, manifest, own, process } = latency;
    let added = plain("added to the raw calls, median of pairs", quantile(&latency.added(), 0.5), "ms");
    // Other work on the machine makes both slower, but hardly the fastest of each.
    let on_quiet_machine = added.value.min(quantile(manifest, 0.0) - quantile(raw, 0.0));
    [
        plain("raw CRI calls to container started, fastest", quantile(raw, 0.0), "ms"),
        plain("raw CRI calls to container started, median", quantile(raw, 0.5), "ms"),
        plain("raw CRI calls to container started, p90", quantile(raw, 0.9), "ms"),
        plain("manifest to container started, fastest", quantile(manifest, 0.0), "ms"),
        plain("manifest to container started, median", quantile(manifest, 0.5), "ms"),
        plain("manifest to container started, p90", quantile(manifest, 0.9), "ms"),
        Line { target: Some(20.0), limit: Some(MAX_ADDED), smallest: on_quiet_machine, ..added },
        plain("its own share, on a runtime at no cost, fastest", quantile(own, 0.0), "ms"),
        plain("its own share, on a runtime at no cost, median", quantile(own, 0.5), "ms"),
        plain("process start to first container, median", quantile(process, 0.5), "ms"),
    ]
}

fn resident_line(idle: &Idle) -> Line {
    plain(&format!("resident memory with {} pods", idle.pods), as_f64(idle.resident_bytes) / MEGABYTE, "MB")
}

fn processor_line(idle: &Idle) -> Line {
    let what = format!("processor time a minute, idle with {} pods", idle.pods);
    Line {
        target: (idle.pods == 100).then_some(0.3),
        limit: Some(MAX_PROCESSOR),
        ..plain(&what, idle.cpu_seconds_per_minute, "s/min")
    }
}

fn joining_lines(joining: &Joining) -> [Line; 2] {
    let line = |what: &str, samples: &[f64]| Line {
        target: Some(400.0),
        smallest: quantile(samples, 0.0),
        ..plain(what, quantile(samples, 0.5), "ms")
    };
    [
        line("process start to first container, TLS bootstrap", &joining.bootstrap),
        line("process start to first container, with a kubeconfig", &joining.kubeconfig),
    ]
}

/// `waits_for_memory`: what is measured after the pods is what remains for good.
fn member_lines(member: &Member, waits_for_memory: bool) -> Vec<Line> {
    let Member { pods, empty, full, after, day } = member;
    let returned = if *pods == 100 && waits_for_memory { GONE } else { Bounds::default() };
    let mut lines = stage_lines("no pod", empty, TENTH_OF_GO_EMPTY);
    let bounds = if *pods == 100 { TENTH_OF_GO_FULL } else { Bounds::default() };
    lines.extend(stage_lines(&format!("{pods} pods"), full, bounds));
    let heap = (as_f64(full.memory.anonymous) - as_f64(empty.memory.anonymous)) / *pods as f64;
    let heap = plain(&format!("member, {pods} pods: heap for each"), heap / KILOBYTE, "kB");
    lines.push(Line { limit: Some(MAX_HEAP_FOR_EACH), ..heap });
    lines.extend(stage_lines(&format!("{pods} pods gone"), after, returned));
    if let Some((cycles, stage)) = day {
        lines.extend(stage_lines(&format!("{} pods gone", pods * (cycles + 1)), stage, returned));
    }
    lines.push(plain(
        &format!("member, {pods} pods: requests for the life of one"),
        member.requests_per_pod(),
        "",
    ));
    lines
}

/// What each pod costs that the larger of two members has more.
fn further_line(smaller: &Member, larger: &Member) -> Line {
    let more = as_f64(larger.full.memory.anonymous) - as_f64(smaller.full.memory.anonymous);
    let for_each = more / (larger.pods as f64 - smaller.pods as f64);
    let what =
        format!("member, {} instead of {} pods: private memory for each more", larger.pods, smaller.pods);
    Line { target: Some(FOR_EACH_FURTHER), ..plain(&what, for_each / KILOBYTE, "kB") }
}

/// What a stage of a member should need.
#[derive(Clone, Copy, Debug, Default)]
struct Bounds {
    /// Target of the private memory, in megabytes: what is no part of a file, so that nothing can reclaim it.
    private: Option<f64>,
    /// Target of the processor time, in seconds a minute.
    processor: Option<f64>,
}

fn stage_lines(name: &str, stage: &Stage, bounds: Bounds) -> Vec<Line> {
    let Stage { memory, cpu_seconds_per_minute, requests_per_minute, .. } = stage;
    let line = |what: &str, value: f64, unit| plain(&format!("member, {name}: {what}"), value, unit);
    vec![
        Line {
            target: bounds.private,
            limit: bounds.private.map(|target| target + MORE_PRIVATE),
            ..line("private memory", as_f64(memory.anonymous) / MEGABYTE, "MB")
        },
        line("resident memory", as_f64(memory.resident) / MEGABYTE, "MB"),
        Line {
            target: bounds.processor,
            limit: Some(MAX_PROCESSOR),
            // Without the error of a difference of two numbers of ticks.
            ..line("processor time a minute", (cpu_seconds_per_minute * 100.0).round() / 100.0, "s/min")
        },
        Line {
            limit: Some(MAX_REQUESTS),
            ..line("requests to the API server a minute", *requests_per_minute, "")
        },
    ]
}

fn csi_lines(csi: &Csi) -> [Line; 6] {
    let median = |what: &str, samples: &[f64], unit| plain(what, quantile(samples, 0.5), unit);
    let kilobytes = |bytes: &[f64]| bytes.iter().map(|bytes| bytes / 1000.0).collect::<Vec<f64>>();
    let anonymous = kilobytes(&csi.registered_anonymous_bytes);
    let added = csi.added();
    [
        median("pod without volumes, created to running, median", &csi.plain, "ms"),
        median("pod with two CSI volumes, created to running, median", &csi.with_volumes, "ms"),
        median("of that the driver's own calls, median", &csi.driver, "ms"),
        Line {
            target: Some(15.0),
            smallest: quantile(&added, 0.25),
            ..median("added to the driver's own calls by two CSI volumes", &added, "ms")
        },
        median(
            "cluster member: resident memory of a registered driver",
            &kilobytes(&csi.registered_bytes),
            "kB",
        ),
        Line {
            target: Some(300.0),
            smallest: quantile(&anonymous, 0.0),
            ..median("of that without code and other files", &anonymous, "kB")
        },
    ]
}

fn burst_lines(burst: &Burst) -> Vec<Line> {
    let Burst { pods, starts, replays, removals } = burst;
    let name = |what: &str| format!("burst of {pods}: {what}");
    let median = |what: &str, samples: &[f64], unit| plain(&name(what), quantile(samples, 0.5), unit);
    let per_burst = |value: fn(&Start) -> f64| starts.iter().map(value).collect::<Vec<f64>>();
    let per_pod =
        |values: fn(&Start) -> &[f64]| starts.iter().flat_map(values).copied().collect::<Vec<f64>>();
    let per_replay = |value: fn(&Replay) -> f64| replays.iter().map(value).collect::<Vec<f64>>();
    let calls = per_replay(|replay| as_f64(replay.calls.values().sum::<usize>() as u64));
    let concurrency = per_replay(|replay| as_f64(replay.concurrency as u64));
    let added = burst.added_percent();
    let mut lines = vec![
        median("until the last container started", &per_burst(|start| start.all), "ms"),
        median("the same CRI calls alone", &per_replay(|replay| replay.all), "ms"),
        median("of them only those that start pods", &per_replay(|replay| replay.required), "ms"),
        Line {
            target: Some(10.0),
            // A burst needs the whole machine: a short run, of one burst, cannot separate the kubelet from other work.
            smallest: 0.0,
            ..median("added to the CRI calls alone", &added, "%")
        },
        median("CRI calls", &calls, ""),
        median("CRI calls for pods at the same time", &concurrency, ""),
        median("processor time of the kubelet", &per_burst(|start| start.kubelet_cpu_seconds), "s"),
        median("of the API server and the proxy", &per_burst(|start| start.bench_cpu_seconds), "s"),
    ];
    let samples = [
        ("created to container started", per_pod(|start| &start.to_runtime)),
        ("created to Running in the API", per_pod(|start| &start.to_api)),
        ("container started to Running in the API", per_pod(|start| &start.status)),
        ("deleted to gone from the API", removals.clone()),
    ];
    for (what, samples) in samples {
        lines.push(median(&format!("{what}, p50"), &samples, "ms"));
        lines.push(plain(&name(&format!("{what}, p99")), quantile(&samples, 0.99), "ms"));
    }
    lines
}

fn streams_lines(streams: &Streams) -> Vec<Line> {
    let before = as_f64(streams.before.resident);
    let mut lines = vec![plain("streams, none: resident memory", before / MEGABYTE, "MB")];
    let mut previous = before;
    for (index, load) in streams.loads.iter().enumerate() {
        let name = |what: &str| format!("{} {}: {what}", load.count, load.what);
        if let Some(during) = &load.during {
            let resident = as_f64(during.resident);
            lines.push(plain(&name("resident memory"), resident / MEGABYTE, "MB"));
            let each = (resident - previous) / as_f64(load.count as u64) / 1000.0;
            lines.push(plain(&name("each"), each, "kB"));
        }
        let after = as_f64(load.after.resident);
        lines.push(plain(&name("gone, resident memory"), after / MEGABYTE, "MB"));
        // Code that was used for the first time stays in memory, too.
        let kept = as_f64(load.after.anonymous) - as_f64(streams.before.anonymous);
        // What counts is what is kept after all of them: a tenth of what was resident before.
        let is_last = index + 1 == streams.loads.len();
        let target = is_last.then_some(before / MEGABYTE / 10.0);
        let limit = is_last.then_some(MAX_KEPT);
        let line = plain(&name("kept afterwards, no part of a file"), kept / MEGABYTE, "MB");
        lines.push(Line { target, limit, ..line });
        previous = after;
    }
    lines
}

fn single_node_lines(single: &SingleNode) -> Vec<Line> {
    let SingleNode { empty, full, manifest, request } = single;
    let mut lines = rest_lines("no pod", empty);
    let more = more_with_api(empty);
    lines.push(Line {
        target: Some(MORE_WITH_API),
        limit: Some(MORE_WITH_API + MORE_PRIVATE),
        ..plain("single node, no pod: more than standalone", more / MEGABYTE, "MB")
    });
    lines.extend(rest_lines(&format!("{PODS} pods"), full));
    let for_each = (more_with_api(full) - more) / as_f64(PODS as u64);
    let what = format!("single node, {PODS} pods: each more than standalone");
    lines.push(Line { target: Some(FOR_EACH_WITH_API), ..plain(&what, for_each / KILOBYTE, "kB") });
    let added = single.added();
    lines.extend([
        plain("standalone: manifest to container started, median", quantile(manifest, 0.5), "ms"),
        plain("single node: request to container started, median", quantile(request, 0.5), "ms"),
        Line {
            target: Some(REQUEST_OVER_MANIFEST),
            smallest: quantile(&added, 0.0),
            ..plain("single node: request over manifest, median of pairs", quantile(&added, 0.5), "ms")
        },
    ]);
    lines
}

/// Bytes of private memory of kubelet and API server that a standalone kubelet does not have.
fn more_with_api(rest: &Rest) -> f64 {
    let Rest { standalone, kubelet, api_server } = rest;
    as_f64(kubelet.private_bytes) + as_f64(api_server.private_bytes) - as_f64(standalone.private_bytes)
}

fn rest_lines(pods: &str, rest: &Rest) -> Vec<Line> {
    let Rest { standalone, kubelet, api_server } = rest;
    let of = |name: &str, process: &Use| {
        let line = |what: &str, value: f64, unit| plain(&format!("{name}, {pods}: {what}"), value, unit);
        [
            line("private memory", as_f64(process.private_bytes) / MEGABYTE, "MB"),
            line(
                "processor time a minute",
                (process.cpu_seconds_per_minute * 100.0).round() / 100.0,
                "s/min",
            ),
            line("wake-ups a minute", process.wake_ups_per_minute.round(), ""),
        ]
    };
    let all = [("standalone", standalone), ("single node", kubelet), ("its API server", api_server)];
    all.into_iter().flat_map(|(name, process)| of(name, process)).collect()
}

/// The value that this share of the samples does not exceed; without samples NaN, which no target allows.
fn quantile(samples: &[f64], share: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    // The nearest rank, counted up instead of computed, so that no float is converted to an index.
    let needed = share * as_f64(sorted.len() as u64);
    let mut reached = 0.0;
    for sample in sorted {
        reached += 1.0;
        if reached >= needed {
            return sample;
        }
    }
    f64::NAN
}

#[expect(clippy::cast_precision_loss, reason = "bytes and counts far below 2^52")]
fn as_f64(value: u64) -> f64 {
    value as f64
}
