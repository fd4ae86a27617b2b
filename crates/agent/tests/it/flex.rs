//! FlexVolume drivers on a made-up machine: a program that answers what the test sets.

use model::k8s::{PersistentVolume, PersistentVolumeClaim};
use ports::node_api::Measurements;
use serde_json::{Value, json};

use crate::volumes::{count_events, user, with_claim};
use crate::world::{World, seconds};

const DRIVERS: &str = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec";
const NOT_SUPPORTED: &str = r#"{"status": "Not supported"}"#;
const OPTIONS: &str =
    r#"{"kubernetes.io/fsType":"","kubernetes.io/pvOrVolumeName":"pv","kubernetes.io/readwrite":"rw"}"#;

/// A node with a claim on a volume of a driver with these capabilities, which leaves mounting to the kubelet.
async fn with_driver(capabilities: Value) -> World {
    let world = with_claim(json!({"flexVolume": {"driver": "example.com/disk"}})).await;
    let program = format!("{DRIVERS}/example.com~disk/disk");
    let answer = json!({"status": "Success", "capabilities": capabilities}).to_string();
    world.host.put(&program, "").set_program(&program, Ok(&answer));
    // Of `unmount`, too.
    world.host.set_exit("mount /var", 1, NOT_SUPPORTED);
    world
}

fn claim(world: &World) -> PersistentVolumeClaim {
    world.api().object("default", "data").unwrap()
}

/// The volume has that size, and the claim still the other one.
fn grow(world: &World, size: &str, old_size: &str) {
    let mut claim = claim(world);
    let status = claim.status.get_or_insert_default();
    status.capacity = serde_json::from_value(json!({"storage": old_size})).unwrap();
    world.api().put(&claim);
    let mut volume: PersistentVolume = world.api().object("", "pv").unwrap();
    let spec = volume.spec.get_or_insert_default();
    spec.capacity = serde_json::from_value(json!({"storage": size})).unwrap();
    world.api().put(&volume);
}

fn size(world: &World) -> Value {
    serde_json::to_value(claim(world).status).unwrap()["capacity"]["storage"].clone()
}

fn calls(world: &World, words: &str) -> Vec<String> {
    let calls = world.host.program_calls().into_iter().map(|call| {
        let program = call.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        format!("{program} {}", call.args.join(" "))
    });
    calls.filter(|call| call.contains(words)).collect()
}

#[tokio::test(start_paused = true)]
async fn flex_volume_that_has_grown_is_expanded_by_its_driver_before_and_while_a_pod_uses_it() {
    let world = with_driver(json!({"attach": false})).await;
    grow(&world, "2Gi", "1Gi");
    world.create(&user("web"));
    world.until("it runs", |w| w.is_ready_in_api("web")).await;
    let uid = world.in_api("web").unwrap().metadata.uid.unwrap();
    let target = format!("/var/lib/kubelet/pods/{uid}/volumes/example.com~disk/pv");
    assert_eq!(
        calls(&world, "expandfs"),
        [format!("disk expandfs {OPTIONS}  {target} 2147483648 1073741824")]
    );
    assert_eq!(size(&world), "2Gi");

    world.advance(seconds(300)).await;
    assert_eq!(calls(&world, "expandfs").len(), 1, "it has not grown");
    grow(&world, "3Gi", "2Gi");
    world.until("the claim has its size", |w| size(w) == "3Gi").await;
    let expected = format!("disk expandfs {OPTIONS}  {target} 3221225472 2147483648");
    assert_eq!(calls(&world, "expandfs")[1..], [expected]);
    world.delete("web", Some(1));
    world.until("it is gone", |w| w.in_api("web").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn flex_volume_that_its_driver_cannot_expand_is_resized_by_the_kubelet_or_reported() {
    let world = with_driver(json!({"attach": false})).await;
    world.host.set_exit("expandfs", 1, NOT_SUPPORTED).set_program("blkid", Ok("TYPE=xfs\n"));
    grow(&world, "2Gi", "1Gi");
    world.create(&user("web"));
    let text =
        "MountVolume.Setup failed while expanding volume for volume \"pv\" : resize of device  failed: ";
    world.until("the program is missing", |w| count_events(w, "FailedMount", text) > 0).await;
    assert!(!world.is_ready_in_api("web"));
    world.host.set_program("xfs_growfs", Ok(""));
    world.until("it runs", |w| w.is_ready_in_api("web")).await;
    let uid = world.in_api("web").unwrap().metadata.uid.unwrap();
    let target = format!("/var/lib/kubelet/pods/{uid}/volumes/example.com~disk/pv");
    assert_eq!(calls(&world, "xfs_growfs").last(), Some(&format!("xfs_growfs -d {target}")));
    assert_eq!(calls(&world, "expandfs").len(), 1, "a command that is not supported is not called again");
}

#[tokio::test(start_paused = true)]
async fn flex_volume_of_a_driver_that_needs_no_expansion_is_not_expanded() {
    let world = with_driver(json!({"attach": false, "requiresFSResize": false})).await;
    grow(&world, "2Gi", "1Gi");
    world.create(&user("web"));
    world.until("it runs", |w| w.is_ready_in_api("web")).await;
    world.advance(seconds(300)).await;
    assert!(calls(&world, "expandfs").is_empty());
    assert_eq!(size(&world), "1Gi");
}

#[tokio::test(start_paused = true)]
async fn flex_volume_is_measured_only_if_its_driver_supports_metrics() {
    for supported in [false, true] {
        let world = with_driver(json!({"attach": false, "supportsMetrics": supported})).await;
        world.create(&user("web"));
        world.until("it runs", |w| w.is_ready_in_api("web")).await;
        world.advance(seconds(90)).await;
        let text = world.measured(Measurements::Kubelet).await;
        let metric = "kubelet_volume_stats_used_bytes{namespace=\"default\",persistentvolumeclaim=\"data\"}";
        assert_eq!(text.contains(metric), supported, "{supported}");
    }
}

#[tokio::test(start_paused = true)]
async fn directory_of_flex_volume_drivers_is_created_at_start() {
    let mut world = World::new();
    world.start().await;
    world.until("the directory exists", |w| w.host.exists(DRIVERS)).await;
}
