//! Volumes on a real NFS server, and the effect of its death while pods use them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::cluster::volumes::{bind, mounted, set_bound, with_claim};
use crate::node::{FOREVER, shell_pod, uid};

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
        // As short as the kernel allows: until the grace period of the server is over, no client opens a file.
        std::fs::write(nfsd.join("nfsv4gracetime"), "10").expect("a number");
        let mut mountd = Command::new("rpc.mountd");
        let mountd = mountd
            .args(["--foreground", "--no-nfs-version", "3"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let server = Self { export, mountd: mountd.expect("rpc.mountd starts") };
        let shared = format!("127.0.0.1:{}", server.export.display());
        run("exportfs", &["-i", "-o", "rw,no_root_squash,insecure,no_subtree_check,fsid=77", &shared]);
        server.resume();
        // No client has open files from before.
        std::fs::write(nfsd.join("v4_end_grace"), "Y").expect("it is over");
        server
    }

    fn resume(&self) {
        run("rpc.nfsd", &["--host", "127.0.0.1", "--no-nfs-version", "3", "2"]);
    }

    fn kill(&self) {
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
    pod
}

fn nfs_mounts(cluster: &Cluster) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/mounts").expect("a mount table");
    let below = cluster.node.path("root/pods").display().to_string();
    let is_nfs = |line: &&str| line.contains(&below) && line.split(' ').nth(2) == Some("nfs4");
    table.lines().filter(is_nfs).map(str::to_owned).collect()
}

/// A pod that writes forever, through a claim. Its name in the API lets the helpers find it like a static pod.
fn writer(cluster: &Cluster, server: &Server) {
    let options = json!(["nfsvers=4.2", "noatime"]);
    let nfs = json!({"server": "127.0.0.1", "path": server.export});
    bind(cluster, "share", json!({"nfs": nfs, "mountOptions": options}));
    set_bound(cluster, "share");
    let write = format!("(while :; do echo written >> /data/log; sleep 1; done) & {FOREVER}");
    cluster.kubectl.create(&[with_claim(shell_pod("claimed-node", &write), "share", mounted())]);
}

#[test]
#[ignore = "needs an NFS server in the kernel: scripts/vm"]
fn pods_share_an_nfs_export_and_survive_the_death_of_its_server() {
    let cluster = Cluster::start();
    let node = &cluster.node;
    let server = Server::start(node.path("export"));
    writer(&cluster, &server);
    let read = format!("until cat /data/log 2>/dev/null; do sleep 1; done; {FOREVER}");
    node.apply("inline", &with_nfs(shell_pod("inline", &read), &server));
    let (claimed, inline) = (node.running("claimed"), node.running("inline"));
    node.eventually("one reads what the other wrote", |node| match node.logs(&inline, "main") {
        output if output.starts_with("written\n") => Ok(()),
        output => Err(output),
    });
    let mounts = nfs_mounts(&cluster);
    assert!(mounts.len() == 2 && mounts.iter().any(|line| line.contains("noatime")), "{mounts:?}");
    let volume = node.path("root/pods").join(uid(&claimed)).join("volumes/kubernetes.io~nfs/pv-share");
    let open_file = std::fs::File::open(volume.join("log")).expect("a file");

    server.kill();
    node.apply("late", &with_nfs(shell_pod("late", FOREVER), &server));
    cluster.kubectl.delete("claimed-node");
    node.delete("inline");
    node.apply("neighbour", &shell_pod("neighbour", FOREVER));
    let neighbour = node.running("neighbour");
    node.delete("neighbour");
    node.wait_until_gone("neighbour", &uid(&neighbour));
    node.wait_for_log(&format!("pv-share: device or resource busy (held by {} (", std::process::id()));
    let late = node.pod("late").expect("the pod");
    assert_eq!(late["status"]["phase"], "Pending", "it waits for its volume");

    server.resume();
    drop(open_file);
    node.running("late");
    node.delete("late");
    for (name, pod) in [("claimed", &claimed), ("inline", &inline), ("late", &late)] {
        node.wait_until_gone(name, &uid(pod));
    }
    assert_eq!(nfs_mounts(&cluster), Vec::<String>::new());
    let log = std::fs::read_to_string(server.export.join("log")).expect("what was written");
    assert!(log.lines().all(|line| line == "written"), "{log}");
}
