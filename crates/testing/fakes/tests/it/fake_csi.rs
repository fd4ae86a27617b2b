//! What only the fake CSI driver does: follow a script, and report what violates the specification.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fakes::{CsiFault, CsiMethod, FakeCsiDriver, FakeHost, FakePlugins};
use model::csi::{
    AccessMode, AccessType, DriverSecrets, PublishRequest, StageRequest, VolumeCapability, VolumeContext,
};
use ports::plugins::{CsiDriver, PluginError, Plugins};
use tokio::time::Instant;

const SOCKET: &str = "/plugins/example.com/csi.sock";

fn connected(driver: &FakeCsiDriver) -> Arc<dyn CsiDriver> {
    let plugins = FakePlugins::default();
    plugins.add_csi_driver(SOCKET, driver);
    plugins.csi_driver(Path::new(SOCKET))
}

fn capability() -> VolumeCapability {
    let access_type = AccessType::Mount {
        fs_type: "ext4".to_owned(),
        mount_flags: Vec::new(),
        volume_mount_group: String::new(),
    };
    VolumeCapability { access_type, access_mode: AccessMode::SingleNodeWriter }
}

fn to_staging(volume_id: &str) -> StageRequest {
    StageRequest {
        volume_id: volume_id.to_owned(),
        publish_context: BTreeMap::new(),
        staging_target_path: PathBuf::from("/staging"),
        capability: capability(),
        secrets: DriverSecrets::default(),
        volume_context: BTreeMap::new(),
    }
}

fn to_target(volume_id: &str) -> PublishRequest {
    PublishRequest {
        volume_id: volume_id.to_owned(),
        publish_context: BTreeMap::new(),
        staging_target_path: Some(PathBuf::from("/staging")),
        target_path: PathBuf::from("/pod/mount"),
        capability: capability(),
        read_only: false,
        secrets: DriverSecrets::default(),
        volume_context: VolumeContext::default(),
    }
}

fn code(error: &PluginError) -> &str {
    let PluginError::Failed { code, .. } = error else { panic!("{error:?}") };
    code
}

#[tokio::test(start_paused = true)]
async fn hanging_call_meets_the_deadline_and_is_carried_out_when_released() {
    let fake = FakeCsiDriver::new();
    let driver = connected(&fake);
    fake.fault(CsiMethod::NodeStageVolume, CsiFault::Hangs);
    let started = Instant::now();
    let error = driver.stage(&to_staging("vol-1")).await.unwrap_err();
    assert_eq!(error.to_string(), "rpc error: code = DeadlineExceeded desc = context deadline exceeded");
    assert_eq!(started.elapsed().as_secs(), 120);
    assert_eq!(code(&driver.stage(&to_staging("vol-1")).await.unwrap_err()), "Aborted");
    assert!(
        driver.stage(&StageRequest { staging_target_path: "/b".into(), ..to_staging("vol-2") }).await.is_ok()
    );
    assert!(!fake.staged().contains_key("vol-1"));
    assert_eq!(fake.release().staged()["vol-1"], Path::new("/staging"));
    assert_eq!(driver.stage(&to_staging("vol-1")).await, Ok(()));
    assert_eq!(fake.violations(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn driver_that_stops_is_unreachable_and_remembers_its_volumes() {
    let fake = FakeCsiDriver::new();
    let driver = connected(&fake);
    driver.stage(&to_staging("vol-1")).await.unwrap();
    fake.fault(CsiMethod::NodePublishVolume, CsiFault::Hangs);
    let request = to_target("vol-1");
    let publish = driver.publish(&request);
    let stop = async {
        while fake.hanging() == 0 {
            tokio::task::yield_now().await;
        }
        fake.stop();
    };
    let (lost, ()) = tokio::join!(publish, stop);
    assert_eq!(code(&lost.unwrap_err()), "Unavailable");
    let error = driver.publish(&request).await.unwrap_err();
    assert!(matches!(&error, PluginError::Unreachable { socket, .. } if socket == Path::new(SOCKET)));
    fake.start();
    assert_eq!(driver.publish(&request).await, Ok(()));
    assert_eq!(fake.published(), [("vol-1".to_owned(), PathBuf::from("/pod/mount"))]);
    let lines = ["NodeStageVolume vol-1", "NodePublishVolume vol-1", "NodePublishVolume vol-1"];
    assert_eq!(fake.call_lines(), lines);
}

#[tokio::test(start_paused = true)]
async fn fault_applies_once_to_its_volume_before_or_after_the_act() {
    let fake = FakeCsiDriver::new();
    let driver = connected(&fake);
    let method = CsiMethod::NodeStageVolume;
    fake.fault_for(method, "vol-1", CsiFault::FailsAfterDoing("Internal", "lost"));
    fake.fault_for(method, "vol-2", CsiFault::Fails("Internal", "no device"));
    let error = driver.stage(&to_staging("vol-1")).await.unwrap_err();
    assert_eq!(error.to_string(), "rpc error: code = Internal desc = lost");
    assert!(fake.staged().contains_key("vol-1"));
    let second = StageRequest { staging_target_path: "/b".into(), ..to_staging("vol-2") };
    let error = driver.stage(&second).await.unwrap_err();
    assert_eq!(error.to_string(), "rpc error: code = Internal desc = no device");
    assert!(!fake.staged().contains_key("vol-2"));
    fake.fault(method, CsiFault::AnswersAfter(Duration::from_secs(60)));
    let started = Instant::now();
    assert_eq!(driver.stage(&second).await, Ok(()));
    assert_eq!(started.elapsed().as_secs(), 60);
    assert_eq!(fake.count(method), 3);
}

#[tokio::test(start_paused = true)]
async fn violations_of_the_specification_are_reported() {
    let fake = FakeCsiDriver::new();
    let driver = connected(&fake);
    assert_eq!(code(&driver.publish(&to_target("vol-1")).await.unwrap_err()), "FailedPrecondition");
    driver.stage(&to_staging("vol-1")).await.unwrap();
    driver.publish(&to_target("vol-1")).await.unwrap();
    let error = driver.unstage("vol-1", Path::new("/staging")).await.unwrap_err();
    assert_eq!(code(&error), "FailedPrecondition");
    fake.fault(CsiMethod::NodeUnpublishVolume, CsiFault::Hangs);
    let unpublish = || driver.unpublish("vol-1", Path::new("/pod/mount"));
    let both = async { tokio::join!(unpublish(), unpublish()) };
    assert!(tokio::time::timeout(Duration::from_secs(1), both).await.is_err());
    let expected = [
        "NodePublishVolume vol-1: the volume is not staged at /staging",
        "NodeUnstageVolume vol-1: the volume is published at /pod/mount",
        "NodeUnpublishVolume vol-1: NodeUnpublishVolume for the volume is in flight",
    ];
    assert_eq!(fake.violations(), expected);
}

#[tokio::test(start_paused = true)]
async fn volumes_are_mounts_of_the_machine_until_they_are_unpublished() {
    let host = FakeHost::new();
    let fake = FakeCsiDriver::new().mounting_in(&host);
    let driver = connected(&fake);
    assert_eq!(code(&driver.stage(&to_staging("vol-1")).await.unwrap_err()), "Internal");
    host.put("/staging/x", "").put("/pod/vol_data.json", "");
    driver.stage(&to_staging("vol-1")).await.unwrap();
    driver.publish(&to_target("vol-1")).await.unwrap();
    assert_eq!(host.mounts(), ["csi /pod/mount", "csi /staging"]);
    driver.unpublish("vol-1", Path::new("/pod/mount")).await.unwrap();
    assert_eq!(host.mounts(), ["csi /staging"]);
    assert!(!host.exists("/pod/mount"), "the driver removes the directory that it made");
    driver.unstage("vol-1", Path::new("/staging")).await.unwrap();
    assert_eq!(host.mounts(), [""; 0]);
    assert_eq!(fake.violations(), ["NodeStageVolume vol-1: staging target path: entity not found"]);
}
