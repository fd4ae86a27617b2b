//! Slices: cgroups that systemd makes, so that it knows whose they are and leaves them alone.

use std::path::PathBuf;
use std::time::Duration;

use model::cgroup::{CgroupPath, UnitProperty};
use ports::host::{HostError, HostResult};

use crate::dbus::{Body, Connection, DbusError, Method, Variant};

/// Where systemd answers root, also on machines without a message bus.
pub(super) const SOCKET: &str = "/run/systemd/private";
/// A job for a slice takes milliseconds.
const DEADLINE: Duration = Duration::from_secs(30);
const UNIT_EXISTS: &str = "org.freedesktop.systemd1.UnitExists";
const NO_SUCH_UNIT: &str = "org.freedesktop.systemd1.NoSuchUnit";
/// What systemd counts for a slice, so that the kernel's controllers are there.
const ACCOUNTING: [&str; 4] = ["CPUAccounting", "MemoryAccounting", "IOAccounting", "TasksAccounting"];

#[derive(Clone, Debug)]
pub(super) struct Slices {
    socket: PathBuf,
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
    pub(super) const fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Starts the slice, or gives one that runs these properties.
    pub(super) async fn ensure(&self, slice: &CgroupPath, properties: &[UnitProperty]) -> HostResult<()> {
        within("start slice", slice, self.try_ensure(slice, properties)).await
    }

    async fn try_ensure(&self, slice: &CgroupPath, properties: &[UnitProperty]) -> Result<(), DbusError> {
        let mut systemd = Connection::open(&self.socket).await?;
        let numbers: Vec<(&str, Variant)> =
            properties.iter().map(|p| (p.name, Variant::Number(p.value))).collect();
        let mut all = vec![
            ("Description", Variant::Text(format!("Kubernetes pods: {}", slice.name()))),
            ("DefaultDependencies", Variant::Bool(false)),
        ];
        all.extend(above(slice).map(|above| ("Wants", Variant::Texts(vec![above.to_owned()]))));
        all.extend(ACCOUNTING.map(|name| (name, Variant::Bool(true))));
        all.extend(numbers.iter().cloned());
        let start = Body::default().text(slice.name()).text("replace").properties(&all).no_units();
        match run_job(&mut systemd, manager("StartTransientUnit"), &start).await {
            Err(DbusError::Failed { name, .. }) if name == UNIT_EXISTS && numbers.is_empty() => Ok(()),
            Err(DbusError::Failed { name, .. }) if name == UNIT_EXISTS => {
                // Until the next start of the machine only.
                let set = Body::default().text(slice.name()).flag(true).properties(&numbers);
                systemd.call(manager("SetUnitProperties"), &set).await.map(drop)
            }
            result => result,
        }
    }

    /// Ends the slice with all that is in it. Success if there is none.
    pub(super) async fn stop(&self, slice: &CgroupPath) -> HostResult<()> {
        let stop = async {
            let mut systemd = Connection::open(&self.socket).await?;
            let body = Body::default().text(slice.name()).text("replace");
            match run_job(&mut systemd, manager("StopUnit"), &body).await {
                Err(DbusError::Failed { name, .. }) if name == NO_SUCH_UNIT => Ok(()),
                result => result,
            }
        };
        within("stop slice", slice, stop).await
    }
}

/// Has systemd begin a job, and waits until that is done.
async fn run_job(systemd: &mut Connection, method: Method, body: &Body) -> Result<(), DbusError> {
    let answer = systemd.call(method, body).await?;
    let job = answer.reader().string().ok_or(DbusError::Garbled)?;
    loop {
        let signal = systemd.signal().await?;
        if signal.member != "JobRemoved" {
            continue;
        }
        let mut arguments = signal.reader();
        let (_number, ended) = (arguments.number(), arguments.string());
        if ended.as_deref() != Some(job.as_str()) {
            continue;
        }
        let (_unit, result) = (arguments.string(), arguments.string().unwrap_or_default());
        if result == "done" {
            return Ok(());
        }
        return Err(DbusError::Failed {
            name: method.member.to_owned(),
            message: format!("the job is {result}"),
        });
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
    let failed = |why: String| HostError::Unfit(format!("{what} {}: {why}", slice.name()));
    match tokio::time::timeout(DEADLINE, work).await {
        Ok(result) => result.map_err(|error| failed(error.to_string())),
        Err(_) => Err(failed(format!("systemd took more than {} s", DEADLINE.as_secs()))),
    }
}
