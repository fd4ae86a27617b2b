//! Scenarios of ResourceClaims: drivers that prepare them before a pod starts and unprepare them before its object goes, fail, are away,
//! and come back; kubelets that are killed in between.

mod health;

use fakes::{
    ClusterFault, DraFault, DraMethod, FakeDraDriver, Fault, HostFault, HostMethod, Method, Program, Verb,
};
use model::inventory::PodSelection;
use model::k8s::{Pod, ResourceClaim};
use ports::Runtime;
use ports::cluster::ClusterError;
use ports::plugins::PluginInfo;
use serde_json::{Value, json};

use crate::pods::{Manifest, container_with, pod};
use crate::world::{PODS, World, seconds};

const DRIVER: &str = "gpu.example.com";
const CLASS: &str = "example.com/gpu";
const ENDPOINT: &str = "/var/lib/kubelet/plugins/gpu.example.com/dra.sock";
const SOCKET: &str = "/var/lib/kubelet/plugins_registry/gpu.example.com-reg.sock";
const STATE: &str = "/var/lib/kubelet/dra_manager_state";

fn from<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// The driver listens and offers itself for registration at these sockets.
fn offer(world: &World, driver: &FakeDraDriver, endpoint: &str, socket: &str) {
    world.plugins.add_dra_driver(endpoint, driver);
    let info = PluginInfo {
        kind: "DRAPlugin".to_owned(),
        name: DRIVER.to_owned(),
        endpoint: endpoint.to_owned(),
        supported_versions: vec!["v1.DRAPlugin".to_owned()],
    };
    world.plugins.offer(socket, info);
    world.host.put_socket(socket);
}

/// A node with a registered driver.
async fn with_driver() -> (World, FakeDraDriver) {
    let world = World::joined().await;
    let driver = FakeDraDriver::new(CLASS);
    offer(&world, &driver, ENDPOINT, SOCKET);
    world.until("the driver is registered", |w| w.plugins.notified(SOCKET) == [Ok(())]).await;
    (world, driver)
}

/// A pod that uses the claim of this name.
fn manifest(name: &str, claim: &str) -> Manifest {
    manifest_with(name, &[("gpu", claim)])
}

/// A pod that uses these claims; each has a name in the pod and one of its own.
fn manifest_with(name: &str, claims: &[(&str, &str)]) -> Manifest {
    let used: Vec<Value> = claims.iter().map(|(entry, _)| json!({"name": entry})).collect();
    let container = container_with("app", json!({"resources": {"claims": used}}));
    let entry = |(entry, claim): &(&str, &str)| json!({"name": entry, "resourceClaimName": claim});
    let entries: Vec<Value> = claims.iter().map(entry).collect();
    pod(name, [container]).spec(json!({"resourceClaims": entries}))
}

/// A claim with a device of the driver, reserved for these pods.
fn put_claim(world: &World, name: &str, pods: &[&Pod]) {
    let reserved: Vec<Value> = pods
        .iter()
        .map(|pod| json!({"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid}))
        .collect();
    let device = json!({"request": "r", "driver": DRIVER, "pool": "node", "device": "device-0"});
    world.api().put(&from::<ResourceClaim>(json!({
        "metadata": {"name": name, "namespace": "default"},
        "status": {"reservedFor": reserved, "allocation": {"devices": {"results": [device]}}},
    })));
}

/// A pod that runs with a claim of its own.
async fn running(world: &World, name: &str) -> Pod {
    let pod = world.create(&manifest(name, name));
    put_claim(world, name, &[&pod]);
    world.until("it runs", |w| w.is_ready_in_api(name)).await;
    pod
}

fn message(world: &World, reason: &str) -> Option<String> {
    world.api_events(reason).last().and_then(|event| event.message.clone())
}

/// The content of the state file.
fn state(world: &World) -> String {
    world.host.text(STATE).unwrap_or_default()
}

/// Whether the pod uses a claim by the state file.
fn is_recorded(world: &World, pod: &Pod) -> bool {
    state(world).contains(pod.metadata.uid.as_deref().unwrap())
}

fn cdi_devices(world: &World, pod: &str) -> Vec<String> {
    world.fake.container_request(pod, "app").map(|request| request.cdi_devices).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn claim_is_prepared_before_the_sandbox_and_unprepared_before_the_object_goes() {
    let (world, driver) = with_driver().await;
    let pod = running(&world, "gpu").await;
    assert_eq!(driver.calls(), ["prepare gpu"]);
    let devices = cdi_devices(&world, "gpu");
    assert!(devices.len() == 1 && devices[0].starts_with("example.com/gpu="), "{devices:?}");
    assert!(is_recorded(&world, &pod));
    let claims = |of: PodSelection| world.agent.as_ref().unwrap().inventory().claims(&of).items;
    let listed = claims(PodSelection::of("gpu"));
    assert!(listed.len() == 1 && listed[0].is_prepared && !listed[0].is_busy, "{listed:?}");
    assert_eq!((&*listed[0].name, &listed[0].used_by[..]), ("gpu", &["default/gpu".to_owned()][..]));
    assert!(listed[0].drivers[0].is_registered && listed[0].drivers[0].devices.len() == 1, "{listed:?}");
    assert_eq!((claims(PodSelection::default()), claims(PodSelection::of("other"))), (listed, Vec::new()));
    let metrics = world.metrics().await;
    for line in [
        "dra_resource_claims_in_use{driver_name=\"<any>\"} 1\n",
        "dra_resource_claims_in_use{driver_name=\"gpu.example.com\"} 1\n",
        "dra_operations_duration_seconds_count{operation_name=\"PrepareResources\",is_error=\"false\"} 1\n",
        "dra_grpc_operations_duration_seconds_count{driver_name=\"gpu.example.com\",method_name=\"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources\",grpc_status_code=\"OK\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    world.delete("gpu", None);
    world.until("it is gone", |w| w.in_api("gpu").is_none()).await;
    assert_eq!(driver.calls(), ["prepare gpu", "unprepare gpu"]);
    assert!(!is_recorded(&world, &pod));
}

#[tokio::test(start_paused = true)]
async fn shared_claim_is_prepared_once_and_unprepared_with_its_last_pod() {
    let (world, driver) = with_driver().await;
    let (first, second) =
        (world.create(&manifest("first", "shared")), world.create(&manifest("second", "shared")));
    put_claim(&world, "shared", &[&first, &second]);
    world.until("both run", |w| w.is_ready_in_api("first") && w.is_ready_in_api("second")).await;
    assert_eq!(driver.calls(), ["prepare shared"]);
    assert_eq!(cdi_devices(&world, "first"), cdi_devices(&world, "second"));
    world.delete("first", None);
    world.until("it is gone", |w| w.in_api("first").is_none()).await;
    assert_eq!(driver.prepared(), ["shared"]);
    world.delete("second", Some(0));
    world.until("it is gone", |w| w.in_api("second").is_none() && driver.prepared().is_empty()).await;
    assert_eq!(driver.calls(), ["prepare shared", "unprepare shared"]);
}

#[tokio::test(start_paused = true)]
async fn error_of_a_driver_is_an_event_and_the_pod_starts_once_the_driver_succeeds() {
    let (world, driver) = with_driver().await;
    driver.set_prepare_error(Some("no such GPU"));
    let pod = world.create(&manifest("gpu", "gpu"));
    put_claim(&world, "gpu", &[&pod]);
    let text = "Failed to prepare dynamic resources: prepare dynamic resources: NodePrepareResources failed for ResourceClaim gpu: no such GPU";
    let is_shown = |w: &World| message(w, "FailedPrepareDynamicResources").as_deref() == Some(text);
    world.until("the event has the error", is_shown).await;
    assert_eq!(world.fake.count(Method::RunPodSandbox), 0);
    driver.set_prepare_error(None);
    world.until("it runs", |w| w.is_ready_in_api("gpu")).await;
    assert!(driver.violations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn kubelet_killed_between_prepare_and_start_prepares_again_and_unprepares_once() {
    let (mut world, driver) = with_driver().await;
    world.fake.fault_always(Method::RunPodSandbox, Some(Fault::Failed("not now".into())));
    let pod = world.create(&manifest("gpu", "gpu"));
    put_claim(&world, "gpu", &[&pod]);
    world.until("it is prepared", |w| w.recorded("FailedCreatePodSandBox") > 0).await;
    world.crash().await;
    assert!(is_recorded(&world, &pod));
    world.fake.clear_faults();
    world.start().await;
    world.until("it runs", |w| w.is_ready_in_api("gpu")).await;
    assert_eq!(driver.calls(), ["prepare gpu", "prepare gpu"]);
    // A kubelet that starts again calls no driver for a pod that runs.
    world.restart().await;
    world.advance(seconds(120)).await;
    assert_eq!(driver.calls().len(), 2);
    // Its container starts again with the devices of the file.
    world.fake.forget_calls();
    assert!(world.fake.end_container("gpu", "app", 1));
    world.until("it runs again", |w| w.fake.count(Method::StartContainer) > 0).await;
    assert_eq!(cdi_devices(&world, "gpu").len(), 1);
    world.delete("gpu", None);
    world.until("it is gone", |w| w.in_api("gpu").is_none()).await;
    assert_eq!(driver.calls()[2..], ["unprepare gpu"]);
}

#[tokio::test(start_paused = true)]
async fn pod_whose_driver_is_away_stays_terminating_until_the_driver_is_back() {
    let (world, driver) = with_driver().await;
    world.fake.program("app", Program::exits(0, seconds(30)));
    let never = json!({"restartPolicy": "Never"});
    let pod = world.create(&manifest("gpu", "gpu").spec(never));
    put_claim(&world, "gpu", &[&pod]);
    world.until("it runs", |w| w.runs("gpu/app")).await;
    world.host.delete(SOCKET);
    world.until("its container has ended", |w| !w.runs("gpu/app")).await;
    world.advance(seconds(90)).await;
    assert_eq!(world.api_phase("gpu"), "Running", "no status says that it has ended");
    let text = "error killing pod: unprepare dynamic resources: DRA driver gpu.example.com is not registered";
    assert_eq!(message(&world, "FailedKillPod").as_deref(), Some(text));
    assert_eq!(world.recorded("FailedKillPod"), 1, "once, although it was tried several times");
    assert!(is_recorded(&world, &pod));
    offer(&world, &driver, ENDPOINT, SOCKET);
    world.until("it has ended", |w| w.api_phase("gpu") == "Succeeded").await;
    assert_eq!(driver.calls(), ["prepare gpu", "unprepare gpu"]);
}

#[tokio::test(start_paused = true)]
async fn pod_deleted_while_its_driver_hangs_is_unprepared_after_that_call() {
    let (world, driver) = with_driver().await;
    driver.set_delay(seconds(20));
    let pod = world.create(&manifest("gpu", "gpu"));
    put_claim(&world, "gpu", &[&pod]);
    world.until("the driver is called", |_| !driver.calls().is_empty()).await;
    let other = world.create(&crate::pods::pod("plain", [container_with("app", json!({}))]));
    world.until("other pods start", |w| w.is_ready_in_api("plain")).await;
    assert_eq!(driver.prepared(), Vec::<String>::new());
    world.delete("gpu", Some(0));
    world.until("it is unprepared", |_| driver.calls().len() == 2 && driver.prepared().is_empty()).await;
    world.until("its use is forgotten", |w| !is_recorded(w, &pod)).await;
    assert_eq!(driver.calls(), ["prepare gpu", "unprepare gpu"]);
    assert!(driver.violations().is_empty(), "{:?}", driver.violations());
    assert!(world.is_ready_in_api(other.metadata.name.as_deref().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn claims_of_a_pod_that_vanished_while_the_kubelet_was_down_are_unprepared() {
    let (mut world, driver) = with_driver().await;
    let pod = running(&world, "gpu").await;
    world.crash().await;
    world.fake.kill_all();
    world.delete("gpu", Some(0));
    world.start().await;
    world.until("it is unprepared", |_| driver.prepared().is_empty()).await;
    world.until("its use is forgotten", |w| !is_recorded(w, &pod)).await;
    assert_eq!(driver.calls(), ["prepare gpu", "unprepare gpu"]);
}

/// Nothing but the state file knows the pod: neither the API, nor the runtime, nor its directory, nor a cgroup.
#[tokio::test(start_paused = true)]
async fn reconcile_loop_unprepares_claims_that_only_the_state_file_knows() {
    let (mut world, driver) = with_driver().await;
    let pod = running(&world, "gpu").await;
    world.crash().await;
    for sandbox in world.fake.sandboxes() {
        world.fake.stop_sandbox(&sandbox.id).await.unwrap();
        world.fake.remove_sandbox(&sandbox.id).await.unwrap();
    }
    world.host.delete(format!("{PODS}/{}", pod.metadata.uid.as_deref().unwrap()));
    world.cgroups.reboot();
    world.delete("gpu", Some(0));
    // Its driver is late, too.
    world.host.delete(SOCKET);
    world.start().await;
    world.advance(seconds(70)).await;
    assert!(is_recorded(&world, &pod) && driver.calls() == ["prepare gpu"]);
    offer(&world, &driver, ENDPOINT, SOCKET);
    world.until("it is unprepared", |w| !is_recorded(w, &pod)).await;
    assert_eq!(driver.calls(), ["prepare gpu", "unprepare gpu"]);
    world.advance(seconds(200)).await;
    assert_eq!(driver.calls().len(), 2, "once");
}

#[tokio::test(start_paused = true)]
async fn state_of_claims_that_could_not_be_written_is_written_within_a_minute() {
    let (world, driver) = with_driver().await;
    let pod = running(&world, "gpu").await;
    world.host.fault_below(HostMethod::WriteFile, STATE, HostFault::Fails);
    world.delete("gpu", None);
    world.until("it is gone", |w| w.in_api("gpu").is_none()).await;
    assert!(is_recorded(&world, &pod) && driver.prepared().is_empty());
    world.advance(seconds(65)).await;
    assert!(!is_recorded(&world, &pod));

    // What was written although the write failed is replaced, also by what was there before.
    world.host.fault_below(HostMethod::WriteFile, STATE, HostFault::TimesOutButDone);
    let pod = world.create(&manifest("second", "second"));
    put_claim(&world, "second", &[&pod]);
    world.until("it was written", |w| is_recorded(w, &pod)).await;
    world.delete("second", Some(0));
    world.until("its use is forgotten", |w| !is_recorded(w, &pod)).await;
}

#[tokio::test(start_paused = true)]
async fn claim_is_not_prepared_twice_at_once_when_a_call_for_another_claim_of_a_pod_ends() {
    let (world, driver) = with_driver().await;
    let first = running(&world, "shared").await;
    driver.fault(DraMethod::Prepare, DraFault::AnswersAfter(seconds(20)));
    let second = world.create(&manifest_with("second", &[("gpu", "shared"), ("slow", "slow")]));
    put_claim(&world, "slow", &[&second]);
    put_claim(&world, "shared", &[&first, &second]);
    world.until("the second claim is being prepared", |_| driver.calls().len() == 2).await;
    // Meanwhile a container of the first pod does not find its device, and the shared claim is prepared again.
    let message = "failed to inject CDI devices: unresolvable CDI devices example.com/gpu=x";
    world.fake.fault(Method::CreateContainer, Fault::Failed(message.into()));
    driver.fault(DraMethod::Prepare, DraFault::AnswersAfter(seconds(40)));
    assert!(world.fake.end_container("shared", "app", 1));
    world.until("the shared claim is being prepared", |_| driver.calls().len() == 3).await;
    world.advance(seconds(25)).await;
    let third = world.create(&manifest("third", "shared"));
    put_claim(&world, "shared", &[&first, &second, &third]);
    world.until("all run", |w| ["shared", "second", "third"].iter().all(|pod| w.is_ready_in_api(pod))).await;
    assert_eq!(driver.violations(), Vec::<String>::new());
    assert_eq!(driver.calls(), ["prepare shared", "prepare slow", "prepare shared"]);
}

#[tokio::test(start_paused = true)]
async fn claim_whose_cdi_device_the_runtime_does_not_know_is_prepared_again() {
    let (world, driver) = with_driver().await;
    let message = "failed to inject CDI devices: unresolvable CDI devices example.com/gpu=x";
    world.fake.fault(Method::CreateContainer, Fault::Failed(message.into()));
    running(&world, "gpu").await;
    assert_eq!(driver.calls(), ["prepare gpu", "prepare gpu"]);
    assert!(world.recorded("Failed") > 0);
}

#[tokio::test(start_paused = true)]
async fn claim_of_a_pod_group_is_prepared_for_its_pods_with_the_feature_gate() {
    for is_on in [false, true] {
        let mut world = World::of_cluster();
        world.features.group_claims = is_on;
        world.start().await;
        world.until("the node is ready", World::is_node_ready).await;
        let driver = FakeDraDriver::new(CLASS);
        offer(&world, &driver, ENDPOINT, SOCKET);
        world.until("the driver is registered", |w| w.plugins.notified(SOCKET) == [Ok(())]).await;
        let template = json!([{"name": "gpu", "resourceClaimTemplateName": "t"}]);
        let spec = json!({"schedulingGroup": {"podGroupName": "g"}, "resourceClaims": template});
        let container = container_with("app", json!({"resources": {"claims": [{"name": "gpu"}]}}));
        let mut pod = world.create(&pod("web", [container]).spec(spec));
        let made = json!([{"name": "gpu", "resourceClaimName": "g-gpu"}]);
        pod.status = Some(from(json!({"phase": "Pending", "resourceClaimStatuses": made})));
        world.api().put(&pod);
        let owner = json!({"apiVersion": "scheduling.k8s.io/v1alpha1", "kind": "PodGroup", "name": "g", "uid": "g-1", "controller": true});
        let reserved =
            json!({"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "g-1"});
        let device = json!({"request": "r", "driver": DRIVER, "pool": "node", "device": "device-0"});
        world.api().put(&from::<ResourceClaim>(json!({
            "metadata": {"name": "g-gpu", "namespace": "default", "ownerReferences": [owner]},
            "status": {"reservedFor": [reserved], "allocation": {"devices": {"results": [device]}}},
        })));
        if is_on {
            world.until("it runs", |w| w.is_ready_in_api("web")).await;
            assert_eq!(driver.calls(), ["prepare g-gpu"]);
            continue;
        }
        let refused = |w: &World| {
            let text = message(w, "FailedPrepareDynamicResources").unwrap_or_default();
            text.ends_with(
                "ResourceClaim default/g-gpu was not created for Pod default/web (Pod is not owner)",
            )
        };
        world.until("it waits", refused).await;
    }
}

#[tokio::test(start_paused = true)]
async fn damaged_state_of_claims_ends_the_start_and_is_not_overwritten() {
    let (mut world, _) = with_driver().await;
    running(&world, "gpu").await;
    world.crash().await;
    let damaged = state(&world).replace("device-0", "device-1");
    world.host.put(STATE, &damaged);
    let error = world.try_start().await.map(drop).unwrap_err().to_string();
    assert!(error.contains("create ResourceClaim cache: "), "{error}");
    assert_eq!(state(&world), damaged);
    let events = world.api_events("KubeletSetupFailed");
    let [event] = events.as_slice() else { panic!("{events:?}") };
    let about = &event.involved_object;
    assert_eq!(
        (about.kind.as_deref(), about.name.as_deref()),
        (Some("Node"), Some(world.settings.node_name.as_str()))
    );
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert!(event.message.as_ref().unwrap().contains("create ResourceClaim cache: "), "{event:?}");

    // An API server that does not answer delays the exit for two seconds only.
    world.api().fault_always(Verb::Create, "events", Some(ClusterFault::Slow(seconds(60))));
    let began = world.now();
    world.try_start().await.map(drop).unwrap_err();
    assert!(world.now() - began <= seconds(2));
}

#[tokio::test(start_paused = true)]
async fn newest_connected_instance_of_a_driver_is_used() {
    let (world, old) = with_driver().await;
    let new = FakeDraDriver::new(CLASS);
    let (endpoint, socket) = ("/opt/new.sock", "/var/lib/kubelet/plugins_registry/new-reg.sock");
    offer(&world, &new, endpoint, socket);
    world.until("it is registered", |w| w.plugins.notified(socket) == [Ok(())]).await;
    world.advance(seconds(2)).await;
    running(&world, "first").await;
    assert_eq!((old.calls().len(), new.calls().len()), (0, 1));
    new.set_running(false);
    world.advance(seconds(2)).await;
    running(&world, "second").await;
    assert_eq!((old.calls().len(), new.calls().len()), (1, 1));
    new.set_running(true);
    world.advance(seconds(2)).await;
    // The old one ends, as in a rolling update.
    world.host.delete(SOCKET);
    world.advance(seconds(5)).await;
    running(&world, "third").await;
    assert_eq!((old.calls().len(), new.calls().len()), (1, 2));
    // The same endpoint is refused as long as it is registered.
    let again = "/var/lib/kubelet/plugins_registry/again-reg.sock";
    offer(&world, &new, endpoint, again);
    let text = format!(
        "RegisterPlugin error -- plugin registration failed with err: endpoint {endpoint} already registered for DRA driver plugin {DRIVER}"
    );
    world.until("it is refused", |w| w.plugins.notified(again).first() == Some(&Err(text.clone()))).await;
}

#[tokio::test(start_paused = true)]
async fn slices_are_deleted_at_the_start_and_when_a_driver_has_been_away() {
    let mut world = World::of_cluster();
    let busy = ClusterError::Unauthorized { call: "delete".to_owned(), message: "no".to_owned() };
    world.api().fault(Verb::Delete, "resourceslices", ClusterFault::Refused(busy));
    world.start().await;
    let all = "delete resourceslices spec.nodeName=node";
    world.until("those of the node are deleted", |w| w.api_calls(all) == 2).await;
    let driver = FakeDraDriver::new(CLASS);
    offer(&world, &driver, ENDPOINT, SOCKET);
    world.until("the driver is registered", |w| w.plugins.notified(SOCKET) == [Ok(())]).await;
    let own = format!("delete resourceslices spec.driver={DRIVER},spec.nodeName=node");
    world.advance(seconds(60)).await;
    driver.set_running(false);
    world.advance(seconds(20)).await;
    driver.set_running(true);
    world.advance(seconds(60)).await;
    assert_eq!(world.api_calls(&own), 0, "it was back in time");
    world.host.delete(SOCKET);
    world.advance(seconds(25)).await;
    assert_eq!(world.api_calls(&own), 0);
    world.advance(seconds(120)).await;
    assert_eq!(world.api_calls(&own), 1, "once");
}

#[tokio::test(start_paused = true)]
async fn node_without_claims_calls_the_api_once_and_writes_no_state() {
    let world = World::joined().await;
    world.create(&pod("plain", [container_with("app", json!({}))]));
    world.until("it runs", |w| w.is_ready_in_api("plain")).await;
    world.advance(seconds(200)).await;
    let calls: Vec<String> = world.api().calls().iter().map(|call| call.resource.clone()).collect();
    assert_eq!(calls.iter().filter(|resource| resource.starts_with("resource")).count(), 1, "{calls:?}");
    assert_eq!(state(&world), "");
}

#[tokio::test(start_paused = true)]
async fn extended_resource_by_claim_needs_no_device_of_the_plugin_that_has_its_name() {
    let (world, driver) = with_driver().await;
    let resource = "example.com/gpu";
    world.plugins.register(resource, &["a"]).await.unwrap();
    let amounts = json!({"resources": {"limits": {resource: "2"}, "requests": {resource: "2"}}});
    let mapping = json!({"containerName": "app", "resourceName": resource, "requestName": "r"});
    let extended = json!({"resourceClaimName": "extended", "requestMappings": [mapping]});
    let mut claimed = Manifest::object(&pod("claimed", [container_with("app", amounts.clone())]));
    claimed.status = Some(from(json!({"phase": "Pending", "extendedResourceClaimStatus": extended})));
    world.api().put(&claimed);
    put_claim(&world, "extended", &[&world.in_api("claimed").unwrap()]);
    world.until("it runs", |w| w.is_ready_in_api("claimed")).await;
    assert_eq!(cdi_devices(&world, "claimed").len(), 1);
    assert_eq!(world.plugins.allocations(resource), Vec::<Vec<String>>::new());
    world.create(&pod("plain", [container_with("app", amounts)]));
    world.until("a pod without a claim is rejected", |w| w.api_phase("plain") == "Failed").await;
    assert_eq!(driver.calls(), ["prepare extended"]);
}
