//! Decisions about plugins: which sockets of the registration directory are registered when, and which versions are supported.

pub mod registration;
