//! Faults of calls, and the call log.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ports::runtime::{RuntimeError, RuntimeResult};

use super::{CallRecord, FakeRuntime};

/// The methods of the runtime, by their names in the CRI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    Version,
    Status,
    RuntimeConfig,
    ListPodSandbox,
    ListContainers,
    PodSandboxStatus,
    ContainerStatus,
    RunPodSandbox,
    StopPodSandbox,
    RemovePodSandbox,
    CreateContainer,
    StartContainer,
    StopContainer,
    RemoveContainer,
    UpdateContainerResources,
    ReopenContainerLog,
    ExecSync,
    GetContainerEvents,
    ListImages,
    ImageStatus,
    PullImage,
    RemoveImage,
    ImageFsInfo,
    UpdateRuntimeConfig,
    Exec,
    Attach,
    PortForward,
    ContainerStats,
    ListContainerStats,
    PodSandboxStats,
    ListPodSandboxStats,
    ListMetricDescriptors,
    ListPodSandboxMetrics,
    CheckpointContainer,
    UpdatePodSandboxResources,
}

impl Method {
    /// The name in errors and the call log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Version => "Version",
            Self::Status => "Status",
            Self::RuntimeConfig => "RuntimeConfig",
            Self::ListPodSandbox => "ListPodSandbox",
            Self::ListContainers => "ListContainers",
            Self::PodSandboxStatus => "PodSandboxStatus",
            Self::ContainerStatus => "ContainerStatus",
            Self::RunPodSandbox => "RunPodSandbox",
            Self::StopPodSandbox => "StopPodSandbox",
            Self::RemovePodSandbox => "RemovePodSandbox",
            Self::CreateContainer => "CreateContainer",
            Self::StartContainer => "StartContainer",
            Self::StopContainer => "StopContainer",
            Self::RemoveContainer => "RemoveContainer",
            Self::UpdateContainerResources => "UpdateContainerResources",
            Self::ReopenContainerLog => "ReopenContainerLog",
            Self::ExecSync => "ExecSync",
            Self::GetContainerEvents => "GetContainerEvents",
            Self::ListImages => "ListImages",
            Self::ImageStatus => "ImageStatus",
            Self::PullImage => "PullImage",
            Self::RemoveImage => "RemoveImage",
            Self::ImageFsInfo => "ImageFsInfo",
            Self::UpdateRuntimeConfig => "UpdateRuntimeConfig",
            Self::Exec => "Exec",
            Self::Attach => "Attach",
            Self::PortForward => "PortForward",
            Self::ContainerStats => "ContainerStats",
            Self::ListContainerStats => "ListContainerStats",
            Self::PodSandboxStats => "PodSandboxStats",
            Self::ListPodSandboxStats => "ListPodSandboxStats",
            Self::ListMetricDescriptors => "ListMetricDescriptors",
            Self::ListPodSandboxMetrics => "ListPodSandboxMetrics",
            Self::CheckpointContainer => "CheckpointContainer",
            Self::UpdatePodSandboxResources => "UpdatePodSandboxResources",
        }
    }

    /// Whether it only reads. Such calls are counted, but would flood the call log.
    const fn is_read(self) -> bool {
        match self {
            Self::Version
            | Self::Status
            | Self::RuntimeConfig
            | Self::ListPodSandbox
            | Self::ListContainers
            | Self::PodSandboxStatus
            | Self::ContainerStatus
            | Self::GetContainerEvents
            | Self::ListImages
            | Self::ImageStatus
            | Self::ImageFsInfo
            | Self::ContainerStats
            | Self::ListContainerStats
            | Self::PodSandboxStats
            | Self::ListPodSandboxStats
            | Self::ListMetricDescriptors
            | Self::ListPodSandboxMetrics => true,
            Self::RunPodSandbox
            | Self::StopPodSandbox
            | Self::RemovePodSandbox
            | Self::CreateContainer
            | Self::StartContainer
            | Self::StopContainer
            | Self::RemoveContainer
            | Self::UpdateContainerResources
            | Self::ReopenContainerLog
            | Self::ExecSync
            | Self::PullImage
            | Self::RemoveImage
            | Self::UpdateRuntimeConfig
            | Self::Exec
            | Self::Attach
            | Self::PortForward
            | Self::CheckpointContainer
            | Self::UpdatePodSandboxResources => false,
        }
    }

    pub(super) fn failed(self, message: impl Into<String>) -> RuntimeError {
        RuntimeError::Failed { call: self.name(), message: message.into() }
    }

    pub(super) fn not_found(self, message: impl Into<String>) -> RuntimeError {
        RuntimeError::NotFound { call: self.name(), message: message.into() }
    }

    pub(super) fn unimplemented(self) -> RuntimeError {
        let message = format!("method {} not implemented", self.name());
        RuntimeError::Unimplemented { call: self.name(), message }
    }

    pub(super) fn already_exists(self, message: impl Into<String>) -> RuntimeError {
        RuntimeError::AlreadyExists { call: self.name(), message: message.into() }
    }
}

/// How a call fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The runtime returns an error; nothing was done.
    Failed(String),
    /// The runtime returns that there is no such object.
    NotFound,
    /// The runtime does not know the call, like an older one.
    Unimplemented,
    /// The connection breaks before anything was done.
    Unavailable,
    /// No answer in time; nothing was done.
    TimedOut,
    /// No answer in time, but the call was carried out.
    TimedOutAfterDoing,
    /// The connection breaks after the call was carried out.
    UnavailableAfterDoing,
    /// No answer, ever.
    Hang,
    /// Works, after this long.
    Slow(Duration),
}

/// The scripted faults.
#[derive(Debug)]
pub(super) struct Script {
    queued: BTreeMap<Method, VecDeque<Fault>>,
    always: BTreeMap<Method, Fault>,
    latency: BTreeMap<Method, Duration>,
    counts: BTreeMap<Method, u64>,
    pub(super) calls: Vec<CallRecord>,
    pub(super) down: bool,
    pub(super) offers_hints: bool,
    pub(super) request_timeout: Duration,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            queued: BTreeMap::new(),
            always: BTreeMap::new(),
            latency: BTreeMap::new(),
            counts: BTreeMap::new(),
            calls: Vec::new(),
            down: false,
            offers_hints: false,
            request_timeout: Duration::from_secs(120),
        }
    }
}

impl Script {
    pub(super) fn push(&mut self, method: Method, fault: Fault) {
        self.queued.entry(method).or_default().push_back(fault);
    }

    pub(super) fn set_always(&mut self, method: Method, fault: Option<Fault>) {
        match fault {
            Some(fault) => self.always.insert(method, fault),
            None => self.always.remove(&method),
        };
    }

    pub(super) fn set_latency(&mut self, method: Method, latency: Duration) {
        self.latency.insert(method, latency);
    }

    pub(super) fn clear_faults(&mut self) {
        self.queued.clear();
        self.always.clear();
        self.down = false;
    }

    pub(super) fn count(&self, method: Method) -> u64 {
        self.counts.get(&method).copied().unwrap_or(0)
    }

    fn begin(&mut self, record: CallRecord) -> (Duration, Option<Fault>) {
        let method = record.method;
        *self.counts.entry(method).or_default() += 1;
        if !method.is_read() {
            self.calls.push(record);
        }
        if self.down {
            return (Duration::ZERO, Some(Fault::Unavailable));
        }
        let queued = self.queued.get_mut(&method).and_then(VecDeque::pop_front);
        let fault = queued.or_else(|| self.always.get(&method).cloned());
        (self.latency.get(&method).copied().unwrap_or_default(), fault)
    }
}

/// The fault that is left for after the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Answered,
    TimedOut,
    Unavailable,
}

impl FakeRuntime {
    /// Records the call and applies its latency and fault; an error means that nothing was done.
    pub(super) async fn begin(&self, method: Method, subject: String) -> RuntimeResult<Ending> {
        let at = self.shared.clock.mono().since_start();
        let (latency, fault) = self.shared.script.lock().begin(CallRecord { at, method, subject });
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        match fault {
            None => Ok(Ending::Answered),
            Some(Fault::TimedOutAfterDoing) => Ok(Ending::TimedOut),
            Some(Fault::UnavailableAfterDoing) => Ok(Ending::Unavailable),
            Some(Fault::Slow(time)) => {
                tokio::time::sleep(time).await;
                Ok(Ending::Answered)
            }
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::TimedOut) => Err(self.time_out(method).await),
            Some(Fault::Unavailable) => Err(unavailable(method)),
            Some(Fault::Unimplemented) => Err(method.unimplemented()),
            Some(Fault::NotFound) => Err(method.not_found("scripted: not found")),
            Some(Fault::Failed(message)) => Err(method.failed(message)),
        }
    }

    /// Answers, or fails to, after the call.
    pub(super) async fn end<T: Send>(
        &self,
        method: Method,
        ending: Ending,
        result: RuntimeResult<T>,
    ) -> RuntimeResult<T> {
        match ending {
            Ending::Answered => result,
            Ending::TimedOut => {
                drop(result);
                Err(self.time_out(method).await)
            }
            Ending::Unavailable => Err(unavailable(method)),
        }
    }

    async fn time_out(&self, method: Method) -> RuntimeError {
        let deadline = self.shared.script.lock().request_timeout;
        tokio::time::sleep(deadline).await;
        RuntimeError::TimedOut { call: method.name(), deadline }
    }
}

fn unavailable(method: Method) -> RuntimeError {
    let message = "connect to /run/fake.sock: Connection refused (os error 111)".to_owned();
    RuntimeError::Unavailable { call: method.name(), message }
}
