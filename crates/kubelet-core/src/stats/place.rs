//! Whose cgroup a path is. Runtimes and cgroup drivers name them differently; the id in the last part tells.

/// The container or sandbox id that the last part of a cgroup's path may name: all of it with cgroupfs, a scope like
/// `cri-containerd-<id>.scope` with systemd.
#[must_use]
pub fn container_id(path: &str) -> &str {
    let last = last(path);
    match last.strip_suffix(".scope") {
        Some(scope) => scope.rsplit('-').next().unwrap_or(scope),
        None => last,
    }
}

/// The last part of a path.
#[must_use]
pub fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
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
