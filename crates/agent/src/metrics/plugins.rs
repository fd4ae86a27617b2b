//! Metrics of plugins in the registration directory.

use parking_lot::Mutex;
use stats_core::exposition::{Kind, Value, family, line};

const TOTAL: &str = "plugin_manager_total_plugins";
const HELP: &str = "Number of plugins in Plugin Manager";

/// Each socket: whether it exists, and whether a plugin is registered through it. The number of sockets is bounded.
#[derive(Debug, Default)]
pub(crate) struct PluginMetrics {
    sockets: Mutex<Vec<(String, bool, bool)>>,
}

impl PluginMetrics {
    pub(crate) fn set(&self, sockets: Vec<(String, bool, bool)>) {
        *self.sockets.lock() = sockets;
    }

    pub(super) fn write(&self, text: &mut String) {
        family(text, TOTAL, Kind::Gauge, HELP);
        for (path, is_found, is_registered) in &*self.sockets.lock() {
            let states = [(*is_registered, "actual_state_of_world"), (*is_found, "desired_state_of_world")];
            for (_, state) in states.into_iter().filter(|(counts, _)| *counts) {
                line(text, TOTAL, &[("socket_path", path), ("state", state)], Value::Integer(1), None);
            }
        }
    }
}
