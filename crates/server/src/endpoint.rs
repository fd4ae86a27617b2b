//! Everything the main port (10250) knows, in one table: where it is, when it is there, who may use it, what answers.
//! Each question is a `match` over all endpoints, so that one without an answer does not compile.

use axum::Router;
use axum::response::Response;
use axum::routing::{MethodRouter, any, get, post};
use config::Features;
use http::StatusCode;

use crate::main_port::{MainState, Switches};
use crate::{
    answer, checkpoint, configz, container_logs, debug_flags, flagz, healthz, logs, manifests, metrics, pods,
    pprof, running_pods, stats_summary, statusz, streaming,
};

macro_rules! endpoints {
    ($($name:ident)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Endpoint { $($name,)* }

        impl Endpoint {
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

endpoints! {
    Healthz Pods Stats Metrics RunningPods Configz Manifests ContainerLogs Exec Attach PortForward Run Checkpoint Logs
    Pprof DebugFlags Flagz Statusz
}

const POD: &str = "/{namespace}/{pod}";
const POD_OF_UID: &str = "/{namespace}/{pod}/{uid}";
const CONTAINER: &str = "/{namespace}/{pod}/{container}";
const CONTAINER_OF_UID: &str = "/{namespace}/{pod}/{uid}/{container}";

/// Endpoints that are switched on and off together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Always,
    Debugging,
    SystemLogs,
    Profiling,
    DebugFlags,
}

impl Group {
    /// `Some` is what to say where the group is switched off.
    const fn refusal(self, on: Switches) -> Option<&'static str> {
        match self {
            Self::Debugging if !on.debugging => Some("Debug endpoints are disabled."),
            Self::SystemLogs if !(on.debugging && on.system_logs) => Some("logs endpoint is disabled."),
            Self::Profiling if !(on.debugging && on.profiling) => Some("profiling endpoint is disabled."),
            Self::DebugFlags if !(on.debugging && on.debug_flags) => Some("flags endpoint is disabled."),
            Self::Always | Self::Debugging | Self::SystemLogs | Self::Profiling | Self::DebugFlags => None,
        }
    }
}

impl Endpoint {
    /// The path at and below which everything is this endpoint's.
    pub(crate) const fn root(self) -> &'static str {
        match self {
            Self::Healthz => "/healthz",
            Self::Pods => "/pods",
            Self::Stats => "/stats",
            Self::Metrics => "/metrics",
            Self::RunningPods => "/runningpods",
            Self::Configz => "/configz",
            Self::Manifests => "/debug/manifests",
            Self::ContainerLogs => "/containerLogs",
            Self::Exec => "/exec",
            Self::Attach => "/attach",
            Self::PortForward => "/portForward",
            Self::Run => "/run",
            Self::Checkpoint => "/checkpoint",
            Self::Logs => "/logs",
            Self::Pprof => "/debug/pprof",
            Self::DebugFlags => "/debug/flags",
            Self::Flagz => "/flagz",
            Self::Statusz => "/statusz",
        }
    }

    /// Who may use any of these subresources of the node is let in.
    pub(crate) const fn subresources(self) -> &'static [&'static str] {
        match self {
            Self::Healthz => &["healthz", "proxy"],
            Self::Pods | Self::RunningPods | Self::Manifests => &["pods", "proxy"],
            Self::Configz => &["configz", "proxy"],
            Self::Flagz => &["configz"],
            Self::Stats => &["stats"],
            Self::Metrics => &["metrics"],
            Self::Logs => &["log"],
            Self::Checkpoint => &["checkpoint"],
            Self::Statusz => &["statusz"],
            Self::ContainerLogs
            | Self::Exec
            | Self::Attach
            | Self::PortForward
            | Self::Run
            | Self::Pprof
            | Self::DebugFlags => &["proxy"],
        }
    }

    const fn group(self) -> Group {
        match self {
            Self::Healthz | Self::Pods | Self::Stats | Self::Metrics | Self::Flagz | Self::Statusz => {
                Group::Always
            }
            Self::RunningPods
            | Self::Configz
            | Self::Manifests
            | Self::ContainerLogs
            | Self::Exec
            | Self::Attach
            | Self::PortForward
            | Self::Run
            | Self::Checkpoint => Group::Debugging,
            Self::Logs => Group::SystemLogs,
            Self::Pprof => Group::Profiling,
            Self::DebugFlags => Group::DebugFlags,
        }
    }

    /// Whether the endpoint is there at all: some have a feature gate of their own.
    const fn exists(self, features: &Features) -> bool {
        match self {
            Self::Checkpoint => features.container_checkpoint,
            Self::Flagz => features.flagz,
            Self::Statusz => features.statusz,
            Self::Healthz
            | Self::Pods
            | Self::Stats
            | Self::Metrics
            | Self::RunningPods
            | Self::Configz
            | Self::Manifests
            | Self::ContainerLogs
            | Self::Exec
            | Self::Attach
            | Self::PortForward
            | Self::Run
            | Self::Logs
            | Self::Pprof
            | Self::DebugFlags => true,
        }
    }

    /// The paths that are answered, relative to the root.
    pub(crate) fn answers(self) -> Vec<(&'static str, MethodRouter<MainState>)> {
        match self {
            Self::Healthz => vec![
                ("", get(healthz::all)),
                ("/ping", get(healthz::ping)),
                ("/log", get(healthz::log)),
                ("/syncloop", get(healthz::sync_loop)),
                ("/device-plugin", get(healthz::device_plugin)),
            ],
            Self::Pods => vec![("", get(pods::list))],
            Self::Stats => vec![("/summary", get(stats_summary::show).post(stats_summary::show))],
            Self::Metrics => vec![
                ("", get(metrics::kubelet)),
                ("/cadvisor", get(metrics::cadvisor)),
                ("/resource", get(metrics::resource)),
                ("/probes", get(metrics::probes)),
                ("/slis", get(metrics::slis)),
            ],
            Self::RunningPods => vec![("", get(running_pods::redirect)), ("/", get(running_pods::list))],
            Self::Configz => vec![("", get(configz::show))],
            Self::Manifests => vec![("", get(manifests::problems))],
            Self::ContainerLogs => vec![(CONTAINER, get(container_logs::show))],
            Self::Exec => [CONTAINER, CONTAINER_OF_UID]
                .map(|path| (path, get(streaming::exec).post(streaming::exec)))
                .into(),
            Self::Attach => [CONTAINER, CONTAINER_OF_UID]
                .map(|path| (path, get(streaming::attach).post(streaming::attach)))
                .into(),
            Self::PortForward => [POD, POD_OF_UID]
                .map(|path| (path, get(streaming::port_forward).post(streaming::port_forward)))
                .into(),
            Self::Run => [CONTAINER, CONTAINER_OF_UID].map(|path| (path, post(streaming::run))).into(),
            Self::Checkpoint => vec![(CONTAINER, post(checkpoint::write))],
            Self::Logs => vec![("/", get(logs::top)), ("/{*path}", get(logs::below))],
            Self::Pprof => {
                vec![("", get(pprof::index)), ("/", get(pprof::index)), ("/{profile}", get(pprof::profile))]
            }
            Self::DebugFlags => vec![("/v", any(debug_flags::set))],
            Self::Flagz => vec![("", get(flagz::show))],
            Self::Statusz => vec![("", get(statusz::show))],
        }
    }
}

/// Every endpoint, as far as it is switched on.
pub(crate) fn router(on: Switches, features: &Features) -> Router<MainState> {
    let mut router = Router::new();
    for endpoint in Endpoint::ALL.iter().filter(|endpoint| endpoint.exists(features)) {
        let root = endpoint.root();
        if let Some(text) = endpoint.group().refusal(on) {
            for path in [root.to_owned(), format!("{root}/"), format!("{root}/{{*rest}}")] {
                router = router.route(&path, any(move || refuse(text)));
            }
            continue;
        }
        for (path, answers) in endpoint.answers() {
            router = router.route(&format!("{root}{path}"), answers);
        }
    }
    router
}

async fn refuse(text: &'static str) -> Response {
    answer::error(StatusCode::METHOD_NOT_ALLOWED, text)
}
