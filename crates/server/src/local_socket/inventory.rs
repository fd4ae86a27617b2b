//! `/v1/images`, `/v1/volumes` and the other lists of what is on this node.

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;

use super::LocalSources;
use super::selection::Selected;
use crate::answer;

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
