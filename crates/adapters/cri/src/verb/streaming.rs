//! Exec, Attach and PortForward: each returns a URL of the runtime's streaming server.

use cri_api::v1 as wire;
use model::{ContainerId, SandboxId};
use ports::runtime::{RuntimeResult, Streams};

use crate::CriRuntime;
use crate::call::Call;

pub(crate) async fn exec(
    cri: &CriRuntime,
    id: &ContainerId,
    command: &[String],
    streams: Streams,
) -> RuntimeResult<String> {
    let call = cri.call("Exec");
    let Streams { tty, stdin, stdout, stderr } = streams;
    let request = wire::ExecRequest {
        container_id: id.as_str().to_owned(),
        cmd: command.to_vec(),
        tty,
        stdin,
        stdout,
        stderr,
        ..Default::default()
    };
    let answer = call.answer(cri.runtime().exec(call.request(request))).await?;
    url(call, answer.url)
}

pub(crate) async fn attach(cri: &CriRuntime, id: &ContainerId, streams: Streams) -> RuntimeResult<String> {
    let call = cri.call("Attach");
    let Streams { tty, stdin, stdout, stderr } = streams;
    let request = wire::AttachRequest {
        container_id: id.as_str().to_owned(),
        stdin,
        tty,
        stdout,
        stderr,
        ..Default::default()
    };
    let answer = call.answer(cri.runtime().attach(call.request(request))).await?;
    url(call, answer.url)
}

pub(crate) async fn port_forward(cri: &CriRuntime, id: &SandboxId, ports: &[u16]) -> RuntimeResult<String> {
    let call = cri.call("PortForward");
    let request = wire::PortForwardRequest {
        pod_sandbox_id: id.as_str().to_owned(),
        port: ports.iter().map(|port| i32::from(*port)).collect(),
    };
    let answer = call.answer(cri.runtime().port_forward(call.request(request))).await?;
    url(call, answer.url)
}

fn url(call: Call, url: String) -> RuntimeResult<String> {
    if url.is_empty() { Err(call.malformed("URL is not set")) } else { Ok(url) }
}
