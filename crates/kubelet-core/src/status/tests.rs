//! Golden tables and laws of the pod status. `scene.rs` has the little language they are written in.

mod golden;
mod laws;
mod restart;
mod scene;
