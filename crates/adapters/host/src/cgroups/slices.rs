//! Slices: cgroups that systemd creates, so that it knows their owner and does not change them.

mod systemd_connection;

use std::path::PathBuf;
use std::time::Duration;

use model::cgroup::{CgroupPath, UnitProperty, UnitValue};
use ports::host::{HostError, HostResult};

use crate::dbus::{Body, DbusError, Method, Variant};
use systemd_connection::{SystemdConnection, Until};

/// The socket of systemd for root, also on machines without a message bus.
pub(super) const SOCKET: &str = "/run/systemd/private";
/// A job for a slice needs milliseconds.
const DEADLINE: Duration = Duration::from_secs(30);
const UNIT_EXISTS: &str = "org.freedesktop.systemd1.UnitExists";
const NO_SUCH_UNIT: &str = "org.freedesktop.systemd1.NoSuchUnit";
/// What systemd counts for a slice, so that the kernel's controllers are there.
const ACCOUNTING: [&str; 4] = ["CPUAccounting", "MemoryAccounting", "IOAccounting", "TasksAccounting"];

#[derive(Debug)]
pub(super) struct Slices {
    systemd: SystemdConnection,
}

const fn manager(member: &'static str) -> Method {
    Method {
        destination: "org.freedesktop.systemd1",
        path: "/org/freedesktop/systemd1",
        interface: "org.freedesktop.systemd1.Manager",
        member,
    }
}

impl Slices {
    pub(super) fn new(socket: PathBuf) -> Self {
        Self { systemd: SystemdConnection::new(socket) }
    }

    /// Starts the slice, or gives one that runs these properties.
    pub(super) async fn ensure(&self, slice: &CgroupPath, properties: &[UnitProperty]) -> HostResult<()> {
        within("start slice", slice, self.try_ensure(slice, properties)).await
    }

    async fn try_ensure(&self, slice: &CgroupPath, properties: &[UnitProperty]) -> Result<(), DbusError> {
        let values: Vec<(&str, Variant)> = properties.iter().map(|p| (p.name, variant(&p.value))).collect();
        let mut all = vec![
            ("Description", Variant::Text(format!("Kubernetes pods: {}", slice.name()))),
            ("DefaultDependencies", Variant::Bool(false)),
        ];
        all.extend(above(slice).map(|above| ("Wants", Variant::Texts(vec![above.to_owned()]))));
        all.extend(ACCOUNTING.map(|name| (name, Variant::Bool(true))));
        all.extend(values.iter().cloned());
        let start = Body::default().text(slice.name()).text("replace").properties(&all).no_units();
        match self.systemd.call(manager("StartTransientUnit"), start, Until::JobDone).await {
            Err(DbusError::Failed { name, .. }) if name == UNIT_EXISTS && values.is_empty() => Ok(()),
            Err(DbusError::Failed { name, .. }) if name == UNIT_EXISTS => {
                // Until the next start of the machine only.
                let set = Body::default().text(slice.name()).flag(true).properties(&values);
                self.systemd.call(manager("SetUnitProperties"), set, Until::Answered).await
            }
            result => result,
        }
    }

    /// Stops the slice with all processes in it. Success if it does not exist.
    pub(super) async fn stop(&self, slice: &CgroupPath) -> HostResult<()> {
        let stop = async {
            let body = Body::default().text(slice.name()).text("replace");
            match self.systemd.call(manager("StopUnit"), body, Until::JobDone).await {
                Err(DbusError::Failed { name, .. }) if name == NO_SUCH_UNIT => Ok(()),
                result => result,
            }
        };
        within("stop slice", slice, stop).await
    }
}

fn variant(value: &UnitValue) -> Variant {
    match value {
        UnitValue::Number(number) => Variant::Number(*number),
        UnitValue::Bits(bits) => Variant::Bytes(bits.clone()),
    }
}

/// The slice that this one is in: `a.slice` for `a-b.slice`, none for `a.slice`.
fn above(slice: &CgroupPath) -> Option<&str> {
    slice.path.rsplit('/').nth(1).filter(|name| !name.is_empty())
}

async fn within(
    what: &str,
    slice: &CgroupPath,
    work: impl Future<Output = Result<(), DbusError>>,
) -> HostResult<()> {
    let failed = |why: String| HostError::Invalid(format!("{what} {}: {why}", slice.name()));
    match tokio::time::timeout(DEADLINE, work).await {
        Ok(result) => result.map_err(|error| failed(error.to_string())),
        Err(_) => Err(failed(format!("systemd took more than {} s", DEADLINE.as_secs()))),
    }
}
