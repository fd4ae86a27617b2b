//! The rules of the CSI specification for the Node service, as cases that hold for every driver.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::csi::{
    AccessMode, AccessType, DriverSecrets, ExpandRequest, NodeCapabilities, NodeInfo, PublishRequest,
    StageRequest, StatsRequest, VolumeCapability, VolumeCondition, VolumeContext,
};
use ports::plugins::{CsiDriver, PluginError, PluginResult};

const MIB: i64 = 1 << 20;

/// What a test changes in the driver, from outside.
pub(crate) trait Script {
    fn set_capabilities(&self, change: fn(&mut NodeCapabilities));
    fn set_info(&self, change: fn(&mut NodeInfo));
    fn delete_volume(&self, volume_id: &str);
    fn set_condition(&self, volume_id: &str, condition: VolumeCondition);
    fn violations(&self) -> Vec<String>;
}

/// A driver, its script, and a directory with a staging path for each volume and the parents of targets.
pub(crate) struct World {
    pub(crate) driver: Arc<dyn CsiDriver>,
    pub(crate) script: Box<dyn Script>,
    pub(crate) dir: PathBuf,
}

impl World {
    pub(crate) fn staging(&self, volume_id: &str) -> PathBuf {
        let path = self.dir.join("staging").join(volume_id);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    pub(crate) fn target(&self, pod: &str) -> PathBuf {
        let parent = self.dir.join("pods").join(pod);
        std::fs::create_dir_all(&parent).unwrap();
        parent.join("mount")
    }

    pub(crate) fn to_stage(&self, volume_id: &str) -> StageRequest {
        StageRequest {
            volume_id: volume_id.to_owned(),
            publish_context: BTreeMap::new(),
            staging_target_path: self.staging(volume_id),
            capability: files(AccessMode::SingleNodeWriter),
            secrets: DriverSecrets::default(),
            volume_context: BTreeMap::new(),
        }
    }

    pub(crate) fn to_publish(&self, volume_id: &str, pod: &str) -> PublishRequest {
        PublishRequest {
            volume_id: volume_id.to_owned(),
            publish_context: BTreeMap::new(),
            staging_target_path: Some(self.staging(volume_id)),
            target_path: self.target(pod),
            capability: files(AccessMode::SingleNodeWriter),
            read_only: false,
            secrets: DriverSecrets::default(),
            volume_context: VolumeContext::default(),
        }
    }

    pub(crate) async fn staged(&self, volume_id: &str) -> PathBuf {
        self.driver.stage(&self.to_stage(volume_id)).await.unwrap();
        self.staging(volume_id)
    }

    pub(crate) async fn published(&self, volume_id: &str, pod: &str) -> PathBuf {
        self.driver.publish(&self.to_publish(volume_id, pod)).await.unwrap();
        self.target(pod)
    }

    pub(crate) fn to_expand(&self, volume_id: &str, path: &Path, bytes: i64) -> ExpandRequest {
        ExpandRequest {
            volume_id: volume_id.to_owned(),
            volume_path: path.to_owned(),
            required_bytes: bytes,
            staging_target_path: Some(self.staging(volume_id)),
            capability: files(AccessMode::SingleNodeWriter),
            secrets: DriverSecrets::default(),
        }
    }
}

fn files(access_mode: AccessMode) -> VolumeCapability {
    let access_type = AccessType::Mount {
        fs_type: "ext4".to_owned(),
        mount_flags: Vec::new(),
        volume_mount_group: String::new(),
    };
    VolumeCapability { access_type, access_mode }
}

fn stats_at(volume_id: &str, path: &Path) -> StatsRequest {
    StatsRequest { volume_id: volume_id.to_owned(), volume_path: path.to_owned(), staging_target_path: None }
}

pub(crate) fn code<T: std::fmt::Debug>(result: PluginResult<T>) -> String {
    let error = result.unwrap_err();
    let PluginError::Failed { code, .. } = error else { panic!("{error:?}") };
    code
}

pub(crate) async fn a_volume_is_staged_published_unpublished_and_unstaged(world: &World) {
    let staging = world.staged("vol").await;
    let target = world.published("vol", "pod").await;
    world.driver.unpublish("vol", &target).await.unwrap();
    assert!(!target.exists(), "the driver removes what it created");
    world.driver.unstage("vol", &staging).await.unwrap();
    assert_eq!(world.script.violations(), [""; 0]);
}

pub(crate) async fn each_call_is_idempotent(world: &World) {
    for _ in 0..2 {
        world.staged("vol").await;
    }
    for _ in 0..2 {
        world.published("vol", "pod").await;
    }
    for _ in 0..2 {
        world.driver.unpublish("vol", &world.target("pod")).await.unwrap();
    }
    for _ in 0..2 {
        world.driver.unstage("vol", &world.staging("vol")).await.unwrap();
    }
    assert_eq!(world.script.violations(), [""; 0]);
}

/// The specification allows the negation of a call whose result is unknown.
pub(crate) async fn what_was_never_published_or_staged_can_be_undone(world: &World) {
    assert_eq!(world.driver.unpublish("vol", &world.target("pod")).await, Ok(()));
    assert_eq!(world.driver.unstage("vol", &world.staging("vol")).await, Ok(()));
    let staging = world.staged("vol").await;
    assert_eq!(world.driver.unstage("vol", &world.staging("other")).await, Ok(()));
    assert_eq!(world.driver.unpublish("vol", &world.target("pod")).await, Ok(()));
    assert_eq!(world.driver.stats(&stats_at("vol", &staging)).await.map(|_| ()), Ok(()));
}

pub(crate) async fn a_volume_is_published_only_where_it_is_staged(world: &World) {
    let mut request = world.to_publish("vol", "pod");
    assert_eq!(code(world.driver.publish(&request).await), "FailedPrecondition");
    world.staged("vol").await;
    request.staging_target_path = Some(world.staging("other"));
    assert_eq!(code(world.driver.publish(&request).await), "FailedPrecondition");
    request.staging_target_path = None;
    assert_eq!(code(world.driver.publish(&request).await), "FailedPrecondition");
    assert_eq!(world.script.violations().len(), 3);
    world.published("vol", "pod").await;
}

pub(crate) async fn a_published_volume_is_not_unstaged(world: &World) {
    let staging = world.staged("vol").await;
    world.published("vol", "pod").await;
    assert_eq!(code(world.driver.unstage("vol", &staging).await), "FailedPrecondition");
    assert_eq!(world.script.violations().len(), 1);
}

pub(crate) async fn other_arguments_for_the_same_path_already_exist(world: &World) {
    world.staged("vol").await;
    let mut stage = world.to_stage("vol");
    stage.capability = files(AccessMode::MultiNodeMultiWriter);
    assert_eq!(code(world.driver.stage(&stage).await), "AlreadyExists");
    let stage = StageRequest { staging_target_path: world.staging("other"), ..world.to_stage("vol") };
    assert_eq!(code(world.driver.stage(&stage).await), "AlreadyExists");
    world.published("vol", "pod").await;
    let mut publish = world.to_publish("vol", "pod");
    publish.read_only = true;
    assert_eq!(code(world.driver.publish(&publish).await), "AlreadyExists");
    publish.read_only = false;
    publish.capability = files(AccessMode::MultiNodeMultiWriter);
    assert_eq!(code(world.driver.publish(&publish).await), "AlreadyExists");
    assert_eq!(world.script.violations().len(), 4);
}

/// Tokens and secrets change when a volume is published again (`requiresRepublish`).
pub(crate) async fn another_context_or_secret_is_the_same_publication(world: &World) {
    world.staged("vol").await;
    world.published("vol", "pod").await;
    let mut publish = world.to_publish("vol", "pod");
    publish.volume_context.0.insert("csi.storage.k8s.io/serviceAccount.tokens".to_owned(), "{}".to_owned());
    publish.secrets.0.insert("key".to_owned(), "new".to_owned());
    assert_eq!(world.driver.publish(&publish).await, Ok(()));
}

pub(crate) async fn only_a_single_writer_volume_has_only_one_target(world: &World) {
    world.staged("shared").await;
    world.published("shared", "one").await;
    world.published("shared", "two").await;
    let mut stage = world.to_stage("exclusive");
    stage.capability = files(AccessMode::SingleNodeSingleWriter);
    world.driver.stage(&stage).await.unwrap();
    let mut publish = world.to_publish("exclusive", "three");
    publish.capability = stage.capability;
    world.driver.publish(&publish).await.unwrap();
    publish.target_path = world.target("four");
    assert_eq!(code(world.driver.publish(&publish).await), "FailedPrecondition");
}

pub(crate) async fn missing_fields_are_invalid_arguments(world: &World) {
    let nowhere = Path::new("");
    assert_eq!(code(world.driver.unpublish("", &world.target("pod")).await), "InvalidArgument");
    assert_eq!(code(world.driver.unpublish("vol", nowhere).await), "InvalidArgument");
    assert_eq!(code(world.driver.unstage("vol", Path::new("a/b")).await), "InvalidArgument");
    let stage = StageRequest { capability: files(AccessMode::Unknown), ..world.to_stage("vol") };
    assert_eq!(code(world.driver.stage(&stage).await), "InvalidArgument");
    let publish = PublishRequest { target_path: nowhere.to_owned(), ..world.to_publish("vol", "pod") };
    assert_eq!(code(world.driver.publish(&publish).await), "InvalidArgument");
    assert_eq!(code(world.driver.stats(&stats_at("", nowhere)).await), "InvalidArgument");
    assert_eq!(code(world.driver.expand(&world.to_expand("vol", nowhere, 1)).await), "InvalidArgument");
}

pub(crate) async fn a_deleted_volume_is_not_found_and_can_be_unpublished(world: &World) {
    let staging = world.staged("vol").await;
    let target = world.published("vol", "pod").await;
    world.script.delete_volume("vol");
    assert_eq!(code(world.driver.stage(&world.to_stage("vol")).await), "NotFound");
    assert_eq!(code(world.driver.publish(&world.to_publish("vol", "two")).await), "NotFound");
    assert_eq!(code(world.driver.stats(&stats_at("vol", &target)).await), "NotFound");
    assert_eq!(code(world.driver.expand(&world.to_expand("vol", &target, 1)).await), "NotFound");
    world.driver.unpublish("vol", &target).await.unwrap();
    world.driver.unstage("vol", &staging).await.unwrap();
    assert_eq!(world.script.violations(), [""; 0]);
}

pub(crate) async fn a_driver_without_staging_publishes_at_once(world: &World) {
    world.script.set_capabilities(|capabilities| capabilities.stage_unstage_volume = false);
    let publish = PublishRequest { staging_target_path: None, ..world.to_publish("vol", "pod") };
    world.driver.publish(&publish).await.unwrap();
    world.driver.publish(&publish).await.unwrap();
    world.driver.unpublish("vol", &publish.target_path).await.unwrap();
    assert_eq!(code(world.driver.stage(&world.to_stage("vol")).await), "Unimplemented");
}

pub(crate) async fn an_inline_volume_is_published_without_staging(world: &World) {
    let mut publish = PublishRequest { staging_target_path: None, ..world.to_publish("inline", "pod") };
    publish.volume_context.0.insert("csi.storage.k8s.io/ephemeral".to_owned(), "true".to_owned());
    world.driver.publish(&publish).await.unwrap();
    world.driver.unpublish("inline", &publish.target_path).await.unwrap();
    assert_eq!(world.script.violations(), [""; 0]);
}

pub(crate) async fn a_block_volume_is_staged_and_published(world: &World) {
    let block =
        VolumeCapability { access_type: AccessType::Block, access_mode: AccessMode::SingleNodeWriter };
    let stage = StageRequest { capability: block.clone(), ..world.to_stage("disk") };
    let publish = PublishRequest { capability: block, ..world.to_publish("disk", "pod") };
    for _ in 0..2 {
        world.driver.stage(&stage).await.unwrap();
        world.driver.publish(&publish).await.unwrap();
    }
    let stats = world.driver.stats(&stats_at("disk", &publish.target_path)).await.unwrap();
    assert!(stats.bytes.is_some_and(|bytes| bytes.total > 0), "{stats:?}");
    world.driver.unpublish("disk", &publish.target_path).await.unwrap();
    assert!(!publish.target_path.exists());
    world.driver.unstage("disk", &stage.staging_target_path).await.unwrap();
    assert_eq!(world.script.violations(), [""; 0]);
}

pub(crate) async fn a_volume_is_expanded_where_it_is(world: &World) {
    let elsewhere = world.target("pod");
    assert_eq!(code(world.driver.expand(&world.to_expand("vol", &elsewhere, MIB)).await), "NotFound");
    let mut stage = world.to_stage("vol");
    stage.volume_context.insert("size".to_owned(), (32 * MIB).to_string());
    world.driver.stage(&stage).await.unwrap();
    let staging = world.staging("vol");
    let large = 2048 * MIB;
    assert_eq!(world.driver.expand(&world.to_expand("vol", &staging, large)).await, Ok(large));
    let target = world.published("vol", "pod").await;
    let smaller = world.to_expand("vol", &target, MIB);
    assert_eq!(world.driver.expand(&smaller).await, Ok(large), "a larger volume is large enough");
    // A driver may need the volume unmounted for the filesystem to grow.
    world.driver.unpublish("vol", &target).await.unwrap();
    world.driver.unstage("vol", &staging).await.unwrap();
    world.driver.stage(&stage).await.unwrap();
    let total = world.driver.stats(&stats_at("vol", &staging)).await.unwrap().bytes.unwrap().total;
    assert!(total > large / 2, "{total}");
}

pub(crate) async fn stats_exist_only_where_the_volume_is(world: &World) {
    let staging = world.staged("vol").await;
    let target = world.published("vol", "pod").await;
    for path in [&staging, &target] {
        let stats = world.driver.stats(&stats_at("vol", path)).await.unwrap();
        let (bytes, inodes) = (stats.bytes.unwrap(), stats.inodes.unwrap());
        assert!(bytes.total > 0 && bytes.used <= bytes.total && bytes.available <= bytes.total);
        assert!(inodes.used <= inodes.total);
        assert_eq!(stats.condition, None);
    }
    world.driver.unpublish("vol", &target).await.unwrap();
    assert_eq!(code(world.driver.stats(&stats_at("vol", &target)).await), "NotFound");
    assert_eq!(world.script.violations(), [""; 0]);
}

pub(crate) async fn the_condition_of_a_volume_is_reported(world: &World) {
    let staging = world.staged("vol").await;
    world.script.set_capabilities(|capabilities| capabilities.volume_condition = true);
    let stats = async || world.driver.stats(&stats_at("vol", &staging)).await.unwrap();
    assert_eq!(stats().await.condition, Some(VolumeCondition::default()));
    let lost = VolumeCondition { is_abnormal: true, message: "the disk is gone".to_owned() };
    world.script.set_condition("vol", lost.clone());
    assert_eq!(stats().await.condition, Some(lost));
}

pub(crate) async fn calls_without_their_capability_are_unimplemented(world: &World) {
    world.script.set_capabilities(|capabilities| *capabilities = NodeCapabilities::default());
    assert_eq!(world.driver.capabilities().await, Ok(NodeCapabilities::default()));
    let target = world.target("pod");
    assert_eq!(code(world.driver.unstage("vol", &world.staging("vol")).await), "Unimplemented");
    assert_eq!(code(world.driver.stats(&stats_at("vol", &target)).await), "Unimplemented");
    assert_eq!(code(world.driver.expand(&world.to_expand("vol", &target, 1)).await), "Unimplemented");
    assert_eq!(world.script.violations().len(), 3);
}

pub(crate) async fn node_info_and_capabilities_are_reported(world: &World) {
    world.script.set_info(|info| {
        info.node_id = "i-0123".to_owned();
        info.max_volumes_per_node = 25;
        info.topology.insert("topology.example.com/zone".to_owned(), "a".to_owned());
    });
    world.script.set_capabilities(|capabilities| {
        capabilities.volume_condition = true;
        capabilities.single_node_multi_writer = true;
        capabilities.volume_mount_group = true;
    });
    let info = world.driver.node_info().await.unwrap();
    assert_eq!((&*info.node_id, info.max_volumes_per_node), ("i-0123", 25));
    assert_eq!(info.topology["topology.example.com/zone"], "a");
    let all = NodeCapabilities {
        stage_unstage_volume: true,
        get_volume_stats: true,
        expand_volume: true,
        volume_condition: true,
        single_node_multi_writer: true,
        volume_mount_group: true,
    };
    assert_eq!(world.driver.capabilities().await, Ok(all));
}
