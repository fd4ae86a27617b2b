//! Work that may block a thread, each kind with a bound of its own.
//!
//! The task runtime has one queue for all blocking work. If one kind of work could take all threads, work of that kind that takes long
//! or hangs would delay everything else on the node: the file with a new pod, the directory of its volumes, the account of its cgroup.
//! So each kind ([`Work`]) waits in a queue of its own, and inside of a kind one owner (a pod, a container, a cgroup) has only a part of
//! the threads. The runtime must have [`threads`] for all of them together. Work on trees goes on in pieces
//! ([`crate::walk::TreeWork`]), which wait in the queue again, so that a small tree is not behind eight large ones.
//!
//! What waits is bounded by the callers: each task waits for one piece of work, or for one of each pod.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use ports::host::HostResult;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::failed;
use crate::walk::TreeWork;

/// A kind of blocking work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    /// Small files of the node and of the kubelet itself.
    NodeFiles,
    /// Small files and directories of pods.
    PodFiles,
    /// Logs of containers and of the node.
    Logs,
    /// Compression of rotated logs.
    Compression,
    /// Directories that others fill, an operator even on a filesystem of another machine: manifests, sockets of plugins.
    Sources,
    /// Removal, measurement and change of ownership of trees.
    Trees,
    /// Searches among processes.
    Processes,
    Cgroups,
    /// Mount tables, mounts and unmounts.
    Mounts,
    /// Reading what is measured, trees excepted.
    Measurements,
}

/// How many threads a kind of work has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound {
    total: usize,
    /// For one owner.
    for_each: usize,
}

impl Work {
    const ALL: [Self; 10] = [
        Self::NodeFiles,
        Self::PodFiles,
        Self::Logs,
        Self::Compression,
        Self::Sources,
        Self::Trees,
        Self::Processes,
        Self::Cgroups,
        Self::Mounts,
        Self::Measurements,
    ];

    const fn bound(self) -> Bound {
        match self {
            Self::NodeFiles => Bound { total: 8, for_each: 8 },
            Self::PodFiles | Self::Logs => Bound { total: 8, for_each: 2 },
            Self::Compression => Bound { total: 2, for_each: 1 },
            Self::Sources | Self::Processes | Self::Cgroups | Self::Mounts => Bound { total: 4, for_each: 1 },
            Self::Trees | Self::Measurements => Bound { total: 4, for_each: 4 },
        }
    }
}

/// How many threads all of this work needs at most.
#[must_use]
pub fn threads() -> usize {
    Work::ALL.iter().map(|work| work.bound().total).sum()
}

/// Where a piece of work waits: with other work of its kind and of its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    work: Work,
    owner: Option<String>,
}

impl Queue {
    pub(crate) const fn of(work: Work) -> Self {
        Self { work, owner: None }
    }

    pub(crate) fn of_owner(work: Work, owner: &str) -> Self {
        Self { work, owner: Some(owner.to_owned()) }
    }
}

/// Directories whose contents are not the kubelet's own small files.
#[derive(Clone, Debug)]
pub(crate) struct Directories {
    /// A directory stands before those that contain it, so that the first match is the nearest.
    roots: Vec<(PathBuf, Work)>,
}

impl Directories {
    pub(crate) fn new(pods: PathBuf, pod_logs: PathBuf, manifests: Option<PathBuf>) -> Self {
        let mut roots = vec![(pods, Work::PodFiles), (pod_logs, Work::Logs)];
        roots.extend(manifests.map(|manifests| (manifests, Work::Sources)));
        roots.push((PathBuf::from("/var/log"), Work::Logs));
        Self { roots }
    }

    /// The queue of small work at the path. The owner of what is in a root directory is the first name below it: a pod.
    pub(crate) fn queue(&self, path: &Path) -> Queue {
        let below = self.roots.iter().find_map(|(root, work)| Some((path.strip_prefix(root).ok()?, *work)));
        let Some((inside, work)) = below else { return Queue::of(Work::NodeFiles) };
        let owner = inside.components().next().map(|name| name.as_os_str().to_string_lossy().into_owned());
        Queue { work, owner }
    }

    /// The same for work of another kind, that of the logs excepted: their filesystem may hang, and then only they wait for it.
    pub(crate) fn queue_for(&self, work: Work, path: &Path) -> Queue {
        let small = self.queue(path);
        if small.work == Work::Logs { small } else { Queue { work, owner: small.owner } }
    }
}

impl Default for Directories {
    fn default() -> Self {
        Self::new("/var/lib/kubelet/pods".into(), "/var/log/pods".into(), None)
    }
}

/// The threads that are in use. Work that its caller no longer waits for counts until it has ended.
#[derive(Debug)]
struct Threads {
    kinds: BTreeMap<Work, Arc<Semaphore>>,
    owners: Mutex<BTreeMap<(Work, String), Arc<Semaphore>>>,
}

/// Threads that a piece of work holds.
#[derive(Debug)]
struct Permit {
    _kind: Option<OwnedSemaphorePermit>,
    _owner: Option<OwnedSemaphorePermit>,
}

/// The task runtime has one pool of threads.
static THREADS: LazyLock<Threads> = LazyLock::new(Threads::new);

impl Threads {
    fn new() -> Self {
        let kinds = Work::ALL.map(|work| (work, Arc::new(Semaphore::new(work.bound().total))));
        Self { kinds: kinds.into(), owners: Mutex::default() }
    }

    /// Waits first for a thread of the owner, so that what waits there takes none of the others. Cancel safe.
    async fn acquire(&self, queue: &Queue) -> Permit {
        let of_owner = queue.owner.as_ref().map(|owner| self.of_owner(queue.work, owner));
        // The semaphores are never closed.
        let owner = match of_owner {
            Some(owner) => owner.acquire_owned().await.ok(),
            None => None,
        };
        let kind = match self.kinds.get(&queue.work) {
            Some(kind) => kind.clone().acquire_owned().await.ok(),
            None => None,
        };
        Permit { _kind: kind, _owner: owner }
    }

    /// Owners without any work are forgotten.
    fn of_owner(&self, work: Work, owner: &str) -> Arc<Semaphore> {
        let mut owners = self.owners.lock();
        owners.retain(|_, threads| Arc::strong_count(threads) > 1);
        let new = || Arc::new(Semaphore::new(work.bound().for_each));
        owners.entry((work, owner.to_owned())).or_insert_with(new).clone()
    }

    async fn run<T, F>(&self, queue: &Queue, path: &Path, work: F) -> HostResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&Path) -> HostResult<T> + Send + 'static,
    {
        let permit = self.acquire(queue).await;
        let owned = path.to_path_buf();
        let worked = tokio::task::spawn_blocking(move || {
            let _until_done = permit;
            work(&owned)
        });
        match worked.await {
            Ok(result) => result,
            Err(gone) => Err(failed("finish work on", path)(io::Error::other(gone))),
        }
    }
}

/// Runs file work on a thread that may block. A panic inside is returned as an error.
pub(crate) async fn blocking<T, F>(queue: &Queue, path: &Path, work: F) -> HostResult<T>
where
    T: Send + 'static,
    F: FnOnce(&Path) -> HostResult<T> + Send + 'static,
{
    THREADS.run(queue, path, work).await
}

/// How many entries of a tree are visited before other trees have their turn: some milliseconds of work.
const ENTRIES: usize = 1000;

/// Does work on a tree in pieces. It ends after a piece if its caller no longer waits.
pub(crate) async fn on_tree<W: TreeWork>(queue: &Queue, path: &Path, work: W) -> HostResult<W::Output> {
    in_pieces(&THREADS, queue, path, work, ENTRIES).await
}

async fn in_pieces<W: TreeWork>(
    threads: &Threads,
    queue: &Queue,
    path: &Path,
    mut work: W,
    entries: usize,
) -> HostResult<W::Output> {
    loop {
        let advance = move |_: &Path| {
            let output = work.advance(entries)?;
            Ok((work, output))
        };
        let (rest, output) = threads.run(queue, path, advance).await?;
        if let Some(output) = output {
            return Ok(output);
        }
        work = rest;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use futures_util::future::join_all;

    use super::*;

    const AT: &str = "/somewhere";

    fn directories() -> Directories {
        Directories::new("/root/pods".into(), "/var/log/pods".into(), Some("/etc/manifests".into()))
    }

    #[test]
    fn small_files_wait_by_the_directory_they_are_in_and_by_pod() {
        let directories = directories();
        let of_owner = |work, owner: &str| Queue { work, owner: Some(owner.to_owned()) };
        for (path, queue) in [
            ("/root/pods/uid/volumes/x", of_owner(Work::PodFiles, "uid")),
            ("/root/pods", Queue::of(Work::PodFiles)),
            ("/root/pods_of_others", Queue::of(Work::NodeFiles)),
            ("/root/checkpoint", Queue::of(Work::NodeFiles)),
            ("/var/log/pods/ns_name_uid/main/0.log", of_owner(Work::Logs, "ns_name_uid")),
            ("/var/log/syslog", of_owner(Work::Logs, "syslog")),
            ("/etc/manifests", Queue::of(Work::Sources)),
        ] {
            assert_eq!(directories.queue(Path::new(path)), queue, "{path}");
        }
        let for_trees = |path: &str| directories.queue_for(Work::Trees, Path::new(path));
        assert_eq!(for_trees("/root/pods/uid"), of_owner(Work::Trees, "uid"));
        assert_eq!(for_trees("/var/log/pods/a/main"), of_owner(Work::Logs, "a"), "it may hang");
    }

    /// Work that hangs until the result is dropped.
    async fn hang(threads: &Arc<Threads>, queue: Queue, count: usize) -> std::sync::mpsc::SyncSender<()> {
        let (release, released) = std::sync::mpsc::sync_channel(0);
        let released = Arc::new(Mutex::new(released));
        let begun = Arc::new(AtomicUsize::new(0));
        for _ in 0..count {
            let (threads, queue, released, begun) =
                (threads.clone(), queue.clone(), released.clone(), begun.clone());
            let work = move |_: &Path| {
                begun.fetch_add(1, Ordering::SeqCst);
                // The sender is dropped.
                let _ = released.lock().recv();
                Ok(())
            };
            tokio::spawn(async move { threads.run(&queue, Path::new(AT), work).await });
        }
        let bound =
            if queue.owner.is_some() { queue.work.bound().for_each } else { queue.work.bound().total };
        while begun.load(Ordering::SeqCst) < count.min(bound) {
            tokio::task::yield_now().await;
        }
        release
    }

    async fn answers(threads: &Threads, queue: &Queue) -> bool {
        let work = threads.run(queue, Path::new(AT), |_| Ok(()));
        tokio::time::timeout(Duration::from_secs(60), work).await.is_ok()
    }

    #[test]
    fn each_kind_of_work_goes_on_while_all_others_hang() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(threads())
            .build()
            .unwrap();
        for work in Work::ALL {
            let threads = Arc::new(Threads::new());
            let hanging = runtime.block_on(async {
                let mut hanging = Vec::new();
                for other in Work::ALL.into_iter().filter(|other| *other != work) {
                    hanging.push(hang(&threads, Queue::of(other), 20).await);
                }
                assert!(answers(&threads, &Queue::of(work)).await, "{work:?}");
                hanging
            });
            drop(hanging);
        }
    }

    #[tokio::test]
    async fn one_owner_takes_only_a_part_of_the_threads_and_counts_until_its_work_has_ended() {
        let threads = Arc::new(Threads::new());
        let hanging = hang(&threads, Queue::of_owner(Work::PodFiles, "a"), 20).await;
        assert!(answers(&threads, &Queue::of_owner(Work::PodFiles, "b")).await);
        let same = Queue::of_owner(Work::PodFiles, "a");
        let mut waiting = threads.acquire(&same).boxed();
        assert!(futures_util::poll!(&mut waiting).is_pending(), "its threads are in use");
        drop(hanging);
        drop(waiting.await);
        assert!(answers(&threads, &same).await);
        assert!(answers(&threads, &Queue::of_owner(Work::PodFiles, "c")).await);
        assert!(threads.owners.lock().len() <= 2, "{:?}", threads.owners.lock().keys());
    }

    /// A tree with so many pieces.
    struct Pieces(usize);

    impl TreeWork for Pieces {
        type Output = ();

        fn advance(&mut self, _entries: usize) -> HostResult<Option<()>> {
            self.0 = self.0.saturating_sub(1);
            Ok((self.0 == 0).then_some(()))
        }
    }

    #[tokio::test]
    async fn small_tree_is_done_long_before_large_ones_that_came_first() {
        let threads = Threads::new();
        let done = AtomicUsize::new(0);
        let on_tree = async |pod: usize, pieces| {
            let queue = Queue::of_owner(Work::Trees, &pod.to_string());
            in_pieces(&threads, &queue, Path::new(AT), Pieces(pieces), ENTRIES).await.unwrap();
            done.fetch_add(1, Ordering::SeqCst)
        };
        let large = join_all((0..20).map(|pod| on_tree(pod, 1000)));
        let small = on_tree(20, 2);
        let (larges, order) = tokio::join!(large, small);
        assert_eq!((larges.len(), order), (20, 0), "the small one is done first");
    }
}
