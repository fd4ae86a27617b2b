//! Real mounts, and the mount table. These tests need root.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ports::{Files, Machine, Mounts};
use rustix::mount::{MountFlags, UnmountFlags};

use super::{TestDir, host, mode};

#[tokio::test]
async fn tmpfs_is_mounted_once_and_unmounted() {
    let test_dir = TestDir::new();
    let volume = test_dir.at("volumes/cache");
    assert!(!host().is_mount_point(&volume).await.unwrap());
    for _ in 0..2 {
        host().ensure_tmpfs(&volume, 1 << 20).await.unwrap();
    }
    assert!(host().is_mount_point(&volume).await.unwrap());
    assert_eq!(crate::mounts::mounted_below(&volume).unwrap().len(), 1);
    let size = rustix::fs::statfs(&volume).unwrap();
    assert_eq!(size.f_blocks * u64::try_from(size.f_bsize).unwrap(), 1 << 20);
    assert_eq!(mode(&volume), 0o1777);
    let stays = options_of(&volume).contains(&"noswap".to_owned());
    assert_eq!(host().keeps_tmpfs_in_memory(), stays);
    if kernel_is_at_least(6, 4) {
        assert!(stays);
    }
    host().unmount_tree(&volume).await.unwrap();
    assert!(!host().is_mount_point(&volume).await.unwrap());
    host().unmount_tree(&volume).await.unwrap();
}

#[test]
fn a_mount_is_found_without_reading_the_mount_table() {
    let test_dir = TestDir::new();
    let [mounted, missing] = [test_dir.at("mounted"), test_dir.at("missing")];
    fs::create_dir(&mounted).unwrap();
    rustix::mount::mount("tmpfs", &mounted, "tmpfs", MountFlags::empty(), None).unwrap();
    let before = bytes_read_by_this_thread();
    assert!(crate::mounts::is_mount_point(&mounted).unwrap());
    assert!(!crate::mounts::is_mount_point(&missing).unwrap());
    let read = bytes_read_by_this_thread() - before;
    let table = fs::read("/proc/self/mountinfo").unwrap().len();
    assert!(read < table.try_into().unwrap(), "{read} bytes, the counter itself among them");
}

/// A mount of a filesystem of its own that is not in memory.
fn mount_overlay(test_dir: &TestDir, name: &str) -> PathBuf {
    let [at, lower, upper] = ["", "-lower", "-upper"].map(|part| test_dir.at(&format!("{name}{part}")));
    for directory in [&at, &lower, &upper] {
        fs::create_dir(directory).unwrap();
    }
    let layers = format!("lowerdir={}:{}", lower.display(), upper.display());
    let layers = std::ffi::CString::new(layers).unwrap();
    rustix::mount::mount("overlay", &at, "overlay", MountFlags::empty(), Some(&*layers)).unwrap();
    at
}

#[test]
fn a_foreign_mount_is_found_as_soon_as_it_is_there_and_never_after() {
    let test_dir = TestDir::new();
    let own = test_dir.at("").ancestors().map(Path::to_path_buf).collect();
    let mounts = crate::foreign_mounts::ForeignMounts::new(own);
    for name in ["first", "second"] {
        let found = |path: &str| mounts.on_way(&test_dir.at(path)).unwrap();
        let below = format!("{name}/below/it");
        assert_eq!(found(&below), None);
        let mounted = mount_overlay(&test_dir, name);
        assert_eq!(found(&below).as_ref(), Some(&mounted));
        assert_eq!(found(name).as_ref(), Some(&mounted));
        assert_eq!(found("elsewhere"), None);
        rustix::mount::unmount(&mounted, UnmountFlags::empty()).unwrap();
        assert_eq!(found(&below), None);
    }
}

#[test]
fn an_unchanged_mount_table_is_not_read_again() {
    let test_dir = TestDir::new();
    let mounts = crate::foreign_mounts::ForeignMounts::new(vec![test_dir.at("")]);
    let bytes_read = || {
        let before = bytes_read_by_this_thread();
        mounts.on_way(&test_dir.at("volume")).unwrap();
        bytes_read_by_this_thread() - before
    };
    // The counter itself is read, too, and other tests mount at the same time.
    let table: u64 = fs::read("/proc/self/mountinfo").unwrap().len().try_into().unwrap();
    assert!(bytes_read() > table / 2);
    assert!((0..1000).any(|_| bytes_read() < table / 2));
}

fn bytes_read_by_this_thread() -> u64 {
    let counters = fs::read_to_string("/proc/thread-self/io").unwrap();
    counters.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

#[test]
fn a_mount_is_found_at_exactly_its_path() {
    let test_dir = TestDir::new();
    let [mounted, file, below, link, around] =
        ["pod/mounted", "pod/file", "pod/mounted/below", "link", "around"].map(|name| test_dir.at(name));
    fs::create_dir_all(&mounted).unwrap();
    fs::write(&file, "").unwrap();
    symlink(&mounted, &link).unwrap();
    symlink(test_dir.at("pod"), &around).unwrap();
    let found = |path: &Path| crate::mounts::is_mount_point(path).unwrap();
    assert!(!found(&mounted) && !found(&file) && !found(&test_dir.at("none/below")));

    rustix::mount::mount("tmpfs", &mounted, "tmpfs", MountFlags::empty(), None).unwrap();
    rustix::mount::mount_bind(&file, &file).unwrap();
    fs::create_dir(&below).unwrap();
    assert!(found(&mounted) && found(&file), "a filesystem, and a file bound onto itself");
    assert!(
        found(&around.join("mounted")) && found(&below.join("..")),
        "links and `..` on the way are followed"
    );
    assert!(
        !found(&link) && !found(&below) && !found(&test_dir.at("pod")),
        "neither a link to it nor its neighbours"
    );
    assert!(found(Path::new("/")));
    for path in [&mounted, &file] {
        rustix::mount::unmount(path, UnmountFlags::empty()).unwrap();
        assert!(!found(path));
    }
}

#[tokio::test]
async fn other_mounts_are_those_of_the_same_directory_of_a_filesystem() {
    let test_dir = TestDir::new();
    let [global, pod, other] = ["global", "pod", "other"].map(|name| test_dir.at(name));
    for path in [&global, &other] {
        host().ensure_tmpfs(path, 1 << 20).await.unwrap();
    }
    host().bind_volume(&global, &pod, &[]).await.unwrap();
    let others = async |path| host().other_mounts(path).await.unwrap();
    assert_eq!(others(&pod).await, [global.canonicalize().unwrap()]);
    assert_eq!(others(&global).await, [pod.canonicalize().unwrap()]);
    assert!(others(&other).await.is_empty() && others(&test_dir.at("nothing")).await.is_empty());
    for path in [&pod, &global, &other] {
        host().unmount_tree(path).await.unwrap();
    }
}

fn kernel_is_at_least(major: u32, minor: u32) -> bool {
    let release = host().info().kernel_version;
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    (numbers.next().unwrap(), numbers.next().unwrap()) >= (major, minor)
}

/// The options of a filesystem, as the mount table shows them last on its line.
fn options_of(mount_point: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let test_dir = format!(" {} ", mount_point.display());
    let line = table.lines().find(|line| line.contains(&test_dir)).unwrap();
    line.rsplit(' ').next().unwrap().split(',').map(str::to_owned).collect()
}

#[tokio::test]
async fn nested_and_stacked_mounts_go_innermost_first() {
    let test_dir = TestDir::new();
    let pod = test_dir.dir("pod");
    host().ensure_tmpfs(&pod.join("a b"), 0).await.unwrap();
    host().ensure_tmpfs(&pod.join("a b/inner"), 0).await.unwrap();
    let stacked = pod.join("a b/inner");
    rustix::mount::mount("tmpfs", &stacked, "tmpfs", MountFlags::empty(), None).unwrap();
    assert_eq!(crate::mounts::mounted_below(&pod).unwrap().len(), 3);
    host().unmount_tree(&pod).await.unwrap();
    assert!(crate::mounts::mounted_below(&pod).unwrap().is_empty());
    assert!(host().list_dir(&pod.join("a b")).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_busy_mount_is_an_error_and_stays() {
    let test_dir = TestDir::new();
    let volume = test_dir.at("volume");
    host().ensure_tmpfs(&volume, 0).await.unwrap();
    let open = fs::File::create(volume.join("file")).unwrap();
    assert!(host().unmount_tree(&volume).await.is_err());
    assert!(host().is_mount_point(&volume).await.unwrap());
    drop(open);
    // The programs that other tests start have our files until their own begin, which on a busy machine may take a while.
    let deadline = Instant::now() + Duration::from_secs(20);
    while let Err(error) = host().unmount_tree(&volume).await {
        assert!(Instant::now() < deadline, "{error}");
    }
}

#[tokio::test]
async fn a_shared_mount_is_made_once() {
    let test_dir = TestDir::new();
    // A private mount around it, so that the outcome does not depend on the machine.
    let around = test_dir.at("around");
    host().ensure_tmpfs(&around, 0).await.unwrap();
    rustix::mount::mount_change(&around, rustix::mount::MountPropagationFlags::PRIVATE).unwrap();
    let root_dir = test_dir.dir("around/kubelet");
    for _ in 0..2 {
        crate::process::ensure_shared_mount(&root_dir).unwrap();
    }
    assert!(crate::mounts::mounted_at(&root_dir).unwrap().unwrap().shared);
    assert_eq!(crate::mounts::mounted_below(&root_dir).unwrap().len(), 1);
}
