//! `/v1/images`, `/v1/volumes` and the other lists of what is on this node.

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use axum::routing::get;
use http::StatusCode;

use super::LocalSources;
use super::selection::Selected;
use crate::answer;
use crate::query::{first, pairs};

pub(super) fn routes(router: Router<LocalSources>) -> Router<LocalSources> {
    router
        .route("/v1/images", get(images))
        .route("/v1/volumes", get(volumes))
        .route("/v1/claims", get(claims))
        .route("/v1/allocations", get(allocations))
        .route("/v1/cgroups", get(cgroups))
        .route("/v1/plugins", get(plugins))
        .route("/v1/events", get(events))
        .route("/v1/stats", get(stats))
        .route("/v1/image", get(image))
        .route("/v1/volume", get(volume))
}

async fn images(State(sources): State<LocalSources>) -> Response {
    answer::json(serde_json::to_vec(&sources.inventory.images().await))
}

async fn volumes(State(sources): State<LocalSources>, Selected(of): Selected) -> Response {
    answer::json(serde_json::to_vec(&sources.inventory.volumes(&of).await))
}

async fn claims(State(sources): State<LocalSources>, Selected(of): Selected) -> Response {
    answer::json(serde_json::to_vec(&sources.inventory.claims(&of)))
}

async fn allocations(State(sources): State<LocalSources>, Selected(of): Selected) -> Response {
    answer::json(serde_json::to_vec(&sources.inventory.allocations(&of)))
}

async fn cgroups(State(sources): State<LocalSources>, Selected(of): Selected) -> Response {
    answer::json(serde_json::to_vec(&sources.inventory.cgroups(&of).await))
}

async fn plugins(State(sources): State<LocalSources>) -> Response {
    answer::json(serde_json::to_vec(&sources.inventory.plugins()))
}

async fn events(State(sources): State<LocalSources>, Selected(of): Selected) -> Response {
    answer::json(serde_json::to_vec(&sources.inventory.events(&of)))
}

async fn stats(State(sources): State<LocalSources>, Selected(of): Selected) -> Response {
    answer::json(serde_json::to_vec(&sources.inventory.usage(&of).await))
}

/// `/v1/image?name=…`: why the image is as it is.
async fn image(State(sources): State<LocalSources>, RawQuery(query): RawQuery) -> Response {
    let pairs = pairs(query.as_deref());
    let name = first(&pairs, "name").unwrap_or_default();
    match sources.inventory.explain_image(name).await {
        Some(explanation) => answer::json(serde_json::to_vec(&explanation)),
        None => {
            let text = format!("no image {name:?} is on this node, and no pod of it names one");
            answer::error(StatusCode::NOT_FOUND, &text)
        }
    }
}

/// `/v1/volume?name=…`: why the volumes of that name are as they are.
async fn volume(State(sources): State<LocalSources>, RawQuery(query): RawQuery) -> Response {
    let pairs = pairs(query.as_deref());
    let name = first(&pairs, "name").unwrap_or_default();
    let found = sources.inventory.explain_volumes(name).await;
    if found.is_empty() {
        let text = format!("no pod of this node has a volume {name:?}");
        return answer::error(StatusCode::NOT_FOUND, &text);
    }
    answer::json(serde_json::to_vec(&found))
}
