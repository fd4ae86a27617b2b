//! Registration sockets in memory: plugins that answer, hang, or say nonsense, and what the kubelet has reported to them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use ports::plugins::{PluginError, PluginInfo, PluginRegistration, PluginResult};

use super::FakePlugins;

/// What a plugin with a registration socket does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistrationFault {
    /// No call is answered within its deadline.
    Hangs,
    /// Its answer to GetInfo violates the protocol.
    Nonsense,
    /// NotifyRegistrationStatus fails, after it was recorded.
    FailsNotification,
}

/// The plugin behind one socket.
#[derive(Debug)]
pub(super) struct Offer {
    info: PluginInfo,
    fault: Option<RegistrationFault>,
    info_calls: usize,
    notified: Vec<Result<(), String>>,
}

/// A handle of a plugin that may not exist.
#[derive(Debug)]
pub(super) struct FakeRegistration {
    pub(super) socket: PathBuf,
    pub(super) offer: Option<Arc<Mutex<Offer>>>,
}

impl FakePlugins {
    /// A plugin answers at that registration socket. The test puts the socket on the fake host.
    pub fn offer(&self, socket: impl AsRef<Path>, info: PluginInfo) {
        let offer = Offer { info, fault: None, info_calls: 0, notified: Vec::new() };
        self.state.lock().offers.insert(socket.as_ref().to_owned(), Arc::new(Mutex::new(offer)));
    }

    /// Nothing answers at that registration socket any more.
    pub fn withdraw(&self, socket: impl AsRef<Path>) {
        self.state.lock().offers.remove(socket.as_ref());
    }

    /// What the plugin does wrong from now on; nothing at first.
    pub fn set_registration_fault(&self, socket: impl AsRef<Path>, fault: Option<RegistrationFault>) {
        if let Some(offer) = self.offer_at(socket.as_ref()) {
            offer.lock().fault = fault;
        }
    }

    /// The outcomes that the kubelet has reported to the plugin, in order.
    #[must_use]
    pub fn notified(&self, socket: impl AsRef<Path>) -> Vec<Result<(), String>> {
        self.offer_at(socket.as_ref()).map(|offer| offer.lock().notified.clone()).unwrap_or_default()
    }

    /// How many times the kubelet has called GetInfo of the plugin.
    #[must_use]
    pub fn info_calls(&self, socket: impl AsRef<Path>) -> usize {
        self.offer_at(socket.as_ref()).map_or(0, |offer| offer.lock().info_calls)
    }

    pub(super) fn offer_at(&self, socket: &Path) -> Option<Arc<Mutex<Offer>>> {
        self.state.lock().offers.get(socket).cloned()
    }
}

impl FakeRegistration {
    /// The plugin, and its fault unless that is a call without an answer.
    async fn reach(
        &self,
        call: &'static str,
        after: Duration,
    ) -> PluginResult<(Arc<Mutex<Offer>>, Option<RegistrationFault>)> {
        let Some(offer) = self.offer.clone() else {
            let message = "connection refused".to_owned();
            return Err(PluginError::Unreachable { socket: self.socket.clone(), message });
        };
        let fault = offer.lock().fault;
        if fault == Some(RegistrationFault::Hangs) {
            tokio::time::sleep(after).await;
            return Err(PluginError::TimedOut { call, after });
        }
        Ok((offer, fault))
    }
}

#[async_trait]
impl PluginRegistration for FakeRegistration {
    async fn info(&self) -> PluginResult<PluginInfo> {
        if let Some(offer) = &self.offer {
            offer.lock().info_calls += 1;
        }
        let (offer, fault) = self.reach("GetInfo", Duration::from_secs(1)).await?;
        if fault == Some(RegistrationFault::Nonsense) {
            return Err(PluginError::Malformed("the plugin's name is longer than 512 bytes".to_owned()));
        }
        let info = offer.lock().info.clone();
        Ok(info)
    }

    async fn notify(&self, outcome: Result<(), String>) -> PluginResult<()> {
        let (offer, fault) = self.reach("NotifyRegistrationStatus", Duration::from_secs(5)).await?;
        offer.lock().notified.push(outcome);
        if fault == Some(RegistrationFault::FailsNotification) {
            let (code, message) = ("Unknown".to_owned(), "not now".to_owned());
            return Err(PluginError::Failed { code, message });
        }
        Ok(())
    }
}
