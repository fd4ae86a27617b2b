//! Watches a path that may not exist yet for changes.
//!
//! The directory is watched, and its parent for the moment it is replaced; of something that does not exist the
//! nearest ancestor is watched for the step that leads there. Whenever the path itself changes, the watches are set up
//! again and a change is reported, so the reader reads again with the new watches active and misses nothing.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use inotify::{EventMask, Inotify, WatchDescriptor, WatchMask};
use ports::host::{DirectoryChange, HostResult};

use crate::async_inotify::read_burst;
use crate::blocking::{Queue, blocking};
use crate::{chain, failed};

/// Delay between attempts while the kernel refuses a watch.
const RETRY: Duration = Duration::from_secs(1);
/// How often the path is resolved again if it changes while watches are set up.
const TRIES: u32 = 8;

/// Not plain modification: a file is read once its writer has closed it.
const INTERESTING: WatchMask = WatchMask::CREATE
    .union(WatchMask::CLOSE_WRITE)
    .union(WatchMask::MOVED_TO)
    .union(WatchMask::MOVED_FROM)
    .union(WatchMask::DELETE)
    .union(WatchMask::ATTRIB)
    .union(WatchMask::DELETE_SELF)
    .union(WatchMask::MOVE_SELF);

/// What one burst of events means for the watched path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Meaning {
    Nothing,
    Changed,
    /// A directory or link on the path changed; the watches may be on the wrong directories.
    Moved,
}

/// The watches as they are now.
struct Armed {
    inotify: Inotify,
    watched: Watched,
}

struct Watched {
    /// Every event in here counts.
    contents: Option<WatchDescriptor>,
    /// In here only this entry counts.
    step: Option<(WatchDescriptor, OsString)>,
    /// The directory of the contents.
    directory: PathBuf,
}

impl Watched {
    /// The path of an entry of the watched directory.
    fn path_of(&self, wd: &WatchDescriptor, name: Option<&OsStr>) -> Option<PathBuf> {
        let is_of_contents = self.contents.as_ref() == Some(wd);
        name.filter(|_| is_of_contents).map(|name| self.directory.join(name))
    }
}

/// Nothing that happens after this returns is missed. `queue`: where asking the filesystem waits, which may hang.
pub(crate) async fn watch(path: &Path, queue: Queue) -> HostResult<BoxStream<'static, DirectoryChange>> {
    let path = std::path::absolute(path).map_err(failed("watch", path))?;
    let armed = arm(&queue, &path).await?;
    Ok(stream::unfold((path, queue, Some(armed)), |(path, queue, armed)| async move {
        let mut change = DirectoryChange::default();
        let armed = next_change(&path, &queue, armed, &mut change.removed).await;
        Some((change, (path, queue, armed)))
    })
    .boxed())
}

/// Waits for the next change. Cancel safe in the stream above, which keeps the pending call.
async fn next_change(
    path: &Path,
    queue: &Queue,
    mut armed: Option<Armed>,
    removed: &mut BTreeSet<PathBuf>,
) -> Option<Armed> {
    loop {
        let Some(watches) = armed.take() else {
            match arm(queue, path).await {
                Ok(watches) => return Some(watches),
                Err(error) => {
                    let error = chain(&error);
                    tracing::warn!(path = %path.display(), err = error, "Failed to watch for changes, retrying");
                    tokio::time::sleep(RETRY).await;
                }
            }
            continue;
        };
        match next_burst(watches, removed).await {
            Ok((watches, Meaning::Nothing)) => armed = Some(watches),
            Ok((watches, Meaning::Changed)) => return Some(watches),
            Ok((_, Meaning::Moved)) => {}
            Err(error) => {
                tracing::warn!(path = %path.display(), err = %error, "Lost the watch for changes, setting it up again");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Waits for events and reads all of them.
async fn next_burst(watches: Armed, removed: &mut BTreeSet<PathBuf>) -> io::Result<(Armed, Meaning)> {
    let Armed { inotify, watched } = watches;
    let mut meaning = Meaning::Nothing;
    let inotify = read_burst(inotify, |event| {
        let of_contents = watched.contents.as_ref() == Some(&event.wd);
        let mut step = watched.step.iter();
        let of_step = step.any(|(wd, name)| *wd == event.wd && event.name == Some(name));
        meaning = meaning.max(evaluate(event.mask, of_contents, of_step));
        if event.mask.intersects(EventMask::DELETE | EventMask::MOVED_FROM) {
            removed.extend(watched.path_of(&event.wd, event.name));
        }
        Ok(())
    })
    .await?;
    Ok((Armed { inotify, watched }, meaning))
}

fn evaluate(mask: EventMask, of_contents: bool, of_step: bool) -> Meaning {
    let lost = EventMask::DELETE_SELF | EventMask::MOVE_SELF | EventMask::IGNORED | EventMask::UNMOUNT;
    if of_step || mask.intersects(lost) {
        Meaning::Moved
    } else if of_contents || mask.contains(EventMask::Q_OVERFLOW) {
        Meaning::Changed
    } else {
        Meaning::Nothing
    }
}

async fn arm(queue: &Queue, path: &Path) -> HostResult<Armed> {
    blocking(queue, path, |path| arm_now(path).map_err(failed("watch", path))).await
}

fn arm_now(path: &Path) -> io::Result<Armed> {
    for _ in 0..TRIES {
        let location = Location::of(path);
        let inotify = Inotify::init()?;
        match location.watch(&inotify) {
            // Created or removed meanwhile: resolve the path again.
            Ok(_) if Location::of(path) != location => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(watched) => return Ok(Armed { inotify, watched }),
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("the path keeps changing"))
}

/// The directories whose events concern a path.
#[derive(Debug, PartialEq, Eq)]
struct Location {
    contents: Option<PathBuf>,
    step: Option<(PathBuf, OsString)>,
}

impl Location {
    fn of(path: &Path) -> Self {
        let step = |path: &Path| Some((path.parent()?.to_path_buf(), path.file_name()?.to_os_string()));
        if path.is_dir() {
            return Self { contents: Some(path.to_path_buf()), step: step(path) };
        }
        let Some(parent) = path.parent() else { return Self { contents: None, step: None } };
        if parent.is_dir() {
            // A file, or nothing yet: its neighbours matter too, as a link may lead through them.
            return Self { contents: Some(parent.to_path_buf()), step: step(path) };
        }
        // From the nearest existing directory, the missing component below it.
        let missing = path.ancestors().take_while(|ancestor| !ancestor.is_dir()).last();
        Self { contents: None, step: missing.and_then(step) }
    }

    fn watch(&self, inotify: &Inotify) -> io::Result<Watched> {
        let mut watches = inotify.watches();
        let mut add = |dir: &Path| watches.add(dir, INTERESTING | WatchMask::ONLYDIR);
        let contents = self.contents.as_deref().map(&mut add).transpose()?;
        let step = match &self.step {
            Some((dir, name)) => Some((add(dir)?, name.clone())),
            None => None,
        };
        Ok(Watched { contents, step, directory: self.contents.clone().unwrap_or_default() })
    }
}
