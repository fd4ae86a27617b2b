//! What happens to the machine below the kubelet: its device plugin, kills, power loss and shutdown.

use std::time::Duration;

use super::shapes::{DEVICES, GPU};
use super::{CHECK_INTERVAL, Dice, Run, Storm};
use crate::world::{PODS, seconds};

/// Both periods of the shutdown, and the time that the kubelet needs to notice.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(35);

impl Run {
    // ---- the device plugin ----

    /// The plugin starts and registers, as it does when it finds a new registration socket.
    pub(super) async fn register_plugin(&self) {
        if self.world.agent.is_some() {
            // A kubelet that starts at this moment may not listen yet; the plugin of a real vendor tries again.
            let _ = self.world.plugins.register(GPU, &DEVICES).await;
            self.report_health();
        }
    }

    fn report_health(&self) {
        let mark = |device: &&'static str| {
            let mark = if self.unhealthy.contains(device) { "!" } else { "" };
            format!("{device}{mark}")
        };
        let marked: Vec<String> = DEVICES.iter().map(mark).collect();
        let list: Vec<&str> = marked.iter().map(String::as_str).collect();
        self.world.plugins.set_devices(GPU, &list);
    }

    pub(super) fn stop_plugin(&mut self, lasts: Duration) {
        self.world.plugins.stop_plugin(GPU);
        self.begin(Storm::Plugin, lasts);
    }

    pub(super) fn change_health(&mut self, device: &'static str) {
        if !self.unhealthy.remove(device) {
            self.unhealthy.insert(device);
        }
        self.report_health();
    }

    // ---- the kubelet ----

    pub(super) async fn crash(&mut self, away: Duration, times: &mut Dice) -> Result<(), String> {
        self.kill().await;
        self.advance(away).await?;
        self.start(times).await
    }

    async fn kill(&mut self) {
        self.world.crash().await;
        self.checker.lock().kubelet_killed();
        if let Some(lost) = self.loses {
            for path in self.world.host.files_below("/var/lib/kubelet") {
                if path.contains(lost) {
                    self.world.host.delete(path);
                }
            }
        }
    }

    /// A disk that fails in the first moment keeps the process from starting; the service manager tries again.
    async fn start(&mut self, times: &mut Dice) -> Result<(), String> {
        self.world.seed += 1;
        self.storms.retain(|(_, storm)| !matches!(storm, Storm::Plugin));
        let mut last = String::new();
        for _ in 0..10 {
            match self.world.try_start().await {
                Ok(agent) => {
                    self.world.agent = Some(agent);
                    self.begin(Storm::Plugin, Duration::from_millis(times.between(0, 15_000)));
                    return Ok(());
                }
                Err(error) => last = error.to_string(),
            }
            self.advance(seconds(1)).await?;
        }
        Err(format!("the kubelet does not start: {last}"))
    }

    // ---- the machine ----

    /// Every process ends, and what was not written durably is lost.
    pub(super) async fn lose_power(&mut self, away: Duration, times: &mut Dice) -> Result<(), String> {
        self.kill().await;
        self.world.host.power_cut();
        self.steps.push("    power is lost".to_owned());
        self.reboot(away, times).await
    }

    async fn reboot(&mut self, away: Duration, times: &mut Dice) -> Result<(), String> {
        self.world.fake.kill_all();
        self.checker.lock().sandboxes_lost();
        self.world.plugins.stop_plugin(GPU);
        self.world.host.reboot();
        self.world.cgroups.reboot();
        self.world.shutdown.set_ending(false);
        self.advance(away).await?;
        self.start(times).await
    }

    /// logind announces a shutdown, and waits as long as the kubelet requests; or an operator cancels it.
    pub(super) async fn shut_down(&mut self, kinds: &mut Dice, times: &mut Dice) -> Result<(), String> {
        let is_clean = kinds.one_in(2);
        if is_clean {
            self.world.fake.clear_faults();
            self.storms.retain(|(_, storm)| !matches!(storm, Storm::Runtime(_)));
        }
        // A kubelet that has not reached the API since its start knows no pods, and lets the node shut down; the Go kubelet does, too.
        let knows_pods = self.world.agent.as_ref().is_some_and(|agent| *agent.sources_ready().borrow());
        let is_inhibited = self.world.shutdown.locks() == 1 && knows_pods;
        self.world.shutdown.announce(true);
        if kinds.one_in(3) {
            self.advance(Duration::from_millis(times.between(0, 35_000))).await?;
            self.world.shutdown.announce(false);
            self.steps.push("    the shutdown is cancelled".to_owned());
            return Ok(());
        }
        let deadline = self.world.now() + SHUTDOWN_TIMEOUT;
        while self.world.shutdown.locks() > 0 && self.world.now() < deadline {
            self.advance(CHECK_INTERVAL).await?;
        }
        let running = self.world.fake.running();
        self.steps.push(format!(
            "    the node shuts down with {running:?} (inhibited: {is_inhibited}, clean: {is_clean})"
        ));
        if is_clean && is_inhibited && !running.is_empty() {
            return Err(format!("the node shuts down while containers live: {running:?}"));
        }
        self.kill().await;
        self.world.host.sync();
        self.reboot(Duration::from_millis(times.between(0, 10_000)), times).await
    }

    /// Removes what a broken disk would lose.
    pub(super) fn lose_at_kill(&mut self, part: &'static str) {
        self.loses = Some(part);
        self.steps.push(format!("each kill loses {part} below {PODS}"));
    }
}
