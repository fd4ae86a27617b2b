//! The Shutdown port: logind over the message bus. Its signal `PrepareForShutdown` is passed on as a hint without reading its
//! value, because any process of the machine can send one; logind's own property is read then.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use ports::shutdown::{Shutdown, ShutdownError, ShutdownLock, ShutdownResult, ShutdownWatch};

use crate::dbus::{Body, Connection, DbusError, Message, Method};

/// The address of the message bus, unless [`ADDRESS_VARIABLE`] sets another.
const SOCKET: &str = "/run/dbus/system_bus_socket";
const ADDRESS_VARIABLE: &str = "DBUS_SYSTEM_BUS_ADDRESS";
/// The bus may have to start logind first.
const DEADLINE: Duration = Duration::from_secs(30);

const LOGIND: &str = "org.freedesktop.login1";
const LOGIND_PATH: &str = "/org/freedesktop/login1";
const MANAGER: &str = "org.freedesktop.login1.Manager";
const BUS: &str = "org.freedesktop.DBus";
const PREPARE: &str = "PrepareForShutdown";
const OWNER_CHANGED: &str = "NameOwnerChanged";
const SIGHUP: i32 = 1;

const INHIBIT: Method =
    Method { destination: LOGIND, path: LOGIND_PATH, interface: MANAGER, member: "Inhibit" };
const GET: Method = Method {
    destination: LOGIND,
    path: LOGIND_PATH,
    interface: "org.freedesktop.DBus.Properties",
    member: "Get",
};
const ADD_MATCH: Method =
    Method { destination: BUS, path: "/org/freedesktop/DBus", interface: BUS, member: "AddMatch" };
const KILL_UNIT: Method = Method {
    destination: "org.freedesktop.systemd1",
    path: "/org/freedesktop/systemd1",
    interface: "org.freedesktop.systemd1.Manager",
    member: "KillUnit",
};

/// Connects to logind.
#[derive(Debug)]
pub struct Logind {
    address: Result<PathBuf, String>,
}

impl Logind {
    /// The machine's own.
    #[must_use]
    pub fn new() -> Self {
        let address = std::env::var(ADDRESS_VARIABLE).ok().filter(|address| !address.is_empty());
        Self { address: address.map_or_else(|| Ok(SOCKET.into()), |address| socket_of(&address)) }
    }

    #[cfg(test)]
    fn at(socket: PathBuf) -> Self {
        Self { address: Ok(socket) }
    }
}

impl Default for Logind {
    fn default() -> Self {
        Self::new()
    }
}

/// The first path of an address: `unix:path=/run/bus,guid=0;tcp:...`.
fn socket_of(address: &str) -> Result<PathBuf, String> {
    let options = address.split(';').filter_map(|part| part.strip_prefix("unix:"));
    let path = options.flat_map(|options| options.split(',')).find_map(|option| option.strip_prefix("path="));
    path.map(PathBuf::from).ok_or_else(|| format!("{ADDRESS_VARIABLE} names no path: {address:?}"))
}

async fn within<T>(
    what: &'static str,
    work: impl Future<Output = Result<T, DbusError>> + Send,
) -> ShutdownResult<T> {
    match tokio::time::timeout(DEADLINE, work).await {
        Ok(result) => result.map_err(|error| ShutdownError { what, why: error.to_string() }),
        Err(_) => {
            Err(ShutdownError { what, why: format!("there was no answer for {} s", DEADLINE.as_secs()) })
        }
    }
}

#[async_trait]
impl Shutdown for Logind {
    async fn watch(&self) -> ShutdownResult<Box<dyn ShutdownWatch>> {
        let what = "connect to the message bus";
        let socket = self.address.clone().map_err(|why| ShutdownError { what, why })?;
        let connect = async {
            let mut bus = Connection::open_bus(&socket).await?;
            let signals = format!(
                "type='signal',sender='{LOGIND}',path='{LOGIND_PATH}',interface='{MANAGER}',member='{PREPARE}'"
            );
            let owner = format!(
                "type='signal',sender='{BUS}',interface='{BUS}',member='{OWNER_CHANGED}',arg0='{LOGIND}'"
            );
            for rule in [signals, owner] {
                bus.call(ADD_MATCH, &Body::default().text(&rule)).await?;
            }
            Ok(bus)
        };
        Ok(Box::new(LogindWatch { bus: within(what, connect).await? }))
    }
}

#[derive(Debug)]
struct LogindWatch {
    bus: Connection,
}

impl LogindWatch {
    async fn property<T: Send>(
        &mut self,
        what: &'static str,
        name: &str,
        read: fn(&Message) -> Option<T>,
    ) -> ShutdownResult<T> {
        let body = Body::default().text(MANAGER).text(name);
        let ask = async { read(&self.bus.call(GET, &body).await?).ok_or(DbusError::Garbled) };
        within(what, ask).await
    }
}

#[async_trait]
impl ShutdownWatch for LogindWatch {
    async fn is_ending(&mut self) -> ShutdownResult<bool> {
        let read = |answer: &Message| answer.reader().variant_flag();
        self.property("ask logind whether the machine is about to end", "PreparingForShutdown", read).await
    }

    async fn max_delay(&mut self) -> ShutdownResult<Duration> {
        let read = |answer: &Message| answer.reader().variant_number().map(Duration::from_micros);
        self.property("ask logind how long it waits", "InhibitDelayMaxUSec", read).await
    }

    async fn reload(&mut self) -> ShutdownResult<()> {
        let body = Body::default().text("systemd-logind.service").text("all").signed(SIGHUP);
        let call = async { self.bus.call(KILL_UNIT, &body).await.map(drop) };
        within("have logind read its configuration", call).await
    }

    async fn inhibit(&mut self) -> ShutdownResult<Box<dyn ShutdownLock>> {
        let (what, who, why, mode) =
            ("shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay");
        let body = Body::default().text(what).text(who).text(why).text(mode);
        let call = async { self.bus.call(INHIBIT, &body).await?.files.pop().ok_or(DbusError::Garbled) };
        let file = within("have logind hold up the end of the machine", call).await?;
        Ok(Box::new(LogindLock { _file: file }))
    }

    async fn hint(&mut self) -> ShutdownResult<()> {
        let failed = |why| ShutdownError { what: "wait for signals of logind", why };
        loop {
            let signal = self.bus.signal().await.map_err(|error| failed(error.to_string()))?;
            match (&*signal.interface, &*signal.member) {
                (MANAGER, PREPARE) => return Ok(()),
                (BUS, OWNER_CHANGED) => {
                    let mut arguments = signal.reader();
                    let (name, before) = (arguments.string(), arguments.string());
                    if name.as_deref() == Some(LOGIND) && before.is_some_and(|owner| !owner.is_empty()) {
                        return Err(failed("it has ended, or begun again".to_owned()));
                    }
                }
                _ => {}
            }
        }
    }
}

/// logind delays the shutdown until no process has this open any more.
#[derive(Debug)]
struct LogindLock {
    _file: OwnedFd,
}

impl ShutdownLock for LogindLock {}

#[cfg(test)]
mod tests;
