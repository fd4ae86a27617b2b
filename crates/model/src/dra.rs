//! Dynamic resource allocation, as the kubelet and a driver on its node talk about it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::devices::DeviceHealth;

/// A ResourceClaim, as it is named in calls of drivers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimId {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// A device that a driver has prepared for a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimDevice {
    pub pool: String,
    pub name: String,
    /// Which share of a device with consumable capacity.
    pub share_id: Option<String>,
    /// The requests of the claim that the device is for; every request if empty.
    pub requests: Vec<String>,
    /// `vendor.com/class=device`: the names by which the runtime finds what the device needs.
    pub cdi_devices: Vec<String>,
}

/// A device of a driver.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceKey {
    pub pool: String,
    pub name: String,
}

impl ClaimDevice {
    #[must_use]
    pub fn key(&self) -> DeviceKey {
        DeviceKey { pool: self.pool.clone(), name: self.name.clone() }
    }
}

/// A claim that a container uses, with the devices of it that the container gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsedClaim {
    pub name: String,
    pub namespace: String,
    pub devices: Vec<UsedDevice>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsedDevice {
    pub driver: String,
    pub device: ClaimDevice,
}

/// The health of a device, as its driver reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceReport {
    pub pool: String,
    pub device: String,
    pub health: DeviceHealth,
    /// Empty for none.
    pub message: String,
    /// How long this counts without another report; `None` if the driver leaves that to the kubelet.
    pub timeout: Option<Duration>,
}

/// What a driver answers about each claim, by its UID: the devices, or why it failed.
pub type ClaimAnswers<T> = BTreeMap<String, Result<T, String>>;

/// The version of the protocol of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DraVersion {
    V1,
    V1Beta1,
}

impl DraVersion {
    /// In the order of preference of the kubelet, which counts only in messages: the driver's own order decides.
    pub const ALL: [Self; 2] = [Self::V1, Self::V1Beta1];

    /// Its name at registration.
    #[must_use]
    pub const fn service(self) -> &'static str {
        match self {
            Self::V1 => "v1.DRAPlugin",
            Self::V1Beta1 => "v1beta1.DRAPlugin",
        }
    }

    /// The prefix of the names of its methods.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::V1 => "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/",
            Self::V1Beta1 => "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/",
        }
    }
}
