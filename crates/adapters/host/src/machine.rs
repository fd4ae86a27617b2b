//! Facts about the machine that do not change while the kubelet runs.

use std::collections::BTreeSet;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use ports::host::MachineInfo;

/// Reads below `root`; a fact that cannot be read stays empty or zero.
pub(crate) fn read(root: &Path) -> MachineInfo {
    let uname = rustix::system::uname();
    let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let machine_id = Some(text("etc/machine-id"))
        .filter(|id| !id.trim().is_empty())
        .unwrap_or_else(|| text("var/lib/dbus/machine-id"));
    let os_release = Some(text("etc/os-release"))
        .filter(|release| !release.is_empty())
        .unwrap_or_else(|| text("usr/lib/os-release"));
    let machine_id = machine_id.trim().to_owned();
    let (physical_cores, sockets) = topology(root);
    let (books, drawers) = (distinct(root, "book_id"), distinct(root, "drawer_id"));
    let uuid = text("sys/class/dmi/id/product_uuid").trim().to_lowercase();
    let selinux_enabled = has_selinux(&text("proc/self/mounts"), &text("proc/self/attr/current"));
    MachineInfo {
        cpus: count_cpus(&text("sys/devices/system/cpu/online")).unwrap_or_else(cpus_for_us),
        physical_cores,
        sockets,
        books,
        drawers,
        memory_bytes: meminfo_bytes(&text("proc/meminfo"), "MemTotal:").unwrap_or(0),
        page_bytes: u64::try_from(rustix::param::page_size()).unwrap_or(4096),
        swap_bytes: meminfo_bytes(&text("proc/meminfo"), "SwapTotal:").unwrap_or(0),
        hostname: uname.nodename().to_string_lossy().into_owned(),
        boot_id: text("proc/sys/kernel/random/boot_id").trim().to_owned(),
        system_uuid: if uuid.is_empty() { machine_id.clone() } else { uuid },
        machine_id,
        kernel_version: uname.release().to_string_lossy().into_owned(),
        os_image: pretty_name(&os_release).unwrap_or_else(|| "Linux".to_owned()),
        hugepage_sizes: hugepage_sizes(root).into_iter().map(cgroup_size).collect(),
        hugepages: hugepage_sizes(root).into_iter().map(|kib| hugepages(root, kib)).collect(),
        architecture: architecture().to_owned(),
        thermal_throttle_paths: thermal_throttle_paths(root, &text("sys/devices/system/cpu/possible")),
        selinux_enabled,
        selinux_file_label: selinux_enabled.then(|| selinux_file_label(root)).flatten(),
    }
}

pub(crate) fn has_apparmor(root: &Path) -> bool {
    fs::read(root.join("sys/module/apparmor/parameters/enabled"))
        .is_ok_and(|enabled| enabled.first() == Some(&b'Y'))
}

/// More processors than the kernel can be built for.
const MAX_CPUS: u32 = 8192;

/// The directory of each possible processor that has one. A runtime would mask a path that does not exist with an empty
/// directory if the file tree were writable.
fn thermal_throttle_paths(root: &Path, possible: &str) -> Vec<String> {
    let cpus = cpu_ranges(possible).unwrap_or_else(|| vec![0..=cpus_for_us().saturating_sub(1)]);
    let paths = cpus
        .into_iter()
        .flatten()
        .take_while(|cpu| *cpu < MAX_CPUS)
        .map(|cpu| format!("sys/devices/system/cpu/cpu{cpu}/thermal_throttle"));
    paths.filter(|path| root.join(path).exists()).map(|path| format!("/{path}")).collect()
}

/// Mounted and writable, and with a policy: without one every process has the label `kernel`.
fn has_selinux(mounts: &str, own_label: &str) -> bool {
    let is_mounted = mounts.lines().any(|line| {
        let mut words = line.split(' ').skip(2);
        let (kind, options) = (words.next(), words.next().unwrap_or_default());
        kind == Some("selinuxfs") && options.split(',').any(|option| option == "rw")
    });
    let label = own_label.trim_end_matches(['\0', '\n']);
    is_mounted && !label.is_empty() && label != "kernel"
}

/// The label of files of containers, from the first of these files that exists, as in container runtimes.
fn selinux_file_label(root: &Path) -> Option<String> {
    let read = |path: &str| fs::read_to_string(root.join(path)).ok();
    let contexts = read("usr/share/containers/selinux/contexts").or_else(|| {
        let config = read("etc/selinux/config").unwrap_or_default();
        let policy = setting(&config, "SELINUXTYPE").unwrap_or_default();
        read(&format!("etc/selinux/{policy}/contexts/lxc_contexts"))
    })?;
    setting(&contexts, "file").filter(|label| !label.is_empty())
}

/// The value in a line `name = "value"`.
fn setting(text: &str, name: &str) -> Option<String> {
    let values = text.lines().filter_map(|line| line.split_once('='));
    let mut values = values.filter(|(key, _)| key.trim() == name);
    values.next().map(|(_, value)| value.trim().trim_matches('"').to_owned())
}

/// What this program was built for; a kubelet runs on nothing else.
const fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

/// How many cores there are, and in how many packages.
fn topology(root: &Path) -> (u32, u32) {
    let (mut cores, mut packages) = (BTreeSet::new(), BTreeSet::new());
    for entry in fs::read_dir(root.join("sys/devices/system/cpu")).into_iter().flatten().flatten() {
        let read = |name: &str| fs::read_to_string(entry.path().join("topology").join(name)).ok();
        let (Some(core), Some(package)) = (read("core_id"), read("physical_package_id")) else { continue };
        cores.insert((package.clone(), core));
        packages.insert(package);
    }
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    (count(cores.len()), count(packages.len()))
}

/// In KiB, small ones first. The kernel has a directory for each size, like `hugepages-2048kB`.
/// How many different values processors have of a fact of their topology.
fn distinct(root: &Path, fact: &str) -> u32 {
    let entries = fs::read_dir(root.join("sys/devices/system/cpu")).into_iter().flatten().flatten();
    let read = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("topology").join(fact)).ok();
    u32::try_from(entries.filter_map(read).collect::<BTreeSet<_>>().len()).unwrap_or(u32::MAX)
}

fn hugepage_sizes(root: &Path) -> Vec<u64> {
    let entries = fs::read_dir(root.join("sys/kernel/mm/hugepages")).into_iter().flatten().flatten();
    let mut sizes: Vec<u64> = entries.filter_map(|entry| hugepage_kib(entry.file_name().to_str()?)).collect();
    sizes.sort_unstable();
    sizes
}

/// How many bytes are reserved in pages of that size.
fn hugepages(root: &Path, kib: u64) -> (String, u64) {
    let path = root.join(format!("sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages"));
    let pages: u64 = fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    (cgroup_size(kib).replace('B', "i"), pages.saturating_mul(kib << 10))
}

fn hugepage_kib(directory: &str) -> Option<u64> {
    directory.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok().filter(|kib| *kib > 0)
}

/// The largest unit that leaves a whole number, as in the names of the cgroup's files: `hugetlb.2MB.max`.
fn cgroup_size(kib: u64) -> String {
    const MIB: u64 = 1 << 10;
    const GIB: u64 = 1 << 20;
    match kib {
        _ if kib.is_multiple_of(GIB) => format!("{}GB", kib / GIB),
        _ if kib.is_multiple_of(MIB) => format!("{}MB", kib / MIB),
        _ => format!("{kib}KB"),
    }
}

/// Of a list like `0-3,5`: the machine's CPUs, not only those this process may use.
fn count_cpus(online: &str) -> Option<u32> {
    let mut sizes = cpu_ranges(online)?.into_iter().map(|range| (range.end() - range.start()).checked_add(1));
    sizes.try_fold(0_u32, |count, size| count.checked_add(size?))
}

fn cpu_ranges(list: &str) -> Option<Vec<RangeInclusive<u32>>> {
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last).then_some(first..=last)
    };
    list.trim().split(',').map(range).collect()
}

fn cpus_for_us() -> u32 {
    std::thread::available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX))
}

fn meminfo_bytes(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

fn pretty_name(os_release: &str) -> Option<String> {
    let value = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?.trim();
    Some(value.trim_matches(['"', '\'']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_cpus_are_counted() {
        assert_eq!(count_cpus("0-3,5,7-8\n"), Some(7));
        assert_eq!(count_cpus("0"), Some(1));
        assert_eq!(count_cpus(""), None);
        assert_eq!(count_cpus("3-1"), None);
        assert_eq!(count_cpus("0-4294967295"), None);
    }

    #[test]
    fn facts_come_from_below_the_given_root() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("sys/devices/system/cpu/online", "0-63\n");
        for (cpu, core) in [("cpu0", "0\n"), ("cpu1", "0\n"), ("cpu2", "1\n")] {
            put(&format!("sys/devices/system/cpu/{cpu}/topology/core_id"), core);
            put(&format!("sys/devices/system/cpu/{cpu}/topology/physical_package_id"), "0\n");
        }
        put("sys/devices/system/cpu/cpu0/topology/book_id", "1\n");
        put("sys/devices/system/cpu/possible", "0-2\n");
        put("sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "0\n");
        put("sys/devices/system/cpu/cpu7/thermal_throttle/core_throttle_count", "0\n");
        put("proc/self/mounts", "selinuxfs /sys/fs/selinux selinuxfs rw,nosuid,noexec,relatime 0 0\n");
        put("proc/self/attr/current", "system_u:system_r:init_t:s0\0");
        put("proc/meminfo", "MemTotal:       16384 kB\nMemFree:  1 kB\nSwapTotal: 1024 kB\n");
        put("sys/class/dmi/id/product_uuid", "4C4C-AB\n");
        put("proc/sys/kernel/random/boot_id", "b-o-o-t\n");
        put("var/lib/dbus/machine-id", "m1\n");
        put("etc/os-release", "NAME=x\nPRETTY_NAME=\"Fancy Linux 1\"\n");
        put("sys/module/apparmor/parameters/enabled", "Y\n");
        for size in ["1048576kB", "2048kB", "64kB", "32768kB"] {
            put(&format!("sys/kernel/mm/hugepages/hugepages-{size}/nr_hugepages"), "3\n");
        }
        put("sys/kernel/mm/hugepages/other/x", "");
        let info = read(root.path());
        assert_eq!(info.hugepage_sizes, ["64KB", "2MB", "32MB", "1GB"]);
        assert_eq!(info.hugepages["2Mi"], 3 * (2 << 20));
        assert_eq!(info.hugepages["64Ki"], 3 * (64 << 10));
        assert_eq!((info.swap_bytes, info.system_uuid.as_str()), (1 << 20, "4c4c-ab"));
        assert_eq!((info.cpus, info.memory_bytes), (64, 16 << 20));
        assert_eq!((info.physical_cores, info.sockets), (2, 1));
        assert_eq!((info.boot_id.as_str(), info.machine_id.as_str()), ("b-o-o-t", "m1"));
        assert_eq!(info.os_image, "Fancy Linux 1");
        assert!(has_apparmor(root.path()));
        assert_eq!((info.books, info.drawers), (1, 0));
        assert!(info.selinux_enabled);
        assert_eq!(info.thermal_throttle_paths, ["/sys/devices/system/cpu/cpu1/thermal_throttle"]);
    }

    #[test]
    fn selinux_label_of_files_is_that_of_the_policy_for_containers() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, content: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        assert_eq!(selinux_file_label(root.path()), None);
        put("etc/selinux/config", "# comment\nSELINUX=enforcing\nSELINUXTYPE=targeted\n");
        put(
            "etc/selinux/targeted/contexts/lxc_contexts",
            "process = \"a:b:c:s0\"\nfile = \"a:b:lxc_t:s0\"\n",
        );
        assert_eq!(selinux_file_label(root.path()).as_deref(), Some("a:b:lxc_t:s0"));
        let contexts = "process = \"system_u:system_r:container_t:s0\"\nfile = \"system_u:object_r:container_file_t:s0\"\nro_file=\"x\"\n";
        put("usr/share/containers/selinux/contexts", contexts);
        let label = "system_u:object_r:container_file_t:s0";
        assert_eq!(selinux_file_label(root.path()).as_deref(), Some(label));
    }

    #[test]
    fn selinux_is_enabled_only_with_a_policy() {
        let mounted = "selinuxfs /sys/fs/selinux selinuxfs rw,relatime 0 0\n";
        assert!(has_selinux(mounted, "system_u:system_r:kubelet_t:s0\n"));
        assert!(!has_selinux(mounted, "kernel\0"));
        assert!(!has_selinux("selinuxfs /sys/fs/selinux selinuxfs ro,relatime 0 0\n", "a:b:c:s0"));
        assert!(!has_selinux("sysfs /sys sysfs rw 0 0\n", "unconfined\n"), "the label of AppArmor");
    }

    #[test]
    fn thermal_throttle_paths_that_do_not_exist_are_left_out() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(thermal_throttle_paths(root.path(), "0-4294967295"), Vec::<String>::new());
    }

    #[test]
    fn machine_info_without_readable_files_is_empty() {
        let root = tempfile::tempdir().unwrap();
        let info = read(root.path());
        assert!(info.cpus >= 1);
        assert_eq!(info.memory_bytes, 0);
        assert!(!info.kernel_version.is_empty() && !info.hostname.is_empty());
        assert!(!has_apparmor(root.path()));
        assert!(!info.selinux_enabled && info.thermal_throttle_paths.is_empty());
    }
}
