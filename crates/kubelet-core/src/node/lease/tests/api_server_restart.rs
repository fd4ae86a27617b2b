//! A simulation: what many nodes send to an API server that starts again, counted by the second.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use api_core::reflector::{ReflectorEvent, ReflectorState, ReflectorStep};
use api_core::retry::compute_retry_delay;
use api_core::status_queue::{StatusFailure, compute_status_retry};
use jiff::Timestamp;
use model::k8s::Lease;
use model::{MonoTime, Now};

use crate::node::lease::{LeaseAnswer, LeaseStep, NodeLease};

const NODES: usize = 5_000;
/// Collections that a node watches: those of every node, and ConfigMaps and Secrets of its pods.
const REFLECTORS: usize = 12;
/// Pods of a node whose status changes during the outage.
const STATUSES: usize = 3;
/// When the server goes, by the clock of the nodes.
const STOP: Duration = Duration::from_secs(1000);
const MINUTE: usize = 60;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A small generator (splitmix64).
struct Random(u64);

impl Random {
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let upper = u32::try_from((z ^ (z >> 31)) >> 32).unwrap();
        f64::from(upper) / f64::from(u32::MAX)
    }

    fn up_to(&mut self, max: Duration) -> Duration {
        max.mul_f64(self.share())
    }
}

/// How the server goes and comes back.
#[derive(Clone, Copy, Debug)]
struct Restart {
    outage: Duration,
    /// It ends watches before it goes; otherwise their connections break.
    ends_watches: bool,
    /// It has forgotten the changes before: watches expire, and lists follow.
    forgets: bool,
    /// Requests a second that it executes. It answers others with 429 and `Retry-After: 1`, as the real server does.
    capacity: usize,
}

/// One loop of a node that makes requests.
enum Client {
    Reflector { state: ReflectorState, is_first: bool, is_open: bool },
    Lease(Box<NodeLease>),
    Status { delay: Option<Duration>, is_sent: bool },
}

enum Reply {
    Down,
    Busy,
    Done,
}

struct Server {
    restart: Restart,
    up: Duration,
    /// Requests in each second after it is up, and those that it executed.
    seen: Vec<usize>,
    executed: Vec<usize>,
}

impl Server {
    fn reply(&mut self, at: Duration) -> Reply {
        let Some(since) = at.checked_sub(self.up) else { return Reply::Down };
        let second = usize::try_from(since.as_secs()).unwrap();
        let Some(seen) = self.seen.get_mut(second) else { return Reply::Done };
        *seen += 1;
        if self.executed[second] >= self.restart.capacity {
            return Reply::Busy;
        }
        self.executed[second] += 1;
        Reply::Done
    }
}

const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Client {
    /// Makes the request that is due, and returns when the next one is.
    fn act(&mut self, server: &mut Server, random: &mut Random, at: Duration) -> Option<Duration> {
        let now = MonoTime::from_start(at);
        match self {
            Self::Reflector { state, is_first, is_open } => {
                let step = state.next(now);
                if let ReflectorStep::Wait { until } = step {
                    return Some(until.since_start());
                }
                let event = match (&step, server.reply(at)) {
                    (_, Reply::Down) => ReflectorEvent::Failed,
                    (_, Reply::Busy) => ReflectorEvent::Refused { retry_after: RETRY_AFTER },
                    (ReflectorStep::List { .. }, Reply::Done) => {
                        ReflectorEvent::Listed { resource_version: "2".into() }
                    }
                    (ReflectorStep::Watch { .. }, Reply::Done)
                        if std::mem::take(is_first) && server.restart.forgets =>
                    {
                        ReflectorEvent::Expired
                    }
                    (ReflectorStep::Watch { .. } | ReflectorStep::Wait { .. }, Reply::Done) => {
                        *is_open = true;
                        ReflectorEvent::WatchStarted
                    }
                };
                state.handle(event, random.share(), now);
                (!*is_open).then(|| match state.next(now) {
                    ReflectorStep::Wait { until } => until.since_start(),
                    ReflectorStep::List { .. } | ReflectorStep::Watch { .. } => at,
                })
            }
            Self::Lease(lease) => {
                let wall = Timestamp::UNIX_EPOCH;
                let step = lease.next(None, Now { wall, mono: now });
                if let LeaseStep::Wait { until } = step {
                    return Some(until.since_start());
                }
                let answer = match server.reply(at) {
                    Reply::Down => LeaseAnswer::Failed,
                    Reply::Busy => LeaseAnswer::Refused { retry_after: RETRY_AFTER },
                    Reply::Done => LeaseAnswer::Lease(Box::<Lease>::default()),
                };
                lease.record(&step, answer, random.share(), now);
                match lease.next(None, Now { wall, mono: now }) {
                    LeaseStep::Wait { until } => Some(until.since_start()),
                    LeaseStep::Get | LeaseStep::Create(_) | LeaseStep::Update(_) => Some(at),
                }
            }
            Self::Status { delay, is_sent } => {
                let requested = match server.reply(at) {
                    Reply::Done => {
                        *is_sent = true;
                        return None;
                    }
                    Reply::Busy => Some(RETRY_AFTER),
                    Reply::Down => None,
                };
                let own = compute_status_retry(*delay, StatusFailure::Temporary);
                *delay = Some(own);
                Some(at + compute_retry_delay(own, requested, random.share()))
            }
        }
    }

    fn is_done(&self) -> bool {
        match self {
            Self::Reflector { is_open, .. } => *is_open,
            Self::Status { is_sent, .. } => *is_sent,
            Self::Lease(_) => true,
        }
    }
}

/// A watch that has been open for some part of its timeout of five to ten minutes, and what the end of the server does to it.
fn watching(restart: Restart, random: &mut Random) -> (Client, Duration) {
    let timeout = Duration::from_secs(300) + random.up_to(Duration::from_secs(300));
    let opened = STOP - random.up_to(timeout);
    let mut state = ReflectorState::default();
    state.handle(ReflectorEvent::Listed { resource_version: "1".into() }, 0.0, MonoTime::from_start(opened));
    state.handle(ReflectorEvent::WatchStarted, 0.0, MonoTime::from_start(opened));
    let end = if restart.ends_watches { ReflectorEvent::Ended } else { ReflectorEvent::Failed };
    state.handle(end, random.share(), MonoTime::from_start(STOP));
    (Client::Reflector { state, is_first: true, is_open: false }, STOP)
}

fn leasing(random: &mut Random) -> (Client, Duration) {
    let mut lease = NodeLease::new("n", 40);
    let renewed = STOP - random.up_to(Duration::from_secs(10));
    let at = MonoTime::from_start(renewed);
    lease.record(&LeaseStep::Get, LeaseAnswer::Lease(Box::default()), 0.0, at);
    let step = lease.next(None, Now { wall: Timestamp::UNIX_EPOCH, mono: at });
    lease.record(&step, LeaseAnswer::Lease(Box::default()), random.share(), at);
    (Client::Lease(Box::new(lease)), STOP)
}

/// Simulates all nodes until a minute after the server is up. Returns the requests in each second of that minute, and how many clients
/// have not got through.
fn simulate(restart: Restart, seed: u64) -> (Vec<usize>, usize) {
    let mut random = Random(seed);
    let up = STOP + restart.outage;
    let mut server = Server { restart, up, seen: vec![0; MINUTE], executed: vec![0; MINUTE] };
    let mut clients = Vec::new();
    let mut queue = BinaryHeap::new();
    for _ in 0..NODES {
        let mut all: Vec<_> = (0..REFLECTORS).map(|_| watching(restart, &mut random)).collect();
        all.push(leasing(&mut random));
        all.extend((0..STATUSES).map(|_| {
            let changed = STOP + random.up_to(restart.outage + seconds(10));
            (Client::Status { delay: None, is_sent: false }, changed)
        }));
        for (client, due) in all {
            queue.push(Reverse((due, clients.len())));
            clients.push(client);
        }
    }
    while let Some(Reverse((at, index))) = queue.pop() {
        if at >= up + Duration::from_secs(MINUTE as u64) {
            break;
        }
        if let Some(next) = clients[index].act(&mut server, &mut random, at) {
            queue.push(Reverse((next.max(at), index)));
        }
    }
    (server.seen, clients.iter().filter(|client| !client.is_done()).count())
}

/// In a second of the first minute, and in the whole minute, for each node. docs/behaviour/api-server.md states it.
const MAX_IN_SECOND: usize = 8;
const MAX_IN_MINUTE: usize = 60;

#[test]
fn first_minute_after_a_restart_of_the_api_server_stays_within_the_stated_bound() {
    let unlimited = usize::MAX;
    let restarts = [
        // It is replaced at once: its watches end, and the next one has no history.
        Restart { outage: seconds(0), ends_watches: true, forgets: true, capacity: unlimited },
        // Connections break, and the next one is slow.
        Restart { outage: seconds(0), ends_watches: false, forgets: false, capacity: 3_000 },
        Restart { outage: seconds(5), ends_watches: false, forgets: false, capacity: unlimited },
        Restart { outage: seconds(300), ends_watches: false, forgets: true, capacity: 3_000 },
    ];
    std::thread::scope(|scope| {
        for restart in restarts {
            scope.spawn(move || check_first_minute(restart));
        }
    });
}

fn check_first_minute(restart: Restart) {
    let (seen, left) = simulate(restart, 34);
    let (peak, total) = (seen.iter().max().unwrap(), seen.iter().sum::<usize>());
    eprintln!("{restart:?}: at most {peak} a second, {total} in a minute, {left} clients wait");
    assert!(*peak <= MAX_IN_SECOND * NODES, "{restart:?}: {peak} requests in a second: {seen:?}");
    assert!(total <= MAX_IN_MINUTE * NODES, "{restart:?}: {total} requests in a minute: {seen:?}");
    // What is left is what the capacity does not suffice for.
    let needed = NODES * (REFLECTORS * if restart.forgets { 3 } else { 1 } + STATUSES + 6);
    let has_capacity = restart.capacity.saturating_mul(MINUTE) > needed;
    assert!(left == 0 || !has_capacity, "{restart:?}: {left} clients still wait");
}
