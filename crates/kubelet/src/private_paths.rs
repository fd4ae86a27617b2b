//! Paths of the machine that tests and scripts replace by paths of their own, so that the machine stays as it is.
//!
//! A release build has none of them, unless it was built with the feature `private-paths`: what a node reads and writes must not depend
//! on a variable that was left in its environment.

use std::path::PathBuf;

/// The directory of kernel settings, instead of `/proc/sys`.
pub(crate) const KERNEL_SETTINGS: &str = "KUBELET_PROC_SYS_DIR";
/// The kernel log.
pub(crate) const KERNEL_LOG: &str = "KUBELET_KERNEL_LOG";
/// The directory for links to container logs, which log collectors read.
pub(crate) const CONTAINER_LINKS: &str = "KUBELET_CONTAINER_LINKS_DIR";

const ARE_ALLOWED: bool = cfg!(any(debug_assertions, feature = "private-paths"));

/// The path that the variable names, where that is allowed.
pub(crate) fn path(variable: &str) -> Option<PathBuf> {
    if ARE_ALLOWED { std::env::var_os(variable).map(PathBuf::from) } else { None }
}
