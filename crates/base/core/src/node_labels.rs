//! Well-known labels that the kubelet sets on its Node.

/// Labels that say on what a node runs; the scheduler needs them.
pub const OS_LABEL: &str = "kubernetes.io/os";
pub const ARCH_LABEL: &str = "kubernetes.io/arch";
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";
