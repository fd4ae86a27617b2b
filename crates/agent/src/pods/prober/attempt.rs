//! One attempt of one probe: executed through the runtime or the network, evaluated by pure functions.

use std::net::IpAddr;
use std::time::Duration;

use base_agent::context::Context;
use kubelet_core::pods::http_action::{HttpAction, join_host_port};
use kubelet_core::pods::probe::outcome::{
    ExecAnswer, GrpcAnswer, HttpAnswer, Outcome, classify_exec, classify_grpc, classify_http, classify_tcp,
};
use kubelet_core::pods::probe::spec::{ProbeHandler, ProbeSpec};
use model::request::ExecResult;
use model::{ContainerId, PodRef};
use ports::net::{GrpcHealth, NetError};
use ports::{Net, RuntimeError};

use crate::pods::http_action::http_get;

/// The probed container.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) pod: PodRef,
    pub(super) container: String,
    pub(super) id: ContainerId,
    pub(super) pod_ip: Option<IpAddr>,
}

pub(super) async fn execute(ctx: &Context, target: &Target, spec: &ProbeSpec) -> Outcome {
    match &spec.handler {
        ProbeHandler::Exec { command } => exec(ctx, target, command, spec).await,
        ProbeHandler::HttpGet(get) => http(&*ctx.net, target, get, spec).await,
        ProbeHandler::Tcp { host, port } => {
            let Some(host) = host.clone().or_else(|| target.pod_ip.map(|ip| ip.to_string())) else {
                return no_address();
            };
            let connected = ctx.net.tcp_connect(&host, *port, spec.timeout).await;
            let text = connected.as_ref().err().map(ToString::to_string).unwrap_or_default();
            classify_tcp(connected.map_err(|_| text.as_str()))
        }
        ProbeHandler::Grpc { port, service } => grpc(&*ctx.net, target, *port, service, spec).await,
    }
}

fn no_address() -> Outcome {
    Outcome::Error("the pod has no IP address yet".to_owned())
}

/// The runtime kills the command at its timeout, which it counts from the start of the command, a little later than we do.
/// It neither kills children of the command, nor stops waiting for output that such children hold open. Both are done
/// here, so that a probe ends in time, leaves no process behind, and never runs twice at the same time.
async fn exec(ctx: &Context, target: &Target, command: &[String], spec: &ProbeSpec) -> Outcome {
    let (clock, processes, id) = (ctx.clock, &ctx.processes, target.id.as_str());
    let outcome = |answer| exec_outcome(answer, command, spec);
    let call = ctx.runtime.exec_sync(&target.id, command, spec.timeout);
    tokio::pin!(call);
    let began = clock.mono();
    tokio::select! {
        biased;
        answer = &mut call => return outcome(answer),
        () = clock.sleep_until(began + spec.timeout) => {}
    }
    let find = || processes.find_exec(id, command, clock.mono().saturating_since(began) + START_SLACK);
    let mut trace = find().await;
    let mut is_over_time = false;
    for _ in 0..MAX_EXEC_POLLS {
        tokio::select! {
            biased;
            answer = &mut call => {
                let ended_by_itself = answer.is_ok() && !is_over_time;
                if !ended_by_itself {
                    processes.kill_exec(id, &trace).await;
                }
                return if is_over_time { outcome(Err(timed_out(spec))) } else { outcome(answer) };
            }
            () = clock.sleep_until(clock.mono() + EXEC_POLL_PERIOD) => {}
        }
        let now = find().await;
        is_over_time |= now.is_running;
        trace.sessions.extend(now.sessions);
        processes.kill_exec(id, &trace).await;
    }
    outcome(Err(timed_out(spec)))
}

/// How often a command is checked that exceeded its timeout while the runtime does not answer…
const EXEC_POLL_PERIOD: Duration = Duration::from_millis(500);
/// …and after how many checks it is abandoned.
const MAX_EXEC_POLLS: usize = 20;
/// Precision of the start times of processes.
const START_SLACK: Duration = Duration::from_millis(20);

fn timed_out(spec: &ProbeSpec) -> RuntimeError {
    RuntimeError::TimedOut { call: "ExecSync", deadline: spec.timeout }
}

fn exec_outcome(answer: Result<ExecResult, RuntimeError>, command: &[String], spec: &ProbeSpec) -> Outcome {
    match answer {
        Ok(result) => classify_exec(ExecAnswer::Exited {
            code: result.exit_code,
            stdout: &result.stdout,
            stderr: &result.stderr,
        }),
        Err(RuntimeError::TimedOut { .. }) => {
            classify_exec(ExecAnswer::TimedOut { command, after: spec.timeout })
        }
        Err(error) => classify_exec(ExecAnswer::Failed(&error.rpc_message())),
    }
}

async fn http(net: &dyn Net, target: &Target, get: &HttpAction, spec: &ProbeSpec) -> Outcome {
    let Some(pod_ip) = target.pod_ip else { return no_address() };
    let request = http_get(get, get.host(&pod_ip.to_string()).to_owned(), Some(spec.timeout));
    let url = get.url(&pod_ip.to_string());
    match net.http_get(&request).await {
        Ok(answer) => classify_http(HttpAnswer::Answered {
            status: answer.status,
            body: &answer.body,
            redirected_elsewhere: answer.redirected_elsewhere,
        }),
        Err(error) => {
            let text = error.to_string();
            // The error has the URL already, and the outcome adds it again.
            let why = text.strip_prefix(&format!("Get {url:?}: ")).unwrap_or(&text);
            classify_http(HttpAnswer::Unreachable { url: &url, why })
        }
    }
}

async fn grpc(net: &dyn Net, target: &Target, port: u16, service: &str, spec: &ProbeSpec) -> Outcome {
    let Some(ip) = target.pod_ip else { return no_address() };
    match net.grpc_health(ip, port, service, spec.timeout).await {
        Ok(GrpcHealth::Serving) => classify_grpc(GrpcAnswer::Serving),
        Ok(GrpcHealth::NotServing(status)) => classify_grpc(GrpcAnswer::NotServing(&status)),
        Ok(GrpcHealth::Unimplemented(why)) => classify_grpc(GrpcAnswer::Unimplemented(&why)),
        Err(NetError::TimedOut { after, .. }) => classify_grpc(GrpcAnswer::TimedOut(after)),
        Err(NetError::Connect(_)) => classify_grpc(GrpcAnswer::NotConnected {
            address: &join_host_port(&ip.to_string(), port),
            within: spec.timeout,
        }),
        Err(error) => classify_grpc(GrpcAnswer::Failed(&error.to_string())),
    }
}
