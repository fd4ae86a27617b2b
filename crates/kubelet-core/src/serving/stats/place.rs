//! Whose cgroup a path is. Runtimes and cgroup drivers name them differently; the id in the last part tells.

/// The container or sandbox id that the last part of a cgroup's path may name: all of it with cgroupfs, a scope like
/// `cri-containerd-<id>.scope` with systemd. CRI-O writes `crio-<id>` with cgroupfs, too; its monitor of a container has a
/// cgroup `crio-conmon-<id>` next to it, which is no container.
#[must_use]
pub fn container_id(path: &str) -> &str {
    let last = last(path);
    let (name, is_scope) = match last.strip_suffix(".scope") {
        Some(scope) => (scope, true),
        None => (last, false),
    };
    if name.starts_with("crio-conmon-") {
        return "";
    }
    match name.strip_prefix("crio-") {
        Some(id) => id,
        None if is_scope => name.rsplit('-').next().unwrap_or(name),
        None => name,
    }
}

/// The image of a sandbox, from what its runtime says of it: `{"image": "registry.k8s.io/pause:3.10", …}`.
#[must_use]
pub fn sandbox_image(info: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Info {
        image: String,
    }
    let info: Info = serde_json::from_str(info).ok()?;
    Some(info.image).filter(|image| !image.is_empty())
}

/// The last part of a path.
#[must_use]
pub fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// The cgroup whose usage counts as the kubelet's, from its `/proc/<pid>/cgroup`. With version 1 there is none unless CPU and
/// memory are counted in the same one; systemd, where it is there, names it.
#[must_use]
pub fn kubelet_cgroup(proc_cgroup: &str, is_v2: bool) -> Option<&str> {
    if is_v2 {
        return own_cgroup(proc_cgroup, "");
    }
    let memory = own_cgroup(proc_cgroup, "memory")?;
    let is_unified = own_cgroup(proc_cgroup, "cpu") == Some(memory);
    is_unified.then(|| own_cgroup(proc_cgroup, "name=systemd").unwrap_or(memory))
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
