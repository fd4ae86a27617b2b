//! A filesystem of its own, small enough to be filled by a test: ext4 in a file, mounted through a loop device.

use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    /// So many MiB with so many inodes.
    pub(crate) fn new(mebibytes: u64, inodes: u64) -> Self {
        let disk = Self { dir: tempfile::tempdir().expect("a directory") };
        let image = disk.dir.path().join("image");
        let file = std::fs::File::create(&image).expect("a file");
        file.set_len(mebibytes << 20).expect("room");
        std::fs::create_dir(disk.path()).expect("a directory");
        run("mkfs.ext4", &["-q", "-F", "-m", "0", "-N", &inodes.to_string(), &text(&image)]);
        run("mount", &["-o", "loop", &text(&image), &text(&disk.path())]);
        disk
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("disk")
    }
}

impl Drop for SmallDisk {
    /// With what is mounted on it; the loop device goes with the mount.
    fn drop(&mut self) {
        let done = Command::new("umount").args(["--recursive", "--lazy"]).arg(self.path()).status();
        if !done.is_ok_and(|status| status.success()) {
            eprintln!("{} stays mounted", self.path().display());
        }
    }
}

fn text(path: &Path) -> String {
    path.to_str().expect("a path").to_owned()
}

fn run(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().expect("the program runs");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}
