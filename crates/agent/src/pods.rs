//! Pods: the sync loop starts one worker for each, which acts in passes on what the PLEG observed and the prober found.

pub(crate) mod cgroups;
pub(crate) mod handles;
pub mod hooks;
pub(crate) mod http_action;
pub mod messages;
mod mounted_images;
pub mod pass;
pub mod pleg;
pub(crate) mod prober;
pub mod sync_loop;
pub mod termination_requests;
pub mod user_namespaces;
pub(crate) mod worker;
