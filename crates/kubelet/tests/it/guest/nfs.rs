//! Volumes on a real NFS server, and what happens when it dies while pods use them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::cluster::volumes::{bind, mounted, set_bound, with_claim};
use crate::cluster::{Cluster, bound};
use crate::node::{FOREVER, shell_pod};

/// The guest's own NFS server, over loopback, version 4 only. It ends with the guest at the latest.
struct Server {
    export: PathBuf,
    mountd: Child,
}

#[track_caller]
fn run(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Server {
    fn start(export: PathBuf) -> Self {
        std::fs::create_dir(&export).expect("a directory");
        run("modprobe", &["nfsd"]);
        let nfsd = Path::new("/proc/fs/nfsd");
        if !nfsd.join("threads").exists() {
            run("mount", &["-t", "nfsd", "nfsd", "/proc/fs/nfsd"]);
        }
        // As short as the kernel allows, so that a server that comes back serves soon.
        for file in ["nfsv4leasetime", "nfsv4gracetime"] {
            std::fs::write(nfsd.join(file), "10").expect("a number");
        }
        let mut mountd = Command::new("rpc.mountd");
        let mountd = mountd.args(["--foreground", "--no-nfs-version", "3"]).stdout(Stdio::null()).spawn();
        let server = Self { export, mountd: mountd.expect("rpc.mountd starts") };
        let shared = format!("127.0.0.1:{}", server.export.display());
        run("exportfs", &["-i", "-o", "rw,no_root_squash,insecure,no_subtree_check,fsid=77", &shared]);
        server.resume();
        server
    }

    fn resume(&self) {
        run("rpc.nfsd", &["--host", "127.0.0.1", "--no-nfs-version", "3", "2"]);
    }

    fn die(&self) {
        run("rpc.nfsd", &["0"]);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = Command::new("rpc.nfsd").arg("0").status();
        let _ = Command::new("exportfs").arg("-ua").status();
        let _ = self.mountd.kill();
        let _ = self.mountd.wait();
    }
}

fn with_nfs(mut pod: Value, server: &Server) -> Value {
    pod["spec"]["volumes"] = json!([{"name": "data", "nfs": {"server": "127.0.0.1", "path": server.export}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    bound(pod)
}

fn nfs_mounts(cluster: &Cluster) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/mounts").expect("a mount table");
    let below = cluster.node.path("root/pods").display().to_string();
    let is_nfs = |line: &&str| line.contains(&below) && line.split(' ').nth(2) == Some("nfs4");
    table.lines().filter(is_nfs).map(str::to_owned).collect()
}

#[test]
#[ignore = "needs an NFS server in the kernel: scripts/vm"]
fn pods_share_an_export_and_outlive_the_death_of_its_server() {
    let cluster = Cluster::start();
    let server = Server::start(cluster.node.path("export"));
    cluster.ready();
    bind(&cluster, "share", json!({"nfs": {"server": "127.0.0.1", "path": server.export}, "mountOptions": ["nfsvers=4.2", "noatime"]}));
    set_bound(&cluster, "share");
    let write = format!("while :; do echo said >> /data/log; sleep 0.1; done & {FOREVER}");
    let claimed = with_claim(shell_pod("claimed", &write), "share", mounted());
    let inline = with_nfs(shell_pod("inline", &format!("until cat /data/log; do sleep 0.1; done; {FOREVER}")), &server);
    cluster.kubectl.apply(&[claimed, inline]);
    let (claimed, inline) = (cluster.running("claimed"), cluster.running("inline"));
    cluster.node.eventually("one reads what the other wrote", |node| match node.said(&inline, "main") {
        said if said.starts_with("said\n") => Ok(()),
        said => Err(said),
    });
    let mounts = nfs_mounts(&cluster);
    assert!(mounts.len() == 2 && mounts.iter().any(|line| line.contains("noatime")), "{mounts:?}");

    server.die();
    let late = with_nfs(shell_pod("late", FOREVER), &server);
    cluster.kubectl.apply(&[late]);
    cluster.kubectl.ok(&["delete", "pod", "claimed", "inline", "--wait=false"]);
    for n in 0..2 {
        let name = format!("beside-{n}");
        cluster.kubectl.apply(&[bound(shell_pod(&name, FOREVER))]);
        let pod = cluster.running(&name);
        cluster.kubectl.ok(&["delete", "pod", &name, "--wait=false"]);
        cluster.gone(&pod);
    }
    eprintln!("{:#?}", nfs_mounts(&cluster));
    std::thread::park_timeout(std::time::Duration::from_secs(40));
    eprintln!("{:#?}", nfs_mounts(&cluster));
    for name in ["claimed", "inline", "late"] {
        eprintln!("{:#?}", cluster.events("Pod", name));
    }
    for line in cluster.node.kubelet_log().lines().filter(|line| line.contains("unmount") || line.contains("answer") || line.contains("stuck")) {
        eprintln!("{line}");
    }

    server.resume();
    let late = cluster.running("late");
    cluster.kubectl.ok(&["delete", "pod", "late", "--wait=false"]);
    for pod in [&claimed, &inline, &late] {
        cluster.gone(pod);
    }
    assert_eq!(nfs_mounts(&cluster), Vec::<String>::new());
}
