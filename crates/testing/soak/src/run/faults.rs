//! Beginning and ending each fault.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use crate::schedule::{Fault, compute_clock_jump};
use localapi::LocalApi;
use localapi::Options;
use rustix::fs::{FallocateFlags, fallocate};

use crate::run::stand::Stand;
use crate::run::{BenchError, Outcome, failed};

/// How long the kubelet may take to exit after SIGTERM.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);
/// During the fault, so many of 100 calls to the runtime fail.
const CALL_PERCENT: u64 = 12;
/// The same for the CSI driver.
const CSI_PERCENT: u64 = 30;
const BLOCK: u64 = 4096;

impl Stand {
    pub(crate) async fn begin(&mut self, fault: Fault, seed: u64) -> Outcome<()> {
        match fault {
            Fault::KubeletKilled => self.node.kill(),
            Fault::KubeletTerminated => self.node.terminate(EXIT_TIMEOUT).await,
            Fault::RuntimeKilled => self.containerd.crash().map_err(failed("kill containerd")),
            Fault::ApiOutage => {
                let api =
                    self.api.take().ok_or_else(|| BenchError("the API server does not run".to_owned()))?;
                self.api_state = Some(api.stop().await);
                Ok(())
            }
            Fault::RuntimeCalls => {
                self.proxy.set_fault_percent(CALL_PERCENT);
                Ok(())
            }
            Fault::DiskFull => fill(&self.filler()),
            Fault::DnsHangs => {
                self.names.set_hanging(true);
                Ok(())
            }
            Fault::CsiErrors => {
                self.driver.fault_by_seed(seed, CSI_PERCENT);
                Ok(())
            }
            Fault::ClockJump => self.clock.set(compute_clock_jump(seed)),
        }
    }

    pub(crate) async fn end(&mut self, fault: Fault, seed: u64) -> Outcome<()> {
        match fault {
            Fault::KubeletKilled | Fault::KubeletTerminated => self.node.start(&self.kubelet),
            Fault::RuntimeKilled => self.containerd.resume().await.map_err(failed("start containerd again")),
            Fault::ApiOutage => {
                let state = self.api_state.take();
                // Every second server has forgotten the history: watches expire.
                if let Some(state) = state.as_ref().filter(|_| seed.is_multiple_of(2)) {
                    state.compact();
                }
                let options = Options { state, ..self.api_options.clone() };
                self.api =
                    Some(LocalApi::start(options).await.map_err(failed("start the API server again"))?);
                Ok(())
            }
            Fault::RuntimeCalls => {
                self.proxy.set_fault_percent(0);
                Ok(())
            }
            Fault::DiskFull => std::fs::remove_file(self.filler()).map_err(failed("make space on the disk")),
            Fault::DnsHangs => {
                self.names.set_hanging(false);
                Ok(())
            }
            Fault::CsiErrors => {
                self.driver.clear_faults();
                Ok(())
            }
            Fault::ClockJump => self.clock.set(0),
        }
    }

    fn filler(&self) -> PathBuf {
        self.disk.path().join("filler")
    }
}

/// Takes the rest of the disk, to the last block.
fn fill(path: &PathBuf) -> Outcome<()> {
    let mut file = std::fs::File::create(path).map_err(failed("fill the disk"))?;
    let space = rustix::fs::statvfs(path).map_err(failed("read the space of the disk"))?;
    let free = (space.f_bavail * space.f_frsize).saturating_sub(64 * BLOCK);
    fallocate(&file, FallocateFlags::empty(), 0, free).map_err(failed("fill the disk"))?;
    std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).map_err(failed("fill the disk"))?;
    // What is left is written until there is none.
    while file.write_all(&[1; 4096]).and_then(|()| file.sync_data()).is_ok() {}
    Ok(())
}
