//! Volumes as containers and the node see them.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::node::{FOREVER, Node, container, names_in, once_pod, shell, shell_pod, uid};

/// The pod with one hostPath volume, mounted at `/data`.
fn with_host_path(mut pod: Value, path: &Path, kind: &str) -> Value {
    pod["spec"]["volumes"] = json!([{"name": "data", "hostPath": {"path": path, "type": kind}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    pod
}

fn run(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().expect("the program starts");
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// One file of each type: name, and its value of `hostPath.type`.
const KINDS: [(&str, &str); 5] = [
    ("dir", "Directory"),
    ("file", "File"),
    ("socket", "Socket"),
    ("char", "CharDevice"),
    ("block", "BlockDevice"),
];

fn create_one_of_each(dir: &Path) -> std::os::unix::net::UnixListener {
    std::fs::create_dir_all(dir.join("dir")).expect("a directory");
    std::fs::write(dir.join("file"), "").expect("a file");
    let at = |name: &str| dir.join(name).display().to_string();
    run("mknod", &[&at("char"), "c", "1", "3"]);
    run("mknod", &[&at("block"), "b", "7", "99"]);
    std::os::unix::net::UnixListener::bind(dir.join("socket")).expect("a socket")
}

#[test]
fn host_path_must_match_its_type() {
    let node = Node::start();
    let things = node.path("things");
    let _socket = create_one_of_each(&things);
    for (name, kind) in KINDS {
        node.apply(name, &with_host_path(once_pod(name, "test -e /data"), &things.join(name), kind));
        let wrong = if kind == "Directory" { "file" } else { "dir" };
        let bad = format!("not-{name}");
        node.apply(&bad, &with_host_path(once_pod(&bad, "true"), &things.join(wrong), kind));
        let absent = format!("no-{name}");
        node.apply(&absent, &with_host_path(once_pod(&absent, "true"), &things.join("absent"), kind));
    }
    for (name, _) in KINDS {
        node.output(name);
    }
    for name in KINDS.iter().flat_map(|(name, _)| [format!("not-{name}"), format!("no-{name}")]) {
        node.eventually(&format!("{name} fails to mount"), |node| {
            let log = node.kubelet_log();
            let full = format!("default/{name}-node");
            let found = log.lines().any(|l| {
                l.contains("FailedMount") && l.contains(&full) && l.contains("hostPath type check failed")
            });
            if found { Ok(()) } else { Err(log) }
        });
        let pod = node.pod(&name).expect("the pod is known");
        assert_eq!(container(&pod, "main")["state"]["waiting"]["reason"], "ContainerCreating", "{pod}");
    }
    assert!(!things.join("absent").exists(), "nothing unrequested is created");
}

#[test]
fn host_path_is_created_for_or_create_types() {
    let node = Node::start();
    let things = node.path("things");
    std::fs::create_dir_all(&things).expect("a directory");
    for (name, kind) in [("made-dir", "DirectoryOrCreate"), ("made-file", "FileOrCreate"), ("any", "")] {
        let pod = with_host_path(
            once_pod(name, "echo hello > /data || echo hello > /data/x"),
            &things.join(name),
            kind,
        );
        node.apply(name, &pod);
        node.output(name);
    }
    let text = |name: &str| std::fs::read_to_string(things.join(name)).unwrap_or_default();
    assert_eq!([text("made-dir/x"), text("made-file"), text("any/x")], ["hello\n"; 3]);
}

#[test]
fn sub_path_mounts_a_part_of_a_volume_and_never_a_path_outside() {
    let node = Node::start();
    let volume = node.path("volume");
    std::fs::create_dir_all(volume.join("a/b")).expect("a directory");
    std::fs::write(volume.join("a/b/here"), "inside\n").expect("a file");
    std::os::unix::fs::symlink("/etc", volume.join("out")).expect("a link");
    // One stream for both: standard output and standard error of a container reach its log independently, in any order.
    let script = "exec 2>&1; cat /sub/here /file; touch /expr/made; ls /fresh | wc -l; touch /ro/x || true; \
                  readlink -f /expr";
    let mut pod = once_pod("parts", script);
    pod["spec"]["volumes"] = json!([{"name": "data", "hostPath": {"path": volume, "type": "Directory"}}]);
    let main = &mut pod["spec"]["containers"][0];
    main["env"] = json!([{"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
    main["volumeMounts"] = json!([
        {"name": "data", "mountPath": "/sub", "subPath": "a/b"},
        {"name": "data", "mountPath": "/file", "subPath": "a/b/here"},
        {"name": "data", "mountPath": "/expr", "subPathExpr": "of-$(NAME)"},
        {"name": "data", "mountPath": "/fresh", "subPath": "new/deep"},
        {"name": "data", "mountPath": "/ro", "subPath": "a", "readOnly": true},
    ]);
    node.apply("parts", &pod);
    let mut outside = once_pod("outside", "ls /data");
    outside["spec"]["volumes"] = pod["spec"]["volumes"].clone();
    outside["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "data", "mountPath": "/data", "subPath": "out"}]);
    node.apply("outside", &outside);

    let output = node.output("parts");
    assert!(output.contains("inside\ninside\n0\n"), "{output}");
    assert!(output.contains("/ro/x: Read-only file system"), "{output}");
    assert!(volume.join("of-parts-node/made").exists() && volume.join("new/deep").is_dir());
    assert!(!volume.join("a/x").exists());
    let rejected = node.pod_when("outside", "is rejected", |pod| {
        container(pod, "main")["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    });
    let message = container(&rejected, "main")["state"]["waiting"]["message"].to_string();
    assert!(message.contains("failed to prepare subPath"), "{message}");

    let parts = node.pod("parts").expect("the pod");
    node.delete("parts");
    node.wait_until_gone("parts", &uid(&parts));
    assert!(volume.join("a/b/here").exists(), "the target of a subPath is never removed");
}

#[test]
fn mount_propagation_between_host_and_container() {
    let node = Node::start();
    let volume = node.path("shared");
    std::fs::create_dir_all(volume.join("from-node")).expect("a directory");
    std::fs::create_dir_all(volume.join("from-pod")).expect("a directory");
    let at = volume.display().to_string();
    run("mount", &["--bind", &at, &at]);
    run("mount", &["--make-rshared", &at]);
    let mount_later = "while ! test -e /data/go; do sleep 0.1; done; mount -t tmpfs none /data/from-pod && touch /data/from-pod/file";
    let pods = [
        ("none", json!({}), FOREVER),
        ("receives", json!({"mountPropagation": "HostToContainer"}), FOREVER),
        ("both-ways", json!({"mountPropagation": "Bidirectional"}), mount_later),
    ];
    for (name, mount, script) in pods {
        let script = format!("{script}; {FOREVER}");
        let mut pod = with_host_path(shell_pod(name, &script), &volume, "Directory");
        pod["spec"]["containers"][0]["securityContext"] = json!({"privileged": name == "both-ways"});
        for (key, value) in mount.as_object().expect("fields") {
            pod["spec"]["containers"][0]["volumeMounts"][0][key] = value.clone();
        }
        node.apply(name, &pod);
        node.running(name);
    }
    run("mount", &["-t", "tmpfs", "none", &volume.join("from-node").display().to_string()]);
    std::fs::write(volume.join("from-node/file"), "").expect("a file");
    std::fs::write(volume.join("go"), "").expect("a file");
    node.eventually("the container's mount is on the node", |_| {
        if volume.join("from-pod/file").exists() { Ok(()) } else { Err("no file".to_owned()) }
    });
    let sees = |name: &str, file: &str| {
        let pid = node.container_pid(&node.running(name), "main");
        Path::new(&format!("/proc/{pid}/root/data/{file}")).exists()
    };
    let seen = ["none", "receives", "both-ways"]
        .map(|pod| (sees(pod, "from-node/file"), sees(pod, "from-pod/file")));
    assert_eq!(seen, [(false, false), (true, true), (true, true)]);

    let mut pod = with_host_path(shell_pod("unprivileged", FOREVER), &volume, "Directory");
    pod["spec"]["containers"][0]["volumeMounts"][0]["mountPropagation"] = "Bidirectional".into();
    node.apply("unprivileged", &pod);
    node.eventually("an unprivileged one is rejected", |node| {
        let problems = crate::server::get(node, "/debug/manifests")?.body;
        if problems.contains("Bidirectional mount propagation is available only to privileged containers") {
            Ok(())
        } else {
            Err(problems)
        }
    });
}

/// The mounts at a path, and whether the last one, or else the mount that contains the path, is shared.
fn mounts_at(path: &Path) -> (usize, bool) {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("a mount table");
    let mounts = || table.lines().filter_map(|line| Some((Path::new(line.split(' ').nth(4)?), line)));
    let holder = mounts()
        .filter(|(mount, _)| path.starts_with(mount))
        .max_by_key(|(mount, _)| mount.components().count());
    let is_shared =
        holder.is_some_and(|(_, line)| line.split(" - ").next().unwrap_or_default().contains(" shared:"));
    (mounts().filter(|(mount, _)| *mount == path).count(), is_shared)
}

#[test]
fn root_directory_is_made_a_shared_mount_once() {
    let mut node = Node::start();
    let root = node.path("root").canonicalize().expect("a root directory");
    let (count, is_shared) = mounts_at(&root);
    assert!(is_shared && count <= 1, "{count}");
    node.apply("web", &shell_pod("web", FOREVER));
    node.running("web");
    node.kill_kubelet();
    assert_eq!(mounts_at(&root), (count, true), "it stays when the kubelet exits");
    node.restart_kubelet();
    node.running("web");
    assert_eq!(mounts_at(&root), (count, true));
}

#[test]
fn empty_dir_is_shared_by_containers_and_medium_memory_has_its_size_limit() {
    let node = Node::start();
    let mut pod = shell_pod(
        "shared",
        "grep ' /memory ' /proc/mounts; while ! test -e /scratch/hello; do sleep 0.1; done; cat /scratch/hello; sleep 3600",
    );
    pod["spec"]["volumes"] = json!([
        {"name": "scratch", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "3Mi"}},
    ]);
    let writer = shell(
        "writer",
        "touch /memory/x; echo hello > /scratch/.new; mv /scratch/.new /scratch/hello; sleep 3600",
    );
    pod["spec"]["containers"].as_array_mut().expect("containers").push(writer);
    for n in 0..2 {
        pod["spec"]["containers"][n]["volumeMounts"] = json!([
            {"name": "scratch", "mountPath": "/scratch"},
            {"name": "memory", "mountPath": "/memory", "readOnly": n == 1},
        ]);
    }
    node.apply("shared", &pod);
    let pod = node.running("shared");
    let output = node.eventually("the reader has read", |node| {
        let output = node.logs(&pod, "main");
        if output.contains("hello") { Ok(output) } else { Err(output) }
    });
    assert!(output.contains("tmpfs") && output.contains("size=3072k"), "{output}");
    let log = node.container_log(&pod, "writer");
    assert!(log.contains("/memory/x: Read-only file system"), "{log}");
}

#[test]
fn env_file_key_ref_reads_a_file_written_by_an_init_container() {
    let node = Node::start();
    let mut pod = shell_pod("env-file", "echo address=$ADDRESS port=${PORT-unset} seen=$(ls /conf 2>&1)");
    pod["spec"]["restartPolicy"] = "Never".into();
    pod["spec"]["volumes"] = json!([{"name": "conf", "emptyDir": {}}]);
    let mut init = shell("init", r##"printf "# found\nADDRESS='a b'\n" > /conf/env"##);
    init["volumeMounts"] = json!([{"name": "conf", "mountPath": "/conf"}]);
    pod["spec"]["initContainers"] = json!([init]);
    let variable = |name: &str, optional: bool| {
        let file = json!({"volumeName": "conf", "path": "env", "key": name, "optional": optional});
        json!({"name": name, "valueFrom": {"fileKeyRef": file}})
    };
    pod["spec"]["containers"][0]["env"] = json!([variable("ADDRESS", false), variable("PORT", true)]);
    node.apply("env-file", &pod);
    let ended = node.pod_when("env-file", "has succeeded", |pod| pod["status"]["phase"] == "Succeeded");
    let output = node.container_log(&ended, "main");
    assert!(output.contains("address=a b port=unset seen=ls: /conf: No such file"), "{output}");

    pod["metadata"]["name"] = "env-file-missing".into();
    pod["spec"]["containers"][0]["env"] = json!([variable("PORT", false)]);
    node.apply("env-file-missing", &pod);
    let waits = node.pod_when("env-file-missing", "waits for its variable", |pod| {
        container(pod, "main")["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    });
    assert_eq!(
        container(&waits, "main")["state"]["waiting"]["message"],
        "environment variable key \"PORT\" not found in file \"env\" of volume \"conf\""
    );
}

#[test]
fn volume_content_survives_restart_of_kubelet_and_container() {
    let mut node = Node::start();
    let script = "test -e /scratch/once && exec sleep 3600; touch /scratch/once /memory/once; chmod 700 /scratch /memory; exit 1";
    let mut pod = shell_pod("keeper", script);
    pod["spec"]["volumes"] =
        json!([{"name": "scratch", "emptyDir": {}}, {"name": "memory", "emptyDir": {"medium": "Memory"}}]);
    pod["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "scratch", "mountPath": "/scratch"}, {"name": "memory", "mountPath": "/memory"}]);
    node.apply("keeper", &pod);
    let pod = node.pod_when("keeper", "runs the second time", |pod| {
        container(pod, "main")["state"]["running"].is_object() && container(pod, "main")["restartCount"] == 1
    });
    let dir = node.path("root/pods").join(uid(&pod)).join("volumes/kubernetes.io~empty-dir");
    node.restart_kubelet();
    // A third start runs everything that prepares volumes again.
    node.signal_container(&pod, "main", "KILL");
    node.pod_when("keeper", "runs the third time", |pod| {
        container(pod, "main")["state"]["running"].is_object() && container(pod, "main")["restartCount"] == 2
    });
    for name in ["scratch", "memory"] {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(dir.join(name)).expect("a volume").permissions().mode();
        assert_eq!(mode & 0o7777, 0o700, "{name}");
        assert_eq!(names_in(&dir.join(name)), ["once"]);
    }
}

/// Puts a `mount` program before the machine's own that records its arguments. This kernel has no NFS: a tmpfs replaces the
/// export. Returns the file.
fn record_mount(node: &Node) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let (program, log) = (node.path("bin/mount"), node.path("mount.log"));
    let script = format!(
        "#!/bin/sh\necho \"$@\" >> {}\ncase \"$*\" in *down:*) echo no route >&2; exit 32;; esac\n\
         for target; do :; done\nexec /bin/mount -t tmpfs none \"$target\"\n",
        log.display()
    );
    std::fs::create_dir_all(node.path("bin")).expect("a directory");
    std::fs::write(&program, script).expect("a program");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("permissions");
    log
}

fn with_nfs(name: &str, server: &str) -> Value {
    let mut pod = shell_pod(name, FOREVER);
    pod["spec"]["volumes"] =
        json!([{"name": "nas", "nfs": {"server": server, "path": "/e", "readOnly": true}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "nas", "mountPath": "/nas"}]);
    pod
}

/// A server named `-T<file>` would make mount read an fstab that a pod wrote, and bind any path of the node.
#[test]
fn nfs_server_names_that_look_like_mount_options_are_rejected_before_mount() {
    let node = Node::start();
    let log = record_mount(&node);
    let servers = [("table", "-T/tmp/fstab"), ("long", "--x"), ("bind", "-obind")];
    for (name, server) in servers {
        node.apply(name, &with_nfs(name, server));
    }
    for (name, server) in servers {
        let message = format!("NFS server \"{server}\" must be a host name or an IP address");
        node.eventually(&format!("an event rejects {server}"), |node| {
            let log = node.kubelet_log().replace("\\\"", "\"");
            let is_rejected = |line: &str| {
                line.contains("FailedMount")
                    && line.contains(&format!("{name}-node"))
                    && line.contains(&message)
            };
            if log.lines().any(is_rejected) { Ok(()) } else { Err(log) }
        });
    }
    node.apply("good", &with_nfs("good", "10.0.0.1"));
    let good = node.running("good");
    let output = std::fs::read_to_string(&log).expect("it was requested");
    assert_eq!(output.lines().count(), 1, "{output}");
    assert!(output.starts_with("-t nfs -o ro -- 10.0.0.1:/e "), "{output}");
    for name in ["table", "long", "bind", "good"] {
        node.delete(name);
    }
    node.wait_until_gone("good", &uid(&good));
}

#[test]
fn nfs_is_mounted_by_the_mount_program_and_a_failure_reports_its_arguments() {
    let node = Node::start();
    let log = record_mount(&node);
    for (name, server) in [("exported", "fd00::7"), ("unreachable", "down")] {
        node.apply(name, &with_nfs(name, server));
    }
    let pod = node.running("exported");
    let directory = format!("root/pods/{}/volumes/kubernetes.io~nfs/nas", uid(&pod));
    let message = format!("-t nfs -o ro -- [fd00::7]:/e {}", node.path(&directory).display());
    let output = std::fs::read_to_string(&log).expect("it was requested");
    assert!(output.lines().any(|line| line == message), "{output}");
    node.eventually("the failure is reported", |node| {
        let log = node.kubelet_log();
        let parts = [
            "MountVolume.SetUp failed for volume",
            "mount failed",
            "no route",
            "Mounting arguments: -t nfs -o ro -- down:/e",
        ];
        let is_reported = log.lines().any(|line| parts.iter().all(|part| line.contains(part)));
        if is_reported { Ok(()) } else { Err(log) }
    });
    for name in ["exported", "unreachable"] {
        let pod = node.pod(name).expect("the pod");
        node.delete(name);
        node.wait_until_gone(name, &uid(&pod));
    }
    assert_eq!(mounts_at(&node.path(&directory)).0, 0);
}

/// The case of the node conformance suite: `dgtrwxrwxrwx` as Go prints the mode.
#[test]
fn empty_dir_in_memory_with_fs_group_keeps_sticky_and_set_group_id_bits_for_a_new_sub_path() {
    let node = Node::start();
    let mut pod = once_pod("sticky", "stat -c '%a %g' /whole /part");
    pod["spec"]["securityContext"] = json!({"fsGroup": 123});
    pod["spec"]["volumes"] = json!([{"name": "memory", "emptyDir": {"medium": "Memory"}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([
        {"name": "memory", "mountPath": "/whole"},
        {"name": "memory", "mountPath": "/part", "subPath": "new"},
    ]);
    node.apply("sticky", &pod);
    assert_eq!(node.output("sticky"), "3777 123\n3777 123\n");
}

/// One pod has the volume and swaps a directory in it for a symlink that leads outside, all the time; others mount that directory
/// as a subPath. The link would lead to a file of the node.
#[test]
fn sub_path_swapped_for_a_symlink_never_exposes_files_outside_the_volume() {
    const CONTAINERS: usize = 8;
    let node = Node::start();
    let (volume, outside) = (node.path("volume"), node.path("outside"));
    std::fs::create_dir_all(volume.join("swap")).expect("a directory");
    std::fs::create_dir_all(&outside).expect("a directory");
    std::fs::write(volume.join("swap/inside"), "").expect("a file");
    std::fs::write(outside.join("SECRET"), "").expect("a file");
    let swap = format!(
        "cd /data; while :; do mv swap kept && ln -s {} swap; touch swapped; rm swap; mv kept swap; done",
        outside.display()
    );
    node.apply("attacker", &with_host_path(shell_pod("attacker", &swap), &volume, "Directory"));
    node.running("attacker");
    node.eventually("it swaps", |_| if volume.join("swapped").exists() { Ok(()) } else { Err("no".into()) });
    let names: Vec<String> = (0..4).map(|n| format!("sub-path-{n}")).collect();
    for name in &names {
        let mut pod = once_pod(name, "ls /sub");
        let main = pod["spec"]["containers"][0].clone();
        let container = |n: usize| {
            let mut container = main.clone();
            container["name"] = format!("c{n}").into();
            container["volumeMounts"] = json!([{"name": "data", "mountPath": "/sub", "subPath": "swap"}]);
            container
        };
        pod["spec"]["containers"] = (0..CONTAINERS).map(container).collect();
        pod["spec"]["volumes"] = json!([{"name": "data", "hostPath": {"path": volume, "type": "Directory"}}]);
        node.apply(name, &pod);
    }
    let (mut seen, mut rejected) = (0, 0);
    for name in &names {
        let is_decided = |pod: &Value, n: usize| {
            let state = container(pod, &format!("c{n}"))["state"].clone();
            state["terminated"].is_object() || state["waiting"]["reason"] == "CreateContainerConfigError"
        };
        let pod =
            node.pod_when(name, "was mounted or rejected", |pod| (0..CONTAINERS).all(|n| is_decided(pod, n)));
        for n in 0..CONTAINERS {
            let name = format!("c{n}");
            if container(&pod, &name)["state"]["terminated"].is_object() {
                let output = node.container_log(&pod, &name);
                assert!(!output.contains("SECRET"), "{output}");
                seen += 1;
            } else {
                rejected += 1;
            }
        }
    }
    assert_eq!(seen + rejected, names.len() * CONTAINERS);
    assert!(seen > 0, "the directory exists half of the time");
}
