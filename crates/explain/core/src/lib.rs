//! Why a pod or the node is as it is, in words: what the node says at its local socket, and how `kubelet why` prints it.
//!
//! Pure functions over what the node knows. Nothing here looks at the runtime, the API or a clock.
#![forbid(unsafe_code)]

pub mod advice;
pub mod doctor;
pub mod node;
pub mod pod;
pub mod render;
pub mod times;
pub mod waterfall;
