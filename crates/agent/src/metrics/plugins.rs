//! Metrics of plugins in the registration directory.

use parking_lot::Mutex;
use stats_core::exposition::{Kind, Value, family, line};

const TOTAL: &str = "plugin_manager_total_plugins";
const HELP: &str = "Number of plugins in Plugin Manager";

/// Each socket: whether it exists, and whether a plugin is registered through it. The number of sockets is bounded.
#[derive(Debug, Default)]
pub(crate) struct PluginMetrics {
    sockets: Mutex<Vec<PluginSocket>>,
}

/// A socket of the registration directory.
#[derive(Clone, Debug)]
pub(crate) struct PluginSocket {
    pub(crate) path: String,
    pub(crate) is_found: bool,
    pub(crate) is_registered: bool,
    /// Type and name of the plugin that answered last.
    pub(crate) kind: String,
    pub(crate) name: String,
    /// Why the last registration failed.
    pub(crate) error: String,
}

impl PluginMetrics {
    pub(crate) fn set(&self, sockets: Vec<PluginSocket>) {
        *self.sockets.lock() = sockets;
    }

    /// The sockets of the registration directory.
    pub(crate) fn sockets(&self) -> Vec<PluginSocket> {
        self.sockets.lock().clone()
    }

    pub(super) fn write(&self, text: &mut String) {
        family(text, TOTAL, Kind::Gauge, HELP);
        for PluginSocket { path, is_found, is_registered, .. } in &*self.sockets.lock() {
            let states = [(*is_registered, "actual_state_of_world"), (*is_found, "desired_state_of_world")];
            for (_, state) in states.into_iter().filter(|(counts, _)| *counts) {
                line(text, TOTAL, &[("socket_path", path), ("state", state)], Value::Integer(1), None);
            }
        }
    }
}
