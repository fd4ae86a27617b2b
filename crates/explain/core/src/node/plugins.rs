//! The plugins that are registered at the node.

use model::explain::{Check, Verdict};

use super::check;

#[derive(Clone, Debug, Default)]
pub struct PluginFacts {
    /// Resources of device plugins, with the number of healthy devices and of all.
    pub devices: Vec<(String, u64, u64)>,
    pub csi_drivers: Vec<String>,
    /// Drivers of dynamic resources, and whether they are connected.
    pub dra_drivers: Vec<(String, bool)>,
}

impl PluginFacts {
    /// `None` without any plugin.
    pub(super) fn check(&self) -> Option<Check> {
        let devices = self.devices.iter().map(|(name, healthy, all)| match healthy == all {
            true => format!("{name} ({all})"),
            false => format!("{name} ({healthy} of {all} healthy)"),
        });
        let drivers = self.dra_drivers.iter().map(|(name, is_connected)| match is_connected {
            true => name.clone(),
            false => format!("{name} (not connected)"),
        });
        let kinds = [
            ("Device plugins", devices.collect::<Vec<_>>()),
            ("CSI drivers", self.csi_drivers.clone()),
            ("DRA drivers", drivers.collect()),
        ];
        let shown: Vec<String> = kinds
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(kind, names)| format!("{kind}: {}.", names.join(", ")))
            .collect();
        (!shown.is_empty()).then(|| check("plugins", Verdict::Fine, shown.join(" ")))
    }
}
