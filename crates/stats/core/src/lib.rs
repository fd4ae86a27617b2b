//! Measurements: parsing of kernel files, and the forms in which they are exported. Pure.
//!
//! Owns: which files of a cgroup are read and what they mean ([`cgroup`]), the same of procfs ([`procfs`]), which container
//! a cgroup path belongs to ([`cgroup_path`]), rates and the maximum age of a sample ([`age`]), the structure of one sample
//! of the whole node ([`sample`]), and its three exports: [`summary`], [`resource`], [`cadvisor`]. Never reads a file.
#![forbid(unsafe_code)]

pub mod age;
pub mod cadvisor;
pub mod cgroup;
pub mod cgroup_path;
pub mod exposition;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod near;
pub mod operations;
pub mod process;
pub mod procfs;
pub mod resource;
pub mod runtime_stats;
pub mod sample;
pub mod summary;
#[cfg(test)]
mod tests;
pub mod volumes;
