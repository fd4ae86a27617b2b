//! The open connections of one listener, and which of them to close when there are too many.
//!
//! A connection is trusted once a request with credentials was allowed on it. Untrusted connections have a limit for each
//! peer, and the oldest idle one of them is closed for a new connection when that limit or the table is reached.
//! [`compute_admission`] decides which one.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The peer of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Peer {
    Address(IpAddr),
    /// On this machine, by its process ID; `None` if the kernel does not know it.
    Process(Option<i32>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct TableLimits {
    pub(crate) connections: usize,
    /// Untrusted connections of one peer.
    pub(crate) per_peer: usize,
}

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// No request was allowed, or only ones without credentials, and none is being served.
    Idle,
    /// A request without credentials is being served.
    Serving,
    Trusted,
}

/// What to do with a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Open,
    /// Close this one first.
    Replace(u64),
    Refuse,
}

/// Decides about a new connection of `peer`. `open` are the open connections, the oldest first.
pub(crate) fn compute_admission(
    open: &[(u64, Peer, Standing)],
    peer: Peer,
    limits: TableLimits,
) -> Admission {
    let of_peer = || open.iter().filter(|(_, other, _)| *other == peer);
    let oldest_idle = |of: Peer| {
        let mut idle = open.iter().filter(|(_, other, standing)| *other == of && *standing == Standing::Idle);
        idle.next().map_or(Admission::Refuse, |(id, ..)| Admission::Replace(*id))
    };
    if of_peer().filter(|(.., standing)| *standing != Standing::Trusted).count() >= limits.per_peer {
        return oldest_idle(peer);
    }
    if open.len() < limits.connections {
        return Admission::Open;
    }
    // How many each peer has, and its oldest one.
    let mut idle: BTreeMap<Peer, (usize, Reverse<u64>)> = BTreeMap::new();
    for (id, other, _) in open.iter().filter(|(.., standing)| *standing == Standing::Idle) {
        idle.entry(*other).or_insert((0, Reverse(*id))).0 += 1;
    }
    // Of several peers with the most, the one that has waited longest: an address must not decide.
    let oldest = idle.into_values().max().map(|(_, Reverse(oldest))| oldest);
    oldest.map_or(Admission::Refuse, Admission::Replace)
}

#[derive(Debug)]
struct Entry {
    peer: Peer,
    is_trusted: bool,
    /// Requests being served, and how many of them were authorized.
    serving: usize,
    admitted: usize,
    close: Arc<Notify>,
}

impl Entry {
    const fn standing(&self) -> Standing {
        match (self.is_trusted, self.admitted, self.serving) {
            (true, ..) | (false, 1.., _) => Standing::Trusted,
            (false, 0, 1..) => Standing::Serving,
            (false, 0, 0) => Standing::Idle,
        }
    }
}

#[derive(Debug, Default)]
struct Entries {
    next: u64,
    /// By number, so the oldest is the first.
    open: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
pub(crate) struct ConnectionTable {
    limits: TableLimits,
    entries: Mutex<Entries>,
    /// A connection was closed or became idle.
    changed: Notify,
}

impl ConnectionTable {
    pub(crate) fn new(limits: TableLimits) -> Arc<Self> {
        Arc::new(Self { limits, entries: Mutex::default(), changed: Notify::new() })
    }

    /// Waits until a new connection would find a slot. For one waiter at a time; cancel safe.
    pub(crate) async fn wait_for_slot(&self) {
        while !self.has_slot() {
            self.changed.notified().await;
        }
    }

    fn has_slot(&self) -> bool {
        let entries = self.entries.lock();
        entries.open.len() < self.limits.connections
            || entries.open.values().any(|entry| entry.standing() == Standing::Idle)
    }

    /// Adds a new connection, and closes another if necessary. `None`: it is rejected.
    pub(crate) fn open(self: &Arc<Self>, peer: Peer) -> Option<OpenConnection> {
        let mut entries = self.entries.lock();
        let others: Vec<_> =
            entries.open.iter().map(|(id, entry)| (*id, entry.peer, entry.standing())).collect();
        match compute_admission(&others, peer, self.limits) {
            Admission::Open => {}
            Admission::Refuse => return None,
            Admission::Replace(id) => {
                if let Some(entry) = entries.open.remove(&id) {
                    entry.close.notify_one();
                }
            }
        }
        let id = entries.next;
        entries.next += 1;
        let close = Arc::new(Notify::new());
        let entry = Entry { peer, is_trusted: false, serving: 0, admitted: 0, close: Arc::clone(&close) };
        entries.open.insert(id, entry);
        drop(entries);
        let table = Arc::clone(self);
        let (has_served, under_review, refused) =
            (AtomicBool::default(), AtomicUsize::default(), AtomicUsize::default());
        Some(OpenConnection { table, id, close, has_served, under_review, refused })
    }

    fn change(&self, id: u64, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.entries.lock().open.get_mut(&id) {
            change(entry);
        }
    }
}

/// One connection of the table, until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    table: Arc<ConnectionTable>,
    id: u64,
    close: Arc<Notify>,
    has_served: AtomicBool,
    /// Requests that wait to be authenticated and authorized.
    under_review: AtomicUsize,
    /// Requests that were rejected.
    refused: AtomicUsize,
}

impl OpenConnection {
    /// Waits until another connection takes its slot. For one waiter at a time.
    pub(crate) async fn closed(&self) {
        self.close.notified().await;
    }

    /// A request with credentials was allowed.
    pub(crate) fn trust(&self) {
        self.table.change(self.id, |entry| entry.is_trusted = true);
    }

    /// Counts a request as being served for as long as the result lives.
    pub(crate) fn serve(self: &Arc<Self>, is_admitted: bool) -> Served {
        self.has_served.store(true, Ordering::Relaxed);
        self.table.change(self.id, |entry| {
            entry.serving += 1;
            entry.admitted += usize::from(is_admitted);
        });
        Served { connection: Arc::clone(self), is_admitted }
    }

    /// Counts a request as waiting for authentication and authorization for as long as the result lives. `None`: no request
    /// was allowed on this connection yet, and `max` are waiting already.
    pub(crate) fn begin_review(&self, max: usize) -> Option<UnderReview<'_>> {
        let under_review = UnderReview(&self.under_review);
        let waiting = self.under_review.fetch_add(1, Ordering::Relaxed);
        (waiting < max || self.has_served()).then_some(under_review)
    }

    /// A request was rejected. After `max` of them a connection on which none was allowed is closed, because each costs as
    /// much as an allowed one.
    pub(crate) fn refused(&self, max: usize) {
        let before = self.refused.fetch_add(1, Ordering::Relaxed);
        if before >= max && !self.has_served() {
            self.close.notify_one();
        }
    }

    /// Whether any request was allowed so far.
    pub(crate) fn has_served(&self) -> bool {
        self.has_served.load(Ordering::Relaxed)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.table.entries.lock().open.remove(&self.id);
        self.table.changed.notify_one();
    }
}

/// A request that waits for authentication and authorization.
#[derive(Debug)]
pub(crate) struct UnderReview<'a>(&'a AtomicUsize);

impl Drop for UnderReview<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request that is being served.
#[derive(Debug)]
pub(crate) struct Served {
    connection: Arc<OpenConnection>,
    is_admitted: bool,
}

impl Drop for Served {
    fn drop(&mut self) {
        let OpenConnection { table, id, .. } = &*self.connection;
        table.change(*id, |entry| {
            entry.serving = entry.serving.saturating_sub(1);
            entry.admitted = entry.admitted.saturating_sub(usize::from(self.is_admitted));
        });
        table.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::Standing::{Idle, Serving, Trusted};
    use super::*;

    const LIMITS: TableLimits = TableLimits { connections: 6, per_peer: 3 };

    fn peer(name: u8) -> Peer {
        Peer::Address([10, 0, 0, name].into())
    }

    #[test]
    fn admission_closes_the_oldest_unauthenticated_connection() {
        for (open, expected) in [
            (vec![], Admission::Open),
            // Below the peer's limit.
            (vec![(1, Idle), (1, Idle)], Admission::Open),
            // At the peer's limit: the oldest idle connection of the same peer.
            (vec![(2, Idle), (1, Serving), (1, Idle), (1, Idle)], Admission::Replace(2)),
            (vec![(1, Serving), (1, Serving), (1, Serving)], Admission::Refuse),
            // Trusted connections do not count towards the peer's limit.
            (vec![(1, Trusted), (1, Trusted), (1, Trusted), (1, Idle)], Admission::Open),
            // The table is full: the oldest idle connection of the peer with the most connections.
            (
                vec![(3, Idle), (2, Idle), (2, Idle), (2, Idle), (4, Trusted), (4, Trusted)],
                Admission::Replace(1),
            ),
            (
                vec![(3, Trusted), (2, Serving), (2, Serving), (4, Trusted), (4, Idle), (1, Idle)],
                Admission::Replace(4),
            ),
            (vec![(3, Trusted); 6], Admission::Refuse),
            // Of peers with equally many, the one with the oldest idle connection, whatever its address is.
            (
                vec![(4, Trusted), (2, Idle), (9, Idle), (2, Idle), (9, Idle), (1, Idle)],
                Admission::Replace(1),
            ),
            (
                vec![(4, Serving), (9, Idle), (2, Idle), (2, Idle), (9, Idle), (1, Idle)],
                Admission::Replace(1),
            ),
        ] {
            let open: Vec<_> =
                (0..).zip(&open).map(|(id, (name, standing))| (id, peer(*name), *standing)).collect();
            assert_eq!(compute_admission(&open, peer(1), LIMITS), expected, "{open:?}");
        }
    }

    #[tokio::test]
    async fn waiting_and_rejected_requests_are_bounded_until_one_is_allowed() {
        let table = ConnectionTable::new(LIMITS);
        let connection = Arc::new(table.open(peer(1)).unwrap());
        let waiting: Vec<_> = (0..3).map(|_| connection.begin_review(2)).collect();
        assert_eq!(waiting.iter().flatten().count(), 2);
        drop(waiting);
        assert!(connection.begin_review(2).is_some());
        (0..3).for_each(|_| connection.refused(2));
        connection.closed().await;
        drop(connection.serve(true));
        let waiting: Vec<_> = (0..3).map(|_| connection.begin_review(2)).collect();
        assert_eq!(waiting.iter().flatten().count(), 3);
    }

    #[tokio::test]
    async fn connection_is_closed_for_another_only_while_it_is_idle() {
        let table = ConnectionTable::new(TableLimits { connections: 2, per_peer: 2 });
        let open = |name| table.open(peer(name)).map(Arc::new);
        let (first, second) = (open(1).unwrap(), open(2).unwrap());
        let served = first.serve(true);
        second.trust();
        assert!(open(3).is_none() && !table.has_slot());
        drop(served);
        table.wait_for_slot().await;
        let third = open(3).unwrap();
        first.closed().await;
        drop(first);
        assert!(table.has_slot(), "the third is idle");
        drop((second, third));
        assert!(table.entries.lock().open.is_empty());
    }
}
