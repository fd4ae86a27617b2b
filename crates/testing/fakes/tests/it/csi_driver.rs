//! What only the real test driver does: follow a script of faults, start again, and leave nothing behind.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fakes::{CsiDriverFault, CsiMethod, TestCsiDriver};
use model::csi::{AccessMode, AccessType, PublishRequest, StageRequest, VolumeCapability};
use plugins::UnixPlugins;
use ports::plugins::{CsiDriver, PluginError, PluginInfo, Plugins};

use crate::csi_cases::{World, code};
use crate::csi_contract::NoScript;

struct Running {
    driver: TestCsiDriver,
    world: World,
    dir: tempfile::TempDir,
}

fn start() -> Running {
    let dir = tempfile::tempdir().unwrap();
    let driver =
        TestCsiDriver::serve(&dir.path().join("root"), "test.example.com", &dir.path().join("state"));
    let client: Arc<dyn CsiDriver> = UnixPlugins.csi_driver(&driver.socket());
    let world = World { driver: client, script: Box::new(NoScript), dir: dir.path().to_owned() };
    Running { driver, world, dir }
}

#[tokio::test]
async fn driver_that_dies_after_the_act_knows_it_when_it_starts_again() {
    let Running { mut driver, world, dir: _dir } = start();
    world.staged("vol").await;
    driver.fault(CsiMethod::NodePublishVolume, CsiDriverFault::DiesAfterDoing);
    let error = world.driver.publish(&world.to_publish("vol", "pod")).await.unwrap_err();
    assert!(!error.is_final(), "{error:?}");
    // Its socket accepts connections until its process has ended, which is after the connection broke.
    until(|| UnixStream::connect(driver.socket()).is_err()).await;
    let error = world.driver.unpublish("vol", &world.target("pod")).await.unwrap_err();
    assert!(matches!(error, PluginError::Unreachable { .. }), "{error:?}");
    fs::write(world.target("pod").join("file"), "kept").unwrap();
    driver.start();
    assert_eq!(driver.published(), [("vol".to_owned(), world.target("pod"))]);
    assert_eq!(code(world.driver.unstage("vol", &world.staging("vol")).await), "FailedPrecondition");
    world.published("vol", "pod").await;
    world.driver.unpublish("vol", &world.target("pod")).await.unwrap();
    world.driver.unstage("vol", &world.staging("vol")).await.unwrap();
    assert_eq!(fs::read_to_string(driver.directory("vol").join("file")).unwrap(), "kept");
}

#[tokio::test]
async fn driver_learns_the_deadline_of_two_minutes() {
    let Running { driver, world, dir: _dir } = start();
    world.driver.node_info().await.unwrap();
    assert_eq!(driver.last_timeout().as_deref(), Some("120000m"));
}

/// As in Go's servers, a handler goes on when its client has gone.
#[tokio::test]
async fn hanging_call_is_carried_out_although_its_caller_gave_up() {
    let Running { driver, world, dir: _dir } = start();
    driver.fault(CsiMethod::NodeStageVolume, CsiDriverFault::Hangs);
    let request = world.to_stage("vol");
    let in_time = tokio::select! {
        answer = world.driver.stage(&request) => Some(answer),
        () = until(|| driver.hanging() == 1) => None,
    };
    assert_eq!(in_time, None);
    assert_eq!(code(world.driver.stage(&request).await), "Aborted");
    driver.release();
    until(|| !driver.staged().is_empty()).await;
    until(|| driver.hanging() == 0).await;
    assert_eq!(driver.violations(), [""; 0]);
}

async fn until(is_true: impl Fn() -> bool) {
    while !is_true() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn faults_by_seed_end_and_violate_nothing() {
    let Running { driver, world, dir: _dir } = start();
    driver.fault_by_seed(7, 50);
    let mut failures = 0;
    let publish = world.to_publish("vol", "pod");
    for _ in 0..5 {
        while world.driver.stage(&world.to_stage("vol")).await.is_err() {
            failures += 1;
        }
        while world.driver.publish(&publish).await.is_err() {
            failures += 1;
        }
        while world.driver.unpublish("vol", &publish.target_path).await.is_err() {
            failures += 1;
        }
        while world.driver.unstage("vol", &publish.staging_target_path.clone().unwrap()).await.is_err() {
            failures += 1;
        }
    }
    assert!(failures > 3, "{failures}");
    assert_eq!(driver.violations(), [""; 0]);
    assert!(driver.staged().is_empty() && driver.published().is_empty());
}

#[tokio::test]
async fn driver_registers_with_its_own_socket_as_endpoint() {
    let Running { mut driver, world: _world, dir } = start();
    let socket = driver.socket();
    driver.register();
    let registration = dir.path().join("root/plugins_registry/test.example.com-reg.sock");
    let info = UnixPlugins.registration(&registration).info().await.unwrap();
    let expected = PluginInfo {
        kind: "CSIPlugin".to_owned(),
        name: "test.example.com".to_owned(),
        endpoint: socket.display().to_string(),
        supported_versions: vec!["1.0.0".to_owned()],
    };
    assert_eq!(info, expected);
    driver.unregister();
    assert!(!registration.exists());
}

#[tokio::test]
async fn read_only_publication_cannot_be_written_and_another_can() {
    let Running { driver: _driver, world, dir: _dir } = start();
    world.staged("vol").await;
    let mut publish = world.to_publish("vol", "reader");
    publish.read_only = true;
    world.driver.publish(&publish).await.unwrap();
    fs::write(world.published("vol", "writer").await.join("file"), "shared").unwrap();
    assert_eq!(fs::read_to_string(publish.target_path.join("file")).unwrap(), "shared");
    let error = fs::write(publish.target_path.join("file"), "changed").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
}

#[tokio::test]
async fn published_block_volume_is_a_device_that_keeps_its_content() {
    let Running { driver: _driver, world, dir: _dir } = start();
    let capability =
        VolumeCapability { access_type: AccessType::Block, access_mode: AccessMode::SingleNodeWriter };
    let stage = StageRequest { capability: capability.clone(), ..world.to_stage("disk") };
    let publish = PublishRequest { capability, ..world.to_publish("disk", "pod") };
    for content in ["\0\0\0\0", "kept"] {
        world.driver.stage(&stage).await.unwrap();
        world.driver.publish(&publish).await.unwrap();
        assert!(fs::metadata(&publish.target_path).unwrap().file_type().is_block_device());
        let mut device = fs::OpenOptions::new().read(true).write(true).open(&publish.target_path).unwrap();
        let mut found = [0; 4];
        device.read_exact(&mut found).unwrap();
        assert_eq!(found, content.as_bytes());
        device.seek(SeekFrom::Start(0)).unwrap();
        device.write_all(b"kept").unwrap();
        device.sync_all().unwrap();
        drop(device);
        world.driver.unpublish("disk", &publish.target_path).await.unwrap();
        world.driver.unstage("disk", &stage.staging_target_path).await.unwrap();
    }
}

#[tokio::test]
async fn filesystem_in_memory_grows_while_it_is_mounted() {
    const MEBIBYTE: u64 = 1 << 20;
    let Running { driver, world, dir: _dir } = start();
    let context = [("size", "16777216"), ("medium", "memory")];
    let mut request = world.to_stage("vol");
    request.volume_context = context.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    world.driver.stage(&request).await.unwrap();
    world.published("vol", "pod").await;
    let size = || {
        let space = rustix::fs::statvfs(world.target("pod")).unwrap();
        space.f_blocks * space.f_frsize
    };
    assert_eq!(size(), 16 * MEBIBYTE);
    let request = world.to_expand("vol", &world.target("pod"), i64::try_from(32 * MEBIBYTE).unwrap());
    world.driver.expand(&request).await.unwrap();
    assert_eq!(size(), 32 * MEBIBYTE);
    assert_eq!(driver.call_times().len(), 3, "each call is measured");
    let times = driver.call_times();
    assert!(times.iter().all(|(began, ended)| began < ended) && times.is_sorted(), "{times:?}");
    world.driver.unpublish("vol", &world.target("pod")).await.unwrap();
    world.driver.unstage("vol", &world.staging("vol")).await.unwrap();
}

#[tokio::test]
async fn inline_volume_of_a_group_is_deleted_when_it_is_unpublished() {
    let Running { driver, world, dir: _dir } = start();
    let mut publish = PublishRequest { staging_target_path: None, ..world.to_publish("inline", "pod") };
    publish.volume_context.0.insert("csi.storage.k8s.io/ephemeral".to_owned(), "true".to_owned());
    publish.capability.access_type = AccessType::Mount {
        fs_type: String::new(),
        mount_flags: Vec::new(),
        volume_mount_group: "4711".to_owned(),
    };
    world.driver.publish(&publish).await.unwrap();
    assert_eq!(fs::metadata(&publish.target_path).unwrap().gid(), 4711);
    assert!(driver.directory("inline").exists());
    world.driver.unpublish("inline", &publish.target_path).await.unwrap();
    assert!(!driver.directory("inline").exists());
}

#[tokio::test]
async fn dropped_driver_leaves_no_mount_and_no_loop_device() {
    let Running { driver, world, dir } = start();
    let mut stage = world.to_stage("vol");
    stage.volume_context.insert("size".to_owned(), (16 << 20).to_string());
    world.driver.stage(&stage).await.unwrap();
    let target = world.published("vol", "pod").await;
    fs::write(target.join("file"), "in a filesystem of its own").unwrap();
    assert!(traces(dir.path()) >= 2, "two mounts");
    drop(driver);
    assert_eq!(traces(dir.path()), 0);
    let devices = std::process::Command::new("losetup").arg("--all").output().unwrap();
    let devices = String::from_utf8_lossy(&devices.stdout).into_owned();
    assert!(!devices.contains(dir.path().to_str().unwrap()), "{devices}");
}

fn traces(dir: &Path) -> usize {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().filter(|line| line.contains(dir.to_str().unwrap())).count()
}
