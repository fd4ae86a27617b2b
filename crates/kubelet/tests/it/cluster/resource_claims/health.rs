//! The health of devices of claims: a driver reports it over gRPC, and the status of the pod follows it, also after the kubelet was killed.

use std::time::{Duration, Instant};

use model::devices::DeviceHealth;
use serde_json::{Value, json};

use super::drivers::{DRIVER, Setup};
use crate::node::uid;

/// Waits until the pod has this health of its device; returns how long it took.
#[track_caller]
fn wait_for_health(setup: &Setup, pod: &str, health: &Value) -> Duration {
    let began = Instant::now();
    setup.cluster.pod_when(pod, "has the health of its device", |pod| {
        let shown = &pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"];
        let one = &shown[0]["resources"][0];
        shown[0]["name"] == "claim:gpu"
            && one["health"] == health["health"]
            && one["message"] == health["message"]
    });
    began.elapsed()
}

#[test]
fn health_of_a_claim_device_is_in_the_pod_status_within_a_second_and_survives_a_kubelet_kill() {
    let mut setup = Setup::start();
    let hour = Some(Duration::from_secs(3600));
    setup.driver.report_health(DeviceHealth::Healthy, "", hour);
    let pod = setup.create("gpu");
    let pod_uid = uid(&pod);
    setup.cluster.running("gpu");
    wait_for_health(&setup, "gpu", &json!({"health": "Healthy"}));

    let changes = [
        (DeviceHealth::Unhealthy, json!({"health": "Unhealthy", "message": "ECC errors"})),
        (DeviceHealth::Healthy, json!({"health": "Healthy", "message": "repaired"})),
        (DeviceHealth::Unhealthy, json!({"health": "Unhealthy", "message": "on fire"})),
    ];
    let took = changes.map(|(health, shown)| {
        setup.driver.report_health(health, shown["message"].as_str().unwrap_or_default(), hour);
        wait_for_health(&setup, "gpu", &shown)
    });
    // The best of several, because the machine may be busy with something else.
    assert!(took.iter().min() < Some(&Duration::from_secs(1)), "{took:?}");

    // The status does not wait for the disk.
    setup.cluster.node.eventually("the file has the last health", |node| {
        let state = std::fs::read(node.path("root/dra_health_state")).map_err(|error| error.to_string())?;
        let state: Value = serde_json::from_slice(&state).map_err(|error| error.to_string())?;
        let device = &state[DRIVER]["Devices"]["node/device-0"];
        let is_last = device["Health"] == "Unhealthy" && device["Message"] == "on fire";
        if is_last { Ok(()) } else { Err(state.to_string()) }
    });
    setup.cluster.node.kill_kubelet();
    setup.driver.report_health(DeviceHealth::Healthy, "extinguished", hour);
    setup.cluster.node.start_kubelet();
    wait_for_health(&setup, "gpu", &json!({"health": "Healthy", "message": "extinguished"}));
    assert_eq!(setup.driver.calls(), ["prepare gpu"]);
    let pod = setup.cluster.running("gpu");
    assert_eq!((uid(&pod), &pod["status"]["containerStatuses"][0]["restartCount"]), (pod_uid, &json!(0)));
}
