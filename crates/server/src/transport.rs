//! Connections: how many there are, how long each may last, and what is counted of their requests.

pub(crate) mod connections;
pub(crate) mod counted;
