//! Every endpoint of the main port (10250) in one table: its path, when it exists, and who may use it. `endpoints::router` says
//! what answers.
//! Each question is a `match` over all endpoints, so that one without an answer does not compile.

use config::Features;

use crate::state::Switches;

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

/// Endpoints that are switched on and off together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Always,
    Debugging,
    SystemLogs,
    Profiling,
    DebugFlags,
}

impl Group {
    /// `Some` is what to say where the group is switched off.
    pub(crate) const fn refusal(self, on: Switches) -> Option<&'static str> {
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

    pub(crate) const fn group(self) -> Group {
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
    pub(crate) const fn exists(self, features: &Features) -> bool {
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
}
