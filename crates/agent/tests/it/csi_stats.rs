//! Scenarios of the statistics of CSI volumes on paused time: they come from drivers, and a driver that hangs delays only its own.

use config::gates::FeatureGates;
use fakes::{CsiFault, CsiMethod};
use model::csi::{Usage, VolumeCondition, VolumeStats};
use ports::node_api::Measurements;
use serde_json::{Value, json};

use crate::csi::{DRIVER, count_events, no_attach, put_claim, runs, user, user_of, with_driver};
use crate::world::{World, seconds};

const GIB: u64 = 1 << 30;

/// The volumes of the pod in `/stats/summary`.
async fn volumes(world: &World, pod: &str) -> Vec<Value> {
    let text = world.measured(Measurements::Summary { only_cpu_and_memory: false }).await;
    let summary: Value = serde_json::from_str(&text).unwrap();
    let pods = summary["pods"].as_array().unwrap();
    let found = pods.iter().find(|found| found["podRef"]["name"] == pod).unwrap();
    found["volume"].as_array().cloned().unwrap_or_default()
}

fn of_claim(volumes: &[Value]) -> Option<&Value> {
    volumes.iter().find(|volume| volume["name"] == "data")
}

#[tokio::test(start_paused = true)]
async fn stats_of_a_volume_come_from_its_driver_with_the_claim() {
    let (world, driver) = with_driver(no_attach()).await;
    driver.set_stats(
        "vol-data",
        VolumeStats {
            bytes: Some(Usage { available: 1, total: 10, used: 9 }),
            inodes: Some(Usage { available: 100, total: 1000, used: 900 }),
            condition: None,
        },
    );
    world.create(&user("web"));
    runs(&world, "web").await;
    world.advance(seconds(100)).await;
    let volumes = volumes(&world, "web").await;
    let volume = of_claim(&volumes).unwrap();
    assert_eq!(volume["pvcRef"], json!({"name": "data", "namespace": "default"}));
    let numbers = ["capacityBytes", "availableBytes", "usedBytes", "inodes", "inodesFree", "inodesUsed"];
    assert_eq!(numbers.map(|name| volume[name].as_u64().unwrap()), [10, 1, 9, 1000, 100, 900]);
    assert_eq!(volume["volumeHealthStats"], Value::Null, "the gate is off");
    let text = world.measured(Measurements::Kubelet).await;
    for line in [
        "kubelet_volume_stats_used_bytes{namespace=\"default\",persistentvolumeclaim=\"data\"} 9\n",
        "kubelet_volume_metric_collection_duration_seconds_count{metric_source=\"disk.example.com\"} ",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("kubelet_volume_stats_health_status_abnormal{"));
}

#[tokio::test(start_paused = true)]
async fn a_driver_without_stats_is_not_asked_and_its_volumes_have_none() {
    let (world, driver) = with_driver(no_attach()).await;
    driver.set_capabilities(|capabilities| capabilities.get_volume_stats = false);
    world.create(&user("web"));
    runs(&world, "web").await;
    world.advance(seconds(100)).await;
    assert_eq!(of_claim(&volumes(&world, "web").await), None);
    assert_eq!(driver.count(CsiMethod::NodeGetVolumeStats), 0);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_hangs_while_it_measures_delays_no_other_volume() {
    let (world, driver) = with_driver(no_attach()).await;
    put_claim(&world, "fast");
    world.create(&user("slow"));
    world.create(&user_of("fast", "fast"));
    runs(&world, "slow").await;
    runs(&world, "fast").await;
    driver.fault_for(CsiMethod::NodeGetVolumeStats, "vol-data", CsiFault::Hangs);
    world.advance(seconds(100)).await;
    let before = world.now();
    assert_eq!(of_claim(&volumes(&world, "slow").await), None);
    assert!(world.now() - before < seconds(5));
    let fast = volumes(&world, "fast").await;
    assert_eq!(of_claim(&fast).unwrap()["capacityBytes"], GIB);
    world.advance(seconds(70)).await;
    volumes(&world, "slow").await;
    assert_eq!(driver.hanging(), 1, "a volume is not asked for again while its driver has not answered");
    driver.release();
    world.advance(seconds(70)).await;
    assert_eq!(of_claim(&volumes(&world, "slow").await).unwrap()["capacityBytes"], GIB);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_cannot_be_measured_any_more_has_no_stats() {
    let (world, driver) = with_driver(no_attach()).await;
    world.create(&user("web"));
    runs(&world, "web").await;
    world.advance(seconds(100)).await;
    assert!(of_claim(&volumes(&world, "web").await).is_some());
    driver.fault_always(CsiMethod::NodeGetVolumeStats, Some(CsiFault::Fails("Internal", "broken")));
    world.advance(seconds(100)).await;
    assert_eq!(of_claim(&volumes(&world, "web").await), None);
}

#[tokio::test(start_paused = true)]
async fn conditions_of_volumes_are_ignored_unless_their_gate_is_on() {
    let (world, driver) = with_driver(no_attach()).await;
    driver.set_capabilities(|capabilities| capabilities.volume_condition = true);
    driver.set_condition("vol-data", VolumeCondition { is_abnormal: true, message: "broken".to_owned() });
    world.create(&user("web"));
    runs(&world, "web").await;
    world.advance(seconds(100)).await;
    assert_eq!(of_claim(&volumes(&world, "web").await).unwrap()["volumeHealthStats"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn an_abnormal_volume_is_reported_with_its_gate() {
    let (mut world, driver) = with_driver(no_attach()).await;
    world.settings.gates = FeatureGates::resolve(&[("CSIVolumeHealth".to_owned(), true)].into()).0;
    world.restart().await;
    driver.set_capabilities(|capabilities| capabilities.volume_condition = true);
    world.create(&user("web"));
    runs(&world, "web").await;
    let series =
        "kubelet_volume_stats_health_status_abnormal{namespace=\"default\",persistentvolumeclaim=\"data\"}";
    world.advance(seconds(100)).await;
    assert!(world.metrics().await.contains(&format!("{series} 0\n")));
    driver.set_condition("vol-data", VolumeCondition { is_abnormal: true, message: "broken".to_owned() });
    world.advance(seconds(100)).await;
    let volumes = volumes(&world, "web").await;
    assert_eq!(of_claim(&volumes).unwrap()["volumeHealthStats"], json!({"abnormal": true}));
    assert!(world.metrics().await.contains(&format!("{series} 1\n")));
    assert!(count_events(&world, "VolumeConditionAbnormal", "Volume data: broken") > 0);
}

#[tokio::test(start_paused = true)]
async fn calls_of_drivers_are_measured_by_method_and_code() {
    let (world, driver) = with_driver(no_attach()).await;
    driver.fault(CsiMethod::NodePublishVolume, CsiFault::Fails("Internal", "no"));
    world.create(&user("web"));
    runs(&world, "web").await;
    let text = world.measured(Measurements::Kubelet).await;
    let series = |method: &str, code: &str| {
        format!(
            "csi_operations_seconds_count{{driver_name=\"{DRIVER}\",grpc_status_code=\"{code}\",\
             method_name=\"/csi.v1.Node/{method}\",migrated=\"false\"}} 1\n"
        )
    };
    for line in [
        series("NodeGetInfo", "OK"),
        series("NodeStageVolume", "OK"),
        series("NodePublishVolume", "Internal"),
        series("NodePublishVolume", "OK"),
        format!(
            "storage_operation_duration_seconds_count{{migrated=\"false\",operation_name=\"volume_mount\",\
             status=\"success\",volume_plugin=\"kubernetes.io/csi:{DRIVER}\"}} "
        ),
    ] {
        assert!(text.contains(&line), "{line}: {text}");
    }
}
