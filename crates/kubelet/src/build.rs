//! Which build this program is, as `build.rs` of this crate has found it.

use model::BuildInfo;

pub(crate) const BUILD: BuildInfo = BuildInfo {
    version: env!("CARGO_PKG_VERSION"),
    commit: env!("KUBELET_RS_COMMIT"),
    date: env!("KUBELET_RS_DATE"),
};
