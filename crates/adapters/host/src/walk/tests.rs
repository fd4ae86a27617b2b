use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;

use super::*;

/// Enters every directory and counts how often it met which name; `meddle` changes the tree meanwhile.
struct Counter<'a> {
    met: BTreeMap<String, usize>,
    unreadable: Vec<Errno>,
    meddle: &'a mut dyn FnMut(&Entry<'_>),
}

impl Visitor for Counter<'_> {
    fn visit(&mut self, entry: &Entry<'_>) -> HostResult<Visit> {
        *self.met.entry(entry.name.to_string_lossy().into_owned()).or_default() += 1;
        (self.meddle)(entry);
        let kind = rustix::fs::statat(entry.dir, entry.name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
        let is_dir = kind.is_ok_and(|stat| {
            rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory
        });
        // An entry listed as a directory is entered, also if it was replaced.
        Ok(if is_dir || entry.name.to_bytes().starts_with(b"swap") { Visit::Enter } else { Visit::Next })
    }

    fn unreadable(&mut self, _path: PathBuf, why: Errno) -> HostResult<()> {
        self.unreadable.push(why);
        Ok(())
    }
}

fn count(top: &Path, mut meddle: impl FnMut(&Entry<'_>)) -> (BTreeMap<String, usize>, Vec<Errno>) {
    let mut counter = Counter { met: BTreeMap::new(), unreadable: Vec::new(), meddle: &mut meddle };
    let opened = rustix::fs::open(top, OPEN_DIR, Mode::empty()).unwrap();
    assert!(Walk::new(opened, top).unwrap().advance(&mut counter, usize::MAX).unwrap());
    (counter.met, counter.unreadable)
}

/// Directories `d` one in the other, each with these other directories, which hold one file `f` each.
fn nest(top: &Path, depth: usize, siblings: &[&str]) {
    let mut here = rustix::fs::open(top, OPEN_DIR, Mode::empty()).unwrap();
    for _ in 0..depth {
        for name in siblings {
            rustix::fs::mkdirat(&here, *name, Mode::RWXU).unwrap();
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
            let inner = rustix::fs::openat(&here, *name, OPEN_DIR, Mode::empty()).unwrap();
            rustix::fs::openat(&inner, "f", flags, Mode::RWXU).unwrap();
        }
        rustix::fs::mkdirat(&here, "d", Mode::RWXU).unwrap();
        here = rustix::fs::openat(&here, "d", OPEN_DIR, Mode::empty()).unwrap();
    }
}

fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn walk_visits_every_entry_of_a_tree_deeper_than_path_max_once() {
    let dir = tempfile::tempdir().unwrap();
    // Two bytes of path for each level, and many more levels than stay open.
    const DEPTH: usize = 2100;
    nest(dir.path(), DEPTH, &["a", "x"]);
    let before = open_descriptors();
    let mut most = 0;
    let (met, unreadable) = count(dir.path(), |entry| {
        if entry.name == c"f" {
            most = most.max(open_descriptors());
        }
    });
    let expected = [("a", DEPTH), ("d", DEPTH), ("f", 2 * DEPTH), ("x", DEPTH)];
    assert_eq!(met, expected.into_iter().map(|(name, times)| (name.to_owned(), times)).collect());
    assert_eq!(unreadable, []);
    // Other tests open files at the same time, though not hundreds.
    assert!(most < before + HELD + 200, "{before} and then {most}");
    complete(crate::removal::Removal::new(dir.path().join("d"))).unwrap();
}

#[test]
fn walk_visits_every_entry_of_a_wide_deep_directory() {
    let dir = tempfile::tempdir().unwrap();
    nest(dir.path(), HELD + 3, &[]);
    let wide = (0..HELD + 3).fold(dir.path().to_path_buf(), |path, _| path.join("d"));
    // Several batches of names, with directories in between.
    for n in 0..500 {
        fs::write(wide.join(format!("file-with-a-longer-name-{n}")), "").unwrap();
        fs::create_dir(wide.join(format!("directory-{n}"))).unwrap();
        fs::write(wide.join(format!("directory-{n}/inner")), "").unwrap();
    }
    let (met, _) = count(dir.path(), |_| ());
    assert_eq!(met["inner"], 500);
    assert_eq!(met.keys().filter(|name| name.starts_with("file-") && met[*name] == 1).count(), 500);
    assert_eq!(met.len(), 1 + 1 + 1000);
}

#[test]
fn a_directory_swapped_for_a_link_is_not_followed() {
    for depth in [1, HELD + 5] {
        let dir = tempfile::tempdir().unwrap();
        let (tree, outside) = (dir.path().join("tree"), dir.path().join("outside"));
        fs::create_dir(&tree).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret"), "").unwrap();
        nest(&tree, depth, &["swap"]);
        let (met, unreadable) = count(&tree, |entry| {
            if entry.name == c"swap" {
                rustix::fs::renameat(entry.dir, entry.name, entry.dir, "kept").unwrap();
                rustix::fs::symlinkat(&outside, entry.dir, entry.name).unwrap();
            }
        });
        assert_eq!(met["swap"], depth);
        assert!(!met.contains_key("secret"), "{met:?}");
        assert!(
            unreadable.len() >= depth && unreadable.iter().all(|e| *e == Errno::LOOP || *e == Errno::NOTDIR)
        );
    }
}

#[test]
fn walk_stays_in_the_tree_when_a_deep_directory_is_moved_out() {
    let dir = tempfile::tempdir().unwrap();
    let (tree, outside) = (dir.path().join("tree"), dir.path().join("outside"));
    fs::create_dir_all(tree.join("later/l")).unwrap();
    fs::create_dir_all(outside.join("secret/z")).unwrap();
    nest(&tree, HELD + 10, &[]);
    let at = |depth: usize| (0..depth).fold(tree.clone(), |path, _| path.join("d"));
    fs::write(at(HELD + 10).join("last"), "").unwrap();
    let (moved, target) = (at(HELD + 5), outside.join("moved"));
    let (met, _) = count(&tree, |entry| {
        if entry.name == c"last" {
            fs::rename(&moved, &target).unwrap();
        }
    });
    assert_eq!(met["last"], 1);
    assert!(!met.contains_key("secret") && !met.contains_key("z"), "{met:?}");
    // What the held levels still have to show is met all the same.
    assert_eq!((met["later"], met["l"]), (1, 1));
}

#[test]
fn tree_usage_does_not_enter_mounts() {
    let dir = tempfile::tempdir().unwrap();
    let (tree, bound) = (dir.path().join("tree"), dir.path().join("tree/swap-bound"));
    fs::create_dir_all(&bound).unwrap();
    fs::create_dir_all(dir.path().join("data/precious")).unwrap();
    rustix::mount::mount_bind(dir.path().join("data"), &bound).unwrap();
    let (met, unreadable) = count(&tree, |_| ());
    rustix::mount::unmount(&bound, rustix::mount::UnmountFlags::NOFOLLOW).unwrap();
    assert_eq!((met.len(), unreadable), (1, vec![Errno::XDEV]));
}

#[test]
fn the_path_in_messages_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    nest(dir.path(), HELD + 20, &[]);
    let mut longest = PathBuf::new();
    count(dir.path(), |entry| {
        if entry.level == HELD {
            longest = entry.path();
        }
    });
    assert!(longest.ends_with(".../d"), "{}", longest.display());
    assert!(longest.components().count() <= dir.path().components().count() + HELD + 2);
    symlink("/", dir.path().join("link")).unwrap();
    let mut seen = None;
    count(dir.path(), |entry| {
        if entry.name == c"link" {
            seen = Some(entry.path());
        }
    });
    assert_eq!(seen, Some(dir.path().join("link")));
}
