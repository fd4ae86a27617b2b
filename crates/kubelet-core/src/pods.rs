//! Decisions about one pod: what to do next ([`actions`]), what its worker does ([`worker`]), what the runtime is requested
//! to create ([`request`]), what its probes mean ([`probe`]), and what the API shows about it ([`status`]).

pub mod actions;
pub mod backoff;
pub mod cgroup_loss;
pub mod create_error;
pub mod deadline;
pub mod dns;
pub mod end_steps;
pub mod ended;
pub mod ended_names;
pub mod env;
#[cfg(test)]
mod extremes;
#[cfg(test)]
pub(crate) mod fixture;
pub mod hash;
pub mod hostname;
pub mod hosts_file;
pub mod housekeeping;
pub mod http_action;
pub mod memory;
pub mod name_waits;
pub mod plan;
pub mod pleg;
pub mod probe;
pub mod request;
pub mod resize;
pub mod restart;
pub mod restored_back_off;
pub mod restored_trail;
pub mod status;
pub mod termination;
pub mod userns;
pub mod waiting;
pub mod worker;
