//! Every endpoint of the main port (10250) in one table: its path, when it exists, and the subresources that authorize it.
//! `endpoints::router` has the handlers. Each property is a `match` over all endpoints, so that a missing one does not compile.

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

/// The answer to requests for debugging endpoints that are disabled.
pub(crate) const DEBUGGING_DISABLED: &str = "Debug endpoints are disabled.";

endpoints! {
    Healthz Pods Stats Metrics RunningPods Configz Manifests ContainerLogs Exec Attach PortForward Run Checkpoint Logs
    Pprof DebugFlags DebugPods Flagz Statusz
}

/// Endpoints that are enabled and disabled together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Always,
    /// Refused without the debugging handlers.
    Debugging,
    /// Unknown without the debugging handlers.
    DebuggingOnly,
    SystemLogs,
    Profiling,
    DebugFlags,
}

/// What a client gets from an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Availability {
    Served,
    /// 405 with this text.
    Refused(&'static str),
    /// 404.
    Unknown,
}

impl Group {
    /// With `enableDebuggingHandlers: false` the Go kubelet refuses some endpoints with a text and does not know the others.
    pub(crate) const fn availability(self, on: Switches) -> Availability {
        match self {
            Self::Debugging | Self::SystemLogs | Self::Profiling if !on.debugging => {
                Availability::Refused(DEBUGGING_DISABLED)
            }
            Self::DebuggingOnly | Self::DebugFlags if !on.debugging => Availability::Unknown,
            Self::SystemLogs if !on.system_logs => Availability::Refused("logs endpoint is disabled."),
            Self::Profiling if !on.profiling => Availability::Refused("profiling endpoint is disabled."),
            Self::DebugFlags if !on.debug_flags => Availability::Refused("flags endpoint is disabled."),
            Self::Always
            | Self::Debugging
            | Self::DebuggingOnly
            | Self::SystemLogs
            | Self::Profiling
            | Self::DebugFlags => Availability::Served,
        }
    }
}

impl Endpoint {
    /// The path of the endpoint, which includes everything below it.
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
            Self::DebugPods => "/debug/pods",
            Self::Flagz => "/flagz",
            Self::Statusz => "/statusz",
        }
    }

    /// Access to any of these subresources of the node allows a request.
    pub(crate) const fn subresources(self) -> &'static [&'static str] {
        match self {
            Self::Healthz => &["healthz", "proxy"],
            Self::Pods | Self::RunningPods | Self::Manifests | Self::DebugPods => &["pods", "proxy"],
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
            Self::Healthz | Self::Pods | Self::Stats | Self::Metrics => Group::Always,
            Self::RunningPods
            | Self::ContainerLogs
            | Self::Exec
            | Self::Attach
            | Self::PortForward
            | Self::Run => Group::Debugging,
            Self::Configz
            | Self::Manifests
            | Self::DebugPods
            | Self::Checkpoint
            | Self::Flagz
            | Self::Statusz => Group::DebuggingOnly,
            Self::Logs => Group::SystemLogs,
            Self::Pprof => Group::Profiling,
            Self::DebugFlags => Group::DebugFlags,
        }
    }

    /// Whether the endpoint exists: some have their own feature gate.
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
            | Self::DebugFlags
            | Self::DebugPods => true,
        }
    }
}
