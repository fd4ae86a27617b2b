//! The state machine of plugin registration: which sockets of the registration directory are to be registered or deregistered, and
//! when a failed one is tried again.
//!
//! ```text
//! sockets found, results of operations, time --> Registrations --> operations
//! ```
//! At most one operation is under way for a socket, and at most one for a plugin's name. Of several sockets whose plugins have the
//! same name, the last one to register is in use; when that is deregistered, the others register again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use model::MonoTime;
use model::plugins::{RegisteredPlugin, SocketIdentity, SocketTree};

#[cfg(test)]
mod tests;

/// The delay after the first failure of a socket; each further one doubles it.
const INITIAL_DELAY: Duration = Duration::from_millis(500);
const MAX_DELAY: Duration = Duration::from_secs(122);

/// The name of a plugin among those of its type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PluginName {
    /// `CSIPlugin`, `DevicePlugin` or `DRAPlugin`.
    pub kind: String,
    pub name: String,
    /// Of a type of which several plugins may have one name.
    endpoint: Option<PathBuf>,
}

/// Drivers of dynamic resources have several instances while they are updated.
const KIND_WITH_INSTANCES: &str = "DRAPlugin";

impl PluginName {
    #[must_use]
    pub fn of(kind: &str, plugin: &RegisteredPlugin) -> Self {
        let endpoint = (kind == KIND_WITH_INSTANCES).then(|| plugin.endpoint.clone());
        Self { kind: kind.to_owned(), name: plugin.name.clone(), endpoint }
    }
}

/// What is to be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// GetInfo, then [`Registrations::claim`], then validation, registration and the report to the plugin.
    Register {
        socket: PathBuf,
    },
    Deregister {
        socket: PathBuf,
        kind: String,
        plugin: RegisteredPlugin,
    },
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Registered {
        kind: String,
        plugin: RegisteredPlugin,
    },
    /// What was registered before still is, and nothing else.
    Failed,
    /// [`Registrations::claim`] returned false.
    Busy,
    /// It was registered, and deregistered again because that could not be reported to it.
    Withdrawn,
    Deregistered,
}

/// Why a plugin is refused; the text is reported to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "RegisterPlugin error -- no handler registered for plugin type: {kind} at socket {}",
        socket.display()
    )]
    NoHandler { kind: String, socket: PathBuf },
    #[error("RegisterPlugin error -- plugin validation failed with err: {0}")]
    Invalid(String),
    #[error("RegisterPlugin error -- plugin registration failed with err: {0}")]
    NotRegistered(String),
}

/// The sockets of the registration directory, and what is registered through them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registrations {
    sockets: BTreeMap<PathBuf, Socket>,
    /// How many sockets were found so far.
    generations: u64,
}

/// How a socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketState<'a> {
    pub path: &'a Path,
    /// It exists.
    pub is_found: bool,
    /// A plugin is registered through it.
    pub is_registered: bool,
    /// Of the plugin that answered last.
    pub name: Option<&'a PluginName>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Socket {
    /// The socket that exists; `None` if it was removed.
    found: Option<Found>,
    registered: Option<Registered>,
    in_flight: Option<InFlight>,
    failure: Option<Failure>,
    /// Of the plugin that answered last.
    name: Option<PluginName>,
    /// It starts after the other operation on its name has ended.
    is_busy: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    identity: SocketIdentity,
    generation: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Registered {
    /// That of the socket through which it registered.
    generation: u64,
    name: PluginName,
    plugin: RegisteredPlugin,
    /// Another socket has registered this name since.
    is_superseded: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct InFlight {
    generation: u64,
    /// `None` until the plugin has answered GetInfo.
    name: Option<PluginName>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failure {
    delay: Duration,
    until: MonoTime,
    failed_at: MonoTime,
}

impl Socket {
    const fn generation(&self) -> Option<u64> {
        match self.found {
            Some(found) => Some(found.generation),
            None => None,
        }
    }

    /// What is to be deregistered: its socket was removed or replaced, and it is in use.
    fn stale(&self) -> Option<&Registered> {
        let registered = self.registered.as_ref().filter(|_| self.in_flight.is_none())?;
        let is_stale = !registered.is_superseded && self.generation() != Some(registered.generation);
        is_stale.then_some(registered)
    }

    /// Whether it is to be registered once its back-off is over.
    fn is_pending(&self) -> bool {
        let is_registered = self
            .registered
            .as_ref()
            .is_some_and(|registered| Some(registered.generation) == self.generation());
        self.found.is_some() && self.in_flight.is_none() && !is_registered && self.stale().is_none()
    }

    /// Nothing of it is left to know.
    fn is_forgotten(&self, now: MonoTime) -> bool {
        let is_in_use = self.registered.as_ref().is_some_and(|registered| !registered.is_superseded);
        let waits = self.failure.is_some_and(|failure| failure.until > now);
        self.found.is_none() && self.in_flight.is_none() && !is_in_use && !waits
    }

    /// Doubles the delay, or starts with the shortest for a socket that was replaced meanwhile.
    fn fail(&mut self, generation: u64, now: MonoTime) {
        let is_same = self.generation() == Some(generation);
        let before = self.failure.filter(|_| is_same);
        let delay = before.map_or(INITIAL_DELAY, |failure| (failure.delay * 2).min(MAX_DELAY));
        self.failure = Some(Failure { delay, until: now + delay, failed_at: now });
    }
}

impl Registrations {
    /// Applies what is in the registration directory. A socket that replaced another registers again; if the one before it failed,
    /// after the shortest delay.
    pub fn observe(&mut self, tree: &SocketTree) {
        for (path, socket) in &mut self.sockets {
            if !tree.sockets.contains_key(path) {
                socket.found = None;
            }
        }
        for (path, &identity) in &tree.sockets {
            let socket = self.sockets.entry(path.clone()).or_default();
            let was_removed = path.ancestors().any(|ancestor| tree.removed.contains(ancestor));
            if !was_removed && socket.found.is_some_and(|found| found.identity == identity) {
                continue;
            }
            self.generations += 1;
            socket.found = Some(Found { identity, generation: self.generations });
            socket.is_busy = false;
            if let Some(failure) = &mut socket.failure {
                failure.delay = INITIAL_DELAY;
                failure.until = failure.until.min(failure.failed_at + INITIAL_DELAY);
            }
        }
    }

    /// The operations that begin now. Each ends with [`Self::finished`].
    pub fn start_due(&mut self, now: MonoTime) -> Vec<Operation> {
        self.sockets.retain(|_, socket| !socket.is_forgotten(now));
        let paths: Vec<PathBuf> = self.sockets.keys().cloned().collect();
        paths.into_iter().filter_map(|path| self.start(path, now)).collect()
    }

    fn start(&mut self, path: PathBuf, now: MonoTime) -> Option<Operation> {
        let socket = self.sockets.get(&path)?;
        if let Some(Registered { name, plugin, generation, .. }) = socket.stale().cloned() {
            if self.is_in_flight(&name, &path) {
                return None;
            }
            let kind = name.kind.clone();
            self.sockets.get_mut(&path)?.in_flight = Some(InFlight { generation, name: Some(name) });
            return Some(Operation::Deregister { socket: path, kind, plugin });
        }
        let waits = socket.failure.is_some_and(|failure| failure.until > now)
            || (socket.is_busy && socket.name.as_ref().is_some_and(|name| self.is_in_flight(name, &path)));
        let generation = socket.generation().filter(|_| socket.is_pending() && !waits)?;
        let socket = self.sockets.get_mut(&path)?;
        socket.registered = None;
        socket.is_busy = false;
        socket.in_flight = Some(InFlight { generation, name: None });
        Some(Operation::Register { socket: path })
    }

    /// Whether an operation on the name is under way for another socket.
    fn is_in_flight(&self, name: &PluginName, except: &Path) -> bool {
        let mut others = self.sockets.iter().filter(|(path, _)| *path != except);
        others.any(|(_, socket)| socket.in_flight.as_ref().is_some_and(|op| op.name.as_ref() == Some(name)))
    }

    /// The plugin at the socket, which is being registered, has this name. False if another operation on the name is under way:
    /// this one then ends with [`Outcome::Busy`], and starts again after the other.
    pub fn claim(&mut self, path: &Path, name: &PluginName) -> bool {
        let is_free = !self.is_in_flight(name, path);
        if let Some(socket) = self.sockets.get_mut(path) {
            socket.name = Some(name.clone());
            if let Some(in_flight) = &mut socket.in_flight {
                in_flight.name = is_free.then(|| name.clone());
            }
        }
        is_free
    }

    /// Applies the end of an operation.
    pub fn finished(&mut self, path: &Path, outcome: Outcome, now: MonoTime) {
        let Some(socket) = self.sockets.get_mut(path) else { return };
        let Some(InFlight { generation, name }) = socket.in_flight.take() else { return };
        match outcome {
            Outcome::Registered { kind, plugin } => {
                let name = PluginName::of(&kind, &plugin);
                socket.failure = None;
                socket.name = Some(name.clone());
                self.for_others(path, &name, |other| {
                    other.registered.iter_mut().for_each(|registered| registered.is_superseded = true);
                });
                let registered = Registered { generation, name, plugin, is_superseded: false };
                if let Some(socket) = self.sockets.get_mut(path) {
                    socket.registered = Some(registered);
                }
            }
            Outcome::Failed => socket.fail(generation, now),
            Outcome::Busy => socket.is_busy = true,
            Outcome::Withdrawn => {
                socket.fail(generation, now);
                self.fall_back(path, name);
            }
            Outcome::Deregistered => {
                socket.registered = None;
                self.fall_back(path, name.clone());
                let Some(name) = name else { return };
                // This name may be what the others were refused for.
                self.for_others(path, &name, |other| {
                    other.failure.iter_mut().for_each(|failure| failure.until = failure.until.min(now));
                });
            }
        }
    }

    /// Nothing is in use under the name any more: other sockets that registered it do so again.
    fn fall_back(&mut self, path: &Path, name: Option<PluginName>) {
        let Some(name) = name else { return };
        self.for_others(path, &name, |other| other.registered = None);
    }

    /// The other sockets whose plugins have the name.
    fn for_others(&mut self, path: &Path, name: &PluginName, change: impl Fn(&mut Socket)) {
        let others = self.sockets.iter_mut().filter(|(other, _)| *other != path);
        others.map(|(_, socket)| socket).filter(|socket| socket.name.as_ref() == Some(name)).for_each(change);
    }

    /// When the next failed socket is due, unless something happens before.
    #[must_use]
    pub fn wake_at(&self) -> Option<MonoTime> {
        let pending = self.sockets.values().filter(|socket| socket.is_pending() && !socket.is_busy);
        pending.filter_map(|socket| socket.failure.map(|failure| failure.until)).min()
    }

    pub fn states(&self) -> impl Iterator<Item = SocketState<'_>> {
        self.sockets.iter().map(|(path, socket)| SocketState {
            path,
            is_found: socket.found.is_some(),
            is_registered: socket.registered.is_some(),
            name: socket.name.as_ref(),
        })
    }
}
