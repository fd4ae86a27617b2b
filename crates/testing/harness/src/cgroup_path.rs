//! The path of a cgroup below the root of each hierarchy, by cgroup driver.

use model::CgroupDriver;

const SLICE: &str = ".slice";

/// The path of that cgroup below the root of a hierarchy. The name of a slice contains its parents: `a-b.slice` is in `a.slice`.
pub(crate) fn cgroup_path(driver: CgroupDriver, path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match driver {
        CgroupDriver::Cgroupfs => parts.join("/"),
        CgroupDriver::Systemd => {
            let parts: Vec<String> = parts.iter().map(|part| part.replace('-', "_")).collect();
            let slices = (1..=parts.len()).map(|count| format!("{}{SLICE}", parts[..count].join("-")));
            slices.collect::<Vec<_>>().join("/")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemd_slice_name_contains_its_parents() {
        let path = "/kubelet-test-1/kubepods/burstable/podaa-bb";
        assert_eq!(cgroup_path(CgroupDriver::Cgroupfs, path), &path[1..]);
        assert_eq!(
            cgroup_path(CgroupDriver::Systemd, path),
            "kubelet_test_1.slice/kubelet_test_1-kubepods.slice/kubelet_test_1-kubepods-burstable.slice/\
             kubelet_test_1-kubepods-burstable-podaa_bb.slice"
        );
    }
}
