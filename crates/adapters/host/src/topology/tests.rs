//! Made-up trees of sysfs, as the kernel has them on real machines.

use std::fs;
use std::path::Path;

use model::cpu_set::CpuSet;
use model::topology::MachineTopology;

use super::read;

/// A processor: the hardware's id of its core, its package, its NUMA node, and caches of cores with others.
struct Cpu {
    id: u32,
    core: i64,
    package: i64,
    node: Option<u32>,
    /// Level, id and the processors that share it.
    caches: Vec<(u32, u32, CpuSet)>,
}

/// What a NUMA node has besides processors: memory in KiB, distances, and the number of huge pages of 2 MiB.
type Node = (u32, u64, &'static str, u64);

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{text}\n")).unwrap();
}

fn set(text: &str) -> CpuSet {
    text.parse().unwrap()
}

/// Words of 32 bits, the highest first.
fn mask(cpus: &CpuSet) -> String {
    let words = cpus.iter().last().unwrap_or(0) / 32 + 1;
    let bits = |word: u32| {
        (0..32).filter(|bit| cpus.contains(word * 32 + bit)).fold(0_u32, |all, bit| all | 1 << bit)
    };
    (0..words).rev().map(|word| format!("{:08x}", bits(word))).collect::<Vec<_>>().join(",")
}

fn write_tree(sys: &Path, cpus: &[Cpu], nodes: &[Node], online: Option<&str>) {
    let system = sys.join("devices/system");
    for cpu in cpus {
        let dir = system.join(format!("cpu/cpu{}", cpu.id));
        write(&dir.join("topology/core_id"), &cpu.core.to_string());
        write(&dir.join("topology/physical_package_id"), &cpu.package.to_string());
        for (index, (level, id, shared)) in cpu.caches.iter().enumerate() {
            let cache = dir.join(format!("cache/index{index}"));
            write(&cache.join("id"), &id.to_string());
            write(&cache.join("size"), "16384K");
            write(&cache.join("level"), &level.to_string());
            write(&cache.join("type"), "Unified");
            write(&cache.join("shared_cpu_map"), &mask(shared));
        }
        if let Some(node) = cpu.node {
            fs::create_dir_all(system.join(format!("node/node{node}/cpu{}", cpu.id))).unwrap();
        }
    }
    for (id, kib, distances, pages) in nodes {
        let dir = system.join(format!("node/node{id}"));
        write(
            &dir.join("meminfo"),
            &format!("Node {id} MemTotal:       {kib} kB\nNode {id} MemFree:   1 kB"),
        );
        write(&dir.join("distance"), distances);
        write(&dir.join("hugepages/hugepages-2048kB/nr_hugepages"), &pages.to_string());
        write(&dir.join("hugepages/hugepages-1048576kB/nr_hugepages"), "0");
    }
    // Entries that are no processors or nodes.
    write(&system.join("cpu/cpufreq/boost"), "1");
    write(&system.join("node/has_cpu"), "0");
    if let Some(online) = online {
        write(&system.join("cpu/online"), online);
    }
}

/// The cores as `n<node> s<socket> u<cache> first-last:<offsets of the threads>`, a line for each node, socket and cache.
fn shown(machine: &MachineTopology) -> Vec<String> {
    use std::collections::BTreeMap;
    let mut groups: BTreeMap<_, BTreeMap<u32, Vec<u32>>> = BTreeMap::new();
    for cpu in &machine.processors {
        let cores = groups.entry((cpu.numa_node, cpu.socket, cpu.uncore_cache)).or_default();
        cores.entry(cpu.core).or_default().push(cpu.id - cpu.core);
    }
    let line = |((node, socket, cache), cores): ((u32, u32, u32), BTreeMap<u32, Vec<u32>>)| {
        let mut runs: Vec<(u32, u32, Vec<u32>)> = Vec::new();
        for (core, offsets) in cores {
            match runs.last_mut().filter(|(_, last, same)| *last + 1 == core && *same == offsets) {
                Some((_, last, _)) => *last = core,
                None => runs.push((core, core, offsets)),
            }
        }
        let words = runs.iter().map(|(first, last, offsets)| {
            let offsets: Vec<String> = offsets.iter().map(u32::to_string).collect();
            let cores = if first == last { first.to_string() } else { format!("{first}-{last}") };
            format!("{cores}:{}", offsets.join(","))
        });
        format!("n{node} s{socket} u{cache} {}", words.collect::<Vec<_>>().join(" "))
    };
    groups.into_iter().map(line).collect()
}

#[track_caller]
fn check(cpus: &[Cpu], nodes: &[Node], online: Option<&str>, expected: &[&str]) -> MachineTopology {
    let sys = tempfile::tempdir().unwrap();
    write_tree(sys.path(), cpus, nodes, online);
    let machine = read(sys.path()).unwrap();
    assert_eq!(shown(&machine), expected);
    machine
}

/// Processors of equal cores: `threads` of each, the second ones after the first ones of all. Each core has a cache of its own, and shares one
/// of level 3 with `shared` cores.
fn equal_cores(cores: u32, threads: u32, per_node: u32, per_package: u32, shared: Option<u32>) -> Vec<Cpu> {
    let all = |first: u32, count: u32| -> CpuSet {
        (0..threads)
            .flat_map(|thread| (first..first + count).map(move |core| thread * cores + core))
            .collect()
    };
    let cpu = |id: u32| {
        let core = id % cores;
        let mut caches = vec![(1, core, all(core, 1)), (2, core, all(core, 1))];
        caches.extend(shared.map(|shared| (3, core / shared, all(core / shared * shared, shared))));
        let package = i64::from(core / per_package);
        Cpu { id, core: i64::from(core % per_package), package, node: Some(core / per_node), caches }
    };
    (0..cores * threads).map(cpu).collect()
}

#[test]
fn topology_of_a_virtual_machine_with_two_cores() {
    let machine = check(
        &equal_cores(2, 1, 2, 2, Some(2)),
        &[(0, 4_026_000, "10", 0)],
        Some("0-1"),
        &["n0 s0 u0 0-1:0"],
    );
    assert_eq!(machine.numa_nodes[0].memory_bytes, 4_026_000 * 1024);
    assert_eq!(machine.numa_nodes[0].distances, [10]);
}

#[test]
fn topology_of_a_laptop_with_cores_of_two_kinds() {
    let mut cpus: Vec<Cpu> = Vec::new();
    for id in 0..12 {
        let (core, own) = if id < 8 {
            (i64::from(id / 2 * 4), CpuSet::from([id / 2 * 2, id / 2 * 2 + 1]))
        } else {
            (i64::from(id + 8), CpuSet::from([id]))
        };
        let level2 = if id < 8 { own.clone() } else { set("8-11") };
        cpus.push(Cpu {
            id,
            core,
            package: 0,
            node: Some(0),
            caches: vec![(1, id, own), (2, id, level2), (3, 0, set("0-11"))],
        });
    }
    let nodes = [(0, 16_000_000, "10", 4)];
    let machine = check(&cpus, &nodes, Some("0-11"), &["n0 s0 u0 0:0,1 2:0,1 4:0,1 6:0,1 8-11:0"]);
    assert_eq!(machine.numa_nodes[0].huge_pages, [(2 << 20, 4), (1 << 30, 0)].into());
}

#[test]
fn topology_of_two_xeon_gold_6230() {
    // All cores of a socket share its cache, so that the socket counts as the cache. Its ids of cores have gaps.
    let mut cpus = equal_cores(40, 2, 20, 20, Some(20));
    for cpu in &mut cpus {
        cpu.core += cpu.core / 5 * 3;
    }
    let nodes = [(0, 98_000_000, "10 21", 0), (1, 99_000_000, "21 10", 0)];
    let machine = check(&cpus, &nodes, Some("0-79"), &["n0 s0 u0 0-19:0,40", "n1 s1 u1 20-39:0,40"]);
    assert_eq!(machine.processors.len(), 80);
    assert_eq!(machine.numa_nodes[1].distances, [21, 10]);
}

#[test]
fn topology_of_an_epyc_whose_socket_is_divided_into_four_nodes() {
    let near = ["10 12 12 12", "12 10 12 12", "12 12 10 12", "12 12 12 10"];
    let nodes: Vec<Node> = (0..4).map(|id| (id, 64_000_000, near[id as usize], 0)).collect();
    check(
        &equal_cores(32, 2, 8, 32, Some(4)),
        &nodes,
        Some("0-63"),
        &[
            "n0 s0 u0 0-3:0,32",
            "n0 s0 u1 4-7:0,32",
            "n1 s0 u2 8-11:0,32",
            "n1 s0 u3 12-15:0,32",
            "n2 s0 u4 16-19:0,32",
            "n2 s0 u5 20-23:0,32",
            "n3 s0 u6 24-27:0,32",
            "n3 s0 u7 28-31:0,32",
        ],
    );
}

#[test]
fn topology_of_an_arm_server_without_shared_caches() {
    // Its firmware numbers the package 36.
    let mut cpus = equal_cores(80, 1, 80, 80, None);
    for cpu in &mut cpus {
        cpu.package = 36;
    }
    check(&cpus, &[(0, 256_000_000, "10", 0)], Some("0-79"), &["n0 s36 u36 0-79:0"]);
}

#[test]
fn topology_of_two_epyc_9754_with_512_processors() {
    let expected: Vec<String> = (0..32)
        .map(|cache| format!("n{0} s{0} u{cache} {1}-{2}:0,256", cache / 16, cache * 8, cache * 8 + 7))
        .collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    let nodes = [(0, 768_000_000, "10 32", 0), (1, 768_000_000, "32 10", 0)];
    let machine = check(&equal_cores(256, 2, 128, 128, Some(8)), &nodes, Some("0-511"), &expected);
    assert_eq!(machine.cpus(), set("0-511"));
}

#[test]
fn processors_that_are_offline_or_without_a_core_are_left_out() {
    let nodes = [(0, 1, "10", 0)];
    let cpus = equal_cores(4, 2, 4, 4, Some(4));
    check(&cpus, &nodes, Some("0-1,3-5,7"), &["n0 s0 u0 0-1:0,4 3:0,4"]);
    // A kernel that takes none offline has no such list.
    check(&cpus, &nodes, None, &["n0 s0 u0 0-3:0,4"]);

    let sys = tempfile::tempdir().unwrap();
    write_tree(sys.path(), &cpus, &nodes, Some("0-7"));
    let cpu = sys.path().join("devices/system/cpu");
    fs::remove_file(cpu.join("cpu5/topology/core_id")).unwrap();
    fs::remove_file(cpu.join("cpu6/topology/physical_package_id")).unwrap();
    assert_eq!(read(sys.path()).unwrap().cpus(), set("0-4,7"));
}

#[test]
fn core_is_named_by_its_first_processor_that_is_online() {
    let cpus = equal_cores(2, 2, 2, 2, None);
    check(&cpus, &[(0, 1, "10", 0)], Some("1-3"), &["n0 s0 u0 1:0,2 2:0"]);
}

#[test]
fn nodes_without_processors_or_memory_are_kept() {
    // Node 1 is memory on a bus, node 2 has only processors.
    let mut cpus = equal_cores(4, 1, 2, 4, None);
    for cpu in cpus.iter_mut().filter(|cpu| cpu.node == Some(1)) {
        cpu.node = Some(2);
    }
    let nodes = [(0, 8, "10 14 20", 0), (1, 16, "14 10 20", 0), (2, 0, "20 20 10", 0)];
    let machine = check(&cpus, &nodes, Some("0-3"), &["n0 s0 u0 0-1:0", "n2 s0 u0 2-3:0"]);
    let memory: Vec<(u32, u64)> =
        machine.numa_nodes.iter().map(|node| (node.id, node.memory_bytes)).collect();
    assert_eq!(memory, [(0, 8192), (1, 16384), (2, 0)]);
}

#[test]
fn node_that_says_nothing_about_its_memory_has_none() {
    let sys = tempfile::tempdir().unwrap();
    write_tree(sys.path(), &equal_cores(2, 1, 2, 2, None), &[], Some("0-1"));
    let node = &read(sys.path()).unwrap().numa_nodes[0];
    assert_eq!((node.memory_bytes, node.distances.len(), node.huge_pages.len()), (0, 0, 0));
}

#[test]
fn machine_without_numa_has_a_node_for_each_package() {
    let mut cpus = equal_cores(4, 2, 4, 2, Some(2));
    for cpu in &mut cpus {
        cpu.node = None;
    }
    let machine = check(&cpus, &[], Some("0-7"), &["n0 s0 u0 0-1:0,4", "n1 s1 u1 2-3:0,4"]);
    assert_eq!(machine.numa_nodes.iter().map(|node| node.id).collect::<Vec<_>>(), [0, 1]);
    let sys = tempfile::tempdir().unwrap();
    assert!(read(sys.path()).unwrap_err().to_string().starts_with("no CPU is available, cpusPath: "));
}

#[test]
fn guest_without_packages_has_socket_0() {
    let mut cpus = equal_cores(2, 1, 2, 2, None);
    for cpu in &mut cpus {
        cpu.package = -1;
    }
    check(&cpus, &[(0, 1, "10", 0)], Some("0-1"), &["n0 s0 u0 0-1:0"]);
}

#[test]
fn cache_without_an_id_leaves_the_rest_of_the_node_to_the_socket() {
    let sys = tempfile::tempdir().unwrap();
    write_tree(sys.path(), &equal_cores(8, 1, 8, 8, Some(2)), &[(0, 1, "10", 0)], Some("0-7"));
    fs::remove_file(sys.path().join("devices/system/cpu/cpu4/cache/index0/id")).unwrap();
    assert_eq!(shown(&read(sys.path()).unwrap()), ["n0 s0 u0 0-1:0 4-7:0", "n0 s0 u1 2-3:0"]);
}

#[test]
fn files_that_the_kernel_would_not_write_are_errors() {
    for (path, text, expected) in [
        ("cpu/online", "all", "\"all\" is not the number of a processor below 8192"),
        ("cpu/cpu1/topology/core_id", "one", "it has no number"),
        ("node/node0/meminfo", "Node 0 MemFree: 1 kB", "it has no line MemTotal"),
        ("node/node0/distance", "near", "invalid digit found in string"),
        ("node/node0/hugepages/hugepages-2048kB/nr_hugepages", "many", "it has no number"),
    ] {
        let sys = tempfile::tempdir().unwrap();
        write_tree(sys.path(), &equal_cores(2, 1, 2, 2, None), &[(0, 1, "10", 0)], Some("0-1"));
        let path = sys.path().join("devices/system").join(path);
        write(&path, text);
        let message = read(sys.path()).unwrap_err().to_string();
        assert_eq!(message, format!("{} is not what the kernel writes: {expected}", path.display()));
    }
}

#[test]
fn topology_of_this_machine_has_the_processor_that_runs_the_test() {
    let machine = read(Path::new("/sys")).unwrap();
    assert!(!machine.processors.is_empty() && !machine.numa_nodes.is_empty());
    let nodes: Vec<u32> = machine.numa_nodes.iter().map(|node| node.id).collect();
    assert!(machine.processors.iter().all(|cpu| nodes.contains(&cpu.numa_node) && cpu.core <= cpu.id));
}
