//! `/v1/logs` and `/v1/exec`: the log of a container, and a command in one, with the code of the main port.
//!
//! Both may go on for days, so there is a limit: `kubelet why` must always find a connection.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, RawQuery, Request, State};
use axum::response::Response;
use axum::routing::get;
use futures_util::StreamExt;
use http::{HeaderValue, StatusCode};
use model::PodRef;
use ports::node_api::{LogSource, PodRefusal, PodTarget};
use tokio::sync::Semaphore;

use super::LocalSources;
use super::selection::Selected;
use super::target::{one_container, one_pod};
use crate::answer;
use crate::endpoints::container_logs::options;
use crate::query::{first, pairs};
use crate::streaming::{self, translate, upgrade};
use crate::transport::connections::AfterUpgrade;

const PLAIN: HeaderValue = HeaderValue::from_static("text/plain");
const OPTIONS: &str = "the options of a log are follow, previous, timestamps, tailLines, limitBytes (whole numbers of 0 or more, \
    limitBytes of 1 or more), and sinceSeconds (1 or more) or sinceTime (RFC 3339)";

/// Logs and commands at the same time.
const MAX_STREAMS: usize = 24;

pub(super) fn routes(router: Router<LocalSources>) -> Router<LocalSources> {
    let permits = Arc::new(Semaphore::new(MAX_STREAMS));
    router.route("/v1/logs", get(log)).route("/v1/exec", get(exec)).layer(Extension(permits))
}

/// The end of another stream makes one possible again.
fn too_many() -> Response {
    let text = format!(
        "{MAX_STREAMS} logs and commands are open at the local socket, which is the limit; end one of them"
    );
    answer::error(StatusCode::SERVICE_UNAVAILABLE, &text)
}

/// `/v1/logs?pod=WORDS&container=…`, with the options of the main port's `/containerLogs`.
async fn log(
    State(sources): State<LocalSources>,
    Extension(permits): Extension<Arc<Semaphore>>,
    Selected(of): Selected,
    RawQuery(query): RawQuery,
) -> Response {
    let query = pairs(query.as_deref());
    let Ok(permit) = permits.try_acquire_owned() else { return too_many() };
    let Ok(options) = options::read(&query, sources.clock.now().wall, true) else {
        return answer::error(StatusCode::BAD_REQUEST, OPTIONS);
    };
    let target = one_pod(&*sources.inventory, &of)
        .and_then(|pod| Ok((PodRef::of(&pod), one_container(&pod, first(&query, "container"))?)));
    let (pod, container) = match target {
        Ok(target) => target,
        Err(problem) => return problem.response(),
    };
    let source = LogSource {
        namespace: pod.namespace.to_string(),
        pod: pod.name.to_string(),
        container,
        previous: options.previous,
    };
    match sources.api.container_log(&source, &options.view).await {
        // The head of the answer was sent already, so the only way to report an error is to break the connection off.
        Ok(pieces) => {
            let pieces = pieces.map(move |piece| {
                let _as_long_as_it_is_read = &permit;
                piece.inspect_err(|error| tracing::warn!(err = error, "Failed to read container log"))
            });
            answer::with_type(StatusCode::OK, PLAIN, Body::from_stream(pieces))
        }
        Err(refusal) => refused(&refusal),
    }
}

/// `/v1/exec?pod=WORDS&container=…&command=…&input=1&output=1&error=1&tty=1`: a WebSocket with the protocol `v5.channel.k8s.io`.
async fn exec(
    State(sources): State<LocalSources>,
    Extension(permits): Extension<Arc<Semaphore>>,
    Selected(of): Selected,
    RawQuery(query): RawQuery,
    request: Request,
) -> Response {
    let query = pairs(query.as_deref());
    let command: Vec<String> =
        query.iter().filter(|(name, _)| name == "command").map(|(_, value)| value.clone()).collect();
    let Some(streams) = streaming::streams(&query).filter(|_| !command.is_empty()) else {
        return answer::error(
            StatusCode::BAD_REQUEST,
            "a command and one of input, output and error are required",
        );
    };
    if !translate::speaks_channels(request.headers()) || !upgrade::is_upgrade_request(&request) {
        return answer::error(
            StatusCode::BAD_REQUEST,
            "a WebSocket with the protocol v5.channel.k8s.io is required",
        );
    }
    let Ok(permit) = permits.try_acquire_owned() else { return too_many() };
    let target = one_pod(&*sources.inventory, &of)
        .and_then(|pod| Ok((PodRef::of(&pod), one_container(&pod, first(&query, "container"))?)));
    let (pod, container) = match target {
        Ok(target) => target,
        Err(problem) => return problem.response(),
    };
    let target = PodTarget { namespace: pod.namespace.to_string(), pod: pod.name.to_string(), uid: None };
    match sources.api.exec(&target, &container, &command, streams).await {
        Ok(url) => {
            let after = request.extensions().get::<AfterUpgrade>().cloned();
            let response = translate::channels_of(request, &url, streams, sources.stream_idle).await;
            if let Some((after, work)) = after.and_then(|after| Some((after.clone(), after.take()?))) {
                after.run(async move {
                    work.await;
                    drop(permit);
                });
            }
            response
        }
        Err(PodRefusal::Invalid(_)) => {
            let text = format!("container {container} of pod {}/{} does not run", pod.namespace, pod.name);
            answer::error(StatusCode::CONFLICT, &text)
        }
        Err(refusal) => refused(&refusal),
    }
}

fn refused(refusal: &PodRefusal) -> Response {
    let status = match refusal {
        PodRefusal::NotFound(_) => StatusCode::NOT_FOUND,
        PodRefusal::Invalid(_) => StatusCode::CONFLICT,
        PodRefusal::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    answer::error(status, &refusal.to_string())
}
