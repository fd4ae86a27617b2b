//! Images: references, when they are pulled, and with which credentials. Never calls a registry.
#![forbid(unsafe_code)]

pub mod access;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod garbage_collection;
pub mod keyring;
pub mod name;
pub mod provider;
pub mod pull;
pub mod pull_secrets;
