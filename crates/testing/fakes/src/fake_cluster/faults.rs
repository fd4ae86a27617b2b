//! Faults of calls, and the call log.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use ports::cluster::{ClusterError, ClusterResult};
use tokio::time::Instant;

use super::Shared;

/// The calls that the log keeps; a test that makes more should forget some.
const CALLS_KEPT: usize = 100_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    List,
    Watch,
    Get,
    Create,
    Update,
    Patch,
    Delete,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::List => "list",
            Self::Watch => "watch",
            Self::Get => "get",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        })
    }
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterCall {
    pub at: Instant,
    pub verb: Verb,
    /// `pods`, `pods/status`.
    pub resource: String,
    /// `default/web`, `edge-1`, or the selector.
    pub subject: String,
}

/// `patch pods/status default/web`.
impl fmt::Display for ClusterCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if self.subject.is_empty() { Ok(()) } else { write!(f, " {}", self.subject) }
    }
}

/// How a call fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterFault {
    /// The server returns this error; nothing was done. The `call` in it is replaced.
    Refused(ClusterError),
    /// The connection breaks before anything was done.
    Unreachable,
    /// The connection breaks after the call was carried out.
    UnreachableAfterDoing,
    /// No answer in time; nothing was done.
    TimedOut,
    /// No answer in time, but the call was carried out.
    TimedOutAfterDoing,
    /// Works, after this long.
    Slow(Duration),
}

/// Why no call gets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// The port is closed: calls fail at once.
    Refused,
    /// Packets get lost: calls time out, watches break when a ping is not answered.
    Silent,
}

#[derive(Debug)]
pub(super) struct Script {
    queued: BTreeMap<(Verb, String), VecDeque<ClusterFault>>,
    always: BTreeMap<(Verb, String), ClusterFault>,
    pub(super) calls: Vec<ClusterCall>,
    pub(super) outage: Option<Outage>,
    pub(super) latency: Duration,
    pub(super) deadline: Duration,
    pub(super) closed_connections: u64,
    /// How often watches were ended, broken, and sent a bookmark.
    pub(super) ends: u64,
    pub(super) breaks: u64,
    pub(super) bookmarks: u64,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            queued: BTreeMap::new(),
            always: BTreeMap::new(),
            calls: Vec::new(),
            outage: None,
            latency: Duration::ZERO,
            deadline: Duration::from_secs(30),
            closed_connections: 0,
            ends: 0,
            breaks: 0,
            bookmarks: 0,
        }
    }
}

impl Script {
    pub(super) fn push(&mut self, verb: Verb, plural: &str, fault: ClusterFault) {
        self.queued.entry((verb, plural.to_owned())).or_default().push_back(fault);
    }

    pub(super) fn set_always(&mut self, verb: Verb, plural: &str, fault: Option<ClusterFault>) {
        let key = (verb, plural.to_owned());
        match fault {
            Some(fault) => self.always.insert(key, fault),
            None => self.always.remove(&key),
        };
    }

    pub(super) fn clear_faults(&mut self) {
        self.queued.clear();
        self.always.clear();
        self.outage = None;
    }

    /// The fault for a call for `pods/status`: one for exactly that, one for `pods`, or one for anything.
    fn meet(&mut self, verb: Verb, resource: &str) -> Option<ClusterFault> {
        let plural = resource.split('/').next().unwrap_or_default();
        let keys = [resource, plural, ""].map(|name| (verb, name.to_owned()));
        let queued = keys.iter().find_map(|key| self.queued.get_mut(key).and_then(VecDeque::pop_front));
        queued.or_else(|| keys.iter().find_map(|key| self.always.get(key).cloned()))
    }
}

impl Shared {
    /// A call: logged, delayed, carried out and answered as scripted.
    pub(super) async fn act<T>(
        &self,
        verb: Verb,
        resource: &str,
        subject: &str,
        call: &str,
        act: impl FnOnce(&Self) -> ClusterResult<T>,
    ) -> ClusterResult<T> {
        let (latency, deadline, outage, fault) = {
            let mut script = self.script.lock();
            if script.calls.len() < CALLS_KEPT {
                let (resource, subject) = (resource.to_owned(), subject.to_owned());
                script.calls.push(ClusterCall { at: Instant::now(), verb, resource, subject });
            }
            (script.latency, script.deadline, script.outage, script.meet(verb, resource))
        };
        let call = || call.to_owned();
        let unreachable =
            || ClusterError::Unreachable { call: call(), message: "connection refused".to_owned() };
        let timed_out = || ClusterError::TimedOut { call: call(), deadline };
        tokio::time::sleep(latency).await;
        match outage {
            Some(Outage::Refused) => return Err(unreachable()),
            Some(Outage::Silent) => {
                tokio::time::sleep(deadline).await;
                return Err(timed_out());
            }
            None => {}
        }
        match fault {
            None => act(self),
            Some(ClusterFault::Refused(error)) => Err(renamed(error, call())),
            Some(ClusterFault::Unreachable) => Err(unreachable()),
            Some(ClusterFault::UnreachableAfterDoing) => {
                act(self)?;
                Err(unreachable())
            }
            Some(ClusterFault::TimedOut) => {
                tokio::time::sleep(deadline).await;
                Err(timed_out())
            }
            Some(ClusterFault::TimedOutAfterDoing) => {
                act(self)?;
                tokio::time::sleep(deadline).await;
                Err(timed_out())
            }
            Some(ClusterFault::Slow(time)) => {
                tokio::time::sleep(time.min(deadline)).await;
                if time >= deadline { Err(timed_out()) } else { act(self) }
            }
        }
    }
}

fn renamed(error: ClusterError, name: String) -> ClusterError {
    let mut error = error;
    let (ClusterError::NotFound { call, .. }
    | ClusterError::AlreadyExists { call, .. }
    | ClusterError::Conflict { call, .. }
    | ClusterError::Expired { call, .. }
    | ClusterError::Unauthorized { call, .. }
    | ClusterError::Forbidden { call, .. }
    | ClusterError::Invalid { call, .. }
    | ClusterError::Busy { call, .. }
    | ClusterError::TimedOut { call, .. }
    | ClusterError::Unreachable { call, .. }
    | ClusterError::Failed { call, .. }) = &mut error;
    *call = name;
    error
}
