//! Pods that ask for devices: the node makes their claims, allocates them, and keeps a pod waiting until its device is free.

use fakes::{FakeDraDriver, TestDraDriver};
use model::dra::DraVersion;
use serde_json::{Value, json};

use super::SingleNode;
use crate::node::{FOREVER, condition, shell_pod};
use crate::why::says;

const DRIVER: &str = "gpu.example.com";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";

/// A class, a template that asks for one device of it with enough memory, and the devices of the node as a driver publishes them.
fn objects() -> [Value; 3] {
    let of_driver = json!({"cel": {"expression": format!("device.driver == '{DRIVER}'")}});
    let memory = format!("device.capacity['{DRIVER}'].memory.compareTo(quantity('8Gi')) >= 0");
    let exactly = json!({"deviceClassName": "gpu", "selectors": [{"cel": {"expression": memory}}]});
    let device = |name: &str, memory: &str| json!({"name": name, "capacity": {"memory": {"value": memory}}});
    [
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"},
            "spec": {"selectors": [of_driver]},
        }),
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "one-gpu"},
            "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
        }),
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "node-gpu"},
            "spec": {
                "driver": DRIVER, "nodeName": "node",
                "pool": {"name": "node", "generation": 1, "resourceSliceCount": 1},
                "devices": [device("small", "4Gi"), device("device-0", "8Gi")],
            },
        }),
    ]
}

fn pod(name: &str) -> Value {
    let mut pod = shell_pod(name, FOREVER);
    pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]);
    pod["spec"]["containers"][0]["resources"] = json!({"claims": [{"name": "gpu"}]});
    pod
}

fn register(single: &SingleNode, driver: &FakeDraDriver) -> TestDraDriver {
    let socket = single.node.path("root/plugins").join(DRIVER).join("dra.sock");
    let mut instance = TestDraDriver::serve(&socket, driver, DraVersion::V1);
    let registration = single.node.path("root/plugins_registry/gpu.example.com-reg.sock");
    instance.register(&registration, DRIVER, &[DraVersion::V1.service()]);
    single.node.eventually("the driver is registered", |_| match instance.notified() {
        notified if notified.last() == Some(&Ok(())) => Ok(()),
        notified => Err(format!("{notified:?}")),
    });
    instance
}

#[test]
fn pod_gets_a_device_of_its_claim_and_the_next_one_waits_until_it_is_free() {
    let single = SingleNode::start();
    let node = &single.node;
    let cdi = node.path("containerd/cdi");
    std::fs::create_dir_all(&cdi).expect("a directory");
    let driver = FakeDraDriver::new("example.com/gpu").with_cdi_files(&cdi);
    let instance = register(&single, &driver);
    single.kubectl.apply(&objects());
    single.kubectl.apply(&[pod("first")]);
    single.running("first");
    let claims = single.kubectl.list(CLAIMS).expect("the claims");
    let [claim] = claims.as_slice() else { panic!("one claim: {claims:?}") };
    let name = claim["metadata"]["name"].as_str().expect("a name").to_owned();
    assert!(name.starts_with("first-gpu-"), "{name}");
    let results = json!([{"request": "gpu", "driver": DRIVER, "pool": "node", "device": "device-0"}]);
    assert_eq!(claim["status"]["allocation"]["devices"]["results"], results);
    assert_eq!(claim["status"]["reservedFor"][0]["name"], "first");
    assert_eq!(driver.calls(), [format!("prepare {name}")]);

    single.kubectl.apply(&[pod("second")]);
    let why = format!("1 in use (device-0 by claim default/{name})");
    node.eventually("the second pod waits with the reason", |_| {
        let pod = single.kubectl.get("pod", "second")?;
        let message = pod["status"]["conditions"][0]["message"].as_str().unwrap_or_default();
        let waits = condition(&pod, "PodScheduled") == "False" && pod["spec"]["nodeName"].is_null();
        if waits && message.contains(&why) { Ok(()) } else { Err(pod.to_string()) }
    });
    says(node, "second", 3, &["It waits for its claims of devices.", "1 cannot allocate all claims.", &why]);

    single.kubectl.ok(&["delete", "pod", "first", "--grace-period=1"]);
    let second = single.running("second");
    assert_eq!(condition(&second, "PodScheduled"), "True");
    says(node, "second", 0, &["default/second:"]);
    single.kubectl.ok(&["delete", "pod", "second", "--grace-period=1"]);
    node.eventually("no claim is left", |_| match single.kubectl.list(CLAIMS)? {
        claims if claims.is_empty() => Ok(()),
        claims => Err(json!(claims).to_string()),
    });
    assert_eq!(driver.prepared(), Vec::<String>::new(), "{:?}", driver.calls());
    drop(instance);
    assert_eq!(driver.violations(), Vec::<String>::new());
}
