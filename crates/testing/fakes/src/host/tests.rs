use futures_util::StreamExt;
use ports::{Files, Mounts};

use super::*;

#[tokio::test]
async fn a_tree_with_a_mount_inside_is_not_removed() {
    let host = FakeHost::new();
    let dir = Path::new("/pods/a/volumes/memory");
    host.ensure_dir(dir, 0o777).await.unwrap();
    host.ensure_tmpfs(dir, 0).await.unwrap();
    assert_eq!(host.mounts(), ["tmpfs /pods/a/volumes/memory"]);
    host.remove_tree(Path::new("/pods/a")).await.unwrap_err();
    assert!(host.exists(dir));
    host.unmount_tree(Path::new("/pods/a")).await.unwrap();
    host.remove_tree(Path::new("/pods/a")).await.unwrap();
    assert!(!host.exists("/pods/a"));
}

#[tokio::test]
async fn tmpfs_unmount_drops_its_files() {
    let host = FakeHost::new();
    let dir = Path::new("/pods/a/memory");
    host.ensure_dir(dir, 0o777).await.unwrap();
    host.ensure_tmpfs(dir, 0).await.unwrap();
    host.write_file(&dir.join("file"), b"x", 0o644).await.unwrap();
    host.unmount_tree(dir).await.unwrap();
    assert_eq!(host.files_below("/pods"), ["/pods/a", "/pods/a/memory"]);
}

#[tokio::test]
async fn a_file_needs_its_directory() {
    let host = FakeHost::new();
    let error = host.write_file(Path::new("/nowhere/file"), b"x", 0o644).await.unwrap_err();
    assert!(error.is_not_found());
}

#[tokio::test(start_paused = true)]
async fn directory_watch_reports_only_changes_in_its_directory() {
    let host = FakeHost::new();
    let mut changes = host.watch(Path::new("/manifests")).await.unwrap();
    host.put("/elsewhere/file", "x");
    let wait = std::time::Duration::from_secs(1);
    tokio::time::timeout(wait, changes.next()).await.unwrap_err();
    host.put("/manifests/web.yaml", "x");
    tokio::time::timeout(wait, changes.next()).await.unwrap().unwrap();
}

#[tokio::test]
async fn fault_applies_to_one_call_without_effect() {
    let host = FakeHost::new();
    host.fault(HostMethod::EnsureDir, HostFault::Fails);
    host.ensure_dir(Path::new("/a"), 0o755).await.unwrap_err();
    assert!(!host.exists("/a"));
    host.ensure_dir(Path::new("/a"), 0o755).await.unwrap();
    assert!(host.exists("/a"));
}

#[tokio::test]
async fn symlink_metadata_reports_dangling_links() {
    let host = FakeHost::new();
    host.ensure_dir(Path::new("/links"), 0o755).await.unwrap();
    host.ensure_symlink(Path::new("/logs/1"), Path::new("/links/a")).await.unwrap();
    let entry = host.list_dir(Path::new("/links")).await.unwrap().remove(0);
    assert!(entry.is_symlink && !entry.target_exists);
    host.put("/logs/1", "line");
    let entry = host.list_dir(Path::new("/links")).await.unwrap().remove(0);
    assert!(entry.target_exists);
}
