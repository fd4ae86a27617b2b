//! Well-known labels that the kubelet sets on its Node.

/// Labels that say on what a node runs; the scheduler needs them.
pub(crate) const OS_LABEL: &str = "kubernetes.io/os";
pub(crate) const ARCH_LABEL: &str = "kubernetes.io/arch";
pub(crate) const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";
