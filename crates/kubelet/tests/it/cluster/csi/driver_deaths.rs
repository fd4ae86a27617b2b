//! The driver dies during each of its calls, before or after it did what was asked, and starts again on a new socket.

use std::os::unix::net::UnixStream;

use fakes::{CsiDriverFault, CsiMethod};
use serde_json::json;

use super::{Setup, claim_pod};

impl Setup {
    fn revive_driver(&mut self) {
        self.cluster.node.eventually("the driver has died", |_| {
            match UnixStream::connect(self.driver.socket()) {
                Ok(_) => Err(format!("{:?}", self.driver.call_lines())),
                Err(_) => Ok(()),
            }
        });
        self.driver.start();
    }
}

#[test]
fn csi_driver_that_dies_during_a_call_is_called_again_on_its_new_socket() {
    let mut setup = Setup::start(&json!({"attachRequired": false}));
    setup.claim_filesystem("disk");
    for fault in [CsiDriverFault::Dies, CsiDriverFault::DiesAfterDoing] {
        for method in [CsiMethod::NodeStageVolume, CsiMethod::NodePublishVolume] {
            setup.driver.fault(method, fault.clone());
        }
        setup.create(claim_pod("user", "true", "disk"));
        setup.revive_driver();
        setup.revive_driver();
        let pod = setup.cluster.running("user");
        for method in [CsiMethod::NodeUnpublishVolume, CsiMethod::NodeUnstageVolume] {
            setup.driver.fault(method, fault.clone());
        }
        setup.cluster.kubectl.delete("user");
        setup.revive_driver();
        setup.revive_driver();
        setup.cluster.wait_until_gone(&pod);
        setup.check_clean();
    }
}
