//! Backups of the database: one a day next to it, on request at the control socket, and the way back at the start.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::identity;
use crate::api::Api;
use crate::files::{self, NewFile};
use crate::object;
use crate::store::backup as format;
use crate::store::disk::{self, BACKUP, NotStored, RESTORE, RESTORE_FAILED};
use crate::store::seal::Seal;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Revisions of before a restore may be ahead of those of the backup, and must not come again: a client would take old objects for new ones.
const REVISIONS_AHEAD: u64 = 1_000_000;

/// The lines of a backup of now.
pub(super) fn lines(api: &Api) -> impl Iterator<Item = Result<Vec<u8>, NotStored>> + use<> {
    let saved = api.store.saved(identity::texts(api.authority.pem(), api.tokens.signer.pkcs8()));
    let seal = api.durable.as_ref().and_then(|durable| durable.seal.clone());
    format::lines(saved, seal, object::time(api.now()))
}

/// Writes a backup into the directory of the database once a day, until the server stops.
pub(super) async fn run(api: Arc<Api>) {
    let Some(durable) = &api.durable else { return };
    let file = durable.directory.join(BACKUP);
    loop {
        let age = std::fs::metadata(&file).and_then(|metadata| metadata.modified());
        let age = age.ok().and_then(|modified| modified.elapsed().ok()).unwrap_or(DAY);
        tokio::select! {
            () = tokio::time::sleep(DAY.saturating_sub(age)) => {}
            () = api.closing.cancelled() => return,
        }
        let (lines, target) = (lines(&api), file.clone());
        let written = tokio::task::spawn_blocking(move || write(&target, lines)).await;
        match written {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(err = %error, file = %file.display(), "failed to write the daily backup");
                tokio::select! {
                    () = tokio::time::sleep(DAY / 24) => {}
                    () = api.closing.cancelled() => return,
                }
            }
            Err(_) => return,
        }
    }
}

/// Replaces the file by a whole backup, or leaves it.
fn write(file: &Path, lines: impl Iterator<Item = Result<Vec<u8>, NotStored>>) -> std::io::Result<()> {
    let new = NewFile::create(file)?;
    let mut out = BufWriter::new(&new.file);
    for line in lines {
        out.write_all(&line.map_err(std::io::Error::other)?)?;
    }
    out.flush()?;
    drop(out);
    new.sync_and_replace()
}

/// Puts a database made from the backup that waits next to it in its place; the replaced one stays as `objects.redb.replaced`. A backup that
/// cannot be used changes nothing but the file that says why.
pub(super) fn restore(database: &Path, seal: Option<&Arc<Seal>>) {
    let waiting = database.with_file_name(RESTORE);
    let open = match File::open(&waiting) {
        Ok(open) => open,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
        Err(error) => return tracing::error!(err = %error, "failed to open the backup to restore"),
    };
    let restored = format::read(BufReader::new(open), seal.map(Arc::as_ref))
        .map_err(|error| error.to_string())
        .and_then(|mut saved| {
            saved.revision = saved.revision.max(last_revision(database, seal)) + REVISIONS_AHEAD;
            replace(database, &saved, seal.map(Arc::as_ref))
        });
    let removed = match &restored {
        Ok(()) => std::fs::remove_file(&waiting),
        Err(why) => {
            tracing::error!(err = why, "the backup is not restored");
            std::fs::write(database.with_file_name(RESTORE_FAILED), why)
                .and_then(|()| std::fs::remove_file(&waiting))
        }
    };
    if let Err(error) = removed {
        tracing::error!(err = %error, "failed to remove the backup that was restored; the next start does it again");
    }
}

fn replace(database: &Path, saved: &disk::Saved, seal: Option<&Seal>) -> Result<(), String> {
    let mut replaced = database.as_os_str().to_owned();
    replaced.push(".replaced");
    let replaced = PathBuf::from(replaced);
    let failed = |error: std::io::Error| error.to_string();
    files::remove(&replaced).map_err(failed)?;
    // The database may have been moved away.
    files::unless_missing(std::fs::hard_link(database, &replaced)).map_err(failed)?;
    disk::create(database, saved, seal)
}

/// That of the present database, if it can be read.
fn last_revision(database: &Path, seal: Option<&Arc<Seal>>) -> u64 {
    let none = || Err(disk::DatabaseProblem::InUse(database.to_owned()));
    if !database.exists() {
        return 0;
    }
    disk::open::<disk::DatabaseProblem>(database, seal.cloned(), none).map_or(0, |(_, saved)| saved.revision)
}
