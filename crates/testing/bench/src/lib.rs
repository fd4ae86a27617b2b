//! How fast and how small: the kubelet compared with raw calls to the same runtime, and idle on a fake runtime. `scripts/bench`
//! builds what is measured and runs this.
//!
//! Owns: the measurements, their targets, and the report. Runs are never compared with each other: compared values were measured
//! in the same run, alternately.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the output of a benchmark is for people")]

mod burst;
mod csi;
mod idle;
mod joining;
mod latency;
mod member;
mod recording;
mod replay;
mod report;
mod single_node;
mod streams;
mod usage;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use burst::Burst;
use csi::Csi;
use harness::outcome::{BenchError, Outcome, failed};
use idle::Idle;
use joining::Joining;
use latency::Latency;
use member::Member;
use report::Report;
use single_node::SingleNode;
use streams::Streams;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// How often the kubelet is started.
    pub(crate) rounds: usize,
    /// Pods started on each side after each start of the kubelet, in turn.
    pub(crate) pods: usize,
    /// How long an idle kubelet is watched.
    pub(crate) window: Duration,
    /// Whether idle kubelets with more than a hundred pods are measured, and members of a cluster with 30, too.
    pub(crate) with_all_counts: bool,
    /// How long after the start of its pods a kubelet counts as idle, at least 8 s. A pod is synced once more 60 to 90 s after its start,
    /// which reports its cgroup's settings to the API.
    pub(crate) settle: Duration,
    /// The same after their removal. Memory is released for the last time after two minutes, in the window that follows.
    pub(crate) settle_empty: Duration,
    /// How often a member starts and deletes all of its hundred pods again, after which its memory is measured once more.
    pub(crate) cycles: usize,
    /// Pods that are started at once.
    pub(crate) burst_pods: usize,
    /// How often they are.
    pub(crate) bursts: usize,
    /// Streams that are open at the same time.
    pub(crate) followers: usize,
    pub(crate) execs: usize,
    /// How often they come and go: growth from one time to the next would be a leak.
    pub(crate) stream_bursts: usize,
    pub(crate) watch_events: usize,
}

impl Effort {
    const FULL: Self = Self {
        rounds: 6,
        pods: 6,
        window: Duration::from_secs(60),
        with_all_counts: true,
        settle: Duration::from_secs(95),
        settle_empty: Duration::from_secs(110),
        // With the first ones 1,500 pods: one for each minute of a day.
        cycles: 14,
        burst_pods: 100,
        bursts: 3,
        followers: 1000,
        execs: 200,
        stream_bursts: 3,
        watch_events: 10_000,
    };
    const SHORT: Self = Self {
        rounds: 3,
        pods: 5,
        window: Duration::from_secs(15),
        with_all_counts: false,
        settle: Duration::from_secs(8),
        // Less than two minutes: what pods leave behind is a matter of the full run, and of the soak.
        settle_empty: Duration::from_secs(8),
        cycles: 0,
        burst_pods: 30,
        bursts: 1,
        followers: 200,
        execs: 100,
        stream_bursts: 1,
        watch_events: 1000,
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Latency,
    Idle,
    Member,
    Joining,
    Csi,
    Burst,
    Streams,
    SingleNode,
}

#[derive(Debug)]
struct Arguments {
    is_short: bool,
    /// How long an idle kubelet is watched, where it differs.
    window: Option<Duration>,
    json: Option<PathBuf>,
    /// Measure only this part.
    only: Option<Part>,
    /// The program to measure.
    kubelet: PathBuf,
}

impl Arguments {
    fn parse() -> Outcome<Self> {
        let mut arguments =
            Self { is_short: false, window: None, json: None, only: None, kubelet: PathBuf::new() };
        let mut given = std::env::args().skip(1);
        while let Some(argument) = given.next() {
            let mut value = || given.next().ok_or_else(|| BenchError(format!("{argument} needs a value")));
            match argument.as_str() {
                "--short" => arguments.is_short = true,
                "--window" => {
                    let seconds = value()?.parse().map_err(failed("read the seconds of --window"))?;
                    arguments.window = Some(Duration::from_secs(seconds));
                }
                "--json" => arguments.json = Some(value()?.into()),
                "--only" => arguments.only = Some(Part::parse(&value()?)?),
                "--kubelet" => arguments.kubelet = value()?.into(),
                // What `cargo bench` adds.
                "--bench" => {}
                unknown => return Err(BenchError(format!("unknown argument {unknown}"))),
            }
        }
        if arguments.kubelet.as_os_str().is_empty() {
            return Err(BenchError("--kubelet must name the program to measure".to_owned()));
        }
        Ok(arguments)
    }

    /// A short run leaves out a burst and a single node, unless it is asked for one: they need the whole machine for minutes.
    fn wants(&self, part: Part) -> bool {
        match self.only {
            Some(only) => only == part,
            None => !(self.is_short && matches!(part, Part::Burst | Part::SingleNode)),
        }
    }
}

impl Part {
    fn parse(name: &str) -> Outcome<Self> {
        match name {
            "latency" => Ok(Self::Latency),
            "idle" => Ok(Self::Idle),
            "member" => Ok(Self::Member),
            "joining" => Ok(Self::Joining),
            "csi" => Ok(Self::Csi),
            "burst" => Ok(Self::Burst),
            "streams" => Ok(Self::Streams),
            "single-node" => Ok(Self::SingleNode),
            unknown => {
                let known = "latency, idle, member, joining, csi, burst, streams or single-node";
                Err(BenchError(format!("--only takes {known}, not {unknown}")))
            }
        }
    }
}

/// Measures what the arguments of the process ask for, and prints the report.
#[must_use]
pub fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the run is good: every target within three times its value, or (not `--short`) any result.
fn run() -> Outcome<bool> {
    let arguments = Arguments::parse()?;
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let tokio = tokio.map_err(failed("start threads"))?;
    let report = tokio.block_on(async {
        tokio::select! {
            report = measure(&arguments) => report,
            // That future owns everything measured, and ends it.
            _ = tokio::signal::ctrl_c() => Err(BenchError("interrupted".to_owned())),
        }
    })?;
    print!("{}", report.table());
    if let Some(path) = &arguments.json {
        std::fs::write(path, report.json()).map_err(failed(format!("write {}", path.display())))?;
        println!("written to {}", path.display());
    }
    if !arguments.is_short {
        return Ok(true);
    }
    let excesses = report.excesses();
    for excess in &excesses {
        eprintln!("bench: {excess}");
    }
    Ok(excesses.is_empty())
}

async fn measure(arguments: &Arguments) -> Outcome<Report> {
    let mut effort = if arguments.is_short { Effort::SHORT } else { Effort::FULL };
    effort.window = arguments.window.unwrap_or(effort.window);
    let binary_bytes = binary_bytes(&arguments.kubelet)?;
    let members = Box::pin(measure_members(arguments, effort));
    let streams = Box::pin(measure_streams(arguments, effort));
    let idle = Box::pin(measure_idle(arguments, effort));
    let starts = Box::pin(measure_starts(arguments, effort));
    let (members, streams, idle, (latency, joining, csi, burst)) = match arguments.is_short {
        // Members, streams and idle kubelets mostly wait, and a short run tolerates what little they disturb.
        true => futures_util::try_join!(members, streams, idle, starts)?,
        false => (members.await?, streams.await?, idle.await?, starts.await?),
    };
    let single_node = measure_single_node(arguments, effort).await?;
    Ok(Report { effort, latency, idle, members, joining, csi, burst, streams, single_node, binary_bytes })
}

fn binary_bytes(kubelet: &Path) -> Outcome<u64> {
    let binary = std::fs::metadata(kubelet).map_err(failed(format!("stat {}", kubelet.display())))?;
    Ok(binary.len())
}

/// What a member of a cluster costs.
async fn measure_members(arguments: &Arguments, effort: Effort) -> Outcome<Vec<Member>> {
    if !arguments.wants(Part::Member) {
        return Ok(Vec::new());
    }
    member::measure(&arguments.kubelet, effort).await
}

async fn measure_streams(arguments: &Arguments, effort: Effort) -> Outcome<Option<Streams>> {
    if !arguments.wants(Part::Streams) {
        return Ok(None);
    }
    eprintln!("opening {} log followers and {} exec sessions", effort.followers, effort.execs);
    streams::measure(&arguments.kubelet, effort).await.map(Some)
}

async fn measure_single_node(arguments: &Arguments, effort: Effort) -> Outcome<Option<SingleNode>> {
    if !arguments.wants(Part::SingleNode) {
        return Ok(None);
    }
    eprintln!("starting {} pods on a single node and by manifests", single_node::PODS);
    single_node::measure(&arguments.kubelet, effort).await.map(Some)
}

/// What a kubelet without a cluster costs.
async fn measure_idle(arguments: &Arguments, effort: Effort) -> Outcome<Vec<Idle>> {
    if !arguments.wants(Part::Idle) {
        return Ok(Vec::new());
    }
    eprintln!("measuring idle kubelets for {} s", effort.window.as_secs());
    idle::measure(&arguments.kubelet, effort).await
}

type Starts = (Option<Latency>, Option<Joining>, Option<Csi>, Option<Burst>);

/// How fast nodes and pods start.
async fn measure_starts(arguments: &Arguments, effort: Effort) -> Outcome<Starts> {
    let kubelet = &arguments.kubelet;
    let latency = if arguments.wants(Part::Latency) {
        eprintln!("starting {} pods in turn, raw and by manifest", effort.rounds * effort.pods);
        Some(latency::measure(kubelet, effort).await?)
    } else {
        None
    };
    let joining = if arguments.wants(Part::Joining) {
        eprintln!("joining {} new clusters", effort.rounds * 2);
        Some(joining::measure(kubelet, effort).await?)
    } else {
        None
    };
    let csi = if arguments.wants(Part::Csi) {
        eprintln!("starting {} pods with and without CSI volumes in turn", effort.rounds * effort.pods);
        Some(csi::measure(kubelet, effort).await?)
    } else {
        None
    };
    let burst = if arguments.wants(Part::Burst) {
        eprintln!("starting and deleting {} pods at once, {} times", effort.burst_pods, effort.bursts * 2);
        Some(burst::measure(kubelet, effort).await?)
    } else {
        None
    };
    Ok((latency, joining, csi, burst))
}
