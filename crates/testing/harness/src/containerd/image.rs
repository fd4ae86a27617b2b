//! Two images built from the machine's own busybox, so that no test needs a registry or a network.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::tar::{Archive, Entry};
use super::{BUSYBOX_IMAGE, ContainerdError, Layout, Outcome, PAUSE_IMAGE, failed, run};

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\n\
                      app:x:1000:1000:app:/tmp:/bin/sh\n\
                      nobody:x:65534:65534:nobody:/tmp:/bin/false\n";
const GROUP: &str = "root:x:0:\napp:x:1000:\nteam:x:2000:app\nnogroup:x:65534:\n";

/// One process, no children: the shell waits for a line on a pipe without writers, and a trap ends it. (PID 1 ignores signals it
/// has no handler for.)
const PAUSE_COMMAND: &str = "trap 'exit 0' TERM INT; while :; do read -r _ <>/pause; done";

pub(super) fn busybox() -> Option<PathBuf> {
    ["/bin/busybox", "/usr/bin/busybox"].into_iter().map(PathBuf::from).find(|path| path.is_file())
}

/// Builds both images and imports them.
pub(super) fn import(layout: &Layout) -> Outcome<()> {
    import_archive(layout, archive)
}

/// Builds busybox with an additional file of that size and imports it.
pub(super) fn import_large(layout: &Layout, name: &str, mebibytes: usize) -> Outcome<()> {
    import_archive(layout, |scratch| large_archive(scratch, name, mebibytes))
}

fn import_archive(layout: &Layout, make: impl FnOnce(&Path) -> Outcome<Vec<u8>>) -> Outcome<()> {
    let scratch = layout.dir.join("images");
    fs::create_dir_all(&scratch).map_err(|e| failed("create image directory", e))?;
    let archive_file = scratch.join("images.tar");
    let archive = make(&scratch)?;
    fs::write(&archive_file, archive).map_err(|e| failed("write image archive", e))?;

    let socket = layout.socket();
    let (Some(socket), Some(file)) = (socket.to_str(), archive_file.to_str()) else {
        return Err(ContainerdError(format!("{} is not UTF-8", layout.dir.display())));
    };
    run("ctr", &["--address", socket, "--namespace", "k8s.io", "images", "import", file])?;
    fs::remove_dir_all(&scratch).map_err(|e| failed("remove image directory", e))
}

/// Both images in the format of `docker save`, which needs no digests except that of the layer they share.
fn archive(scratch: &Path) -> Outcome<Vec<u8>> {
    let layer = layer()?;
    let layer_file = scratch.join("layer.tar");
    fs::write(&layer_file, &layer).map_err(|e| failed("write image layer", e))?;
    let digest = sha256(&layer_file)?;

    let pause = image_config(
        std::slice::from_ref(&digest),
        &json!({ "Entrypoint": ["/bin/sh", "-c", PAUSE_COMMAND] }),
    );
    let busybox = image_config(&[digest], &json!({ "Cmd": ["sh"] }));
    let manifest = json!([
        { "Config": "pause.json", "RepoTags": [PAUSE_IMAGE], "Layers": ["layer.tar"] },
        { "Config": "busybox.json", "RepoTags": [BUSYBOX_IMAGE], "Layers": ["layer.tar"] },
    ]);

    let mut archive = Archive::default();
    archive.add("layer.tar", 0o644, Entry::File(&layer));
    archive.add("pause.json", 0o644, Entry::File(pause.to_string().as_bytes()));
    archive.add("busybox.json", 0o644, Entry::File(busybox.to_string().as_bytes()));
    archive.add("manifest.json", 0o644, Entry::File(manifest.to_string().as_bytes()));
    Ok(archive.finish())
}

/// The file is full of the image's name, so that no two images share it.
fn large_archive(scratch: &Path, name: &str, mebibytes: usize) -> Outcome<Vec<u8>> {
    let mut large = Archive::default();
    let content: Vec<u8> = name.bytes().cycle().take(mebibytes << 20).collect();
    large.add("large", 0o644, Entry::File(&content));
    let layers = [("layer.tar", layer()?), ("large.tar", large.finish())];
    let mut archive = Archive::default();
    let mut digests = Vec::new();
    for (file, layer) in &layers {
        let path = scratch.join(file);
        fs::write(&path, layer).map_err(|e| failed("write image layer", e))?;
        digests.push(sha256(&path)?);
        archive.add(file, 0o644, Entry::File(layer));
    }
    let config = image_config(&digests, &json!({ "Cmd": ["sh"] }));
    let files = layers.map(|(file, _)| file);
    let manifest = json!([{ "Config": "config.json", "RepoTags": [name], "Layers": files }]);
    archive.add("config.json", 0o644, Entry::File(config.to_string().as_bytes()));
    archive.add("manifest.json", 0o644, Entry::File(manifest.to_string().as_bytes()));
    Ok(archive.finish())
}

fn image_config(layer_digests: &[String], process: &Value) -> Value {
    let mut process = process.clone();
    if let Some(fields) = process.as_object_mut() {
        fields.insert(
            "Env".to_owned(),
            json!(["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]),
        );
    }
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let diff_ids: Vec<String> = layer_digests.iter().map(|digest| format!("sha256:{digest}")).collect();
    json!({
        "architecture": architecture,
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": process,
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
    })
}

fn layer() -> Outcome<Vec<u8>> {
    let program = busybox().ok_or_else(|| ContainerdError("no busybox".to_owned()))?;
    let binary = fs::read(&program).map_err(|e| failed(format!("read {}", program.display()), e))?;
    let listing = Command::new(&program).arg("--list").output().map_err(|e| failed("list applets", e))?;

    let mut layer = Archive::default();
    for dir in ["bin/", "dev/", "etc/", "proc/", "root/", "sys/", "usr/", "usr/bin/", "var/", "var/run/"] {
        layer.add(dir, 0o755, Entry::Directory);
    }
    layer.add("tmp/", 0o1777, Entry::Directory);
    layer.add("bin/busybox", 0o755, Entry::File(&binary));
    for applet in String::from_utf8_lossy(&listing.stdout).lines().filter(|name| *name != "busybox") {
        layer.add(&format!("bin/{applet}"), 0o777, Entry::Symlink("busybox"));
    }
    layer.add("etc/passwd", 0o644, Entry::File(PASSWD.as_bytes()));
    layer.add("etc/group", 0o644, Entry::File(GROUP.as_bytes()));
    layer.add("pause", 0o666, Entry::Pipe);
    Ok(layer.finish())
}

fn sha256(file: &Path) -> Outcome<String> {
    let output = run("sha256sum", &[&file.to_string_lossy()])?;
    let digest = output.split_whitespace().next().unwrap_or_default();
    if digest.len() == 64 {
        Ok(digest.to_owned())
    } else {
        Err(ContainerdError(format!("sha256sum answered {output:?}")))
    }
}
