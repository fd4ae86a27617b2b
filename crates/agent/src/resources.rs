//! Who holds which resource of the node: admitted pods and devices.

pub mod admissions;
pub mod devices;
