//! A filesystem of its own, small enough to be filled by a test: ext4 in a file, mounted through a loop device.

use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Debug)]
pub struct SmallDisk {
    dir: tempfile::TempDir,
    mount_point: PathBuf,
}

impl SmallDisk {
    /// Creates a filesystem of so many MiB with so many inodes.
    pub fn new(mebibytes: u64, inodes: u64) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mount_point = dir.path().join("disk");
        Self::mount(dir, mount_point, mebibytes, &["-m", "0", "-N", &inodes.to_string()], "loop")
    }

    /// Does the same, mounted at `mount_point`.
    pub fn at(mount_point: PathBuf, mebibytes: u64, inodes: u64) -> Self {
        let make = ["-m", "0", "-N", &inodes.to_string()];
        Self::mount(tempfile::tempdir().expect("a directory"), mount_point, mebibytes, &make, "loop")
    }

    /// Does the same, with project quotas.
    pub fn with_quotas(mount_point: PathBuf, mebibytes: u64) -> Self {
        let make = ["-I", "256", "-O", "quota,project", "-E", "quotatype=prjquota"];
        Self::mount(tempfile::tempdir().expect("a directory"), mount_point, mebibytes, &make, "loop,prjquota")
    }

    fn mount(
        dir: tempfile::TempDir,
        mount_point: PathBuf,
        mebibytes: u64,
        make: &[&str],
        options: &str,
    ) -> Self {
        let disk = Self { dir, mount_point };
        let image = disk.dir.path().join("image");
        let file = std::fs::File::create(&image).expect("a file");
        file.set_len(mebibytes << 20).expect("enough space");
        std::fs::create_dir_all(disk.path()).expect("a directory");
        run("mkfs.ext4", &[&["-q", "-F"], make, &[&text(&image)]].concat());
        run("mount", &["-o", options, &text(&image), &text(&disk.path())]);
        disk
    }

    /// From now on every I/O to the filesystem fails with EIO, as on a disk that has died.
    pub fn fail(&self) {
        const EXT4_IOC_SHUTDOWN: &str = "0x8004587D";
        let call = format!("my $how = pack('L', 0); ioctl(F, {EXT4_IOC_SHUTDOWN}, $how) or die $!");
        let script = format!("open(F, '<', $ARGV[0]) or die $!; {call}");
        run("perl", &["-e", &script, &text(&self.path())]);
    }

    /// Replaces a failed disk by a healthy one with the same content.
    pub fn replace(&self) {
        let [failed, healthy] = ["image", "healthy"].map(|name| self.dir.path().join(name));
        std::fs::copy(failed, &healthy).expect("a copy of the disk");
        run("umount", &["--lazy", &text(&self.path())]);
        run("mount", &["-o", "loop", &text(&healthy), &text(&self.path())]);
    }

    /// The mount point.
    pub fn path(&self) -> PathBuf {
        self.mount_point.clone()
    }

    /// Total bytes, and bytes left.
    pub fn space(&self) -> (u64, u64) {
        let space = rustix::fs::statvfs(&self.mount_point).expect("a filesystem");
        (space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize)
    }

    /// Writes a file that leaves so many bytes, as far as blocks allow.
    pub fn fill_up_to(&self, name: &str, left: u64) {
        let (_, now) = self.space();
        let file = std::fs::File::create(self.mount_point.join(name)).expect("a file");
        let bytes = now.checked_sub(left).expect("there is more");
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes).expect("enough space");
    }

    /// Removes such a file.
    pub fn remove(&self, name: &str) {
        std::fs::remove_file(self.mount_point.join(name)).expect("the file exists");
    }
}

impl Drop for SmallDisk {
    /// Unmounts with everything mounted on it, innermost first; the loop device goes with the mount. Another process may still
    /// release a mount meanwhile, so this is repeated until nothing is left.
    fn drop(&mut self) {
        for _ in 0..50 {
            let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
            let mount_point = text(&self.path());
            let mut mine = mounts.lines().filter_map(|line| line.split(' ').nth(4));
            let Some(last) = mine.rfind(|at| at.starts_with(&mount_point)).map(str::to_owned) else {
                return;
            };
            let _ = Command::new("umount").args(["--lazy", &last]).status();
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        eprintln!("{} stays mounted", self.path().display());
    }
}

fn text(path: &Path) -> String {
    path.to_str().expect("a path").to_owned()
}

fn run(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().expect("the program runs");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}
