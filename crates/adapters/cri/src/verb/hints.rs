//! GetContainerEvents: each event is a hint that a pod changed.

use std::time::Duration;

use cri_api::v1 as wire;
use futures_util::future::{Either, select};
use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use model::PodUid;
use ports::runtime::{RuntimeHint, RuntimeResult};
use tonic::{Response, Status, Streaming};

use crate::CriRuntime;

/// How long a runtime may take to reject the call. Runtimes that support events respond only with the first event, which
/// may be hours later, so no error within this time counts as support.
const REJECTION_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) async fn hints(cri: &CriRuntime) -> RuntimeResult<BoxStream<'static, RuntimeHint>> {
    let call = cri.call_within("GetContainerEvents", None);
    let mut client = cri.runtime();
    let request = call.request(wire::GetEventsRequest {});
    let answer = Box::pin(async move { client.get_container_events(request).await });
    let refusal_time = Box::pin(tokio::time::sleep(REJECTION_TIMEOUT));
    match select(answer, refusal_time).await {
        Either::Left((Ok(events), _)) => Ok(read(events).boxed()),
        Either::Left((Err(status), _)) => Err(call.error(&status, Duration::ZERO)),
        Either::Right(((), answer)) => {
            Ok(stream::once(answer).filter_map(|answer| async { answer.ok().map(read) }).flatten().boxed())
        }
    }
}

/// The hints of a stream of events. It ends with the first error, because the connection is lost then.
fn read(events: Response<Streaming<wire::ContainerEventResponse>>) -> impl Stream<Item = RuntimeHint> {
    let until_error = events.into_inner().take_while(|event| std::future::ready(event.is_ok()));
    until_error.filter_map(|event| std::future::ready(hint(event)))
}

fn hint(event: Result<wire::ContainerEventResponse, Status>) -> Option<RuntimeHint> {
    let uid = event.ok()?.pod_sandbox_status?.metadata?.uid;
    (!uid.is_empty()).then(|| RuntimeHint { pod: PodUid::from(uid) })
}
