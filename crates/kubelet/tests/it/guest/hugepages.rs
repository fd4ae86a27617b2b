//! Huge pages, on a machine that can reserve some.

use std::path::Path;

use serde_json::json;

use crate::node::{FOREVER, Node, shell_pod, uid};

const RESERVED: &str = "/proc/sys/vm/nr_hugepages";

/// Pages of 2 MiB that are reserved on the machine until this is dropped.
struct Pages;

impl Pages {
    fn reserve(count: u32) -> Self {
        std::fs::write(RESERVED, count.to_string()).expect("huge pages are reserved");
        assert_eq!(std::fs::read_to_string(RESERVED).expect("a number").trim(), count.to_string());
        Self
    }

    fn free() -> String {
        let text = std::fs::read_to_string("/proc/meminfo").expect("meminfo");
        let line = text.lines().find_map(|line| line.strip_prefix("HugePages_Free:")).expect("a number");
        line.trim().to_owned()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let _ = std::fs::write(RESERVED, "0");
    }
}

#[test]
#[ignore = "sets huge pages aside: scripts/vm"]
fn pod_uses_requested_hugepages_through_a_volume_and_frees_them() {
    let _pages = Pages::reserve(8);
    let node = Node::start();
    let script = format!(
        "grep ' /huge ' /proc/mounts | cut -d' ' -f3; fallocate -l 4M /huge/x && echo taken; {FOREVER}"
    );
    let mut pod = shell_pod("huge", &script);
    pod["spec"]["volumes"] = json!([{"name": "huge", "emptyDir": {"medium": "HugePages"}}]);
    let main = &mut pod["spec"]["containers"][0];
    main["volumeMounts"] = json!([{"name": "huge", "mountPath": "/huge"}]);
    main["resources"] = json!({"limits": {"hugepages-2Mi": "8Mi", "memory": "32Mi", "cpu": "100m"}});
    node.apply("huge", &pod);
    let pod = node.running("huge");
    node.eventually("the container has allocated its huge pages", |node| {
        let output = node.logs(&pod, "main");
        if output == "hugetlbfs\ntaken\n" { Ok(()) } else { Err(output) }
    });
    assert_eq!(Pages::free(), "6");
    let process = format!("/proc/{}/cgroup", node.container_pid(&pod, "main"));
    let cgroup = std::fs::read_to_string(process).expect("the process");
    let cgroup = cgroup.trim().strip_prefix("0::").expect("cgroup v2");
    let of_container = Path::new("/sys/fs/cgroup").join(cgroup.strip_prefix('/').expect("a path"));
    let of_pod = of_container.parent().expect("the cgroup of the pod");
    for cgroup in [of_pod, &of_container] {
        let limit = std::fs::read_to_string(cgroup.join("hugetlb.2MB.max")).expect("a limit");
        assert_eq!(limit.trim(), (8 << 20).to_string(), "{}", cgroup.display());
    }

    node.delete("huge");
    node.wait_until_gone("huge", &uid(&pod));
    assert_eq!(Pages::free(), "8");
}
