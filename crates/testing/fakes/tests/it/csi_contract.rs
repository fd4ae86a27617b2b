//! The cases over the fake driver, and over a real one through the client of the kubelet.

use std::path::Path;

use fakes::{FakeCsiDriver, FakePlugins, TestCsiDriver};
use model::csi::{NodeCapabilities, NodeInfo, VolumeCondition};
use plugins::UnixPlugins;
use ports::plugins::Plugins;

use crate::csi_cases::{Script, World};

macro_rules! script {
    ($type:ty) => {
        impl Script for $type {
            fn set_capabilities(&self, change: fn(&mut NodeCapabilities)) {
                <$type>::set_capabilities(self, change);
            }
            fn set_info(&self, change: fn(&mut NodeInfo)) {
                <$type>::set_info(self, change);
            }
            fn delete_volume(&self, volume_id: &str) {
                <$type>::delete_volume(self, volume_id);
            }
            fn set_condition(&self, volume_id: &str, condition: VolumeCondition) {
                <$type>::set_condition(self, volume_id, condition);
            }
            fn violations(&self) -> Vec<String> {
                <$type>::violations(self)
            }
        }
    };
}
script!(FakeCsiDriver);
script!(TestCsiDriver);

/// For tests that change the driver themselves.
pub(crate) struct NoScript;

impl Script for NoScript {
    fn set_capabilities(&self, _: fn(&mut NodeCapabilities)) {}
    fn set_info(&self, _: fn(&mut NodeInfo)) {}
    fn delete_volume(&self, _: &str) {}
    fn set_condition(&self, _: &str, _: VolumeCondition) {}
    fn violations(&self) -> Vec<String> {
        Vec::new()
    }
}

fn fake(dir: &Path) -> World {
    let (plugins, driver) = (FakePlugins::default(), FakeCsiDriver::new());
    plugins.add_csi_driver("/csi.sock", &driver);
    let client = plugins.csi_driver(Path::new("/csi.sock"));
    World { driver: client, script: Box::new(driver), dir: dir.to_owned() }
}

fn real(dir: &Path) -> World {
    let driver = TestCsiDriver::serve(&dir.join("root"), "test.example.com", &dir.join("state"));
    let client = UnixPlugins.csi_driver(&driver.socket());
    World { driver: client, script: Box::new(driver), dir: dir.to_owned() }
}

macro_rules! csi_contract {
    ($module:ident: $($case:ident),* $(,)?) => {
        mod $module {
            $(
                #[tokio::test]
                async fn $case() {
                    let dir = tempfile::tempdir().unwrap();
                    crate::csi_cases::$case(&super::$module(dir.path())).await;
                }
            )*
        }
    };
    ($($case:ident),* $(,)?) => {
        csi_contract!(fake: $($case),*);
        csi_contract!(real: $($case),*);
    };
}

csi_contract!(
    a_volume_is_staged_published_unpublished_and_unstaged,
    each_call_is_idempotent,
    what_was_never_published_or_staged_can_be_undone,
    a_volume_is_published_only_where_it_is_staged,
    a_published_volume_is_not_unstaged,
    other_arguments_for_the_same_path_already_exist,
    another_context_or_secret_is_the_same_publication,
    only_a_single_writer_volume_has_only_one_target,
    missing_fields_are_invalid_arguments,
    a_deleted_volume_is_not_found_and_can_be_unpublished,
    a_driver_without_staging_publishes_at_once,
    an_inline_volume_is_published_without_staging,
    a_block_volume_is_staged_and_published,
    a_volume_is_expanded_where_it_is,
    stats_exist_only_where_the_volume_is,
    the_condition_of_a_volume_is_reported,
    calls_without_their_capability_are_unimplemented,
    node_info_and_capabilities_are_reported,
);
