//! The node's own iptables chains, and the pod CIDR that the runtime gets.

use fakes::host::{HostFault, HostMethod};
use fakes::{Fault, Method};

use crate::world::{World, seconds};

const CANARIES: [&str; 3] =
    ["mangle KUBE-KUBELET-CANARY", "nat KUBE-KUBELET-CANARY", "filter KUBE-KUBELET-CANARY"];

fn keeping_chains() -> World {
    let mut world = World::new();
    world.config.make_iptables_util_chains = true;
    world.host.set_program("iptables", Ok(""));
    world
}

fn is_whole(world: &World) -> bool {
    let lines = world.host.firewall("iptables");
    CANARIES.iter().all(|canary| lines.iter().any(|line| line == canary))
}

#[tokio::test(start_paused = true)]
async fn iptables_chains_are_created_and_recreated_after_a_flush() {
    let mut world = keeping_chains();
    world.host.set_program("ip6tables", Ok(""));
    world.start().await;
    world.until("the chains exist", is_whole).await;
    let made = world.host.firewall("iptables");
    assert_eq!(
        made,
        [
            "filter INPUT -j KUBE-FIREWALL",
            "filter OUTPUT -j KUBE-FIREWALL",
            "mangle KUBE-IPTABLES-HINT",
            "filter KUBE-FIREWALL",
            "filter KUBE-FIREWALL -m comment --comment block incoming localnet connections --dst 127.0.0.0/8 \
             ! --src 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP",
            CANARIES[0],
            CANARIES[1],
            CANARIES[2],
        ]
    );
    let v6 = [&["mangle KUBE-IPTABLES-HINT"], &CANARIES[..]].concat();
    assert_eq!(world.host.firewall("ip6tables"), v6);

    // While nothing changes them, only the canaries are checked.
    let before = world.host.program_calls().len();
    world.advance(seconds(600)).await;
    let calls = world.host.program_calls().split_off(before);
    assert_eq!(calls.len(), 60, "three a minute for each family");
    assert!(calls.iter().all(|call| call.args.contains(&"-S".to_owned())));
    world.host.flush_firewalls();
    world.until("the chains are back", is_whole).await;
    assert_eq!(world.host.firewall("iptables"), made);

    // The next kubelet finds them and adds nothing.
    world.crash().await;
    world.start().await;
    world.advance(seconds(200)).await;
    assert_eq!(world.host.firewall("iptables"), made);
}

#[tokio::test(start_paused = true)]
async fn failing_iptables_is_tried_again_and_a_missing_iptables_is_not() {
    let mut world = keeping_chains();
    world.host.fault_below(HostMethod::RunProgram, "iptables", HostFault::Fails);
    world.start().await;
    world.advance(seconds(30)).await;
    assert!(!is_whole(&world));
    world.until("a minute later it works", is_whole).await;
    let asked_of_v6 = |world: &World| {
        world.host.program_calls().iter().filter(|call| call.path.ends_with("ip6tables")).count()
    };
    world.advance(seconds(300)).await;
    assert!(asked_of_v6(&world) <= 1, "{}", asked_of_v6(&world));
}

#[tokio::test(start_paused = true)]
async fn node_without_iptables_util_chains_runs_no_iptables() {
    let mut world = keeping_chains();
    world.config.make_iptables_util_chains = false;
    world.start().await;
    world.advance(seconds(300)).await;
    assert!(world.host.program_calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn standalone_node_sends_its_pod_cidr_to_the_runtime() {
    let mut world = World::new();
    world.config.pod_cidr = "10.1.0.0/24".to_owned();
    world.fake.fault(Method::UpdateRuntimeConfig, Fault::Failed("not now".to_owned()));
    world.start().await;
    world.until("it was reported", |w| w.fake.pod_cidr() == "10.1.0.0/24").await;
    assert_eq!(world.fake.count(Method::UpdateRuntimeConfig), 2, "the first request was denied");
    world.advance(seconds(600)).await;
    assert_eq!(world.fake.count(Method::UpdateRuntimeConfig), 2);
}
