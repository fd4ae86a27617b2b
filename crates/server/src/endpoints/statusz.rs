//! `/statusz`: version, start time, uptime, and the paths of other endpoints.

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use serde_json::json;

use crate::endpoint::Endpoint;
use crate::endpoints::zpages;
use crate::state::MainState;

/// Value of "Go version".
const NO_GO: &str = "none";

pub(crate) async fn show(State(state): State<MainState>, headers: HeaderMap) -> Response {
    let started = state.process.started();
    let up = state.clock.now().wall.duration_since(started).as_secs().max(0);
    let version = config::KUBERNETES_VERSION.trim_start_matches('v');
    let emulated = version.rsplit_once('.').map_or(version, |(minor, _)| minor);
    let mut paths: Vec<_> = Endpoint::ALL.iter().map(|endpoint| endpoint.root()).collect();
    paths.sort_unstable();
    let lines = [
        ("Started", started.strftime("%a %b %e %H:%M:%S UTC %Y").to_string()),
        ("Up", format!("{} hr {:02} min {:02} sec", up / 3600, up / 60 % 60, up % 60)),
        ("Go version", NO_GO.to_owned()),
        ("Binary version", version.to_owned()),
        ("Emulation version", emulated.to_owned()),
        ("Paths", paths.join(" ")),
    ];
    zpages::show("Statusz", &headers, lines.iter().map(|(name, value)| (name, value)), || {
        json!({
            "startTime": started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "uptimeSeconds": up,
            "goVersion": NO_GO,
            "binaryVersion": version,
            "emulationVersion": emulated,
            "paths": paths,
        })
    })
}
