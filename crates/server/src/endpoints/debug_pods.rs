//! `/debug/pods/<uid>/start.svg`: the start of a pod as a picture, for those who may see pods. The Go kubelet does not have this endpoint.

use axum::extract::{Path, State};
use axum::response::Response;
use explain_core::waterfall::waterfall_svg;
use http::{HeaderValue, StatusCode};
use model::inventory::PodSelection;
use ports::Clock;

use crate::state::MainState;
use crate::{Api, answer};

const SVG: HeaderValue = HeaderValue::from_static("image/svg+xml");

pub(crate) async fn start_picture(State(state): State<MainState>, Path(uid): Path<String>) -> Response {
    picture_of(&state.api, state.clock, &uid)
}

/// The picture of the pod with that UID, also for the local socket.
pub(crate) fn picture_of(api: &Api, clock: Clock, uid: &str) -> Response {
    let Some(pod) = api.explain_pods(&PodSelection::of(uid)).into_iter().find(|pod| pod.uid == uid) else {
        return answer::error(
            StatusCode::NOT_FOUND,
            &format!("no pod with UID {uid:?} is known to this node"),
        );
    };
    answer::with_type(StatusCode::OK, SVG, waterfall_svg(&pod, clock.now().wall))
}
