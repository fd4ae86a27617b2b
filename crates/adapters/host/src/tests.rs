//! The ports on the real machine: real directories, real mounts (these need root), real changes.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use ports::host::{HostError, HostPathKind};
use ports::{Files, Machine, Mounts};
use rustix::mount::UnmountFlags;
use tempfile::TempDir;

use crate::LinuxHost;

mod mounts;

/// A directory that is unmounted and removed when it is dropped.
struct TestDir(TempDir);

impl TestDir {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn dir(&self, path: &str) -> PathBuf {
        fs::create_dir_all(self.at(path)).unwrap();
        self.at(path)
    }

    fn file(&self, path: &str, content: &str) -> PathBuf {
        fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        fs::write(self.at(path), content).unwrap();
        self.at(path)
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        for mount_point in crate::mounts::mounted_below(self.0.path()).unwrap() {
            rustix::mount::unmount(&mount_point, UnmountFlags::DETACH).unwrap();
        }
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn invalid(result: Result<(), HostError>) -> String {
    match result.unwrap_err() {
        HostError::Invalid(text) => text,
        other @ (HostError::Io { .. } | HostError::NotFinished(_)) => panic!("{other:?}"),
    }
}

fn host() -> LinuxHost {
    LinuxHost::new()
}

// Files

#[tokio::test]
async fn directory_permissions_ignore_the_umask() {
    let test_dir = TestDir::new();
    // Of the whole process, and left so: no test here may depend on it.
    rustix::process::umask(rustix::fs::Mode::from(0o077));
    let dir = test_dir.at("a/b/c");
    host().ensure_dir(&dir, 0o777).await.unwrap();
    assert_eq!(mode(&dir), 0o777);
    host().make_dir(&dir, 0o700).await.unwrap();
    assert_eq!(mode(&dir), 0o777, "the permissions of a directory of the node stay");
    host().ensure_dir(&dir, 0o2750).await.unwrap();
    assert_eq!(mode(&dir), 0o2750);
    let file = test_dir.at("a/file");
    host().write_file(&file, b"x", 0o666).await.unwrap();
    assert_eq!(mode(&file), 0o666);
}

#[tokio::test]
async fn write_file_replaces_the_old_file_and_leaves_no_temporary_file() {
    let test_dir = TestDir::new();
    let file = test_dir.file("file", "old");
    let before = fs::metadata(&file).unwrap().ino();
    host().write_file(&file, b"new", 0o644).await.unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"new");
    assert_ne!(fs::metadata(&file).unwrap().ino(), before);
    assert_eq!(host().list_dir(test_dir.0.path()).await.unwrap().len(), 1);
}

/// A container that has `/etc/hosts` mounted would otherwise keep, and fill, a file that nothing counts.
#[tokio::test]
async fn rewritten_file_keeps_its_inode_and_a_replacing_link_is_refused() {
    let test_dir = TestDir::new();
    let path = test_dir.at("etc-hosts");
    host().rewrite_file(&path, b"first, and longer", 0o644).await.unwrap();
    let inode = fs::metadata(&path).unwrap().ino();
    host().rewrite_file(&path, b"second", 0o644).await.unwrap();
    assert_eq!((fs::metadata(&path).unwrap().ino(), fs::read(&path).unwrap()), (inode, b"second".to_vec()));
    assert_eq!(mode(&path), 0o644);
    let outside = test_dir.file("outside", "kept");
    symlink(&outside, test_dir.at("link")).unwrap();
    assert!(host().rewrite_file(&test_dir.at("link"), b"x", 0o644).await.is_err());
    assert_eq!(fs::read(outside).unwrap(), b"kept");
}

#[tokio::test]
async fn listing_a_directory_is_bounded() {
    let test_dir = TestDir::new();
    let many = test_dir.dir("many");
    // One file with many names: as many entries, and few inodes.
    let dir = rustix::fs::open(&many, rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap();
    for n in 0..=100_000 {
        rustix::fs::symlinkat("x", &dir, n.to_string()).unwrap();
    }
    let refused = host().list_names(&many).await.unwrap_err().to_string();
    assert_eq!(refused, format!("{} has more than 100000 entries", many.display()));
    assert!(host().list_dir(&many).await.is_err());
    fs::remove_file(many.join("0")).unwrap();
    assert_eq!(host().list_names(&many).await.unwrap().len(), 100_000);
}

#[tokio::test]
async fn a_failed_write_leaves_no_temporary_file() {
    let test_dir = TestDir::new();
    let dir = test_dir.dir("dir/below");
    assert!(host().write_file(dir.parent().unwrap(), b"x", 0o644).await.is_err());
    assert_eq!(host().list_dir(test_dir.0.path()).await.unwrap().len(), 1);
    let absent = host().write_file(&test_dir.at("no/file"), b"x", 0o644).await.unwrap_err();
    assert!(absent.is_not_found());
}

#[tokio::test]
async fn reading_is_bounded_from_either_end() {
    let test_dir = TestDir::new();
    let file = test_dir.file("file", "0123456789");
    assert_eq!(host().read_file(&file, 4, false).await.unwrap(), b"0123");
    assert_eq!(host().read_file(&file, 4, true).await.unwrap(), b"6789");
    assert_eq!(host().read_file(&file, 40, true).await.unwrap(), b"0123456789");
    assert!(host().read_file(&test_dir.at("absent"), 4, false).await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn a_fifo_is_refused_instead_of_waited_for() {
    let test_dir = TestDir::new();
    let fifo = test_dir.at("fifo");
    make_node(&fifo, rustix::fs::FileType::Fifo);
    let refused = host().read_file(&fifo, 10, false).await.map(drop);
    assert!(invalid(refused).ends_with("fifo is not a regular file"));
}

fn make_node(path: &Path, kind: rustix::fs::FileType) {
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, rustix::fs::Mode::RUSR, 0).unwrap();
}

#[tokio::test]
async fn list_dir_is_sorted_and_reports_dangling_links() {
    let test_dir = TestDir::new();
    test_dir.dir("c");
    test_dir.file("b", "12345");
    symlink("b", test_dir.at("a")).unwrap();
    symlink("nowhere", test_dir.at("d")).unwrap();
    let listed = host().list_dir(test_dir.0.path()).await.unwrap();
    let seen: Vec<_> =
        listed.iter().map(|e| (e.name.as_str(), e.is_dir, e.is_symlink, e.target_exists)).collect();
    assert_eq!(
        seen,
        [
            ("a", false, true, true),
            ("b", false, false, true),
            ("c", true, false, true),
            ("d", false, true, false)
        ]
    );
    assert_eq!(listed[1].size_bytes, 5);
    assert!(host().list_dir(&test_dir.at("absent")).await.unwrap().is_empty());
}

#[tokio::test]
async fn symlink_target_is_replaced_atomically() {
    let test_dir = TestDir::new();
    let link = test_dir.at("link");
    for target in ["one", "two", "two"] {
        host().ensure_symlink(Path::new(target), &link).await.unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), Path::new(target));
    }
    assert_eq!(host().list_dir(test_dir.0.path()).await.unwrap().len(), 1);
    host().remove_file(&link).await.unwrap();
    host().remove_file(&link).await.unwrap();
}

/// A link in the way would let its maker overwrite any file of the node.
#[tokio::test]
async fn compressing_does_not_write_through_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let (log, other) = (dir.path().join("0.log.20260101-000000"), dir.path().join("other"));
    fs::write(&log, "line\n").unwrap();
    fs::write(&other, "untouched").unwrap();
    symlink(&other, dir.path().join("0.log.20260101-000000.tmp")).unwrap();
    host().compress(&log).await.unwrap();
    assert_eq!(fs::read_to_string(&other).unwrap(), "untouched");
    let packed = dir.path().join("0.log.20260101-000000.gz");
    assert!(fs::symlink_metadata(packed).unwrap().is_file());
}

#[tokio::test]
async fn compressing_keeps_the_content_and_removes_the_original() {
    use std::io::Read;
    let test_dir = TestDir::new();
    let log = test_dir.file("0.log.20260101-000000", &"line\n".repeat(10_000));
    host().compress(&log).await.unwrap();
    assert!(!log.exists());
    let packed = fs::File::open(test_dir.at("0.log.20260101-000000.gz")).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    assert_eq!(text, "line\n".repeat(10_000));
    assert_eq!(host().list_dir(test_dir.0.path()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn text_that_is_not_utf8_is_refused() {
    let test_dir = TestDir::new();
    let file = test_dir.file("hosts", "127.0.0.1 localhost\n");
    assert_eq!(host().read_text(&file).await.unwrap(), "127.0.0.1 localhost\n");
    fs::write(&file, [0xff]).unwrap();
    assert!(invalid(host().read_text(&file).await.map(drop)).ends_with("is not UTF-8 text"));
}

// Manifests

#[tokio::test]
async fn manifests_are_sorted_without_dot_files_and_directories() {
    let test_dir = TestDir::new();
    test_dir.file("b.yaml", "b");
    test_dir.file("a.yaml", "a");
    test_dir.file(".hidden.yaml", "x");
    test_dir.file("sub/c.yaml", "c");
    symlink("nowhere", test_dir.at("dangling")).unwrap();
    make_node(&test_dir.at("fifo"), rustix::fs::FileType::Fifo);
    let read = host().read_manifests(test_dir.0.path()).await.unwrap();
    let names: Vec<_> = read.iter().map(|m| m.path.file_name().and_then(OsStr::to_str).unwrap()).collect();
    assert_eq!(names, ["a.yaml", "b.yaml", "dangling", "fifo"]);
    assert_eq!(read[0].content.as_deref(), Ok(&b"a"[..]));
    assert!(read[2].content.as_ref().unwrap_err().starts_with("cannot be read: No such file"));
    assert!(read[3].content.as_ref().unwrap_err().ends_with("is not a regular file"));
}

#[tokio::test]
async fn a_manifest_path_may_be_one_file_and_must_exist() {
    let test_dir = TestDir::new();
    let file = test_dir.file(".pod.yaml", "a");
    assert_eq!(host().read_manifests(&file).await.unwrap().len(), 1);
    assert!(host().read_manifests(&test_dir.at("absent")).await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn a_huge_manifest_is_named_and_not_read() {
    let test_dir = TestDir::new();
    let huge = test_dir.file("huge.yaml", "");
    fs::File::options().write(true).open(&huge).unwrap().set_len((10 << 20) + 1).unwrap();
    let read = host().read_manifests(test_dir.0.path()).await.unwrap();
    assert_eq!(read[0].content, Err("larger than 10 MiB".to_owned()));
}

// Watching

type Changes = futures_util::stream::BoxStream<'static, ports::host::DirectoryChange>;

async fn expect_change(changes: &mut Changes) {
    tokio::time::timeout(Duration::from_secs(10), changes.next())
        .await
        .expect("a change")
        .expect("an open stream");
}

/// Reads events until no more arrive at once.
async fn settle(changes: &mut Changes) -> usize {
    let mut seen = 0;
    while let Ok(Some(_)) = tokio::time::timeout(Duration::from_millis(50), changes.next()).await {
        seen += 1;
    }
    seen
}

#[tokio::test]
async fn changes_in_a_directory_are_seen_and_folded() {
    let test_dir = TestDir::new();
    let dir = test_dir.dir("manifests");
    let mut changes = host().watch(&dir).await.unwrap();
    // Before the first poll: the watch is set already.
    for number in 0..100 {
        test_dir.file(&format!("manifests/{number}"), "x");
    }
    expect_change(&mut changes).await;
    assert!(settle(&mut changes).await < 50);
    assert!(changes.next().now_or_never().is_none());
    fs::remove_file(dir.join("7")).unwrap();
    expect_change(&mut changes).await;
    settle(&mut changes).await;
    fs::rename(dir.join("8"), dir.join("9")).unwrap();
    expect_change(&mut changes).await;
}

/// A manifest that is deleted and written again at once with the same content is a restart of its pod.
#[tokio::test]
async fn directory_change_names_removed_entries_even_if_they_exist_again() {
    let test_dir = TestDir::new();
    let dir = test_dir.dir("manifests");
    let (deleted, moved) = (test_dir.file("manifests/deleted", "x"), test_dir.file("manifests/moved", "x"));
    test_dir.file("manifests/replaced", "x");
    let mut changes = host().watch(&dir).await.unwrap();
    fs::remove_file(&deleted).unwrap();
    test_dir.file("manifests/deleted", "x");
    fs::rename(&moved, test_dir.at("elsewhere")).unwrap();
    fs::rename(test_dir.file("temporary", "x"), dir.join("replaced")).unwrap();
    let change = tokio::time::timeout(Duration::from_secs(10), changes.next()).await.unwrap().unwrap();
    assert_eq!(change.removed.into_iter().collect::<Vec<_>>(), [deleted, moved]);
}

#[tokio::test]
async fn changes_of_sibling_directories_are_ignored() {
    let test_dir = TestDir::new();
    let dir = test_dir.dir("manifests");
    let mut changes = host().watch(&dir).await.unwrap();
    test_dir.file("neighbour", "x");
    assert_eq!(settle(&mut changes).await, 0);
}

#[tokio::test]
async fn directory_created_later_is_watched() {
    let test_dir = TestDir::new();
    let mut changes = host().watch(&test_dir.at("etc/kubernetes/manifests")).await.unwrap();
    for dir in ["etc", "etc/kubernetes", "etc/kubernetes/manifests"] {
        test_dir.dir(dir);
        expect_change(&mut changes).await;
        settle(&mut changes).await;
    }
    test_dir.file("etc/kubernetes/manifests/web.yaml", "x");
    expect_change(&mut changes).await;
}

#[tokio::test]
async fn a_directory_that_is_replaced_stays_watched() {
    let test_dir = TestDir::new();
    let dir = test_dir.dir("manifests");
    let mut changes = host().watch(&dir).await.unwrap();
    fs::remove_dir(&dir).unwrap();
    expect_change(&mut changes).await;
    settle(&mut changes).await;
    test_dir.dir("manifests");
    expect_change(&mut changes).await;
    settle(&mut changes).await;
    test_dir.file("manifests/a", "x");
    expect_change(&mut changes).await;
}

#[tokio::test]
async fn a_file_is_watched_through_its_directory() {
    let test_dir = TestDir::new();
    let file = test_dir.file("pod.yaml", "a");
    let mut changes = host().watch(&file).await.unwrap();
    host().write_file(&file, b"b", 0o644).await.unwrap();
    expect_change(&mut changes).await;
    settle(&mut changes).await;
    fs::write(&file, "c").unwrap();
    expect_change(&mut changes).await;
}

#[tokio::test]
async fn a_directory_gets_an_selinux_label() {
    let test_dir = TestDir::new();
    let (dir, label) = (test_dir.dir("plugins"), "system_u:object_r:container_file_t:s0");
    host().set_selinux_label(&dir, label).await.unwrap();
    let mut found = vec![0; label.len()];
    assert_eq!(rustix::fs::getxattr(&dir, "security.selinux", &mut found[..]), Ok(label.len()));
    assert_eq!(found, label.as_bytes());
    assert!(host().set_selinux_label(&test_dir.at("none"), label).await.is_err());
}

#[tokio::test]
async fn a_link_to_a_directory_is_watched_wherever_it_points() {
    let test_dir = TestDir::new();
    let (one, two) = (test_dir.dir("one"), test_dir.dir("two"));
    let link = test_dir.at("manifests");
    host().ensure_symlink(&one, &link).await.unwrap();
    let mut changes = host().watch(&link).await.unwrap();
    host().ensure_symlink(&two, &link).await.unwrap();
    expect_change(&mut changes).await;
    settle(&mut changes).await;
    test_dir.file("two/web.yaml", "x");
    expect_change(&mut changes).await;
    settle(&mut changes).await;
    test_dir.file("one/web.yaml", "x");
    assert_eq!(settle(&mut changes).await, 0);
}

// hostPath

#[tokio::test]
async fn a_host_path_is_checked_against_its_type() {
    let test_dir = TestDir::new();
    let dir = test_dir.dir("dir");
    let file = test_dir.file("file", "x");
    let socket = test_dir.at("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let host = host();
    for (path, kind) in [
        (dir.as_path(), HostPathKind::Directory),
        (&dir, HostPathKind::DirectoryOrCreate),
        (&file, HostPathKind::File),
        (&file, HostPathKind::FileOrCreate),
        (&socket, HostPathKind::Socket),
        (Path::new("/dev/null"), HostPathKind::CharDevice),
        (Path::new("/absent"), HostPathKind::Unset),
    ] {
        host.ensure_host_path(path, kind).await.unwrap();
    }
    for (path, kind, noun) in [
        (file.as_path(), HostPathKind::Directory, "directory"),
        (&file, HostPathKind::DirectoryOrCreate, "directory"),
        (&dir, HostPathKind::File, "file"),
        (&socket, HostPathKind::FileOrCreate, "file"),
        (&file, HostPathKind::Socket, "socket file"),
        (&file, HostPathKind::CharDevice, "character device"),
        (&file, HostPathKind::BlockDevice, "block device"),
        (Path::new("/absent"), HostPathKind::Directory, "directory"),
        (Path::new("/absent"), HostPathKind::Socket, "socket file"),
    ] {
        let expected = format!("hostPath type check failed: {} is not a {noun}", path.display());
        assert_eq!(invalid(host.ensure_host_path(path, kind).await), expected);
    }
}

#[tokio::test]
async fn a_host_path_is_created_where_its_type_says_so() {
    let test_dir = TestDir::new();
    let dir = test_dir.at("a/b");
    host().ensure_host_path(&dir, HostPathKind::DirectoryOrCreate).await.unwrap();
    assert_eq!(mode(&dir), 0o755);
    let file = test_dir.at("a/file");
    host().ensure_host_path(&file, HostPathKind::FileOrCreate).await.unwrap();
    assert_eq!(mode(&file), 0o644);
    let orphan = host().ensure_host_path(&test_dir.at("no/file"), HostPathKind::FileOrCreate).await;
    assert!(orphan.unwrap_err().is_not_found());
}

#[tokio::test]
async fn files_inherit_the_group_of_their_directory() {
    let test_dir = TestDir::new();
    let volume = test_dir.at("volume");
    host().ensure_dir(&volume, 0o755).await.unwrap();
    for _ in 0..2 {
        host().set_group(&volume, 4444).await.unwrap();
    }
    assert_eq!((mode(&volume), fs::metadata(&volume).unwrap().gid()), (0o2775, 4444));
    fs::create_dir(volume.join("inside")).unwrap();
    assert_eq!(fs::metadata(volume.join("inside")).unwrap().gid(), 4444);
    symlink(&volume, test_dir.at("link")).unwrap();
    assert!(host().set_group(&test_dir.at("link"), 1).await.is_err());
}

// Removing trees

#[tokio::test]
async fn a_tree_is_removed_and_links_in_it_are_not_followed() {
    let test_dir = TestDir::new();
    let kept = test_dir.file("kept/precious", "x");
    let tree = test_dir.dir("tree");
    test_dir.file("tree/a/b/c", "x");
    symlink(test_dir.at("kept"), tree.join("a/link")).unwrap();
    make_node(&tree.join("fifo"), rustix::fs::FileType::Fifo);
    host().remove_tree(&tree).await.unwrap();
    assert!(!tree.exists() && kept.exists());
    host().remove_tree(&tree).await.unwrap();
    symlink(test_dir.at("kept"), &tree).unwrap();
    host().remove_tree(&tree).await.unwrap();
    assert!(fs::symlink_metadata(&tree).is_err() && kept.exists());
}

#[tokio::test]
async fn a_tree_with_a_mount_inside_is_refused_untouched() {
    let test_dir = TestDir::new();
    let before = test_dir.file("tree/a-before", "x");
    let mounted = test_dir.at("tree/m/volume");
    host().ensure_tmpfs(&mounted, 0).await.unwrap();
    let precious = test_dir.file("tree/m/volume/precious", "x");
    let refused = invalid(host().remove_tree(&test_dir.at("tree")).await);
    let tree = test_dir.at("tree");
    assert_eq!(
        refused,
        format!("refusing to remove {}: {} is a mount point", tree.display(), mounted.display())
    );
    assert!(before.exists() && precious.exists());
    assert!(host().remove_tree(&mounted).await.is_err());
    assert!(precious.exists());
}

#[tokio::test]
async fn a_bind_of_the_same_filesystem_is_refused_too() {
    let test_dir = TestDir::new();
    let precious = test_dir.file("data/precious", "x");
    let inside = test_dir.dir("tree/bound");
    rustix::mount::mount_bind(test_dir.at("data"), &inside).unwrap();
    assert!(host().remove_tree(&test_dir.at("tree")).await.is_err());
    assert!(precious.exists());
    host().unmount_tree(&test_dir.at("tree")).await.unwrap();
    host().remove_tree(&test_dir.at("tree")).await.unwrap();
    assert!(precious.exists());
}

#[tokio::test]
async fn a_very_deep_tree_is_removed_with_few_descriptors() {
    let test_dir = TestDir::new();
    let tree = test_dir.dir("tree");
    // Deeper than any path may be long, so it has to be built step by step.
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
    let none = rustix::fs::Mode::empty();
    let mut here = rustix::fs::open(&tree, flags, none).unwrap();
    for _ in 0..3000 {
        rustix::fs::mkdirat(&here, "deep", rustix::fs::Mode::RWXU).unwrap();
        here = rustix::fs::openat(&here, "deep", flags, none).unwrap();
    }
    host().remove_tree(&tree).await.unwrap();
    assert!(!tree.exists());
}

// subPath

#[tokio::test]
async fn a_missing_sub_path_becomes_a_directory_with_the_volumes_permissions() {
    let test_dir = TestDir::new();
    let volume = test_dir.dir("volume");
    host().ensure_dir(&volume, 0o2777).await.unwrap();
    let target = test_dir.at("subpaths/0");
    for _ in 0..2 {
        host().bind_sub_path(&volume, "a/b", &target).await.unwrap();
    }
    assert_eq!((mode(&volume.join("a")), mode(&volume.join("a/b"))), (0o2777, 0o2777));
    test_dir.file("volume/a/b/seen", "x");
    assert!(target.join("seen").exists());
    assert_eq!(crate::mounts::mounted_below(&target).unwrap().len(), 1);
}

#[tokio::test]
async fn a_file_is_bound_to_a_file() {
    let test_dir = TestDir::new();
    test_dir.file("volume/key", "value");
    let target = test_dir.at("subpaths/0");
    host().bind_sub_path(&test_dir.at("volume"), "key", &target).await.unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"value");
}

#[tokio::test]
async fn links_that_stay_inside_the_volume_are_followed() {
    let test_dir = TestDir::new();
    let volume = test_dir.dir("volume");
    // As in a volume of a config map.
    test_dir.file("volume/..2026_01_01/key", "value");
    symlink("..2026_01_01", volume.join("..data")).unwrap();
    symlink("..data/key", volume.join("key")).unwrap();
    symlink(volume.join("..data"), volume.join("absolute")).unwrap();
    symlink("absolute/../..data/./key", volume.join("winding")).unwrap();
    for (number, name) in ["key", "absolute/key", "winding"].into_iter().enumerate() {
        let target = test_dir.at(&format!("subpaths/{number}"));
        host().bind_sub_path(&volume, name, &target).await.unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"value", "{name}");
    }
}

#[tokio::test]
async fn a_changed_sub_path_is_bound_again() {
    let test_dir = TestDir::new();
    test_dir.file("volume/key", "one");
    let target = test_dir.at("subpaths/0");
    host().bind_sub_path(&test_dir.at("volume"), "key", &target).await.unwrap();
    fs::remove_file(test_dir.at("volume/key")).unwrap();
    test_dir.file("volume/key/inner", "two");
    host().bind_sub_path(&test_dir.at("volume"), "key", &target).await.unwrap();
    assert_eq!(fs::read(target.join("inner")).unwrap(), b"two");
    assert_eq!(crate::mounts::mounted_below(&target).unwrap().len(), 1);
}

#[tokio::test]
async fn links_that_leave_the_volume_are_refused() {
    let test_dir = TestDir::new();
    let volume = test_dir.dir("volume");
    test_dir.file("outside/precious", "x");
    symlink("../outside", volume.join("up")).unwrap();
    symlink(test_dir.at("outside"), volume.join("absolute")).unwrap();
    symlink("/proc/self/root", volume.join("magic")).unwrap();
    symlink("loop", volume.join("loop")).unwrap();
    let target = test_dir.at("subpaths/0");
    for name in ["up", "up/precious", "absolute/precious", "magic/etc"] {
        let refused = invalid(host().bind_sub_path(&volume, name, &target).await);
        assert!(refused.contains("not within volume path"), "{refused}");
    }
    assert!(invalid(host().bind_sub_path(&volume, "loop", &target).await).ends_with("too many links"));
    let up = invalid(host().bind_sub_path(&volume, "a/../..", &target).await);
    assert_eq!(up, "subPath \"a/../..\" must not contain '..'");
    let absolute = invalid(host().bind_sub_path(&volume, "/etc", &target).await);
    assert_eq!(absolute, "subPath \"/etc\" must not be absolute");
    assert!(!target.exists());
}

#[tokio::test]
async fn a_file_is_read_inside_its_volume_only() {
    let test_dir = TestDir::new();
    let volume = test_dir.dir("volume");
    test_dir.file("volume/conf/env", "A='1'");
    test_dir.file("outside/precious", "x");
    symlink("conf/env", volume.join("inner")).unwrap();
    symlink("../outside/precious", volume.join("up")).unwrap();
    symlink(test_dir.at("outside"), volume.join("absolute")).unwrap();
    symlink("/proc/self/root", volume.join("magic")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        volume.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let read = |inside: &'static str, limit| {
        let volume = volume.clone();
        async move { host().read_in_volume(&volume, inside, limit).await }
    };
    assert_eq!(read("conf/env", 5).await.unwrap(), b"A='1'");
    assert_eq!(read("inner", 5).await.unwrap(), b"A='1'");
    assert!(read("none", 5).await.unwrap_err().is_not_found());
    for name in ["up", "absolute/precious", "magic/etc/hosts", "../outside/precious"] {
        let refused = invalid(read(name, 5).await.map(drop));
        assert!(refused.ends_with("leads out of its volume"), "{refused}");
    }
    assert!(invalid(read("conf/env", 4).await.map(drop)).ends_with("is longer than 4 bytes"));
    assert!(invalid(read("conf", 5).await.map(drop)).ends_with("is not a regular file"));
    assert!(invalid(read("fifo", 5).await.map(drop)).ends_with("is not a regular file"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sub_path_bind_stays_in_the_volume_while_directory_and_link_are_swapped() {
    let test_dir = TestDir::new();
    let volume = test_dir.dir("volume");
    let outside = test_dir.dir("outside/deep");
    test_dir.dir("volume/dir/deep");
    symlink(test_dir.at("outside"), volume.join("link")).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let attacker = std::thread::spawn({
        let (stop, volume) = (Arc::clone(&stop), volume.clone());
        move || {
            let flags = rustix::fs::RenameFlags::EXCHANGE;
            let mut swaps = 0_u32;
            while !stop.load(Ordering::Relaxed) {
                let cwd = rustix::fs::CWD;
                rustix::fs::renameat_with(cwd, volume.join("dir"), cwd, volume.join("link"), flags).unwrap();
                swaps += 1;
            }
            swaps
        }
    });
    let forbidden = fs::metadata(&outside).unwrap().ino();
    let (mut bound, mut refused) = (0, 0);
    for round in 0..4000 {
        let target = test_dir.at("subpaths/0");
        match host().bind_sub_path(&volume, "dir/deep", &target).await {
            Ok(()) => {
                bound += 1;
                assert_ne!(fs::metadata(&target).unwrap().ino(), forbidden);
                host().unmount_tree(&target).await.unwrap();
            }
            Err(HostError::Invalid(_)) => refused += 1,
            Err(error @ (HostError::Io { .. } | HostError::NotFinished(_))) => panic!("{error:?}"),
        }
        if round >= 200 && bound > 20 && refused > 20 {
            break;
        }
    }
    stop.store(true, Ordering::Relaxed);
    assert!(attacker.join().unwrap() > 0);
    assert!(bound > 0 && refused > 0, "no race: {bound} bound, {refused} refused");
    assert!(fs::read_dir(&outside).unwrap().next().is_none());
}

// The machine

#[tokio::test]
async fn machine_info_is_read() {
    let host = host();
    let machine = host.info();
    assert!(machine.cpus >= 1 && machine.memory_bytes > 0);
    assert!(!machine.hostname.is_empty() && !machine.boot_id.is_empty() && !machine.os_image.is_empty());
    assert_eq!(host.info(), machine);
}

#[tokio::test]
async fn an_open_file_stays_the_same_when_its_name_goes_to_another() {
    let (test_dir, host) = (TestDir::new(), LinuxHost::new());
    let log = test_dir.file("0.log", "one\ntwo\n");
    let file = host.open_file(&log).await.unwrap();
    fs::rename(&log, test_dir.at("0.log.old")).unwrap();
    test_dir.file("0.log", "new\n");
    assert_eq!(file.size_bytes().await.unwrap(), 8);
    assert_eq!(file.read_at(4, 100).await.unwrap(), b"two\n");
    assert_eq!(file.read_at(0, 3).await.unwrap(), b"one");
    assert_eq!(file.read_at(8, 100).await.unwrap(), b"");
    assert_eq!(file.read_at(u64::MAX - 1, 100).await.unwrap_or_default(), b"");
    let next = host.open_file(&log).await.unwrap();
    assert_ne!(next.identity(), file.identity());
    assert_eq!(host.open_file(&test_dir.at("0.log.old")).await.unwrap().identity(), file.identity());
    assert!(host.open_file(&test_dir.at("none")).await.unwrap_err().is_not_found());
    assert!(matches!(host.open_file(&test_dir.dir("dir")).await, Err(HostError::Invalid(_))));
}

/// With as few threads as a kubelet had once: twice as many large trees would take all of them.
#[test]
fn small_tree_and_small_files_are_not_behind_large_trees() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(8).build();
    let (test_dir, host) = (TestDir::new(), host());
    let fill = |name: &str, files: usize| {
        let dir = test_dir.at(name);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("0"), "").unwrap();
        (1..files).for_each(|n| fs::hard_link(dir.join("0"), dir.join(n.to_string())).unwrap());
        dir
    };
    let large: Vec<_> = (0..16).map(|n| fill(&format!("large-{n}"), 4000)).collect();
    let small = fill("small", 10);
    runtime.unwrap().block_on(async {
        let mut removals: FuturesUnordered<_> = large.iter().map(|tree| host.remove_tree(tree)).collect();
        // Each waits for its first piece.
        assert!(futures_util::poll!(removals.next()).is_pending());
        let meanwhile = async {
            host.remove_tree(&small).await.unwrap();
            host.ensure_dir(&test_dir.at("new"), 0o755).await.unwrap();
        };
        tokio::select! {
            biased;
            () = meanwhile => {}
            done = removals.next() => panic!("a large tree was removed first: {done:?}"),
        }
        assert!(!small.exists() && large.iter().all(|tree| tree.exists()));
        while let Some(removed) = removals.next().await {
            removed.unwrap();
        }
    });
    assert!(large.iter().all(|tree| !tree.exists()));
}
