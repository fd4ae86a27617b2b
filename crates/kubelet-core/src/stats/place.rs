//! Whose cgroup a path is. Runtimes and cgroup drivers name them differently; the id in the last part tells.

/// The container or sandbox id that the last part of a cgroup's path may name: all of it with cgroupfs, a scope like
/// `cri-containerd-<id>.scope` with systemd.
#[must_use]
pub fn container_id(path: &str) -> &str {
    let last = path.rsplit('/').next().unwrap_or_default();
    match last.strip_suffix(".scope") {
        Some(scope) => scope.rsplit('-').next().unwrap_or(scope),
        None => last,
    }
}

/// The UID of the pod whose own cgroup that is: `/kubepods/burstable/pod<uid>`, or as a slice of systemd, which has no
/// dashes to spare, `kubepods-burstable-pod<uid with _>.slice`.
#[must_use]
pub fn pod_uid(path: &str) -> Option<String> {
    let last = path.rsplit('/').next().unwrap_or_default();
    if let Some(slice) = last.strip_suffix(".slice") {
        let (_, uid) = slice.strip_prefix("kubepods")?.rsplit_once("-pod")?;
        return Some(uid.replace('_', "-"));
    }
    let below_kubepods = path.split('/').any(|part| part == "kubepods");
    last.strip_prefix("pod").filter(|uid| below_kubepods && !uid.is_empty()).map(str::to_owned)
}

/// The cgroup that holds all pods.
#[must_use]
pub fn is_all_pods(path: &str) -> bool {
    matches!(path.rsplit('/').next(), Some("kubepods" | "kubepods.slice"))
}

/// The path of a process in the hierarchy of `controller` (`""` for version 2), from its `/proc/<pid>/cgroup`.
#[must_use]
pub fn own_cgroup<'a>(proc_cgroup: &'a str, controller: &str) -> Option<&'a str> {
    proc_cgroup.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        controllers.split(',').any(|known| known == controller).then_some(path)
    })
}
