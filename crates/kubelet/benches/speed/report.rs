//! The results next to the targets: as a table for people and as JSON for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::Effort;
use crate::csi::Csi;
use crate::idle::Idle;
use crate::joining::Joining;
use crate::latency::Latency;
use crate::member::{Member, Stage};

/// A target missed by more than this factor fails a short run: less may come from a busy machine.
const TOLERANCE: f64 = 2.0;
const MEGABYTE: f64 = 1_000_000.0;

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) effort: Effort,
    pub(crate) latency: Option<Latency>,
    pub(crate) idle: Vec<Idle>,
    pub(crate) members: Vec<Member>,
    pub(crate) joining: Option<Joining>,
    pub(crate) csi: Option<Csi>,
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
}

impl Line {
    fn holds(&self) -> Option<bool> {
        self.target.map(|target| self.value <= target)
    }

    fn is_tolerable(&self) -> bool {
        self.target.is_none_or(|target| self.smallest <= target * TOLERANCE)
    }
}

impl Report {
    pub(crate) fn is_tolerable(&self) -> bool {
        self.lines().iter().all(Line::is_tolerable)
    }

    pub(crate) fn table(&self) -> String {
        let mut table = String::new();
        for line in self.lines() {
            let target = match (line.target, line.holds()) {
                (Some(target), Some(true)) => format!("at most {target} {}: holds", line.unit),
                (Some(target), Some(false)) => format!("at most {target} {}: MISSED", line.unit),
                (Some(_) | None, _) => String::new(),
            };
            let row = format!("    {:<56} {:>8.2} {:<8} {target}", line.what, line.value, line.unit);
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
        let window = self.effort.window.as_secs();
        let report = json!({
            "lines": lines, "samples": samples, "csiSamples": csi_samples, "idleWindowSeconds": window,
        });
        format!("{report:#}\n")
    }

    fn lines(&self) -> Vec<Line> {
        let mut lines: Vec<Line> = self.latency.iter().flat_map(latency_lines).collect();
        lines.extend(self.idle.iter().map(resident_line));
        lines.extend(self.idle.iter().map(processor_line));
        lines.extend(self.members.iter().flat_map(member_lines));
        lines.extend(self.joining.iter().flat_map(joining_lines));
        lines.extend(self.csi.iter().flat_map(csi_lines));
        let binary = plain("size of the binary", as_f64(self.binary_bytes) / MEGABYTE, "MB");
        lines.push(Line { target: Some(14.0), ..binary });
        lines
    }
}

fn plain(what: &str, value: f64, unit: &'static str) -> Line {
    Line { what: what.to_owned(), value, smallest: value, unit, target: None }
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
        Line { target: Some(20.0), smallest: on_quiet_machine, ..added },
        plain("its own share, on a runtime at no cost, fastest", quantile(own, 0.0), "ms"),
        plain("its own share, on a runtime at no cost, median", quantile(own, 0.5), "ms"),
        plain("process start to first container, median", quantile(process, 0.5), "ms"),
    ]
}

fn resident_line(idle: &Idle) -> Line {
    let target = match idle.pods {
        0 => Some(12.0),
        100 => Some(18.0),
        _ => None,
    };
    let what = format!("resident memory with {} pods", idle.pods);
    Line { target, ..plain(&what, as_f64(idle.resident_bytes) / MEGABYTE, "MB") }
}

fn processor_line(idle: &Idle) -> Line {
    let what = format!("processor time a minute, idle with {} pods", idle.pods);
    Line { target: (idle.pods == 100).then_some(0.3), ..plain(&what, idle.cpu_seconds_per_minute, "s/min") }
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

fn member_lines(member: &Member) -> Vec<Line> {
    let Member { pods, empty, full, after } = member;
    let has_target = *pods == 100;
    let mut lines = stage_lines("no pod", empty, None);
    lines.extend(stage_lines(&format!("{pods} pods"), full, None));
    lines.extend(stage_lines(&format!("{pods} pods gone"), after, has_target.then_some(19.0)));
    lines.push(plain(
        &format!("member, {pods} pods: requests for the life of one"),
        member.requests_per_pod(),
        "",
    ));
    lines
}

fn stage_lines(name: &str, stage: &Stage, target: Option<f64>) -> Vec<Line> {
    let Stage { memory, cpu_seconds_per_minute, requests_per_minute, .. } = stage;
    let line = |what: &str, value: f64, unit| plain(&format!("member, {name}: {what}"), value, unit);
    vec![
        Line { target, ..line("resident memory", as_f64(memory.resident) / MEGABYTE, "MB") },
        line("of that no part of a file", as_f64(memory.anonymous) / MEGABYTE, "MB"),
        line("processor time a minute", *cpu_seconds_per_minute, "s/min"),
        line("requests to the API server a minute", *requests_per_minute, ""),
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
