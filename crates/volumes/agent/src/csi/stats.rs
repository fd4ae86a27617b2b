//! Asks drivers how full volumes are: a CSI volume is never walked.

use std::path::{Path, PathBuf};

use base_agent::context::Context;
use model::PodUid;
use model::csi::StatsRequest;
use volumes_core::csi::not_registered;
use volumes_core::csi::paths::{IN_POD, MOUNT};
use volumes_core::csi::stats::{Measurement, measurement};
use volumes_core::csi::volume_data::PublishedData;

use super::{Csi, published};
use crate::metrics::VolumeMetrics;

/// The gate of `kubelet_volume_stats_health_status_abnormal`.
const HEALTH: &str = "CSIVolumeHealth";

/// The name of the CSI volume that containers find at that path; `None` if it is of another type.
pub fn csi_volume_at(path: &Path) -> Option<&str> {
    let dir = path.parent().filter(|_| path.ends_with(MOUNT))?;
    let name = dir.file_name()?.to_str()?;
    dir.parent()?.ends_with(IN_POD).then_some(name)
}

impl Csi {
    /// Asks the driver of a pod's volume how full it is, and returns its name, too; `None` if the driver cannot say. The driver may take as long as for any
    /// other call, and only some volumes of one driver are asked for at once.
    ///
    /// # Errors
    /// The driver is not registered, or its answer is of no use.
    pub async fn measure(
        &self,
        ctx: &Context,
        pod: &PodUid,
        name: &str,
    ) -> Result<Option<(String, Measurement)>, String> {
        let Some((data, path)) = published(ctx, pod, name).await else {
            return Ok(None);
        };
        let began = ctx.clock.mono();
        let measured = self.ask(ctx, &data, path).await;
        let took = ctx.clock.mono().saturating_since(began);
        ctx.metrics.get::<VolumeMetrics>().volume_measured(&data.driver, took);
        Ok(measured?.map(|measured| (data.driver, measured)))
    }

    async fn ask(
        &self,
        ctx: &Context,
        data: &PublishedData,
        volume_path: PathBuf,
    ) -> Result<Option<Measurement>, String> {
        let driver = self.drivers.get(&data.driver)?;
        let _permit = driver.measurements.acquire().await.map_err(|_| not_registered(&data.driver))?;
        let capabilities = driver.capabilities().await.map_err(|error| error.to_string())?;
        if !capabilities.get_volume_stats {
            return Ok(None);
        }
        let volume_id = data.handle.clone();
        let request = StatsRequest { volume_id, volume_path, staging_target_path: None };
        let answer = driver.calls.stats(&request).await.map_err(|error| error.to_string())?;
        let reports_condition = capabilities.volume_condition && ctx.settings.gates.enabled(HEALTH);
        measurement(&answer, reports_condition).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_csi_volume_is_known_by_its_path() {
        for (path, expected) in [
            ("/k/pods/u/volumes/kubernetes.io~csi/pv-1/mount", Some("pv-1")),
            ("/k/pods/u/volumes/kubernetes.io~nfs/pv-1/mount", None),
            ("/k/pods/u/volumes/kubernetes.io~csi/mount", None),
            ("/mnt/disks/mount", None),
            ("mount", None),
        ] {
            assert_eq!(csi_volume_at(Path::new(path)), expected, "{path}");
        }
    }
}
