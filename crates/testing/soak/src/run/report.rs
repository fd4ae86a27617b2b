//! What a soak showed: as JSON for programs, and as a page with a chart for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use crate::chart::{Chart, Lane, Series};
use crate::leaks::{self, Inventory};
use crate::schedule::{Extent, Fault};
use serde_json::{Value, json};

use crate::run::observe::{ProcessSample, Sample};
use crate::run::{Arguments, Outcome, failed};

const MEGABYTE: f64 = 1_000_000.0;
const CHART: &str = "soak.svg";

/// A fault that was in force, in seconds of the schedule.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) fault: Fault,
    pub(crate) from: f64,
    pub(crate) to: Option<f64>,
}

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) extent: Extent,
    pub(crate) samples: Vec<Sample>,
    pub(crate) spans: Vec<Span>,
    pub(crate) counts: BTreeMap<&'static str, usize>,
    /// Calls to the runtime that met a fault.
    pub(crate) call_faults: u64,
    /// Tasks that containerd had lost, and that were ended as an operator does.
    pub(crate) lost_tasks: usize,
    /// Until every pod was as desired after the schedule; `None` if that did not happen.
    pub(crate) convergence_seconds: Option<f64>,
    pub(crate) before: Inventory,
    pub(crate) after: Inventory,
    /// With the second at which each was first seen.
    pub(crate) violations: Vec<(f64, String)>,
    pub(crate) unconverged: Vec<String>,
    pub(crate) leaks: Vec<String>,
    pub(crate) problems: Vec<String>,
    /// Kept if something does not hold.
    pub(crate) kubelet_log: Option<String>,
    pub(crate) containerd_log: Option<String>,
}

impl Report {
    pub(crate) fn new(arguments: &Arguments) -> Self {
        Self {
            seed: arguments.seed,
            extent: arguments.extent,
            samples: Vec::new(),
            spans: Vec::new(),
            counts: BTreeMap::new(),
            call_faults: 0,
            lost_tasks: 0,
            convergence_seconds: None,
            before: Inventory::default(),
            after: Inventory::default(),
            violations: Vec::new(),
            unconverged: Vec::new(),
            leaks: Vec::new(),
            problems: Vec::new(),
            kubelet_log: None,
            containerd_log: None,
        }
    }

    pub(crate) fn holds(&self) -> bool {
        self.complaints().is_empty()
    }

    fn complaints(&self) -> Vec<String> {
        let violations = self.violations.iter().map(|(second, what)| format!("{second:.0} s: {what}"));
        let rest = self.unconverged.iter().chain(&self.leaks).chain(&self.problems).cloned();
        violations.chain(rest).collect()
    }

    pub(crate) fn write(&self, dir: &Path) -> Outcome<()> {
        let write = |name: &str, content: &str| {
            let path = dir.join(name);
            std::fs::write(&path, content).map_err(failed(format!("write {}", path.display())))
        };
        std::fs::create_dir_all(dir).map_err(failed(format!("create {}", dir.display())))?;
        write("soak.json", &format!("{:#}\n", self.json()))?;
        write("soak.md", &self.page())?;
        write(CHART, &self.chart().svg())?;
        for (name, log) in [("kubelet.log", &self.kubelet_log), ("containerd.log", &self.containerd_log)] {
            if let Some(log) = log {
                write(name, log)?;
            }
        }
        Ok(())
    }

    pub(crate) fn summary(&self) -> String {
        let mut text = String::new();
        let verdict = if self.holds() { "everything held" } else { "FAILED" };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "seed {}: {verdict}", self.seed);
        for (what, before, after) in self.compared() {
            let _ = writeln!(text, "    {what:<32} {before:>12} before {after:>12} after");
        }
        for complaint in self.complaints() {
            let _ = writeln!(text, "    {complaint}");
        }
        text
    }

    /// What is compared, before the first and after the last pod.
    fn compared(&self) -> Vec<(&'static str, String, String)> {
        let number = |what, of: fn(&Inventory) -> usize| {
            (what, of(&self.before).to_string(), of(&self.after).to_string())
        };
        let megabytes =
            |inventory: &Inventory| format!("{:.1} MB", as_f64(inventory.resident_bytes) / MEGABYTE);
        vec![
            number("mounts", |one| one.mounts.len()),
            number("cgroups", |one| one.cgroups.len()),
            number("shims without a task", |one| one.empty_shims.len()),
            number("network namespaces without a process", |one| one.empty_networks.len()),
            number("network interfaces", |one| one.interfaces.len()),
            number("processes", |one| one.processes.values().sum()),
            number("files of the kubelet", |one| one.files.len()),
            number("containers and sandboxes", |one| one.runtime.len()),
            number("CSI volumes in use", |one| one.volumes.len()),
            number("descriptors of the kubelet", |one| one.descriptors.values().sum()),
            number("threads of the kubelet", |one| one.threads),
            ("memory of the kubelet", megabytes(&self.before), megabytes(&self.after)),
        ]
    }

    fn json(&self) -> Value {
        let samples: Vec<Value> = self.samples.iter().map(sample_json).collect();
        let faults: Vec<Value> = self
            .spans
            .iter()
            .map(|span| json!({"fault": span.fault.name(), "from": span.from, "to": span.to}))
            .collect();
        let compared: Vec<Value> = self
            .compared()
            .into_iter()
            .map(|(what, before, after)| json!({"what": what, "before": before, "after": after}))
            .collect();
        json!({
            "seed": self.seed, "seconds": self.extent.duration.as_secs(), "pods": self.extent.pods,
            "holds": self.holds(), "complaints": self.complaints(), "counts": self.counts,
            "callFaults": self.call_faults, "lostTasks": self.lost_tasks, "emptyShims": self.after.empty_shims,
            "emptyNetworks": self.after.empty_networks,
            "convergenceSeconds": self.convergence_seconds,
            "compared": compared, "faults": faults, "samples": samples,
        })
    }

    fn page(&self) -> String {
        let minutes = self.extent.duration.as_secs() / 60;
        let verdict = if self.holds() { "Everything held." } else { "It failed:" };
        let mut page = format!(
            "# Soak of {minutes} minutes\n\n\
             {} pods of every kind on a real containerd, with the seed {}. {verdict}\n\n![chart of the soak]({CHART})\n\n",
            self.extent.pods, self.seed
        );
        for complaint in self.complaints() {
            let _ = writeln!(page, "- {complaint}");
        }
        let _ = writeln!(page, "\n| what happened | times |\n|---|---:|");
        for (what, count) in &self.counts {
            let _ = writeln!(page, "| {what} | {count} |");
        }
        let _ = writeln!(page, "| calls to the runtime that met a fault | {} |", self.call_faults);
        let _ = writeln!(page, "| tasks lost by containerd, ended by the soak | {} |", self.lost_tasks);
        let _ =
            writeln!(page, "| shims without a task, left by containerd | {} |", self.after.empty_shims.len());
        if let Some(seconds) = self.convergence_seconds {
            let _ = writeln!(
                page,
                "\nEvery pod was in the state of its specification {seconds:.0} s after the end of the schedule."
            );
        }
        let _ = writeln!(page, "\n| without any pod | before | after |\n|---|---:|---:|");
        for (what, before, after) in self.compared() {
            let _ = writeln!(page, "| {what} | {before} | {after} |");
        }
        let _ = writeln!(
            page,
            "\nAllowed are {} more descriptors (idle connections), {} more threads (pool for blocking calls), and {} % and {} MiB more\n\
             memory (code and data that are used for the first time when something fails).",
            leaks::DESCRIPTOR_ALLOWANCE,
            leaks::THREAD_ALLOWANCE,
            leaks::MEMORY_PERCENT,
            leaks::MEMORY_ALLOWANCE >> 20
        );
        page
    }

    fn chart(&self) -> Chart {
        let of_process = |name: &str, unit, color, value: fn(&ProcessSample) -> f64| Series {
            name: name.to_owned(),
            unit,
            color,
            points: self.samples.iter().map(|one| (one.second, one.process.as_ref().map(value))).collect(),
        };
        let running = |one: &Sample| one.running.map(|pods| as_f64(pods as u64));
        let series = vec![
            of_process("memory", "MB", "#1f618d", |one| as_f64(one.resident_bytes) / MEGABYTE),
            Series {
                name: "CPU".to_owned(),
                unit: "% of one CPU",
                color: "#b9770e",
                points: self.processor(),
            },
            of_process("descriptors", "", "#117a65", |one| as_f64(one.descriptors as u64)),
            of_process("threads", "", "#6c3483", |one| as_f64(one.threads as u64)),
            Series {
                name: "running pods".to_owned(),
                unit: "",
                color: "#2e4053",
                points: self.samples.iter().map(|one| (one.second, running(one))).collect(),
            },
        ];
        let end = self.samples.last().map_or(0.0, |last| last.second);
        let lanes = Fault::ALL.map(|fault| Lane {
            name: fault.name().to_owned(),
            spans: self
                .spans
                .iter()
                .filter(|span| span.fault == fault)
                .map(|span| (span.from, span.to.unwrap_or(end)))
                .collect(),
        });
        Chart {
            title: format!("Soak of the kubelet with {} pods, seed {}", self.extent.pods, self.seed),
            seconds: end,
            series,
            lanes: lanes.to_vec(),
        }
    }

    /// Processor time between each sample and the one before of the same process.
    fn processor(&self) -> Vec<(f64, Option<f64>)> {
        let pairs = self.samples.iter().zip(self.samples.iter().skip(1));
        pairs
            .map(|(before, after)| {
                let used = match (&before.process, &after.process) {
                    (Some(before), Some(after)) if before.pid == after.pid => {
                        Some(after.cpu_seconds - before.cpu_seconds)
                    }
                    (Some(_) | None, _) => None,
                };
                (after.second, used.map(|used| 100.0 * used / (after.second - before.second).max(0.1)))
            })
            .collect()
    }
}

fn sample_json(sample: &Sample) -> Value {
    let process = sample.process.as_ref().map(|one| {
        json!({
            "pid": one.pid, "residentBytes": one.resident_bytes, "cpuSeconds": one.cpu_seconds,
            "descriptors": one.descriptors, "threads": one.threads,
        })
    });
    json!({"second": sample.second, "desired": sample.desired, "running": sample.running, "kubelet": process})
}

#[expect(clippy::cast_precision_loss, reason = "bytes and counts far below 2^52")]
fn as_f64(value: u64) -> f64 {
    value as f64
}
