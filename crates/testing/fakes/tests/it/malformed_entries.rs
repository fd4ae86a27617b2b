//! Lists of a runtime with entries that are malformed: the adapter leaves them out, counts them, and returns the others.

use std::sync::Arc;
use std::time::Duration;

use cri::CriRuntime;
use cri_api::v1 as wire;
use fakes::FakeCri;
use fixtures::rng::Rng;
use harness::{CallFault, CallRule, RuntimeProxy};
use model::annotations as keys;
use parking_lot::Mutex;
use ports::Runtime;
use ports::runtime::{CallObserver, Scope};
use prost::Message;
use tempfile::TempDir;

/// The calls whose answers had malformed entries.
#[derive(Debug, Default)]
struct Malformed(Mutex<Vec<&'static str>>);

impl CallObserver for Malformed {
    fn called(&self, _: &'static str, _: Duration, _: bool) {}

    fn entry_malformed(&self, call: &'static str) {
        self.0.lock().push(call);
    }
}

/// A client of a proxy that answers by rules.
struct Answering {
    client: CriRuntime,
    proxy: RuntimeProxy,
    malformed: Arc<Malformed>,
    _server: FakeCri,
    _dir: TempDir,
}

fn answering() -> Answering {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("cri.sock");
    let server = FakeCri::serve(Arc::new(crate::fake::fake()), &socket).unwrap();
    let proxy = RuntimeProxy::serve(&dir.path().join("proxy.sock"), &socket, 1).unwrap();
    let client = CriRuntime::new(&proxy.endpoint(), "", Duration::from_secs(10)).unwrap();
    let malformed = Arc::new(Malformed::default());
    client.observe(malformed.clone());
    Answering { client, proxy, malformed, _server: server, _dir: dir }
}

impl Answering {
    /// From now on the method answers with a list of these entries.
    fn answer(&self, method: &'static str, entries: &[Vec<u8>]) {
        let mut message = Vec::new();
        for entry in entries {
            message.push(0x0a);
            prost::encoding::encode_varint(entry.len() as u64, &mut message);
            message.extend_from_slice(entry);
        }
        self.proxy.clear_rules();
        // It lives as long as the test process.
        let fault = CallFault::Answered(Vec::leak(message));
        self.proxy.add_rule(CallRule { method, about: String::new(), times: usize::MAX, fault });
    }

    fn count(&self) -> usize {
        std::mem::take(&mut *self.malformed.0.lock()).len()
    }
}

fn container(id: &str, uid: &str) -> Vec<u8> {
    let labels = [
        (keys::POD_NAMESPACE_LABEL, "default"),
        (keys::POD_NAME_LABEL, "web"),
        (keys::POD_UID_LABEL, uid),
        (keys::CONTAINER_NAME_LABEL, "main"),
    ];
    let container = wire::Container {
        id: id.to_owned(),
        pod_sandbox_id: "s1".to_owned(),
        metadata: Some(wire::ContainerMetadata { name: "main".to_owned(), attempt: 0 }),
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        ..Default::default()
    };
    container.encode_to_vec()
}

fn sandbox(id: &str) -> Vec<u8> {
    let metadata = wire::PodSandboxMetadata {
        name: "web".to_owned(),
        uid: "u1".to_owned(),
        namespace: "default".to_owned(),
        attempt: 0,
    };
    wire::PodSandbox { id: id.to_owned(), metadata: Some(metadata), ..Default::default() }.encode_to_vec()
}

/// A text that is no UTF-8, as an id.
const NO_TEXT: &[u8] = &[0x0a, 2, 0xff, 0xfe];
/// A field that is longer than its message.
const CUT: &[u8] = &[0x0a, 9, b'x'];

#[tokio::test]
async fn malformed_entries_of_listings_are_left_out_and_the_others_arrive() {
    let world = answering();
    let nameless = wire::Container { id: "c9".to_owned(), ..Default::default() }.encode_to_vec();
    let entries = [
        container("c1", "u1"),
        NO_TEXT.to_vec(),
        CUT.to_vec(),
        nameless,
        Vec::new(),
        container("c1", "u1"),
        container("c2", "u2"),
    ];
    world.answer("ListContainers", &entries);
    for _ in 0..2 {
        let listed = world.client.list_containers(&Scope::Node).await.unwrap();
        let ids: Vec<&str> = listed.iter().map(|container| container.id.as_str()).collect();
        assert_eq!((ids, world.count()), (vec!["c1", "c2"], 5));
    }
    let listed = world.client.list_containers(&Scope::Pod("u1".into())).await.unwrap();
    assert_eq!(
        listed.len(),
        1,
        "a container of another pod would be taken for one that the spec lacks: {listed:?}"
    );

    world.answer(
        "ListPodSandbox",
        &[NO_TEXT.to_vec(), sandbox("s1"), sandbox("s1"), sandbox("s2"), CUT.to_vec()],
    );
    world.count();
    let listed = world.client.list_sandboxes(&Scope::Node).await.unwrap();
    let ids: Vec<&str> = listed.iter().map(|sandbox| sandbox.id.as_str()).collect();
    assert_eq!((ids, world.count()), (vec!["s1", "s2"], 3));
}

#[tokio::test]
async fn malformed_entries_of_images_stats_and_filesystems_are_left_out() {
    let world = answering();
    let image = |id: &str| wire::Image { id: id.to_owned(), size: 7, ..Default::default() }.encode_to_vec();
    world.answer("ListImages", &[image("i1"), image(""), NO_TEXT.to_vec(), image("i2"), image("i2")]);
    let images = world.client.list_images().await.unwrap();
    let ids: Vec<&str> = images.iter().map(|image| image.id.as_str()).collect();
    assert_eq!((ids, world.count()), (vec!["i1", "i2"], 3));

    let attributes = wire::ContainerAttributes {
        id: "c1".to_owned(),
        metadata: Some(wire::ContainerMetadata::default()),
        ..Default::default()
    };
    let stats = wire::ContainerStats { attributes: Some(attributes), ..Default::default() }.encode_to_vec();
    world.answer("ListContainerStats", &[CUT.to_vec(), stats, Vec::new()]);
    let stats = world.client.list_container_stats(&Scope::Node).await.unwrap();
    assert_eq!((stats.len(), world.count()), (1, 2));

    let id = Some(wire::FilesystemIdentifier { mountpoint: "/images".to_owned() });
    let filesystem = wire::FilesystemUsage { fs_id: id, ..Default::default() }.encode_to_vec();
    world.answer("ImageFsInfo", &[CUT.to_vec(), filesystem]);
    let filesystems = world.client.image_filesystems().await.unwrap();
    assert_eq!((filesystems.images.len(), world.count()), (1, 1));
}

#[tokio::test]
async fn malformed_condition_or_handler_leaves_the_rest_of_the_runtime_status() {
    let world = answering();
    let condition = |kind: &str| {
        let condition =
            wire::RuntimeCondition { r#type: kind.to_owned(), status: true, ..Default::default() };
        condition.encode_to_vec()
    };
    let mut conditions = Vec::new();
    for entry in [condition("RuntimeReady"), NO_TEXT.to_vec(), condition("NetworkReady")] {
        conditions.push(0x0a);
        prost::encoding::encode_varint(entry.len() as u64, &mut conditions);
        conditions.extend(entry);
    }
    world.answer("Status", &[conditions]);
    let status = world.client.status().await.unwrap();
    assert!(status.runtime_ready.status && status.network_ready.status, "{status:?}");
    assert_eq!(world.count(), 1);
}

/// The invariant: whatever happens to other entries, the good ones arrive.
#[tokio::test]
async fn good_entries_arrive_whatever_bytes_of_others_change() {
    let world = answering();
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let id = |number: u64| format!("{number:02}").repeat(16);
        let (mut entries, mut good) = (Vec::new(), Vec::new());
        for number in 0..10 {
            let mut entry = container(&id(number), "u1");
            if rng.percent(40) {
                for _ in 0..=rng.below(3) {
                    let at = usize::try_from(rng.below(entry.len() as u64)).unwrap();
                    entry[at] ^= u8::try_from(1 + rng.below(255)).unwrap();
                }
            } else {
                good.push(id(number));
            }
            entries.push(entry);
        }
        world.answer("ListContainers", &entries);
        let listed = world.client.list_containers(&Scope::Node).await.unwrap();
        let arrived = |id: &String| listed.iter().any(|container| container.id.as_str() == id);
        assert!(good.iter().all(arrived), "seed {seed}: {good:?} of {listed:?}");
    }
}
