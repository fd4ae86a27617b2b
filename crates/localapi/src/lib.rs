//! A small real Kubernetes API server.
//!
//! Owns: the store of objects and its history, and the semantics of the API: validation, defaults, resource
//! versions, watches, patches, selectors, deletion, authentication and authorization.
//!
//! Architecture invariants:
//! - it is an API server and nothing else: it has only those controllers without which the API of one node is incomplete (the signer of
//!   kubelet certificates, the content and the deletion of namespaces, garbage collection by owners, the use of quotas, the binding of
//!   volumes to claims and their attachments, the allocation of devices to claims, the deletion of pods because of taints, the aggregation of
//!   ClusterRoles);
//! - objects are JSON trees, so that unknown fields are preserved;
//! - the rules are pure functions over those trees; only the store and the connections hold state;
//! - each change is one transaction of the store, so that no other change comes between the decision and the write.
#![forbid(unsafe_code)]

mod admission;
mod amounts;
mod api;
mod audit;
mod auth;
mod cel;
mod clock;
pub mod command;
mod controllers;
pub mod defaults;
mod discovery;
pub mod encoding;
mod endpoints;
mod events;
mod files;
mod http;
mod json;
mod managed_fields;
mod object;
mod options;
pub mod patch;
mod proxy;
mod quota;
mod registry;
mod resource_metrics;
mod resources;
mod schema;
pub mod selector;
mod server;
mod signing;
mod status;
mod store;
pub mod table;
mod taints;
pub mod validation;

pub use auth::authority::KeyAndCertificate;
pub use auth::tokens::StaticToken;
pub use clock::Clock;
pub use options::{Approval, Behaviour, InvalidState, Options, State};
pub use server::{LocalApi, Running, StartError};
pub use store::disk::DatabaseProblem;
