//! Resize of a pod in place (docs/behaviour/resize.md): other requests and limits of CPU and memory for a pod that runs.
//!
//! ```text
//! the API requests others -> the node allocates them, or the resize waits (accept)
//!   -> the plan of the pod finds what is not set yet (changes) -> limits are set in an order that kills nothing (steps)
//! ```
//! Nothing is called here. What is allocated is in [`resources_core::allocations`].

pub mod accept;
pub mod allocated;
pub mod changes;
pub mod messages;
pub mod requested;
pub mod state;
pub mod steps;
