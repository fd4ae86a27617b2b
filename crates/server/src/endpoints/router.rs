//! The handlers of each endpoint.

use axum::Router;
use axum::response::Response;
use axum::routing::{MethodRouter, any, get, post};
use config::Features;
use http::StatusCode;

use super::{
    checkpoint, configz, container_logs, debug_flags, debug_pods, flagz, healthz, logs, manifests, metrics,
    pods, pprof, running_pods, stats_summary, statusz,
};
use crate::endpoint::{Availability, Endpoint};
use crate::state::{MainState, Switches};
use crate::{answer, streaming};

const POD: &str = "/{namespace}/{pod}";
const POD_OF_UID: &str = "/{namespace}/{pod}/{uid}";
const CONTAINER: &str = "/{namespace}/{pod}/{container}";
const CONTAINER_OF_UID: &str = "/{namespace}/{pod}/{uid}/{container}";

/// Paths with their handlers, relative to the endpoint's root.
pub(crate) fn answers(endpoint: Endpoint) -> Vec<(&'static str, MethodRouter<MainState>)> {
    match endpoint {
        Endpoint::Healthz => vec![
            ("", get(healthz::all)),
            ("/ping", get(healthz::ping)),
            ("/log", get(healthz::log)),
            ("/syncloop", get(healthz::sync_loop)),
            ("/device-plugin", get(healthz::device_plugin)),
        ],
        Endpoint::Pods => vec![("", get(pods::list))],
        Endpoint::Stats => vec![("/summary", get(stats_summary::show).post(stats_summary::show))],
        Endpoint::Metrics => vec![
            ("", get(metrics::kubelet)),
            ("/cadvisor", get(metrics::cadvisor)),
            ("/resource", get(metrics::resource)),
            ("/probes", get(metrics::probes)),
            ("/slis", get(metrics::slis)),
        ],
        Endpoint::RunningPods => vec![("", get(running_pods::redirect)), ("/", get(running_pods::list))],
        Endpoint::Configz => vec![("", get(configz::show))],
        Endpoint::Manifests => vec![("", get(manifests::problems))],
        Endpoint::ContainerLogs => vec![(CONTAINER, get(container_logs::show))],
        Endpoint::Exec => [CONTAINER, CONTAINER_OF_UID]
            .map(|path| (path, get(streaming::exec).post(streaming::exec)))
            .into(),
        Endpoint::Attach => [CONTAINER, CONTAINER_OF_UID]
            .map(|path| (path, get(streaming::attach).post(streaming::attach)))
            .into(),
        Endpoint::PortForward => [POD, POD_OF_UID]
            .map(|path| (path, get(streaming::port_forward).post(streaming::port_forward)))
            .into(),
        Endpoint::Run => [CONTAINER, CONTAINER_OF_UID].map(|path| (path, post(streaming::run))).into(),
        Endpoint::Checkpoint => vec![(CONTAINER, post(checkpoint::write))],
        Endpoint::Logs => vec![("/", get(logs::top)), ("/{*path}", get(logs::below))],
        Endpoint::Pprof => {
            vec![("", get(pprof::index)), ("/", get(pprof::index)), ("/{profile}", get(pprof::profile))]
        }
        Endpoint::DebugFlags => vec![("/v", any(debug_flags::set))],
        Endpoint::DebugPods => vec![("/{uid}/start.svg", get(debug_pods::start_picture))],
        Endpoint::Flagz => vec![("", get(flagz::show))],
        Endpoint::Statusz => vec![("", get(statusz::show))],
    }
}

/// Routes of every endpoint; one that is refused has its refusal, and one that is unknown none.
pub(crate) fn router(on: Switches, features: &Features) -> Router<MainState> {
    let mut router = Router::new();
    for endpoint in Endpoint::ALL.iter().filter(|endpoint| endpoint.exists(features)) {
        let root = endpoint.root();
        match endpoint.group().availability(on) {
            Availability::Served => {
                for (path, answers) in answers(*endpoint) {
                    router = router.route(&format!("{root}{path}"), answers);
                }
            }
            Availability::Refused(text) => {
                for path in [root.to_owned(), format!("{root}/"), format!("{root}/{{*rest}}")] {
                    router = router.route(&path, any(move || refuse(text)));
                }
            }
            Availability::Unknown => {}
        }
    }
    router
}

async fn refuse(text: &'static str) -> Response {
    answer::error(StatusCode::METHOD_NOT_ALLOWED, text)
}
