//! Repeats the recorded CRI calls of a burst of pods on the runtime alone: what the runtime needs without a kubelet.
//!
//! The order is the kubelet's: a call for a pod begins when those calls of the pod have ended that had ended before it in the
//! recording, and a call for the whole node when as many calls for pods have ended as then. At most as many calls for pods run at
//! the same time as in the recording. Nothing else is waited for.

use std::collections::BTreeMap;
use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::transport::Channel;

use crate::recording::Call;
use crate::{BenchError, Outcome, failed};

/// Length of the hexadecimal ids that containerd gives to sandboxes and containers. The new ids have the same, so the messages
/// can be changed in place.
const ID_BYTES: usize = 64;
/// Calls without which a pod does not run, so they may not fail.
const MUST_SUCCEED: [&str; 3] = ["RunPodSandbox", "CreateContainer", "StartContainer"];

#[derive(Clone, Debug, PartialEq, Eq)]
enum Begins {
    /// After these steps of the same pod.
    After(Vec<usize>),
    /// After this many calls for pods.
    AfterCount(usize),
}

#[derive(Debug)]
struct Step {
    call: Call,
    begins: Begins,
    /// The id in its response, if it made a sandbox or container.
    id: Option<Vec<u8>>,
}

/// The calls of a recording with their dependencies.
#[derive(Debug)]
pub(crate) struct Plan {
    steps: Vec<Step>,
    /// The most calls for pods that ran at the same time.
    pub(crate) concurrency: usize,
}

impl Plan {
    pub(crate) fn of(recorded: &[Call]) -> Self {
        Self::of_calls(recorded.iter().filter(|call| call.ended.is_some()).cloned().collect())
    }

    /// Only the calls without which a pod does not run.
    pub(crate) fn of_required(recorded: &[Call]) -> Self {
        let required = |call: &&Call| call.ended.is_some() && MUST_SUCCEED.contains(&call.method());
        Self::of_calls(recorded.iter().filter(required).cloned().collect())
    }

    fn of_calls(calls: Vec<Call>) -> Self {
        let pods = pods_of(&calls);
        let concurrency =
            peak(calls.iter().zip(&pods).filter(|(_, pod)| pod.is_some()).map(|(call, _)| call));
        let begins: Vec<Begins> = (0..calls.len()).map(|at| compute_begin(&calls, &pods, at)).collect();
        let steps = calls.into_iter().zip(begins).map(|(call, begins)| {
            let id = created_id(&call);
            Step { call, begins, id }
        });
        Self { steps: steps.collect(), concurrency }
    }

    /// How many calls of each method it makes.
    pub(crate) fn calls(&self) -> BTreeMap<String, usize> {
        let mut calls = BTreeMap::new();
        for step in &self.steps {
            *calls.entry(step.call.method().to_owned()).or_default() += 1;
        }
        calls
    }

    /// Makes all calls, and returns when the last one has ended.
    pub(crate) async fn run(&self, runtime: &Channel) -> Outcome<()> {
        let ended: Vec<watch::Sender<bool>> = self.steps.iter().map(|_| watch::Sender::new(false)).collect();
        let shared = Arc::new(Progress {
            ended,
            count: watch::Sender::new(0),
            slots: Semaphore::new(self.concurrency.max(1)),
            ids: Mutex::default(),
        });
        let mut running = JoinSet::new();
        for (at, step) in self.steps.iter().enumerate() {
            let (call, begins, id) = (step.call.clone(), step.begins.clone(), step.id.clone());
            let (shared, runtime) = (Arc::clone(&shared), runtime.clone());
            running.spawn(async move { shared.run_step(runtime, at, call, begins, id).await });
        }
        while let Some(one) = running.join_next().await {
            one.map_err(failed("replay"))??;
        }
        Ok(())
    }
}

struct Progress {
    /// For each step whether it has ended.
    ended: Vec<watch::Sender<bool>>,
    /// How many calls for pods have ended.
    count: watch::Sender<usize>,
    slots: Semaphore,
    /// Recorded ids and those of this run.
    ids: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl Progress {
    async fn run_step(
        &self,
        runtime: Channel,
        at: usize,
        mut call: Call,
        begins: Begins,
        id: Option<Vec<u8>>,
    ) -> Outcome<()> {
        let is_for_pod = matches!(begins, Begins::After(_));
        self.wait(&begins).await?;
        let slot =
            if is_for_pod { Some(self.slots.acquire().await.map_err(failed("replay"))?) } else { None };
        replace_ids(&mut call.request, &self.ids.lock());
        let response = send(runtime, &call).await?;
        drop(slot);
        if let Some(recorded) = id {
            let new = first_id(&response)
                .ok_or_else(|| BenchError(format!("no id in the response to {}", call.method())))?;
            self.ids.lock().insert(recorded, new);
        }
        if let Some(ended) = self.ended.get(at) {
            ended.send_replace(true);
        }
        if is_for_pod {
            self.count.send_modify(|count| *count += 1);
        }
        Ok(())
    }

    async fn wait(&self, begins: &Begins) -> Outcome<()> {
        match begins {
            Begins::After(steps) => {
                for ended in steps.iter().filter_map(|step| self.ended.get(*step)) {
                    ended.subscribe().wait_for(|ended| *ended).await.map_err(failed("replay"))?;
                }
            }
            Begins::AfterCount(count) => {
                let mut ended = self.count.subscribe();
                ended.wait_for(|ended| ended >= count).await.map_err(failed("replay"))?;
            }
        }
        Ok(())
    }
}

/// The pod of each call, by the call that made its sandbox; `None` for a call that is not about a single pod.
fn pods_of(calls: &[Call]) -> Vec<Option<usize>> {
    let mut owners: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    let mut pods = Vec::new();
    for (at, call) in calls.iter().enumerate() {
        let named: Vec<usize> = ids(&call.request).filter_map(|id| owners.get(id).copied()).collect();
        let pod = match named.as_slice() {
            [] if call.method() == "RunPodSandbox" => Some(at),
            [first, others @ ..] if others.iter().all(|other| other == first) => Some(*first),
            _ => None,
        };
        if let (Some(pod), Some(id)) = (pod, created_id(call)) {
            owners.insert(id, pod);
        }
        pods.push(pod);
    }
    pods
}

fn compute_begin(calls: &[Call], pods: &[Option<usize>], at: usize) -> Begins {
    let began = calls.get(at).map(|call| call.began);
    let pod = pods.get(at).copied().flatten();
    let before = calls
        .iter()
        .zip(pods)
        .enumerate()
        .filter(|(_, (call, _))| call.ended.is_some() && call.ended <= began);
    match pod {
        Some(_) => Begins::After(before.filter(|(_, (_, of))| **of == pod).map(|(step, _)| step).collect()),
        None => Begins::AfterCount(before.filter(|(_, (_, of))| of.is_some()).count()),
    }
}

/// The most of these calls at the same time.
fn peak<'a>(calls: impl Iterator<Item = &'a Call>) -> usize {
    // At the same instant an end comes before a begin.
    let mut changes: Vec<(Timestamp, bool)> = Vec::new();
    for call in calls {
        changes.push((call.began, true));
        changes.extend(call.ended.map(|ended| (ended, false)));
    }
    changes.sort_unstable();
    let (mut running, mut most) = (0_usize, 0);
    for (_, is_begin) in changes {
        running = if is_begin { running + 1 } else { running.saturating_sub(1) };
        most = most.max(running);
    }
    most
}

fn created_id(call: &Call) -> Option<Vec<u8>> {
    matches!(call.method(), "RunPodSandbox" | "CreateContainer").then(|| first_id(&call.response)).flatten()
}

fn first_id(message: &[u8]) -> Option<Vec<u8>> {
    ids(message).next().map(<[u8]>::to_vec)
}

/// Everything in the message that has the form of an id.
fn ids(message: &[u8]) -> impl Iterator<Item = &[u8]> {
    message.split(|byte| !is_hex(*byte)).filter(|run| run.len() == ID_BYTES)
}

fn replace_ids(message: &mut [u8], new: &BTreeMap<Vec<u8>, Vec<u8>>) {
    for run in message.split_mut(|byte| !is_hex(*byte)) {
        if let Some(id) = new.get(&*run) {
            run.copy_from_slice(id);
        }
    }
}

const fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// The message of the response.
async fn send(mut runtime: Channel, call: &Call) -> Outcome<Vec<u8>> {
    let method = call.method();
    let request = http::Request::post(format!("http://runtime{}", call.path))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(Full::new(call.request.clone().into())))
        .map_err(failed("make a request"))?;
    std::future::poll_fn(|cx| runtime.poll_ready(cx)).await.map_err(failed("reach the runtime"))?;
    let response = runtime.call(request).await.map_err(failed(format!("replay {method}")))?;
    let (head, body) = response.into_parts();
    let body = body.collect().await.map_err(failed(format!("replay {method}")))?;
    let trailer = |name| {
        let trailers = body.trailers().unwrap_or(&head.headers);
        trailers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    };
    if MUST_SUCCEED.contains(&method) && trailer("grpc-status") != "0" {
        let message = trailer("grpc-message");
        return Err(BenchError(format!("{method} failed when it was repeated: {message}")));
    }
    Ok(body.to_bytes().to_vec())
}
