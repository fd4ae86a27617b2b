//! Which container a cgroup path belongs to. Runtimes and cgroup drivers name cgroups differently; the ID is in the last
//! component.

/// The container or sandbox ID in the last component of a cgroup path: all of it with cgroupfs, a scope like
/// `cri-containerd-<id>.scope` with systemd. CRI-O writes `crio-<id>` with cgroupfs, too; its monitor of a container has a
/// cgroup `crio-conmon-<id>` next to it, which is not a container.
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

/// The image of a sandbox, from the verbose status of its runtime: `{"image": "registry.k8s.io/pause:3.10", …}`. For a sandbox
/// without a process, CRI-O has only an annotation.
#[must_use]
pub fn sandbox_image(info: &str) -> Option<String> {
    let info: serde_json::Value = serde_json::from_str(info).ok()?;
    let annotation = || info.pointer("/runtimeSpec/annotations/io.kubernetes.cri-o.ImageName");
    let image = info.get("image").or_else(annotation)?.as_str()?;
    Some(image.to_owned()).filter(|image| !image.is_empty())
}

/// The last component of a path.
#[must_use]
pub fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// The cgroup whose usage counts as the kubelet's, from its `/proc/<pid>/cgroup`. With version 1 there is none unless the
/// CPU and memory hierarchies agree; systemd's hierarchy, if it exists, names it.
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
