//! The contract of runtimes over the proxy in front of one: calls and streams pass unchanged, faults follow from the seed, and a lost connection is replaced.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cri::CriRuntime;
use fakes::{FakeCri, FakeRuntime};
use fixtures::rng::Rng;
use harness::runtime_proxy::compute_call_fault;
use harness::{CallFault, CallRule, RuntimeProxy};
use ports::Runtime;
use ports::runtime::RuntimeError;
use tempfile::TempDir;

use crate::world::{Case, World};

/// A client, the proxy, and a fake runtime behind it.
struct Proxied {
    client: Arc<CriRuntime>,
    proxy: RuntimeProxy,
    fake: FakeRuntime,
    _server: FakeCri,
    dir: TempDir,
}

fn proxied(seed: u64) -> Proxied {
    let dir = tempfile::tempdir().unwrap();
    let fake = crate::fake::fake();
    let socket = dir.path().join("cri.sock");
    let server = FakeCri::serve(Arc::new(fake.clone()), &socket).unwrap();
    let proxy = RuntimeProxy::serve(&dir.path().join("proxy.sock"), &socket, seed).unwrap();
    let client = Arc::new(CriRuntime::new(&proxy.endpoint(), "", Duration::from_secs(10)).unwrap());
    Proxied { client, proxy, fake, _server: server, dir }
}

fn world(proxied: &Proxied) -> World {
    World {
        runtime: Arc::clone(&proxied.client) as Arc<dyn Runtime>,
        logs: proxied.dir.path().join("logs"),
        cgroup_root: "/kubelet-test".to_owned(),
        has_processes: false,
        fake: Some(proxied.fake.clone()),
    }
}

/// Without faults, it is the runtime behind it.
async fn run(case: Case) {
    let proxied = proxied(1);
    case(world(&proxied)).await;
    assert_eq!(proxied.proxy.faults(), 0);
}

contract!(
    #[tokio::test]
    run
);

#[tokio::test]
async fn runtime_proxy_passes_events_on() {
    let proxied = proxied(1);
    proxied.fake.offer_hints();
    crate::cases::events_are_offered_or_unimplemented(&world(&proxied)).await;
}

#[tokio::test]
async fn runtime_proxy_fails_calls_until_its_percentage_is_zero_again() {
    let proxied = proxied(3);
    proxied.proxy.set_fault_percent(100);
    let mut errors = 0;
    while errors < 3 {
        // A delayed call succeeds.
        errors += usize::from(proxied.client.version().await.is_err());
    }
    assert!(proxied.proxy.faults() >= 3);
    proxied.proxy.set_fault_percent(0);
    loop {
        match proxied.client.version().await {
            Ok(_) => return,
            // The connection may have been cut by the last fault.
            Err(RuntimeError::Unavailable { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn rule_applies_to_so_many_calls_that_have_its_text() {
    let proxied = proxied(1);
    let rule = |about: &str| CallRule {
        method: "PodSandboxStatus",
        about: about.to_owned(),
        times: 1,
        fault: CallFault::Refused,
    };
    proxied.proxy.add_rule(rule("other"));
    proxied.proxy.add_rule(rule("s1"));
    let sandbox = model::SandboxId::new("s1");
    let status = || proxied.client.sandbox_status(&sandbox);
    let refused = status().await.unwrap_err();
    assert!(refused.to_string().contains("refused by the test"), "{refused}");
    assert!(status().await.unwrap_err().is_not_found());
    assert_eq!(proxied.proxy.faults(), 1);
}

#[test]
fn call_faults_follow_from_the_seed_and_have_every_kind() {
    let drawn = |seed| {
        let mut rng = Rng::new(seed);
        (0..400).map(|_| compute_call_fault(&mut rng, 50)).collect::<Vec<_>>()
    };
    assert_eq!(drawn(5), drawn(5));
    assert_ne!(drawn(5), drawn(6));
    let kinds: BTreeSet<_> = drawn(5)
        .into_iter()
        .map(|fault| match fault {
            None => "none",
            Some(CallFault::Delayed(_)) => "delayed",
            Some(CallFault::Unavailable) => "unavailable",
            Some(CallFault::DeadlineExceeded) => "deadline exceeded",
            Some(CallFault::Dropped) => "dropped",
            Some(CallFault::Cut) => "cut",
            Some(CallFault::CutAfterActing) => "cut after acting",
            Some(CallFault::Refused | CallFault::Answered(_) | CallFault::ActsLate(_)) => "only of rules",
        })
        .collect();
    assert_eq!(kinds.len(), 7, "{kinds:?}");
}
