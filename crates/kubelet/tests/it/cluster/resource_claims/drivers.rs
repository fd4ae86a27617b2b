//! Pods whose claims a driver prepares: on a real containerd, with a driver that has sockets and CDI files of its own. A containerd that
//! knows CDI (1.7 and later) gives each container the variable of its claim; with an older one the test sees what the kubelet asks for.

use std::path::PathBuf;

use fakes::{FakeDraDriver, FakeRuntime, TestDraDriver};
use grpc_api::pod_resources as v1;
use grpc_api::pod_resources::pod_resources_lister_client::PodResourcesListerClient;
use model::dra::DraVersion;
use serde_json::{Value, json};

use super::{allocate, pod_with_claim, wait_for_reason};
use crate::cluster::{Cluster, bound};
use crate::node::{FOREVER, Node, shell_pod, uid};
use crate::pod_resources::{channel, within};

pub(super) const DRIVER: &str = "gpu.example.com";
const CLASS: &str = "example.com/gpu";

/// A cluster whose node has a driver. The driver is dropped first.
pub(super) struct Setup {
    pub(super) driver: FakeDraDriver,
    instance: Option<TestDraDriver>,
    pub(super) cluster: Cluster,
}

impl Setup {
    pub(super) fn start() -> Self {
        let cluster = Cluster::start();
        let dir = cluster.node.path("containerd/cdi");
        std::fs::create_dir_all(&dir).expect("a directory");
        Self::with(cluster, FakeDraDriver::new(CLASS).with_cdi_files(&dir))
    }

    fn with(cluster: Cluster, driver: FakeDraDriver) -> Self {
        cluster.wait_until_ready();
        let mut setup = Self { driver, instance: None, cluster };
        setup.register(DraVersion::V1);
        setup
    }

    fn socket(&self) -> PathBuf {
        self.cluster.node.path("root/plugins").join(DRIVER).join("dra.sock")
    }

    /// Its instance ends as by SIGKILL.
    pub(super) fn crash_driver(&mut self) {
        self.instance.take().expect("an instance").crash();
    }

    /// An instance starts and registers with this version.
    pub(super) fn register(&mut self, version: DraVersion) {
        // The instance before removes its sockets, which have the same paths.
        self.instance = None;
        let mut instance = TestDraDriver::serve(&self.socket(), &self.driver, version);
        let registration = self.cluster.node.path("root/plugins_registry/gpu.example.com-reg.sock");
        instance.register(&registration, DRIVER, &[version.service()]);
        self.cluster.node.eventually("the driver is registered", |_| match instance.notified() {
            notified if notified.last() == Some(&Ok(())) => Ok(()),
            notified => Err(format!("{notified:?}")),
        });
        self.instance = Some(instance);
    }

    pub(super) fn create_claim(&self, name: &str, owner: Option<&Value>) {
        let request = json!({"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}});
        let owner = owner.map(|pod| {
            let name = &pod["metadata"]["name"];
            json!([{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid(pod), "controller": true}])
        });
        self.cluster.kubectl.apply(&[json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default", "ownerReferences": owner},
            "spec": {"devices": {"requests": [request]}},
        })]);
    }

    /// A pod with a claim of the same name, which is allocated and reserved for it.
    pub(super) fn create(&self, name: &str) -> Value {
        self.cluster.kubectl.create(&[pod_with_claim(name, name)]);
        let pod = self.cluster.pod_when(name, "is there", |pod| pod["metadata"]["uid"].is_string());
        self.create_claim(name, None);
        allocate(&self.cluster, name, DRIVER, &uid(&pod));
        pod
    }

    #[track_caller]
    fn wait_for_calls(&self, expected: &[&str]) {
        self.cluster.node.eventually("the driver was called", |_| match self.driver.calls() {
            calls if calls == expected => Ok(()),
            calls => Err(format!("{calls:?}")),
        });
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        self.instance = None;
        if !std::thread::panicking() {
            assert_eq!(self.driver.violations(), Vec::<String>::new());
        }
    }
}

#[test]
fn claim_from_a_template_is_prepared_injected_and_unprepared_before_the_pod_goes() {
    let setup = Setup::start();
    let (cluster, driver) = (&setup.cluster, &setup.driver);
    let mut pod = bound(shell_pod("gpu", &format!("echo claim=$DRA_gpu_x; {FOREVER}")));
    pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimTemplateName": "template"}]);
    pod["spec"]["containers"][0]["resources"] = json!({"claims": [{"name": "gpu"}]});
    cluster.kubectl.create(&[pod]);
    wait_for_reason(cluster, "gpu", "pod \"default/gpu\": ResourceClaim not created yet");
    // The parts of the claim controller and the scheduler.
    let pod = cluster.pod_when("gpu", "is there", |pod| pod["metadata"]["uid"].is_string());
    setup.create_claim("gpu-x", Some(&pod));
    allocate(cluster, "gpu-x", DRIVER, &uid(&pod));
    cluster.kubectl.change_status("/api/v1/namespaces/default/pods/gpu", |pod| {
        pod["status"]["resourceClaimStatuses"] = json!([{"name": "gpu", "resourceClaimName": "gpu-x"}]);
    });
    let running = cluster.running("gpu");
    assert_eq!(driver.calls(), ["prepare gpu-x"]);
    if cluster.node.supports_cdi() {
        cluster.node.eventually("the container sees its device", |node| match node.logs(&running, "main") {
            output if output == "claim=gpu-x\n" => Ok(()),
            output => Err(output),
        });
    }
    let state = std::fs::read_to_string(cluster.node.path("root/dra_manager_state")).expect("a state file");
    assert!(state.contains(&uid(&pod)) && state.contains("example.com/gpu="), "{state}");

    cluster.kubectl.ok(&["delete", "pod", "gpu"]);
    assert_eq!(driver.calls(), ["prepare gpu-x", "unprepare gpu-x"], "before its object went");
    cluster.wait_until_gone(&running);
}

#[test]
fn shared_claim_of_two_pods_is_prepared_once_with_a_driver_of_v1beta1() {
    let mut setup = Setup::start();
    setup.register(DraVersion::V1Beta1);
    let cluster = &setup.cluster;
    cluster.kubectl.create(&[pod_with_claim("first", "shared"), pod_with_claim("second", "shared")]);
    let pods = ["first", "second"]
        .map(|name| cluster.pod_when(name, "is there", |pod| pod["metadata"]["uid"].is_string()));
    setup.create_claim("shared", None);
    let device = json!({"request": "gpu", "driver": DRIVER, "pool": "node", "device": "device-0"});
    let path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/shared";
    cluster.kubectl.change_status(path, |claim| {
        let users: Vec<Value> = pods
            .iter()
            .map(|pod| json!({"resource": "pods", "name": pod["metadata"]["name"], "uid": uid(pod)}))
            .collect();
        claim["status"] =
            json!({"allocation": {"devices": {"results": [device.clone()]}}, "reservedFor": users});
    });
    cluster.running("first");
    cluster.running("second");
    assert_eq!(setup.driver.calls(), ["prepare shared"]);
    cluster.kubectl.ok(&["delete", "pod", "first"]);
    assert_eq!(setup.driver.prepared(), ["shared"]);
    cluster.kubectl.ok(&["delete", "pod", "second", "--force", "--grace-period=0"]);
    setup.wait_for_calls(&["prepare shared", "unprepare shared"]);
}

#[test]
fn driver_that_fails_is_shown_on_the_pod_which_starts_once_it_succeeds() {
    let setup = Setup::start();
    setup.driver.set_prepare_error(Some("GPU is on fire"));
    setup.create("gpu");
    let why = "NodePrepareResources failed for ResourceClaim gpu: GPU is on fire";
    wait_for_reason(&setup.cluster, "gpu", why);
    setup.driver.set_prepare_error(None);
    setup.cluster.running("gpu");
}

#[test]
fn pod_starts_and_is_unprepared_once_although_kubelet_and_driver_are_killed_around_each_step() {
    let mut setup = Setup::start();
    setup.driver.set_delay(std::time::Duration::from_secs(2));
    setup.create("gpu");
    // During the call.
    setup.wait_for_calls(&["prepare gpu"]);
    setup.cluster.node.kill_kubelet();
    setup.cluster.node.start_kubelet();
    setup.cluster.node.eventually("the driver is called again", |_| match setup.driver.calls().len() {
        0 | 1 => Err("not yet".to_owned()),
        _ => Ok(()),
    });
    let pod = setup.cluster.running("gpu");
    let prepared = setup.driver.calls().len();

    // With a running pod, and the driver dead at its end.
    setup.cluster.node.kill_kubelet();
    setup.crash_driver();
    setup.cluster.node.start_kubelet();
    setup.cluster.running("gpu");
    setup.cluster.kubectl.ok(&["delete", "pod", "gpu", "--wait=false"]);
    let text = "error killing pod: unprepare dynamic resources: DRA driver gpu.example.com is not registered";
    setup.cluster.node.eventually("an event says what the pod waits for", |_| {
        let events = setup.cluster.events("Pod", "gpu");
        if events.contains(&format!("FailedKillPod: {text}")) { Ok(()) } else { Err(format!("{events:?}")) }
    });
    assert!(setup.cluster.kubectl.get("pod", "gpu").is_ok(), "its object stays");
    assert_eq!(setup.driver.calls().len(), prepared);
    setup.register(DraVersion::V1);
    setup.cluster.wait_until_gone(&pod);
    assert_eq!(setup.driver.calls()[prepared..], ["unprepare gpu"]);
    let state = setup.cluster.node.path("root/dra_manager_state");
    let state = std::fs::read_to_string(state).expect("a state file");
    assert!(!state.contains(&uid(&pod)), "{state}");
}

#[test]
fn cdi_devices_of_claims_are_in_the_request_to_the_runtime_and_in_the_pod_resources() {
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    runtime.image("localhost/busybox:test");
    let cluster = Cluster::on_fake(&runtime);
    let setup = Setup::with(cluster, FakeDraDriver::new(CLASS));
    setup.driver.set_share_id("share-1");
    setup.create("gpu");
    let name = setup.cluster.node.eventually("the container is created", |_| {
        let request = runtime.container_request("gpu", "main").ok_or("no container")?;
        match request.cdi_devices.as_slice() {
            [device] if device.starts_with("example.com/gpu=") => Ok(device.clone()),
            other => Err(format!("{other:?}")),
        }
    });
    let listed = within(async {
        let mut client = PodResourcesListerClient::new(channel(&setup.cluster.node).await);
        client.list(v1::ListPodResourcesRequest {}).await.expect("a list").into_inner()
    });
    let device = v1::ClaimResource {
        cdi_devices: vec![v1::CdiDevice { name }],
        driver_name: DRIVER.to_owned(),
        pool_name: "node".to_owned(),
        device_name: "device-0".to_owned(),
        share_id: Some("share-1".to_owned()),
    };
    let claim = v1::DynamicResource {
        claim_name: "gpu".to_owned(),
        claim_namespace: "default".to_owned(),
        claim_resources: vec![device],
    };
    assert_eq!(listed.pod_resources[0].containers[0].dynamic_resources, [claim]);
}

#[test]
fn slices_of_the_node_are_deleted_at_the_start_and_those_of_other_nodes_stay() {
    let mut cluster = Cluster::with_node(Node::on_containerd(json!({})));
    let slice = |name: &str, node: &str| {
        let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
            "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": []},
        })
    };
    cluster.kubectl.apply(&[slice("own", "node"), slice("other", "elsewhere")]);
    cluster.node.start_kubelet();
    cluster.node.eventually("the slice is deleted", |_| match cluster.kubectl.get("resourceslice", "own") {
        Ok(slice) => Err(slice.to_string()),
        Err(_) => Ok(()),
    });
    assert!(cluster.kubectl.get("resourceslice", "other").is_ok());
}
