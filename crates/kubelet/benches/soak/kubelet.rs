//! What only a soak does with the process of the kubelet.

use std::fs;
use std::process::Child;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::node::Node;
use crate::{Outcome, failed};

impl Node {
    /// Adds fields to the configuration, from the next start on.
    pub(crate) fn configure(&self, fields: &Value) -> Outcome<()> {
        let path = self.dir.join("kubelet.json");
        let text = fs::read_to_string(&path).map_err(failed("read the configuration"))?;
        let mut config: Value = serde_json::from_str(&text).map_err(failed("read the configuration"))?;
        for (name, value) in fields.as_object().into_iter().flatten() {
            config[name] = value.clone();
        }
        fs::write(&path, config.to_string()).map_err(failed("write the configuration"))
    }

    /// Sends SIGTERM and waits until it has exited; kills it if it does not within the time.
    pub(crate) async fn terminate(&mut self, timeout: Duration) -> Outcome<()> {
        self.signal(Signal::TERM)?;
        let exits = async {
            while !self.has_exited()? {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok(())
        };
        let in_time = tokio::time::timeout(timeout, exits).await;
        self.kill()?;
        in_time.map_err(failed("wait for the kubelet to exit after SIGTERM"))?
    }

    /// Whether it has ended, by itself or by a signal; also if none was started.
    pub(crate) fn has_exited(&mut self) -> Outcome<bool> {
        let Some(child) = &mut self.kubelet else { return Ok(true) };
        Ok(child.try_wait().map_err(failed("check the kubelet"))?.is_some())
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.kubelet.as_ref().map(Child::id)
    }
}
