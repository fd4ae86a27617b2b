//! A small real Kubernetes API server.
//!
//! Owns: the store of objects and its history, and what the API promises about them: validation, defaults, resource
//! versions, watches, patches, selectors, deletion; and who may do what.
//!
//! Architecture invariants:
//! - it is an API server and nothing else: no scheduler, no controller but those that the API itself would miss
//!   (the signer of the two kubelet certificates, the default ServiceAccount of a namespace, the end of a namespace);
//! - objects are JSON trees, so that fields it does not know survive;
//! - the rules are pure functions over those trees; only the store and the connections hold state;
//! - all that is changed is changed in one call of the store, so that nothing comes between a decision and its effect.
#![forbid(unsafe_code)]

mod admission;
mod api;
mod audit;
mod auth;
mod clock;
pub mod defaults;
mod discovery;
pub mod encoding;
mod endpoints;
mod events;
mod http;
mod object;
mod options;
pub mod patch;
mod proxy;
mod registry;
mod resources;
pub mod selector;
mod server;
mod signing;
mod status;
mod store;
pub mod table;
pub mod validation;

pub use auth::authority::KeyAndCertificate;
pub use auth::tokens::StaticToken;
pub use clock::Clock;
pub use options::{Approval, BadState, Behaviour, Options, State};
pub use server::{LocalApi, Running, StartError};
