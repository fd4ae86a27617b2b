//! Why a pod or the node is as it is, in words: what the node says at its local socket, and how `kubelet why` prints it.
//!
//! Pure functions over what the node knows. Nothing here looks at the runtime, the API or a clock.
#![forbid(unsafe_code)]

pub mod advice;
pub mod amounts;
pub mod describe;
pub mod doctor;
pub mod image;
pub mod node;
pub mod pod;
pub mod render;
pub mod selector;
pub mod times;
pub mod volume;
pub mod volume_source;
pub mod waiting;
pub mod waterfall;
