//! Paths of container logs, and what their names contain (docs/behaviour/logs.md). Never opens one.

use model::PodRef;

/// Longest file name of common filesystems, less the `.log` at its end.
const MAX_LINK_NAME: usize = 255 - 4;

/// `<root>/<namespace>_<name>_<uid>`: the directory with all logs of a pod. `root` is `/var/log/pods`.
#[must_use]
pub fn pod_log_dir(root: &str, pod: &PodRef) -> String {
    format!("{}/{}", root.trim_end_matches('/'), pod_log_dir_name(pod))
}

/// The last component of [`pod_log_dir`].
#[must_use]
pub fn pod_log_dir_name(pod: &PodRef) -> String {
    format!("{}_{}_{}", pod.namespace, pod.name, pod.uid)
}

/// The UID of the pod whose log directory has this name.
#[must_use]
pub fn pod_uid_of_dir(name: &str) -> Option<&str> {
    let mut parts = name.splitn(3, '_');
    let (_namespace, _name, uid) = (parts.next()?, parts.next()?, parts.next()?);
    (!uid.is_empty()).then_some(uid)
}

/// `<container>/<restart count>.log`, relative to the pod's log directory.
#[must_use]
pub fn container_log(container: &str, restart_count: u32) -> String {
    format!("{container}/{restart_count}.log")
}

/// The file name below `/var/log/containers` that log collectors read for one container's log.
#[must_use]
pub fn container_link_name(pod: &PodRef, container: &str, container_id: &str) -> String {
    let name = format!("{}_{}_{container}-{container_id}", pod.name, pod.namespace);
    let end =
        name.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= MAX_LINK_NAME).last();
    format!("{}.log", &name[..end.unwrap_or(0)])
}

/// The container's ID in the name of a link below `/var/log/containers`; a truncated name does not contain it.
#[must_use]
pub fn container_id_of_link(name: &str) -> Option<&str> {
    let (_, id) = name.strip_suffix(".log")?.rsplit_once('-')?;
    (!id.is_empty()).then_some(id)
}

/// The restart count that a container gets from the logs of earlier instances: one more than the highest number among
/// `<n>.log` and its rotated forms, 0 if there are none.
pub fn next_restart_count<'a>(file_names: impl IntoIterator<Item = &'a str>) -> u32 {
    let number = |name: &str| {
        let (number, rest) = name.split_once('.')?;
        let is_log = rest == "log" || rest.starts_with("log.");
        let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        if is_log && digits { number.parse::<u32>().ok() } else { None }
    };
    file_names.into_iter().filter_map(number).max().map_or(0, |highest| highest.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> PodRef {
        PodRef::new("ns", "web-0", "u-1")
    }

    #[test]
    fn logs_are_found_by_namespace_name_uid_container_and_restart() {
        assert_eq!(pod_log_dir("/var/log/pods/", &pod()), "/var/log/pods/ns_web-0_u-1");
        assert_eq!(container_log("app", 3), "app/3.log");
        assert_eq!(pod_uid_of_dir("ns_web-0_u-1"), Some("u-1"));
        assert_eq!(pod_uid_of_dir("ns_web-0_"), None);
        assert_eq!(pod_uid_of_dir("lost+found"), None);
    }

    #[test]
    fn links_name_the_pod_first_and_the_id_last() {
        assert_eq!(container_link_name(&pod(), "app", "c0ffee"), "web-0_ns_app-c0ffee.log");
        assert_eq!(container_id_of_link("web-0_ns_app-c0ffee.log"), Some("c0ffee"));
        assert_eq!(container_id_of_link("web-0_ns_app-c0ffee"), None);
    }

    #[test]
    fn log_link_name_is_truncated_to_the_maximum_file_name_length() {
        let long = PodRef::new(&"n".repeat(63), &"p".repeat(200), "u");
        let name = container_link_name(&long, "app", &"0".repeat(64));
        assert_eq!(name.len(), 255);
        assert!(name.ends_with("n.log"), "{name}");
    }

    #[test]
    fn the_next_restart_follows_the_highest_log() {
        assert_eq!(next_restart_count([]), 0);
        assert_eq!(next_restart_count(["0.log"]), 1);
        assert_eq!(next_restart_count(["2.log", "10.log.20260101-000000.gz", "9.log"]), 11);
        assert_eq!(next_restart_count(["x.log", "7.txt", ".log", "-1.log", "3.logs"]), 0);
        assert_eq!(next_restart_count(["99999999999.log"]), 0);
    }
}
