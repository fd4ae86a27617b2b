//! Measurements: what the files of the kernel say, and how it is told to whom. Pure.
//!
//! Owns: which files of a cgroup are read and what they mean ([`cgroup`]), the same of procfs ([`procfs`]), whose cgroup
//! a path is ([`place`]), rates and the age at which a sample is taken again ([`age`]), the shape of one sample of the
//! whole node ([`sample`]), and its three tellings: [`summary`], [`resource`], [`cadvisor`]. Never reads a file.

pub mod age;
pub mod cadvisor;
pub mod cgroup;
pub mod exposition;
pub mod operations;
pub mod place;
pub mod process;
pub mod procfs;
pub mod resource;
pub mod sample;
pub mod summary;
#[cfg(test)]
mod tests;
pub mod volumes;
