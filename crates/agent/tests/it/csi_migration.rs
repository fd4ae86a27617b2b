//! A volume of a pod whose in-tree type has moved to a CSI driver.

use fakes::{CsiMethod, FakeCsiDriver};
use model::k8s::CSIDriver;
use serde_json::json;

use crate::csi::register_as;
use crate::pods::{Manifest, container_with, pod};
use crate::world::{PODS, World, seconds};

const DRIVER: &str = "disk.csi.azure.com";
const URI: &str = "/subscriptions/12/disks/name";

fn user(name: &str) -> Manifest {
    let mounts = json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    pod(name, [container_with("app", mounts)]).spec(json!({
        "volumes": [{"name": "data", "azureDisk": {"diskName": "name", "diskURI": URI, "kind": "Managed"}}],
    }))
}

async fn runs(world: &World, name: &str) {
    world.until("the pod runs", |w| w.is_ready_in_api(name)).await;
}

#[tokio::test(start_paused = true)]
async fn disk_of_two_pods_is_staged_once_by_the_driver_that_its_type_moved_to() {
    let mut world = World::of_cluster();
    let object = json!({
        "metadata": {"name": DRIVER},
        "spec": {"attachRequired": false, "fsGroupPolicy": "File", "volumeLifecycleModes": ["Persistent"]},
    });
    world.api().put(&serde_json::from_value::<CSIDriver>(object).unwrap());
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    let driver = FakeCsiDriver::new().mounting_in(&world.host);
    register_as(&world, &driver, DRIVER).await;

    world.create(&user("web-a"));
    world.create(&user("web-b"));
    runs(&world, "web-a").await;
    runs(&world, "web-b").await;
    assert_eq!(driver.count(CsiMethod::NodeStageVolume), 1);
    let request = &driver.stage_requests()[0];
    assert_eq!((&*request.volume_id, &*request.volume_context["kind"]), (URI, "Managed"));
    let uid = world.in_api("web-a").unwrap().metadata.uid.unwrap();
    let volume = format!("{PODS}/{uid}/volumes/kubernetes.io~csi/~subscriptions~12~disks~name");
    let target = format!("{volume}/mount");
    assert!(driver.published().contains(&(URI.to_owned(), target.into())), "{:?}", driver.published());
    let data = world.host.text(format!("{volume}/vol_data.json")).unwrap();
    assert!(data.contains(r#""specVolID":"/subscriptions/12/disks/name""#), "{data}");
    let line = "storage_operation_duration_seconds_count{migrated=\"true\",operation_name=\"volume_mount\"";
    let metrics = world.metrics().await;
    assert!(metrics.contains(line));
    let call = |method: &str, migrated: &str| {
        format!(
            "csi_operations_seconds_count{{driver_name=\"{DRIVER}\",grpc_status_code=\"OK\",method_name=\"/csi.v1.Node/{method}\",\
             migrated=\"{migrated}\"}}"
        )
    };
    for line in
        [call("NodeStageVolume", "true"), call("NodePublishVolume", "true"), call("NodeGetInfo", "false")]
    {
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }

    driver.forget_calls();
    world.restart().await;
    world.advance(seconds(300)).await;
    assert_eq!(driver.call_lines(), Vec::<String>::new(), "it is found by its directory");
    world.delete("web-a", Some(1));
    world.delete("web-b", Some(1));
    world.until("nothing is left", |_| driver.staged().is_empty() && driver.published().is_empty()).await;
    assert_eq!(driver.count(CsiMethod::NodeUnstageVolume), 1);
    let line = "storage_operation_duration_seconds_count{migrated=\"true\",operation_name=\"volume_unmount\"";
    let metrics = world.metrics().await;
    assert!(metrics.contains(line), "also by a kubelet that did not mount it\n{metrics}");
    assert_eq!(driver.violations(), Vec::<String>::new());
}
