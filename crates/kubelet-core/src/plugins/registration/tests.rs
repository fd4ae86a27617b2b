use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const CSI: &str = "CSIPlugin";

fn at(millis: u64) -> MonoTime {
    MonoTime::ZERO + Duration::from_millis(millis)
}

/// `a:1 b:2`: sockets and their inodes.
fn tree(line: &str) -> SocketTree {
    let socket = |word: &str| {
        let (path, inode) = word.split_once(':').unwrap();
        let identity = SocketIdentity { device: 1, inode: inode.parse().unwrap(), created: 0 };
        (PathBuf::from(path), identity)
    };
    SocketTree { sockets: line.split_whitespace().map(socket).collect(), ..SocketTree::default() }
}

fn plugin(name: &str) -> RegisteredPlugin {
    RegisteredPlugin { name: name.to_owned(), ..RegisteredPlugin::default() }
}

/// `register a, deregister b (name)`.
fn shown(operations: &[Operation]) -> String {
    let show = |operation: &Operation| match operation {
        Operation::Register { socket } => format!("register {}", socket.display()),
        Operation::Deregister { socket, plugin, .. } => {
            format!("deregister {} ({})", socket.display(), plugin.name)
        }
    };
    operations.iter().map(show).collect::<Vec<_>>().join(", ")
}

/// A state machine with the time of the test.
#[derive(Default)]
struct Driver {
    registrations: Registrations,
    now: u64,
}

impl Driver {
    fn observing(line: &str) -> Self {
        let mut driver = Self::default();
        driver.registrations.observe(&tree(line));
        driver
    }

    /// The operations that begin now.
    fn starts(&mut self) -> String {
        shown(&self.registrations.start_due(at(self.now)))
    }

    fn claims(&mut self, socket: &str, name: &str) -> bool {
        let name = PluginName { kind: CSI.to_owned(), name: name.to_owned(), endpoint: None };
        self.registrations.claim(Path::new(socket), &name)
    }

    fn finishes(&mut self, socket: &str, outcome: Outcome) {
        self.registrations.finished(Path::new(socket), outcome, at(self.now));
    }

    fn registers(&mut self, socket: &str, name: &str) {
        assert!(self.claims(socket, name));
        self.finishes(socket, Outcome::Registered { kind: CSI.to_owned(), plugin: plugin(name) });
    }

    fn observes(&mut self, line: &str) {
        self.registrations.observe(&tree(line));
    }

    fn states(&self) -> String {
        let state = |state: SocketState<'_>| {
            format!("{} {}{}", state.path.display(), u8::from(state.is_found), u8::from(state.is_registered))
        };
        self.registrations.states().map(state).collect::<Vec<_>>().join(", ")
    }
}

#[test]
fn socket_registers_once_and_deregisters_when_it_is_removed() {
    let mut driver = Driver::observing("a:1");
    assert_eq!(driver.starts(), "register a");
    assert_eq!(driver.starts(), "", "one operation for each socket");
    driver.registers("a", "x");
    driver.observes("a:1");
    assert_eq!((driver.starts(), driver.registrations.wake_at()), (String::new(), None));
    assert_eq!(driver.states(), "a 11");
    driver.observes("");
    assert_eq!(driver.starts(), "deregister a (x)");
    assert_eq!(driver.states(), "a 01");
    driver.finishes("a", Outcome::Deregistered);
    assert_eq!((driver.starts(), driver.states()), (String::new(), String::new()));
}

#[test]
fn replaced_socket_is_deregistered_before_it_registers_again() {
    let mut driver = Driver::observing("a:1");
    driver.starts();
    driver.registers("a", "x");
    driver.observes("a:2");
    assert_eq!(driver.starts(), "deregister a (x)");
    driver.finishes("a", Outcome::Deregistered);
    assert_eq!(driver.starts(), "register a");
    driver.registers("a", "x");
    assert_eq!(driver.states(), "a 11");
}

#[test]
fn socket_created_again_with_the_same_inode_registers_again() {
    for removed in ["dir/a", "dir"] {
        let mut driver = Driver::observing("dir/a:1");
        driver.starts();
        driver.registers("dir/a", "x");
        let removed = BTreeSet::from([PathBuf::from(removed)]);
        driver.registrations.observe(&SocketTree { removed, ..tree("dir/a:1") });
        assert_eq!(driver.starts(), "deregister dir/a (x)");
    }
}

#[test]
fn socket_removed_during_its_registration_is_deregistered_afterwards() {
    let mut driver = Driver::observing("a:1");
    driver.starts();
    driver.observes("");
    assert_eq!(driver.starts(), "");
    driver.registers("a", "x");
    assert_eq!(driver.starts(), "deregister a (x)");
}

#[test]
fn delay_of_a_failing_socket_doubles_from_half_a_second_to_two_minutes() {
    let mut driver = Driver::observing("a:1");
    let mut delays = Vec::new();
    for _ in 0..11 {
        assert_eq!(driver.starts(), "register a");
        driver.finishes("a", Outcome::Failed);
        let wake_at = driver.registrations.wake_at().unwrap();
        let due = u64::try_from(wake_at.since_start().as_millis()).unwrap();
        delays.push(due - driver.now);
        driver.now = due - 1;
        assert_eq!(driver.starts(), "");
        driver.now = due;
    }
    assert_eq!(delays, [500, 1000, 2000, 4000, 8000, 16000, 32000, 64000, 122_000, 122_000, 122_000]);
    driver.starts();
    driver.registers("a", "x");
    driver.observes("a:2");
    assert_eq!(driver.starts(), "deregister a (x)");
    driver.finishes("a", Outcome::Deregistered);
    assert_eq!(driver.starts(), "register a", "success ends the back-off");
}

#[test]
fn socket_that_replaces_a_failing_one_waits_for_the_shortest_delay_only() {
    let mut driver = Driver::observing("a:1");
    for now in [0, 500, 1500, 3500] {
        driver.now = now;
        assert_eq!(driver.starts(), "register a");
        driver.finishes("a", Outcome::Failed);
    }
    driver.observes("a:2");
    assert_eq!(driver.starts(), "");
    assert_eq!(driver.registrations.wake_at(), Some(at(4000)));
    driver.now = 4000;
    assert_eq!(driver.starts(), "register a");
    driver.observes("");
    driver.observes("a:3");
    driver.finishes("a", Outcome::Failed);
    assert_eq!(driver.registrations.wake_at(), Some(at(4500)), "the failure was that of the socket before");
}

#[test]
fn removed_socket_is_forgotten_once_its_back_off_is_over() {
    let mut driver = Driver::observing("a:1");
    driver.starts();
    driver.finishes("a", Outcome::Failed);
    driver.observes("");
    assert_eq!((driver.starts(), driver.registrations.wake_at()), (String::new(), None));
    assert_eq!(driver.states(), "a 00", "a socket that is created again and again is not called each time");
    driver.now = 500;
    assert_eq!((driver.starts(), driver.states()), (String::new(), String::new()));
}

#[test]
fn socket_without_an_answer_delays_no_other() {
    let mut driver = Driver::observing("a:1 b:1 c:1");
    assert_eq!(driver.starts(), "register a, register b, register c");
    driver.registers("b", "y");
    driver.observes("a:1 c:1 d:1");
    assert_eq!(driver.starts(), "deregister b (y), register d");
}

#[test]
fn two_sockets_never_register_one_name_at_the_same_time() {
    let mut driver = Driver::observing("a:1 b:1");
    driver.starts();
    assert!(driver.claims("a", "x"));
    assert!(!driver.claims("b", "x"));
    driver.finishes("b", Outcome::Busy);
    assert_eq!((driver.starts(), driver.registrations.wake_at()), (String::new(), None));
    driver.finishes("a", Outcome::Registered { kind: CSI.to_owned(), plugin: plugin("x") });
    assert_eq!(driver.starts(), "register b");
}

#[test]
fn plugins_of_different_types_may_have_the_same_name() {
    let mut driver = Driver::observing("a:1 b:1");
    driver.starts();
    assert!(driver.claims("a", "x"));
    let other = PluginName { kind: "DevicePlugin".to_owned(), name: "x".to_owned(), endpoint: None };
    assert!(driver.registrations.claim(Path::new("b"), &other));
}

/// A rolling update: the old instance removes its socket after the new one has registered.
#[test]
fn superseded_socket_goes_without_deregistering_the_plugin_that_replaced_it() {
    let mut driver = Driver::observing("a:1");
    driver.starts();
    driver.registers("a", "x");
    driver.observes("a:1 b:1");
    assert_eq!(driver.starts(), "register b");
    driver.registers("b", "x");
    assert_eq!(driver.states(), "a 11, b 11");
    driver.observes("b:1");
    assert_eq!((driver.starts(), driver.states()), (String::new(), "b 11".to_owned()));
}

#[test]
fn superseded_socket_registers_again_when_the_newer_one_goes() {
    let mut driver = Driver::observing("a:1");
    driver.starts();
    driver.registers("a", "x");
    driver.observes("a:1 b:1");
    driver.starts();
    driver.registers("b", "x");
    driver.observes("a:1");
    assert_eq!(driver.starts(), "deregister b (x)");
    driver.finishes("b", Outcome::Deregistered);
    assert_eq!(driver.starts(), "register a");
}

#[test]
fn refused_socket_registers_as_soon_as_the_other_of_its_name_is_gone() {
    let mut driver = Driver::observing("a:1 b:1");
    driver.starts();
    driver.registers("a", "x");
    for now in [0, 500, 1500] {
        driver.now = now;
        driver.starts();
        assert!(driver.claims("b", "x"));
        driver.finishes("b", Outcome::Failed);
    }
    driver.observes("b:1");
    assert_eq!(driver.starts(), "deregister a (x)");
    driver.finishes("a", Outcome::Deregistered);
    assert_eq!(driver.starts(), "register b");
}

#[test]
fn withdrawn_plugin_is_tried_again_later_and_the_superseded_one_at_once() {
    let mut driver = Driver::observing("a:1");
    driver.starts();
    driver.registers("a", "x");
    driver.observes("a:1 b:1");
    driver.starts();
    assert!(driver.claims("b", "x"));
    driver.finishes("b", Outcome::Withdrawn);
    assert_eq!(driver.starts(), "register a");
    assert_eq!(driver.registrations.wake_at(), Some(at(500)));
}

#[test]
fn refusals_read_as_in_the_go_kubelet() {
    let (kind, socket) = ("DRAPlugin".to_owned(), PathBuf::from("/reg/x.sock"));
    assert_eq!(
        Refusal::NoHandler { kind, socket }.to_string(),
        "RegisterPlugin error -- no handler registered for plugin type: DRAPlugin at socket /reg/x.sock"
    );
    assert_eq!(
        Refusal::Invalid("no".to_owned()).to_string(),
        "RegisterPlugin error -- plugin validation failed with err: no"
    );
    assert_eq!(
        Refusal::NotRegistered("no".to_owned()).to_string(),
        "RegisterPlugin error -- plugin registration failed with err: no"
    );
}

/// What happens in a random scenario.
#[derive(Clone, Debug)]
enum RandomEvent {
    /// The socket gets this inode, or is removed for 0.
    Socket(usize, u64),
    /// The operation at the socket goes on: with a success or not.
    Progress(usize, bool),
    Time(u64),
}

fn random_event() -> impl Strategy<Value = RandomEvent> {
    prop_oneof![
        (0..4_usize, 0..4_u64).prop_map(|(socket, inode)| RandomEvent::Socket(socket, inode)),
        (0..4_usize, prop::bool::weighted(0.7))
            .prop_map(|(socket, is_ok)| RandomEvent::Progress(socket, is_ok)),
        (0..3000_u64).prop_map(RandomEvent::Time),
    ]
}

/// Two of the four sockets share a name.
const SOCKETS: [(&str, &str); 4] = [("a", "x"), ("b", "x"), ("c", "y"), ("d", "z")];

/// The plugins, and a handler that knows what is registered by name.
#[derive(Default)]
struct Scenario {
    driver: Driver,
    inodes: [u64; 4],
    /// Operations under way, by socket, with whether the name is claimed.
    under_way: BTreeMap<String, (bool, bool)>,
    handler: BTreeMap<String, String>,
}

impl Scenario {
    fn begin(&mut self) {
        for operation in self.driver.registrations.start_due(at(self.driver.now)) {
            let (socket, is_register) = match operation {
                Operation::Register { socket } => (socket, true),
                Operation::Deregister { socket, plugin, .. } => {
                    let name = &plugin.name;
                    assert_eq!(self.handler.get(name).map(String::as_str), socket.to_str(), "it is in use");
                    (socket, false)
                }
            };
            let before = self.under_way.insert(socket.display().to_string(), (is_register, !is_register));
            assert_eq!(before, None, "one operation for each socket");
        }
        let claimed = self.under_way.iter().filter(|(_, (_, is_claimed))| *is_claimed);
        let names: Vec<&str> = claimed.map(|(socket, _)| name_of(socket)).collect();
        assert_eq!(names.len(), names.iter().collect::<BTreeSet<_>>().len(), "one operation for each name");
    }

    fn progress(&mut self, socket: &str, is_ok: bool) {
        let Some((is_register, is_claimed)) = self.under_way.remove(socket) else { return };
        let name = name_of(socket);
        let outcome = match (is_register, is_claimed, is_ok) {
            (false, ..) => {
                self.handler.remove(name);
                Outcome::Deregistered
            }
            (true, false, true) if self.driver.claims(socket, name) => {
                self.under_way.insert(socket.to_owned(), (true, true));
                return;
            }
            (true, false, true) => Outcome::Busy,
            (true, true, true) => {
                self.handler.insert(name.to_owned(), socket.to_owned());
                Outcome::Registered { kind: CSI.to_owned(), plugin: plugin(name) }
            }
            (true, true, false) if self.driver.now.is_multiple_of(2) => {
                self.handler.remove(name);
                Outcome::Withdrawn
            }
            (true, _, false) => Outcome::Failed,
        };
        self.driver.finishes(socket, outcome);
    }

    fn happens(&mut self, random_event: RandomEvent) {
        match random_event {
            RandomEvent::Socket(socket, inode) => {
                self.inodes[socket] = inode;
                let found = SOCKETS.iter().zip(self.inodes).filter(|(_, inode)| *inode > 0);
                let line: Vec<String> = found.map(|((path, _), inode)| format!("{path}:{inode}")).collect();
                self.driver.observes(&line.join(" "));
            }
            RandomEvent::Progress(socket, is_ok) => self.progress(SOCKETS[socket].0, is_ok),
            RandomEvent::Time(millis) => self.driver.now += millis,
        }
        self.begin();
    }

    /// Lets all operations succeed until nothing is left to do.
    fn settle(&mut self) {
        for _ in 0..100 {
            self.driver.now += 200_000;
            self.begin();
            for (socket, _) in SOCKETS {
                self.progress(socket, true);
                self.begin();
            }
        }
        assert!(self.under_way.is_empty(), "{:?}", self.under_way);
    }
}

fn name_of(socket: &str) -> &'static str {
    SOCKETS.iter().find(|(path, _)| *path == socket).unwrap().1
}

proptest! {
    #[test]
    fn registered_plugins_follow_the_sockets_whatever_happens(events in prop::collection::vec(random_event(), 0..200)) {
        let mut scenario = Scenario::default();
        for random_event in events {
            scenario.happens(random_event);
        }
        scenario.settle();
        let found: BTreeSet<&str> =
            SOCKETS.iter().zip(scenario.inodes).filter(|(_, inode)| *inode > 0).map(|(socket, _)| socket.0).collect();
        let names: BTreeSet<&str> = found.iter().map(|socket| name_of(socket)).collect();
        let registered: BTreeSet<&str> = scenario.handler.keys().map(String::as_str).collect();
        prop_assert_eq!(registered, names, "each name with a socket is registered, and no other");
        prop_assert!(scenario.handler.values().all(|socket| found.contains(&**socket)));
        prop_assert!(scenario.driver.registrations.states().all(|state| state.is_found && state.is_registered));
    }
}
