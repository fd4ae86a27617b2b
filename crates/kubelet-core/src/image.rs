//! Images: how they are named, when they are pulled, and with which credentials. Never talks to a registry.

pub mod access;
pub mod gc;
pub mod keyring;
pub mod name;
pub mod provider;
pub mod pull;
pub mod pull_secrets;
