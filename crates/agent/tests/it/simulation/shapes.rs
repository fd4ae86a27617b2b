//! The pods of the simulation: few shapes, each of which can be changed as a new pod or in place.

use fakes::{Exec, FakeRuntime, Program};
use serde_json::{Value, json};

use crate::pods::{Manifest, container, container_with, pod};
use crate::world::seconds;

/// The address that the probes of the simulation use.
pub(super) const PROBED_PORT: u16 = 80;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Plain,
    Volumes,
    Init,
    Sidecar,
    Crasher,
    Job,
    Flaky,
    JobWithSidecar,
    Probed,
    Hooked,
    Stubborn,
}

/// The state that a pod of a shape reaches without disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Ready,
    /// Runs and exits again and again.
    Restarts,
    /// Succeeded, or permanently failed.
    Done,
}

pub(super) const ALL: [Shape; 11] = [
    Shape::Plain,
    Shape::Volumes,
    Shape::Init,
    Shape::Sidecar,
    Shape::Crasher,
    Shape::Job,
    Shape::Flaky,
    Shape::JobWithSidecar,
    Shape::Probed,
    Shape::Hooked,
    Shape::Stubborn,
];

impl Shape {
    pub(super) const fn outcome(self) -> Outcome {
        match self {
            Self::Plain
            | Self::Volumes
            | Self::Init
            | Self::Sidecar
            | Self::Probed
            | Self::Hooked
            | Self::Stubborn => Outcome::Ready,
            Self::Crasher => Outcome::Restarts,
            Self::Job | Self::Flaky | Self::JobWithSidecar => Outcome::Done,
        }
    }

    /// The pod in that version. `keeps_uid`: all versions are the same pod.
    pub(super) fn manifest(self, name: &str, version: u64, keeps_uid: bool) -> Manifest {
        let app = |fields: Value| {
            let mut app = container_with("app", fields);
            app["image"] = format!("app:{version}").into();
            app
        };
        let plain = || app(json!({}));
        let image = format!("tool:{version}");
        let tool = |name: &str| container_with(name, json!({"image": image}));
        let grace = json!({"terminationGracePeriodSeconds": 5});
        let manifest = match self {
            Self::Plain => pod(name, [plain(), container("side")]),
            Self::Volumes => with_volumes(name, app),
            Self::Init => pod(name, [plain()]).init([container("init-a"), container("init-b")]),
            Self::Sidecar => pod(name, [plain()]).init([sidecar(), container("init-a")]),
            Self::Crasher => pod(name, [tool("crash")]),
            Self::Job => pod(name, [tool("job")]).restart_policy("Never"),
            Self::Flaky => pod(name, [tool("flaky")]).restart_policy("OnFailure"),
            Self::JobWithSidecar => pod(name, [tool("job")]).init([sidecar()]).restart_policy("Never"),
            Self::Probed => pod(name, [app(probes())]),
            Self::Hooked => pod(name, [app(hooks())]),
            Self::Stubborn => pod(name, [container_with("stubborn", json!({"image": image})), plain()]),
        };
        let manifest = manifest.spec(grace);
        if keeps_uid { manifest.uid(&format!("uid-{name}-{self:?}")) } else { manifest }
    }
}

/// The programs of the containers of all shapes.
pub(super) fn program(fake: &FakeRuntime) {
    let fails = Program::exits(1, seconds(3));
    fake.program(
        "app",
        Program::runs().stopping(seconds(1), 0).on_exec(|_| Exec::exits(0).taking(seconds(1))),
    )
    .program("init-a", Program::exits(0, seconds(2)))
    .program("init-b", Program::exits(0, seconds(1)))
    .program("crash", Program::exits(1, seconds(3)))
    .program("job", Program::exits(0, seconds(15)))
    .programs("flaky", vec![fails.clone(), fails, Program::exits(0, seconds(4))])
    .program("stubborn", Program::runs().ignoring_term());
}

fn sidecar() -> Value {
    container_with("proxy", json!({"restartPolicy": "Always"}))
}

fn probes() -> Value {
    let get = json!({"path": "/healthz", "port": PROBED_PORT});
    json!({
        "readinessProbe": {"httpGet": get, "periodSeconds": 2},
        "livenessProbe": {"httpGet": get, "periodSeconds": 5, "failureThreshold": 3},
        "startupProbe": {"exec": {"command": ["started"]}, "periodSeconds": 2, "failureThreshold": 1000},
    })
}

fn hooks() -> Value {
    json!({"lifecycle": {"postStart": {"sleep": {"seconds": 2}}, "preStop": {"sleep": {"seconds": 3}}}})
}

fn with_volumes(name: &str, app: impl Fn(Value) -> Value) -> Manifest {
    let mounts = json!({"volumeMounts": [
        {"name": "scratch", "mountPath": "/scratch"},
        {"name": "memory", "mountPath": "/memory", "subPath": "part"},
        {"name": "data", "mountPath": "/data"},
    ]});
    pod(name, [app(mounts)]).spec(json!({"volumes": [
        {"name": "scratch", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
        {"name": "data", "hostPath": {"path": "/data", "type": "DirectoryOrCreate"}},
    ]}))
}
