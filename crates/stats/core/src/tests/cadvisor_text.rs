//! `/metrics/cadvisor`.

use super::*;

fn cadvisor_of(sample: &NodeSample) -> String {
    let machine = MachineNames {
        boot_id: "b",
        machine_id: "m",
        system_uuid: "u",
        kernel_version: "6.1",
        os_image: "Linux \"12\"",
        cores: 4,
        physical_cores: 2,
        sockets: 1,
        books: 0,
        drawers: 0,
    };
    let export = CadvisorExport::new(sample, machine);
    (0..).map_while(|place| export.piece(place)).collect()
}

#[test]
fn qos_cgroups_and_filesystems_of_the_machine_are_reported_without_a_pod() {
    let mut sample = node();
    sample.qos =
        vec![Placed { path: "/kubepods/burstable".into(), cgroup: v1(), rate: None, measured_at: None }];
    let space = FilesystemSpace {
        capacity_bytes: 1000,
        used_bytes: 500,
        inodes: 100,
        inodes_free: 60,
        ..FilesystemSpace::default()
    };
    sample.machine.filesystems = vec![LocalFilesystem { device: "/dev/vda".into(), space }];
    let text = cadvisor_of(&sample);
    let of = |name: &str, device: &str, id: &str, number: u64| {
        let device = if device.is_empty() { String::new() } else { format!("device=\"{device}\",") };
        let labels =
            format!("container=\"\",{device}id=\"{id}\",image=\"\",name=\"\",namespace=\"\",pod=\"\"");
        let line = format!("\n{name}{{{labels}}} {number} 1700000200123\n");
        assert!(text.contains(&line), "{line} in {text}");
    };
    of("container_memory_usage_bytes", "", "/kubepods/burstable", 20_000);
    of("container_fs_limit_bytes", "/dev/vda", "/", 1000);
    of("container_fs_usage_bytes", "/dev/vda", "/", 500);
    of("container_fs_inodes_total", "/dev/vda", "/", 100);
    of("container_fs_inodes_free", "/dev/vda", "/", 60);
}

#[test]
fn every_cgroup_is_exported_under_the_names_of_cadvisor() {
    expect![[r##"
        # HELP container_cpu_user_seconds_total CPU time used outside the kernel, in seconds.
        # TYPE container_cpu_user_seconds_total counter
        container_cpu_user_seconds_total{container="",id="/",image="",name="",namespace="",pod=""} 1 1700000200123
        container_cpu_user_seconds_total{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 1 1700000200123
        container_cpu_user_seconds_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 1 1700000200123
        container_cpu_user_seconds_total{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 1 1700000200123
        # HELP container_cpu_system_seconds_total CPU time used in the kernel, in seconds.
        # TYPE container_cpu_system_seconds_total counter
        container_cpu_system_seconds_total{container="",id="/",image="",name="",namespace="",pod=""} 0.5 1700000200123
        container_cpu_system_seconds_total{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 0.500000001 1700000200123
        container_cpu_system_seconds_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 0.500000001 1700000200123
        container_cpu_system_seconds_total{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 0.500000001 1700000200123
        # HELP container_cpu_usage_seconds_total CPU time used, in seconds.
        # TYPE container_cpu_usage_seconds_total counter
        container_cpu_usage_seconds_total{container="",cpu="total",id="/",image="",name="",namespace="",pod=""} 1.5 1700000200123
        container_cpu_usage_seconds_total{container="",cpu="total",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 1.500000001 1700000200123
        container_cpu_usage_seconds_total{container="",cpu="total",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 1.500000001 1700000200123
        container_cpu_usage_seconds_total{container="main",cpu="total",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 1.500000001 1700000200123
        # HELP container_cpu_cfs_periods_total Periods of the CPU quota that have passed.
        # TYPE container_cpu_cfs_periods_total counter
        container_cpu_cfs_periods_total{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 10 1700000200123
        container_cpu_cfs_periods_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 10 1700000200123
        container_cpu_cfs_periods_total{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 10 1700000200123
        # HELP container_cpu_cfs_throttled_periods_total Periods of the CPU quota in which the container was throttled.
        # TYPE container_cpu_cfs_throttled_periods_total counter
        container_cpu_cfs_throttled_periods_total{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 4 1700000200123
        container_cpu_cfs_throttled_periods_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 4 1700000200123
        container_cpu_cfs_throttled_periods_total{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 4 1700000200123
        # HELP container_cpu_cfs_throttled_seconds_total Time for which the container was throttled by its CPU quota, in seconds.
        # TYPE container_cpu_cfs_throttled_seconds_total counter
        container_cpu_cfs_throttled_seconds_total{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 0.25 1700000200123
        container_cpu_cfs_throttled_seconds_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 0.25 1700000200123
        container_cpu_cfs_throttled_seconds_total{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 0.25 1700000200123
        # HELP container_cpu_cfs_burst_periods_total Periods in which the container used CPU time above its quota (burst).
        # TYPE container_cpu_cfs_burst_periods_total counter
        container_cpu_cfs_burst_periods_total{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 1 1700000200123
        container_cpu_cfs_burst_periods_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 1 1700000200123
        container_cpu_cfs_burst_periods_total{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 1 1700000200123
        # HELP container_cpu_cfs_burst_seconds_total CPU time used above the quota (burst), in seconds.
        # TYPE container_cpu_cfs_burst_seconds_total counter
        container_cpu_cfs_burst_seconds_total{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 0.000000005 1700000200123
        container_cpu_cfs_burst_seconds_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 0.000000005 1700000200123
        container_cpu_cfs_burst_seconds_total{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 0.000000005 1700000200123
        # HELP container_cpu_load_average_10s Not measured: always 0.
        # TYPE container_cpu_load_average_10s gauge
        container_cpu_load_average_10s{container="",id="/",image="",name="",namespace="",pod=""} 0 1700000200123
        container_cpu_load_average_10s{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 0 1700000200123
        container_cpu_load_average_10s{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 0 1700000200123
        container_cpu_load_average_10s{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 0 1700000200123
        # HELP container_cpu_load_d_average_10s Not measured: always 0.
        # TYPE container_cpu_load_d_average_10s gauge
        container_cpu_load_d_average_10s{container="",id="/",image="",name="",namespace="",pod=""} 0 1700000200123
        container_cpu_load_d_average_10s{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 0 1700000200123
        container_cpu_load_d_average_10s{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 0 1700000200123
        container_cpu_load_d_average_10s{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 0 1700000200123
        # HELP container_tasks_state Tasks by state. Not measured: always 0.
        # TYPE container_tasks_state gauge
        container_tasks_state{container="",id="/",image="",name="",namespace="",pod="",state="iowaiting"} 0 1700000200123
        container_tasks_state{container="",id="/",image="",name="",namespace="",pod="",state="running"} 0 1700000200123
        container_tasks_state{container="",id="/",image="",name="",namespace="",pod="",state="sleeping"} 0 1700000200123
        container_tasks_state{container="",id="/",image="",name="",namespace="",pod="",state="stopped"} 0 1700000200123
        container_tasks_state{container="",id="/",image="",name="",namespace="",pod="",state="uninterruptible"} 0 1700000200123
        container_tasks_state{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod="",state="iowaiting"} 0 1700000200123
        container_tasks_state{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod="",state="running"} 0 1700000200123
        container_tasks_state{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod="",state="sleeping"} 0 1700000200123
        container_tasks_state{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod="",state="stopped"} 0 1700000200123
        container_tasks_state{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod="",state="uninterruptible"} 0 1700000200123
        container_tasks_state{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web",state="iowaiting"} 0 1700000200123
        container_tasks_state{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web",state="running"} 0 1700000200123
        container_tasks_state{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web",state="sleeping"} 0 1700000200123
        container_tasks_state{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web",state="stopped"} 0 1700000200123
        container_tasks_state{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web",state="uninterruptible"} 0 1700000200123
        container_tasks_state{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web",state="iowaiting"} 0 1700000200123
        container_tasks_state{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web",state="running"} 0 1700000200123
        container_tasks_state{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web",state="sleeping"} 0 1700000200123
        container_tasks_state{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web",state="stopped"} 0 1700000200123
        container_tasks_state{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web",state="uninterruptible"} 0 1700000200123
        # HELP container_memory_cache Bytes of page cache.
        # TYPE container_memory_cache gauge
        container_memory_cache{container="",id="/",image="",name="",namespace="",pod=""} 4096 1700000200123
        container_memory_cache{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 4096 1700000200123
        container_memory_cache{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 4096 1700000200123
        container_memory_cache{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 4096 1700000200123
        # HELP container_memory_rss Bytes of anonymous memory (RSS).
        # TYPE container_memory_rss gauge
        container_memory_rss{container="",id="/",image="",name="",namespace="",pod=""} 8192 1700000200123
        container_memory_rss{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 8192 1700000200123
        container_memory_rss{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 8192 1700000200123
        container_memory_rss{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 8192 1700000200123
        # HELP container_memory_kernel_usage Bytes of kernel memory of the container.
        # TYPE container_memory_kernel_usage gauge
        container_memory_kernel_usage{container="",id="/",image="",name="",namespace="",pod=""} 2048 1700000200123
        container_memory_kernel_usage{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 4096 1700000200123
        container_memory_kernel_usage{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 4096 1700000200123
        container_memory_kernel_usage{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 4096 1700000200123
        # HELP container_memory_mapped_file Bytes of memory-mapped files.
        # TYPE container_memory_mapped_file gauge
        container_memory_mapped_file{container="",id="/",image="",name="",namespace="",pod=""} 512 1700000200123
        container_memory_mapped_file{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 512 1700000200123
        container_memory_mapped_file{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 512 1700000200123
        container_memory_mapped_file{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 512 1700000200123
        # HELP container_memory_swap Bytes of swap in use.
        # TYPE container_memory_swap gauge
        container_memory_swap{container="",id="/",image="",name="",namespace="",pod=""} 64 1700000200123
        container_memory_swap{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 64 1700000200123
        container_memory_swap{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 64 1700000200123
        container_memory_swap{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 64 1700000200123
        # HELP container_memory_failcnt Number of times that memory usage hit the limit.
        # TYPE container_memory_failcnt counter
        container_memory_failcnt{container="",id="/",image="",name="",namespace="",pod=""} 7 1700000200123
        container_memory_failcnt{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 7 1700000200123
        container_memory_failcnt{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 7 1700000200123
        container_memory_failcnt{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 7 1700000200123
        # HELP container_memory_usage_bytes Bytes of memory in use, all kinds together.
        # TYPE container_memory_usage_bytes gauge
        container_memory_usage_bytes{container="",id="/",image="",name="",namespace="",pod=""} 20000 1700000200123
        container_memory_usage_bytes{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 20000 1700000200123
        container_memory_usage_bytes{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 20000 1700000200123
        container_memory_usage_bytes{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 20000 1700000200123
        # HELP container_memory_max_usage_bytes Maximum memory usage ever recorded, in bytes.
        # TYPE container_memory_max_usage_bytes gauge
        container_memory_max_usage_bytes{container="",id="/",image="",name="",namespace="",pod=""} 30000 1700000200123
        container_memory_max_usage_bytes{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 30000 1700000200123
        container_memory_max_usage_bytes{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 30000 1700000200123
        container_memory_max_usage_bytes{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 30000 1700000200123
        # HELP container_memory_working_set_bytes Working set: memory in use less inactive file pages, in bytes.
        # TYPE container_memory_working_set_bytes gauge
        container_memory_working_set_bytes{container="",id="/",image="",name="",namespace="",pod=""} 19000 1700000200123
        container_memory_working_set_bytes{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 19000 1700000200123
        container_memory_working_set_bytes{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 19000 1700000200123
        container_memory_working_set_bytes{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 19000 1700000200123
        # HELP container_memory_total_active_file_bytes Bytes of active file pages.
        # TYPE container_memory_total_active_file_bytes gauge
        container_memory_total_active_file_bytes{container="",id="/",image="",name="",namespace="",pod=""} 2000 1700000200123
        container_memory_total_active_file_bytes{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 2000 1700000200123
        container_memory_total_active_file_bytes{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 2000 1700000200123
        container_memory_total_active_file_bytes{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 2000 1700000200123
        # HELP container_memory_total_inactive_file_bytes Bytes of inactive file pages.
        # TYPE container_memory_total_inactive_file_bytes gauge
        container_memory_total_inactive_file_bytes{container="",id="/",image="",name="",namespace="",pod=""} 1000 1700000200123
        container_memory_total_inactive_file_bytes{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 1000 1700000200123
        container_memory_total_inactive_file_bytes{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 1000 1700000200123
        container_memory_total_inactive_file_bytes{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 1000 1700000200123
        # HELP container_memory_failures_total Page faults, by kind and scope.
        # TYPE container_memory_failures_total counter
        container_memory_failures_total{container="",failure_type="pgfault",id="/",image="",name="",namespace="",pod="",scope="container"} 30 1700000200123
        container_memory_failures_total{container="",failure_type="pgmajfault",id="/",image="",name="",namespace="",pod="",scope="container"} 3 1700000200123
        container_memory_failures_total{container="",failure_type="pgfault",id="/",image="",name="",namespace="",pod="",scope="hierarchy"} 30 1700000200123
        container_memory_failures_total{container="",failure_type="pgmajfault",id="/",image="",name="",namespace="",pod="",scope="hierarchy"} 3 1700000200123
        container_memory_failures_total{container="",failure_type="pgfault",id="/system.slice/kubelet.service",image="",name="",namespace="",pod="",scope="container"} 30 1700000200123
        container_memory_failures_total{container="",failure_type="pgmajfault",id="/system.slice/kubelet.service",image="",name="",namespace="",pod="",scope="container"} 3 1700000200123
        container_memory_failures_total{container="",failure_type="pgfault",id="/system.slice/kubelet.service",image="",name="",namespace="",pod="",scope="hierarchy"} 300 1700000200123
        container_memory_failures_total{container="",failure_type="pgmajfault",id="/system.slice/kubelet.service",image="",name="",namespace="",pod="",scope="hierarchy"} 33 1700000200123
        container_memory_failures_total{container="",failure_type="pgfault",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web",scope="container"} 30 1700000200123
        container_memory_failures_total{container="",failure_type="pgmajfault",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web",scope="container"} 3 1700000200123
        container_memory_failures_total{container="",failure_type="pgfault",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web",scope="hierarchy"} 300 1700000200123
        container_memory_failures_total{container="",failure_type="pgmajfault",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web",scope="hierarchy"} 33 1700000200123
        container_memory_failures_total{container="main",failure_type="pgfault",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web",scope="container"} 30 1700000200123
        container_memory_failures_total{container="main",failure_type="pgmajfault",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web",scope="container"} 3 1700000200123
        container_memory_failures_total{container="main",failure_type="pgfault",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web",scope="hierarchy"} 300 1700000200123
        container_memory_failures_total{container="main",failure_type="pgmajfault",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web",scope="hierarchy"} 33 1700000200123
        # HELP container_oom_events_total Processes killed because memory ran out.
        # TYPE container_oom_events_total counter
        container_oom_events_total{container="",id="/",image="",name="",namespace="",pod=""} 2 1700000200123
        container_oom_events_total{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 2 1700000200123
        container_oom_events_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 2 1700000200123
        container_oom_events_total{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 2 1700000200123
        # HELP container_pressure_cpu_stalled_seconds_total How long all tasks waited for the CPU, in seconds.
        # TYPE container_pressure_cpu_stalled_seconds_total counter
        container_pressure_cpu_stalled_seconds_total{container="",id="/",image="",name="",namespace="",pod=""} 0.000011 1700000200123
        # HELP container_pressure_cpu_waiting_seconds_total How long some task waited for the CPU, in seconds.
        # TYPE container_pressure_cpu_waiting_seconds_total counter
        container_pressure_cpu_waiting_seconds_total{container="",id="/",image="",name="",namespace="",pod=""} 73.505 1700000200123
        # HELP container_pressure_memory_waiting_seconds_total How long some task waited for memory, in seconds.
        # TYPE container_pressure_memory_waiting_seconds_total counter
        container_pressure_memory_waiting_seconds_total{container="",id="/",image="",name="",namespace="",pod=""} 0 1700000200123
        # HELP container_network_receive_bytes_total Bytes received.
        # TYPE container_network_receive_bytes_total counter
        container_network_receive_bytes_total{container="",id="/",image="",interface="eth0",name="",namespace="",pod=""} 10 1700000200123
        container_network_receive_bytes_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",interface="eth0",name="s1",namespace="default",pod="web"} 10 1700000200123
        # HELP container_network_receive_packets_total Packets received.
        # TYPE container_network_receive_packets_total counter
        container_network_receive_packets_total{container="",id="/",image="",interface="eth0",name="",namespace="",pod=""} 1 1700000200123
        container_network_receive_packets_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",interface="eth0",name="s1",namespace="default",pod="web"} 1 1700000200123
        # HELP container_network_receive_packets_dropped_total Packets received and dropped.
        # TYPE container_network_receive_packets_dropped_total counter
        container_network_receive_packets_dropped_total{container="",id="/",image="",interface="eth0",name="",namespace="",pod=""} 0 1700000200123
        container_network_receive_packets_dropped_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",interface="eth0",name="s1",namespace="default",pod="web"} 0 1700000200123
        # HELP container_network_receive_errors_total Errors while receiving.
        # TYPE container_network_receive_errors_total counter
        container_network_receive_errors_total{container="",id="/",image="",interface="eth0",name="",namespace="",pod=""} 0 1700000200123
        container_network_receive_errors_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",interface="eth0",name="s1",namespace="default",pod="web"} 0 1700000200123
        # HELP container_network_transmit_bytes_total Bytes sent.
        # TYPE container_network_transmit_bytes_total counter
        container_network_transmit_bytes_total{container="",id="/",image="",interface="eth0",name="",namespace="",pod=""} 20 1700000200123
        container_network_transmit_bytes_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",interface="eth0",name="s1",namespace="default",pod="web"} 20 1700000200123
        # HELP container_network_transmit_packets_total Packets sent.
        # TYPE container_network_transmit_packets_total counter
        container_network_transmit_packets_total{container="",id="/",image="",interface="eth0",name="",namespace="",pod=""} 2 1700000200123
        container_network_transmit_packets_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",interface="eth0",name="s1",namespace="default",pod="web"} 2 1700000200123
        # HELP container_network_transmit_packets_dropped_total Packets dropped instead of sent.
        # TYPE container_network_transmit_packets_dropped_total counter
        container_network_transmit_packets_dropped_total{container="",id="/",image="",interface="eth0",name="",namespace="",pod=""} 0 1700000200123
        container_network_transmit_packets_dropped_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",interface="eth0",name="s1",namespace="default",pod="web"} 0 1700000200123
        # HELP container_network_transmit_errors_total Errors while sending.
        # TYPE container_network_transmit_errors_total counter
        container_network_transmit_errors_total{container="",id="/",image="",interface="eth0",name="",namespace="",pod=""} 0 1700000200123
        container_network_transmit_errors_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",interface="eth0",name="s1",namespace="default",pod="web"} 0 1700000200123
        # HELP container_fs_reads_bytes_total Bytes read from the device.
        # TYPE container_fs_reads_bytes_total counter
        container_fs_reads_bytes_total{container="",device="/dev/vda",id="/",image="",name="",namespace="",pod=""} 40960 1700000200123
        container_fs_reads_bytes_total{container="",device="/dev/vda",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 4096 1700000200123
        container_fs_reads_bytes_total{container="",device="/dev/vda",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 4096 1700000200123
        container_fs_reads_bytes_total{container="main",device="/dev/vda",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 4096 1700000200123
        # HELP container_fs_reads_total Reads from the device.
        # TYPE container_fs_reads_total counter
        container_fs_reads_total{container="",device="/dev/vda",id="/",image="",name="",namespace="",pod=""} 10 1700000200123
        container_fs_reads_total{container="",device="/dev/vda",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 1 1700000200123
        container_fs_reads_total{container="",device="/dev/vda",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 1 1700000200123
        container_fs_reads_total{container="main",device="/dev/vda",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 1 1700000200123
        # HELP container_fs_writes_bytes_total Bytes written to the device.
        # TYPE container_fs_writes_bytes_total counter
        container_fs_writes_bytes_total{container="",device="/dev/vda",id="/",image="",name="",namespace="",pod=""} 81920 1700000200123
        container_fs_writes_bytes_total{container="",device="/dev/vda",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 8192 1700000200123
        container_fs_writes_bytes_total{container="",device="/dev/vda",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 8192 1700000200123
        container_fs_writes_bytes_total{container="main",device="/dev/vda",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 8192 1700000200123
        # HELP container_fs_writes_total Writes to the device.
        # TYPE container_fs_writes_total counter
        container_fs_writes_total{container="",device="/dev/vda",id="/",image="",name="",namespace="",pod=""} 20 1700000200123
        container_fs_writes_total{container="",device="/dev/vda",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 2 1700000200123
        container_fs_writes_total{container="",device="/dev/vda",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 2 1700000200123
        container_fs_writes_total{container="main",device="/dev/vda",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 2 1700000200123
        # HELP container_fs_reads_merged_total Reads merged with another read.
        # TYPE container_fs_reads_merged_total counter
        container_fs_reads_merged_total{container="",device="/dev/vda",id="/",image="",name="",namespace="",pod=""} 1 1700000200123
        # HELP container_fs_sector_reads_total Sectors read.
        # TYPE container_fs_sector_reads_total counter
        container_fs_sector_reads_total{container="",device="/dev/vda",id="/",image="",name="",namespace="",pod=""} 80 1700000200123
        # HELP container_fs_read_seconds_total Time spent on reads, in seconds.
        # TYPE container_fs_read_seconds_total counter
        container_fs_read_seconds_total{container="",device="/dev/vda",id="/",image="",name="",namespace="",pod=""} 0.005 1700000200123
        # HELP container_fs_writes_merged_total Writes merged with another write.
        # TYPE container_fs_writes_merged_total counter
        container_fs_writes_merged_total{container="",device="/dev/vda",id="/",image="",name="",namespace="",pod=""} 2 1700000200123
        # HELP container_fs_sector_writes_total Sectors written.
        # TYPE container_fs_sector_writes_total counter
        container_fs_sector_writes_total{container="",device="/dev/vda",id="/",image="",name="",namespace="",pod=""} 160 1700000200123
        # HELP container_fs_write_seconds_total Time spent on writes, in seconds.
        # TYPE container_fs_write_seconds_total counter
        container_fs_write_seconds_total{container="",device="/dev/vda",id="/",image="",name="",namespace="",pod=""} 0.007 1700000200123
        # HELP container_fs_io_current Reads and writes in progress.
        # TYPE container_fs_io_current gauge
        container_fs_io_current{container="",device="/dev/vda",id="/",image="",name="",namespace="",pod=""} 0 1700000200123
        # HELP container_fs_io_time_seconds_total Time in which the device was busy, in seconds.
        # TYPE container_fs_io_time_seconds_total counter
        container_fs_io_time_seconds_total{container="",device="/dev/vda",id="/",image="",name="",namespace="",pod=""} 0.009 1700000200123
        # HELP container_fs_io_time_weighted_seconds_total Weighted time spent on reads and writes: time multiplied by the number in progress, in seconds.
        # TYPE container_fs_io_time_weighted_seconds_total counter
        container_fs_io_time_weighted_seconds_total{container="",device="/dev/vda",id="/",image="",name="",namespace="",pod=""} 0.012 1700000200123
        # HELP container_blkio_device_usage_total Bytes moved to or from the device.
        # TYPE container_blkio_device_usage_total counter
        container_blkio_device_usage_total{container="",device="/dev/vda",id="/",image="",major="254",minor="0",name="",namespace="",operation="Read",pod=""} 4096 1700000200123
        container_blkio_device_usage_total{container="",device="/dev/vda",id="/",image="",major="254",minor="0",name="",namespace="",operation="Write",pod=""} 8192 1700000200123
        container_blkio_device_usage_total{container="",device="",id="/",image="",major="7",minor="0",name="",namespace="",operation="Read",pod=""} 0 1700000200123
        container_blkio_device_usage_total{container="",device="",id="/",image="",major="7",minor="0",name="",namespace="",operation="Write",pod=""} 0 1700000200123
        container_blkio_device_usage_total{container="",device="/dev/vda",id="/system.slice/kubelet.service",image="",major="254",minor="0",name="",namespace="",operation="Read",pod=""} 4096 1700000200123
        container_blkio_device_usage_total{container="",device="/dev/vda",id="/system.slice/kubelet.service",image="",major="254",minor="0",name="",namespace="",operation="Write",pod=""} 8192 1700000200123
        container_blkio_device_usage_total{container="",device="/dev/vda",id="/k8s.io/s1",image="docker.io/library/busybox:1",major="254",minor="0",name="s1",namespace="default",operation="Read",pod="web"} 4096 1700000200123
        container_blkio_device_usage_total{container="",device="/dev/vda",id="/k8s.io/s1",image="docker.io/library/busybox:1",major="254",minor="0",name="s1",namespace="default",operation="Write",pod="web"} 8192 1700000200123
        container_blkio_device_usage_total{container="main",device="/dev/vda",id="/k8s.io/c1",image="docker.io/library/busybox:1",major="254",minor="0",name="c1",namespace="default",operation="Read",pod="web"} 4096 1700000200123
        container_blkio_device_usage_total{container="main",device="/dev/vda",id="/k8s.io/c1",image="docker.io/library/busybox:1",major="254",minor="0",name="c1",namespace="default",operation="Write",pod="web"} 8192 1700000200123
        # HELP container_processes Processes in the cgroup.
        # TYPE container_processes gauge
        container_processes{container="",id="/",image="",name="",namespace="",pod=""} 2 1700000200123
        container_processes{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 2 1700000200123
        container_processes{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 2 1700000200123
        container_processes{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 2 1700000200123
        # HELP container_threads Threads in the cgroup and below.
        # TYPE container_threads gauge
        container_threads{container="",id="/",image="",name="",namespace="",pod=""} 5 1700000200123
        container_threads{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 5 1700000200123
        container_threads{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 5 1700000200123
        container_threads{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 5 1700000200123
        # HELP container_threads_max Maximum number of threads; 0 means no limit.
        # TYPE container_threads_max gauge
        container_threads_max{container="",id="/",image="",name="",namespace="",pod=""} 100 1700000200123
        container_threads_max{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 0 1700000200123
        container_threads_max{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 0 1700000200123
        container_threads_max{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 0 1700000200123
        # HELP container_spec_cpu_period Length of a period of the CPU quota, in microseconds.
        # TYPE container_spec_cpu_period gauge
        container_spec_cpu_period{container="",id="/",image="",name="",namespace="",pod=""} 100000
        container_spec_cpu_period{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 100000
        container_spec_cpu_period{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 100000
        container_spec_cpu_period{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 100000
        # HELP container_spec_cpu_quota CPU time for each period, in microseconds.
        # TYPE container_spec_cpu_quota gauge
        container_spec_cpu_quota{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 50000
        container_spec_cpu_quota{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 50000
        container_spec_cpu_quota{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 50000
        # HELP container_spec_cpu_shares CPU shares of the container.
        # TYPE container_spec_cpu_shares gauge
        container_spec_cpu_shares{container="",id="/",image="",name="",namespace="",pod=""} 500
        container_spec_cpu_shares{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 512
        container_spec_cpu_shares{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 512
        container_spec_cpu_shares{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 512
        # HELP container_spec_memory_limit_bytes Memory limit, in bytes; 0 means none.
        # TYPE container_spec_memory_limit_bytes gauge
        container_spec_memory_limit_bytes{container="",id="/",image="",name="",namespace="",pod=""} 0
        container_spec_memory_limit_bytes{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 67108864
        container_spec_memory_limit_bytes{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 67108864
        container_spec_memory_limit_bytes{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 67108864
        # HELP container_spec_memory_swap_limit_bytes Swap limit, in bytes; 0 means none.
        # TYPE container_spec_memory_swap_limit_bytes gauge
        container_spec_memory_swap_limit_bytes{container="",id="/",image="",name="",namespace="",pod=""} 1024
        container_spec_memory_swap_limit_bytes{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 100
        container_spec_memory_swap_limit_bytes{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 100
        container_spec_memory_swap_limit_bytes{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 100
        # HELP container_spec_memory_reservation_limit_bytes Memory reservation, in bytes; 0 means none.
        # TYPE container_spec_memory_reservation_limit_bytes gauge
        container_spec_memory_reservation_limit_bytes{container="",id="/",image="",name="",namespace="",pod=""} 0
        container_spec_memory_reservation_limit_bytes{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 0
        container_spec_memory_reservation_limit_bytes{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 0
        container_spec_memory_reservation_limit_bytes{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 0
        # HELP container_start_time_seconds Start time of the container, in seconds since 1970.
        # TYPE container_start_time_seconds gauge
        container_start_time_seconds{container="",id="/",image="",name="",namespace="",pod=""} 1700000000
        container_start_time_seconds{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 1700000100
        container_start_time_seconds{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 1700000100
        # HELP container_last_seen Time of the last measurement, in seconds since 1970.
        # TYPE container_last_seen gauge
        container_last_seen{container="",id="/",image="",name="",namespace="",pod=""} 1700000200 1700000200123
        container_last_seen{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 1700000200 1700000200123
        container_last_seen{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 1700000200 1700000200123
        container_last_seen{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 1700000200 1700000200123
        # HELP container_health_state Outcome of the runtime's own health check; -1 means it has none.
        # TYPE container_health_state gauge
        container_health_state{container="",id="/",image="",name="",namespace="",pod=""} -1 1700000200123
        container_health_state{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} -1 1700000200123
        container_health_state{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} -1 1700000200123
        container_health_state{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} -1 1700000200123
        # HELP cadvisor_version_info Versions of kernel, operating system and cAdvisor; always 1.
        # TYPE cadvisor_version_info gauge
        cadvisor_version_info{cadvisorRevision="",cadvisorVersion="",dockerVersion="",kernelVersion="6.1",osVersion="Linux \"12\""} 1
        # HELP machine_cpu_books Books that processors are in, on machines that have them.
        # TYPE machine_cpu_books gauge
        machine_cpu_books{boot_id="b",machine_id="m",system_uuid="u"} 0
        # HELP machine_cpu_cores Logical processors.
        # TYPE machine_cpu_cores gauge
        machine_cpu_cores{boot_id="b",machine_id="m",system_uuid="u"} 4
        # HELP machine_cpu_drawers Drawers that books are in, on machines that have them.
        # TYPE machine_cpu_drawers gauge
        machine_cpu_drawers{boot_id="b",machine_id="m",system_uuid="u"} 0
        # HELP machine_cpu_physical_cores Processor cores.
        # TYPE machine_cpu_physical_cores gauge
        machine_cpu_physical_cores{boot_id="b",machine_id="m",system_uuid="u"} 2
        # HELP machine_cpu_sockets Processor packages.
        # TYPE machine_cpu_sockets gauge
        machine_cpu_sockets{boot_id="b",machine_id="m",system_uuid="u"} 1
        # HELP machine_memory_bytes Memory of the machine, in bytes.
        # TYPE machine_memory_bytes gauge
        machine_memory_bytes{boot_id="b",machine_id="m",system_uuid="u"} 1073741824
        # HELP machine_swap_bytes Swap of the machine, in bytes.
        # TYPE machine_swap_bytes gauge
        machine_swap_bytes{boot_id="b",machine_id="m",system_uuid="u"} 0
        # HELP machine_nvm_avg_power_budget_watts Power budget of persistent memory. Not measured: always 0.
        # TYPE machine_nvm_avg_power_budget_watts gauge
        machine_nvm_avg_power_budget_watts{boot_id="b",machine_id="m",system_uuid="u"} 0
        # HELP machine_nvm_capacity Capacity of persistent memory by mode. Not measured: always 0.
        # TYPE machine_nvm_capacity gauge
        machine_nvm_capacity{boot_id="b",machine_id="m",mode="app_direct_mode",system_uuid="u"} 0
        machine_nvm_capacity{boot_id="b",machine_id="m",mode="memory_mode",system_uuid="u"} 0
        # HELP container_scrape_error 1 if something could not be measured, 0 otherwise.
        # TYPE container_scrape_error gauge
        container_scrape_error 0
        # HELP machine_scrape_error 1 if something could not be measured, 0 otherwise.
        # TYPE machine_scrape_error gauge
        machine_scrape_error 0
    "##]].assert_eq(&cadvisor_of(&node()));
}

#[test]
fn cadvisor_family_that_cannot_be_measured_is_omitted() {
    let mut node = node();
    node.root.cgroup.pressure = None;
    assert!(!cadvisor_of(&node).contains("container_pressure"));
}
