//! Metrics of operations on cgroups.

use std::time::Duration;

use stats_core::exposition::{DEFAULT_BUCKETS, Kind, family};

use base_agent::metrics::Histogram;

/// An operation on a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupWork {
    Create,
    Update,
    Destroy,
}

impl CgroupWork {
    const ALL: [(Self, &str); 3] =
        [(Self::Create, "create"), (Self::Update, "update"), (Self::Destroy, "destroy")];
}

#[derive(Debug)]
pub struct CgroupMetrics {
    /// In the order of [`CgroupWork`].
    works: [Histogram; 3],
}

impl Default for CgroupMetrics {
    fn default() -> Self {
        Self { works: [(); 3].map(|()| Histogram::new(DEFAULT_BUCKETS)) }
    }
}

impl CgroupMetrics {
    /// A cgroup was created, updated or removed.
    pub fn worked(&self, work: CgroupWork, took: Duration) {
        self.works[work as usize].observe(took);
    }

    pub fn write(&self, text: &mut String) {
        let name = "kubelet_cgroup_manager_duration_seconds";
        family(
            text,
            name,
            Kind::Histogram,
            "Duration in seconds of cgroup manager operations, by operation type: create, update or destroy.",
        );
        for (work, operation) in CgroupWork::ALL {
            let took = &self.works[work as usize];
            if took.count() > 0 {
                took.write(text, name, &[("operation_type", operation)]);
            }
        }
    }
}
