//! Looking up the addresses of names, on threads of its own.
//!
//! The C library can only wait for a DNS server: a server that never answers costs half a minute. On the threads of file
//! work, eight such lookups would stop every pod. So each [`Resolver`] has a few threads for lookups alone, one lookup for
//! each name however many callers want it, and a bounded number of callers that wait. A caller that gives up (its future is
//! dropped) frees its slot at once; a thread is free when the C library returns. Threads end when nothing is left to do.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Lookups under way at once.
const MAX_THREADS: usize = 8;
/// Callers that may wait, for all names together; further ones are refused.
const MAX_WAITING: usize = 256;
/// The C library needs a large stack.
const STACK_BYTES: usize = 512 << 10;

type Found = Result<Vec<SocketAddr>, (io::ErrorKind, String)>;
type Lookup = fn(&str) -> io::Result<Vec<SocketAddr>>;
type Waiting = Vec<oneshot::Sender<Found>>;

/// Resolves names. Callers whose lookups must not wait for other callers have resolvers of their own.
#[derive(Debug)]
pub struct Resolver {
    lookup: Lookup,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By name: the callers that wait for the lookup that a thread carries out.
    running: BTreeMap<String, Waiting>,
    /// Names that wait for a thread, in order, and the callers that wait for them.
    queue: VecDeque<(String, Waiting)>,
}

impl Default for Resolver {
    fn default() -> Self {
        Self::new()
    }
}

impl Resolver {
    /// Calls the C library.
    #[must_use]
    pub const fn new() -> Self {
        Self::with(|name| (name, 0).to_socket_addrs().map(Iterator::collect))
    }

    const fn with(lookup: Lookup) -> Self {
        let state = State { running: BTreeMap::new(), queue: VecDeque::new() };
        Self { lookup, state: Mutex::new(state) }
    }

    /// The addresses of a name or address, with that port. Without a deadline of its own.
    ///
    /// # Errors
    /// The name has no address, no DNS server answered, or too many callers wait already.
    pub async fn lookup(&'static self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let answer = self.ask(host)?;
        let gone = || io::Error::other("the lookup ended without an answer");
        let mut found =
            answer.await.map_err(|_| gone())?.map_err(|(kind, text)| io::Error::new(kind, text))?;
        found.iter_mut().for_each(|address| address.set_port(port));
        Ok(found)
    }

    fn ask(&'static self, host: &str) -> io::Result<oneshot::Receiver<Found>> {
        let (sender, answer) = oneshot::channel();
        let mut state = self.state.lock();
        if state.count_waiting() >= MAX_WAITING {
            let text = format!("too many name lookups are waiting ({MAX_WAITING})");
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
        }
        if let Some(waiting) = state.waiting_for(host) {
            waiting.push(sender);
            return Ok(answer);
        }
        if state.running.len() >= MAX_THREADS {
            state.queue.push_back((host.to_owned(), vec![sender]));
            return Ok(answer);
        }
        state.running.insert(host.to_owned(), vec![sender]);
        let name = host.to_owned();
        let thread = std::thread::Builder::new().name("lookup".into()).stack_size(STACK_BYTES);
        if let Err(error) = thread.spawn(move || self.look_up(name)) {
            state.running.remove(host);
            return Err(error);
        }
        Ok(answer)
    }

    /// One thread: this name, and then those that wait for a thread.
    fn look_up(&self, first: String) {
        let mut next = Some(first);
        while let Some(name) = next {
            let found = (self.lookup)(&name).map_err(|error| (error.kind(), error.to_string()));
            let mut state = self.state.lock();
            for waiting in state.running.remove(&name).into_iter().flatten() {
                // A caller that timed out meanwhile needs no answer.
                let _ = waiting.send(found.clone());
            }
            state.forget_given_up();
            next = state.queue.pop_front().map(|(name, waiting)| {
                state.running.insert(name.clone(), waiting);
                name
            });
        }
    }
}

impl State {
    fn waiting_for(&mut self, host: &str) -> Option<&mut Waiting> {
        match self.running.get_mut(host) {
            Some(waiting) => Some(waiting),
            None => self.queue.iter_mut().find(|(name, _)| name == host).map(|(_, waiting)| waiting),
        }
    }

    /// Callers that timed out free their slots, and names that no caller waits for any more are not resolved.
    fn forget_given_up(&mut self) {
        let lists = self.running.values_mut().chain(self.queue.iter_mut().map(|(_, waiting)| waiting));
        lists.for_each(|waiting| waiting.retain(|caller| !caller.is_closed()));
        self.queue.retain(|(_, waiting)| !waiting.is_empty());
    }

    fn count_waiting(&mut self) -> usize {
        self.forget_given_up();
        self.running.values().chain(self.queue.iter().map(|(_, waiting)| waiting)).map(Vec::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;

    fn resolver(lookup: Lookup) -> &'static Resolver {
        Box::leak(Box::new(Resolver::with(lookup)))
    }

    #[tokio::test]
    async fn host_name_is_resolved_and_an_address_needs_no_lookup() {
        let found = resolver(|name| match name {
            "web" => Ok(vec!["10.0.0.1:0".parse().unwrap(), "[fd00::1]:0".parse().unwrap()]),
            _ => Err(io::Error::new(io::ErrorKind::NotFound, "no such host")),
        });
        let shown = |found: io::Result<Vec<SocketAddr>>| format!("{found:?}");
        assert_eq!(shown(found.lookup("web", 80).await), "Ok([10.0.0.1:80, [fd00::1]:80])");
        assert_eq!(shown(found.lookup("10.0.0.9", 81).await), "Ok([10.0.0.9:81])");
        assert_eq!(shown(found.lookup("fd00::9", 81).await), "Ok([[fd00::9]:81])");
        assert_eq!(found.lookup("db", 80).await.unwrap_err().to_string(), "no such host");
        let local = Box::leak(Box::new(Resolver::new())).lookup("localhost", 7).await.unwrap();
        assert!(local.iter().all(|address| address.ip().is_loopback() && address.port() == 7), "{local:?}");
    }

    #[tokio::test]
    async fn callers_of_one_name_share_one_lookup() {
        static OPEN: AtomicBool = AtomicBool::new(false);
        static LOOKUPS: AtomicUsize = AtomicUsize::new(0);
        let found = resolver(|_| {
            LOOKUPS.fetch_add(1, Ordering::SeqCst);
            while !OPEN.load(Ordering::SeqCst) {
                std::thread::park_timeout(Duration::from_millis(5));
            }
            Ok(vec!["10.0.0.1:0".parse().unwrap()])
        });
        let callers: Vec<_> = (0..60).map(|port| found.lookup("dead", port)).collect();
        let all = futures_util::future::join_all(callers);
        let open = async {
            tokio::task::yield_now().await;
            OPEN.store(true, Ordering::SeqCst);
        };
        let (answers, ()) = tokio::join!(all, open);
        assert!(answers.iter().all(Result::is_ok));
        assert_eq!(LOOKUPS.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn unanswered_dns_lookups_are_bounded_in_threads_and_waiting_callers() {
        static OPEN: AtomicBool = AtomicBool::new(false);
        static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
        static MOST: AtomicUsize = AtomicUsize::new(0);
        let found = resolver(|name| {
            MOST.fetch_max(UNDER_WAY.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            while !OPEN.load(Ordering::SeqCst) {
                std::thread::park_timeout(Duration::from_millis(5));
            }
            UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
            if name.starts_with("n") { Ok(Vec::new()) } else { Err(io::ErrorKind::NotFound.into()) }
        });
        // Callers that give up free their slots: many more than may wait at once come and go.
        for round in 0..10 {
            let names: Vec<String> = (0..100).map(|n| format!("n{round}-{n}")).collect();
            let all = futures_util::future::join_all(names.iter().map(|name| found.lookup(name, 1)));
            let timed_out = tokio::time::timeout(Duration::from_millis(5), all).await;
            assert!(timed_out.is_err(), "no DNS server answers");
        }
        // Those that stay are as many as may wait; the next is refused.
        let names: Vec<String> = (0..=MAX_WAITING).map(|n| format!("n{n}")).collect();
        let mut all =
            Box::pin(futures_util::future::join_all(names.iter().map(|name| found.lookup(name, 1))));
        assert!((&mut all).now_or_never().is_none());
        OPEN.store(true, Ordering::SeqCst);
        let answers = all.await;
        let refused: Vec<String> =
            answers.iter().filter_map(|answer| answer.as_ref().err()).map(ToString::to_string).collect();
        assert_eq!(refused, ["too many name lookups are waiting (256)"]);
        assert!(MOST.load(Ordering::SeqCst) <= MAX_THREADS);
        while UNDER_WAY.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
    }
}
