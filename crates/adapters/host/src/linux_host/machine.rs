//! [`Machine`]: facts from `/proc`, `/sys` and `/etc`.

use std::net::IpAddr;
use std::path::Path;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use model::topology::MachineTopology;
use ports::Machine;
use ports::host::{HostResult, MachineInfo, SubordinateIds};

use super::LinuxHost;
use crate::blocking::Work;
use crate::{addresses, kernel_log, machine, subordinate_ids, topology};

#[async_trait]
impl Machine for LinuxHost {
    fn kernel_log(&self, path: &Path) -> HostResult<BoxStream<'static, String>> {
        kernel_log::follow(path)
    }

    fn info(&self) -> MachineInfo {
        self.machine.get_or_init(|| machine::read(&self.root)).clone()
    }

    async fn topology(&self) -> HostResult<MachineTopology> {
        self.on(Work::Measurements, &self.root.join("sys"), topology::read).await
    }

    fn own_addresses(&self, candidates: &[IpAddr]) -> Vec<IpAddr> {
        addresses::own_addresses(candidates)
    }

    fn default_route_ip(&self, prefers_v6: bool) -> Option<IpAddr> {
        addresses::default_route_ip(prefers_v6)
    }

    async fn subordinate_ids(&self, user: &str) -> HostResult<Option<SubordinateIds>> {
        subordinate_ids::of(user).await
    }

    fn has_apparmor(&self) -> bool {
        machine::has_apparmor(&self.root)
    }
}
