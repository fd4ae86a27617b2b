//! The decisions about volumes of CSI drivers (docs/behaviour/volumes.md): where a volume is staged and published (`paths`), what it is made from (`plan`), what
//! the files next to it record (`volume_data`), what a driver's CSIDriver object asks for (`rules`), the requests to the driver
//! (`requests`), which volumes are staged for whom (`staging`), what a driver's statistics mean (`stats`), and when a volume
//! is expanded (`expansion`). Never: calling a driver, reading an object, touching a file.

pub mod expansion;
pub mod migration;
pub mod paths;
pub mod plan;
pub mod requests;
pub mod rules;
pub mod staging;
pub mod stats;
pub mod volume_data;

/// The type of volume in error messages, as in the Go kubelet.
pub const PLUGIN: &str = "kubernetes.io/csi";

/// How long a volume lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// That of a PersistentVolume.
    Persistent,
    /// That of the pod whose spec contains it.
    Ephemeral,
}

impl Lifecycle {
    /// As in `volumeLifecycleModes` of a CSIDriver.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Persistent => "Persistent",
            Self::Ephemeral => "Ephemeral",
        }
    }
}

/// The type of the driver's volumes in metrics.
#[must_use]
pub fn qualified_name(driver: &str) -> String {
    format!("{PLUGIN}:{driver}")
}

/// Why a driver cannot be called.
#[must_use]
pub fn not_registered(driver: &str) -> String {
    format!("driver name {driver} not found in the list of registered CSI drivers")
}
