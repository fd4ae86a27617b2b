//! Runs lifecycle handlers: postStart and preStop, by exec, HTTP or sleep. The caller limits their duration: dropping the
//! future abandons the handler.

use std::net::IpAddr;
use std::time::Duration;

use base_agent::events::Recorder;
use base_agent::metrics::Metrics;
use kubelet_core::pods::http_action::{HttpAction, join_host_port};
use model::containers::ContainerRef;
use model::k8s::{HTTPGetAction, LifecycleHandler};
use model::request::ExecResult;
use model::text::cut_owned;
use model::{ContainerId, PodRef};
use ports::net::{HttpGet, NetError, Scheme};
use ports::{Net, Runtime};

use crate::metrics::KubeletMetrics;
use crate::pods::http_action::http_get;

/// The part of a failed hook's output that its error keeps; the runtime returns up to 16 MiB.
const MAX_HOOK_OUTPUT: usize = 4096;
/// `User-Agent` of requests to hooks.
const USER_AGENT: &str = "kube-lifecycle/1.36";

/// The container of a handler, and how to reach it.
pub struct HookContext<'a> {
    pub runtime: &'a dyn Runtime,
    pub net: &'a dyn Net,
    pub recorder: &'a Recorder,
    pub metrics: &'a Metrics,
    pub pod: &'a PodRef,
    pub pod_ip: Option<IpAddr>,
    pub container_id: &'a ContainerId,
    pub container_name: &'a str,
    /// `None` if the spec is not known; named ports cannot be resolved then.
    pub container: Option<ContainerRef<'a>>,
}

impl std::fmt::Debug for HookContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HookContext").field("pod", self.pod).field("container", self.container_id).finish()
    }
}

/// Limit for the error of a handler, as for the output of a probe.
const MAX_FAILURE: usize = 10 << 10;

/// Runs the handler until it ends.
///
/// # Errors
/// The handler failed. The text is for `state.waiting.message`, truncated to `MAX_FAILURE` bytes.
pub async fn run_handler(context: &HookContext<'_>, handler: &LifecycleHandler) -> Result<(), String> {
    run(context, handler).await.map_err(|why| cut_owned(why, MAX_FAILURE))
}

async fn run(context: &HookContext<'_>, handler: &LifecycleHandler) -> Result<(), String> {
    if let Some(exec) = &handler.exec {
        return run_exec(context, exec.command.as_deref().unwrap_or_default()).await;
    }
    if let Some(http_get) = &handler.http_get {
        return run_http(context, http_get).await;
    }
    if let Some(sleep) = &handler.sleep {
        tokio::time::sleep(model::time::wait_of(sleep.seconds)).await;
        return Ok(());
    }
    Err("Cannot run handler: invalid handler: it has none of exec, httpGet and sleep".to_owned())
}

async fn run_exec(context: &HookContext<'_>, command: &[String]) -> Result<(), String> {
    let failure = match context.runtime.exec_sync(context.container_id, command, Duration::ZERO).await {
        Ok(result) if result.exit_code == 0 => return Ok(()),
        Ok(result) => failed_command(command, &result),
        Err(error) => format!("{}, message: \"\"", error.message()),
    };
    Err(hook_failure(context, "Exec", &command_as_text(command), &failure))
}

/// The error of a failed command: its standard error, then its whole output, both truncated to [`MAX_HOOK_OUTPUT`].
fn failed_command(command: &[String], result: &ExecResult) -> String {
    let text =
        |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_HOOK_OUTPUT)]).into_owned();
    let all = text(&[&result.stdout[..], &result.stderr[..]].concat());
    let (line, code, stderr) = (command.join(" "), result.exit_code, text(&result.stderr));
    format!("command '{line}' exited with {code}: {stderr}, message: {all:?}")
}

fn command_as_text(command: &[String]) -> String {
    format!("[{}]", command.join(" "))
}

fn hook_failure(context: &HookContext<'_>, kind: &str, what: &str, error: &str) -> String {
    let (container, pod) = (context.container_name, context.pod);
    format!(
        "{kind} lifecycle hook ({what}) for Container {container:?} in Pod \"{}_{}({})\" failed - error: {error}",
        pod.name, pod.namespace, pod.uid
    )
}

async fn run_http(context: &HookContext<'_>, action: &HTTPGetAction) -> Result<(), String> {
    let path = action.path.as_deref().unwrap_or_default();
    call_http(context, action).await.map_err(|error| hook_failure(context, "HTTP", path, &error))
}

async fn call_http(context: &HookContext<'_>, action: &HTTPGetAction) -> Result<(), String> {
    let mut request = http_request(context, action)?;
    let mut answer = context.net.http_get(&request).await;
    if request.scheme == Scheme::Https && matches!(answer, Err(NetError::PlainHttpServer)) {
        // Parity: older kubelets ignored the scheme, so a handler that does not support TLS is retried over HTTP.
        // Credentials that were meant for an encrypted connection are not sent without encryption.
        request.scheme = Scheme::Http;
        request.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
        answer = context.net.http_get(&request).await;
        if answer.is_ok() {
            context.metrics.get::<KubeletMetrics>().hook_fell_back();
            let message = format!(
                "request to HTTPS lifecycle hook {} got HTTP response, retry with HTTP succeeded",
                join_host_port(&request.host, request.port)
            );
            context.recorder.warning(context.pod, None, "LifecycleHTTPFallback", message);
        }
    }
    answer.map(|_| ()).map_err(|error| error.to_string())
}

fn http_request(context: &HookContext<'_>, action: &HTTPGetAction) -> Result<HttpGet, String> {
    let action = HttpAction::of(action, context.container.as_ref(), USER_AGENT).map_err(|e| e.to_string())?;
    let pod_ip = context.pod_ip.map(|ip| ip.to_string());
    let host = action.host.clone().or(pod_ip).ok_or("the pod has no IP address yet")?;
    // Like a command: a postStart hook may take any time, and a preStop hook the rest of the grace period.
    Ok(http_get(&action, host, None))
}
