//! `kubelet single-node`: backup and restore of the objects of a node that serves its own API.
//!
//! Both go through the directory of its database, which belongs to root. A backup comes from the running API server; a restore leaves the
//! file for its next start, which takes it or says why not, and asks for that start.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, ArgMatches, Command, value_parser};
use model::explain::PodExplanations;
use serde_json::Value;

use crate::client::{Client, ClientError};
use crate::{ATTENTION, CommandError, Outcome, USUAL_ROOT};

/// Names in the directory of the database.
const SOCKET: &str = "control.sock";
const WAITING: &str = "restore.jsonl";
const FAILED: &str = "restore.failed";
/// How long the next start may take to restore a backup, and how often to look.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);
/// The first line of a backup is short.
const MAX_HEADER: u64 = 4096;

pub(crate) fn definition() -> Command {
    let file = |help: &'static str| {
        Arg::new("file").value_name("FILE").required(true).value_parser(value_parser!(PathBuf)).help(help)
    };
    let root = || {
        Arg::new("root-dir")
            .long("root-dir")
            .value_name("DIR")
            .default_value(USUAL_ROOT)
            .help("The root directory of the kubelet")
    };
    let backup = Command::new("backup")
        .about("Write all objects to a file, while the node runs")
        .after_help(
            "Example:\n  kubelet single-node backup /srv/node-backup.jsonl\n\nSecrets and keys in it are encrypted with the key file of the node (--single-node-key), which a\nrestore on another machine needs, too. The node writes one a day to single-node/backup.jsonl below its\nroot directory itself.",
        )
        .arg(file("The file to write; it is replaced when the backup is whole"))
        .arg(root());
    let restore = Command::new("restore")
        .about("Return to the objects of a backup")
        .after_help(
            "Example:\n  kubelet single-node restore /srv/node-backup.jsonl\n\nThe API is away for a moment. Pods that are not in the backup end, those of the backup start, and those\nthat are in both run on. The database of before stays as objects.redb.replaced.",
        )
        .arg(file("The backup"))
        .arg(root());
    Command::new("single-node")
        .about("Back up or restore the objects of a node that serves its own API (--single-node)")
        .after_help("Examples:\n  kubelet single-node backup FILE\n  kubelet single-node restore FILE")
        .subcommand_required(true)
        .subcommand(backup)
        .subcommand(restore)
}

/// The pods that the node does not know because they are not bound to it, yet: only its own API server does. None where there is no such
/// server, or its socket belongs to another user.
pub(crate) async fn unbound_pods(root_dir: &str) -> PodExplanations {
    let client = Client::new(Path::new(root_dir).join("single-node").join(SOCKET));
    client.get("/unbound").await.unwrap_or_default()
}

pub(crate) async fn run(matches: &ArgMatches) -> Result<Outcome, CommandError> {
    let (command, matches) =
        matches.subcommand().ok_or_else(|| CommandError::Usage("backup or restore".to_owned()))?;
    let missing = || CommandError::Usage("FILE is missing".to_owned());
    let file = matches.get_one::<PathBuf>("file").ok_or_else(missing)?;
    let root = matches.get_one::<String>("root-dir").map_or(USUAL_ROOT, String::as_str);
    let directory = Path::new(root).join("single-node");
    match command {
        "backup" => backup(&directory, file).await,
        _ => restore(&directory, file).await,
    }
}

async fn backup(directory: &Path, file: &Path) -> Result<Outcome, CommandError> {
    let write_error = |source| CommandError::Write { path: file.to_owned(), source };
    let new = named(file, ".new");
    let open = private(&new).map_err(write_error)?;
    let mut out = BufWriter::new(open);
    let (mut last, mut failed) = (Vec::new(), None);
    let client = Client::new(directory.join(SOCKET));
    let received = client.stream("/backup", |part| {
        remember_last_line(&mut last, part);
        match out.write_all(part) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    });
    let received = received.await.map_err(not_running);
    if let Some(error) = failed {
        return Err(write_error(error));
    }
    received?;
    let count = serde_json::from_slice(&last).ok().and_then(|line: Value| line.get("objects")?.as_u64());
    let count = count.ok_or_else(|| {
        CommandError::Failed("the backup broke off; the journal of the kubelet says why".to_owned())
    })?;
    let whole = out.into_inner().map_err(|error| write_error(error.into_error()))?;
    put_in_place(&whole, &new, file).map_err(write_error)?;
    Ok(Outcome { text: format!("{count} objects are in {}\n", file.display()), code: 0 })
}

/// Keeps what came after the last but one end of a line.
fn remember_last_line(last: &mut Vec<u8>, part: &[u8]) {
    const MAX: usize = 4096;
    if last.last() == Some(&b'\n') {
        last.clear();
    }
    let body = part.strip_suffix(b"\n").unwrap_or(part);
    match body.iter().rposition(|byte| *byte == b'\n') {
        Some(end) => {
            last.clear();
            last.extend_from_slice(&part[end + 1..]);
        }
        None => last.extend_from_slice(part),
    }
    // Only a short line is of interest.
    if last.len() > MAX {
        last.truncate(1);
    }
}

async fn restore(directory: &Path, file: &Path) -> Result<Outcome, CommandError> {
    let failed =
        |error: std::io::Error| CommandError::Failed(format!("cannot read {}: {error}", file.display()));
    let mut from = BufReader::new(File::open(file).map_err(failed)?);
    if !is_backup(&mut from).map_err(failed)? {
        let text = format!("{} is no backup of kubelet single-node backup", file.display());
        return Err(CommandError::Failed(text));
    }
    let waiting = directory.join(WAITING);
    leave(file, directory, &waiting)
        .map_err(|source| CommandError::Write { path: waiting.clone(), source })?;
    match Client::new(directory.join(SOCKET)).post("/restart").await {
        // One that is not running finds the file when it starts, which the kubelet tries all the time.
        Ok(()) | Err(ClientError::Absent(_) | ClientError::NotRunning(_) | ClientError::BrokenOff) => {}
        Err(error) => return Err(error.into()),
    }
    outcome(directory, &waiting, file).await
}

fn is_backup(from: &mut impl BufRead) -> std::io::Result<bool> {
    let mut line = Vec::new();
    from.take(MAX_HEADER).read_until(b'\n', &mut line)?;
    Ok(serde_json::from_slice(&line).is_ok_and(|line: Value| line.get("singleNodeBackup").is_some()))
}

/// Copies the backup to where the next start looks for it: whole or not at all.
fn leave(file: &Path, directory: &Path, waiting: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(directory.join(FAILED)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        Err(_) | Ok(()) => {}
    }
    let new = named(waiting, ".new");
    let mut out = private(&new)?;
    std::io::copy(&mut File::open(file)?, &mut out)?;
    put_in_place(&out, &new, waiting)
}

async fn outcome(directory: &Path, waiting: &Path, file: &Path) -> Result<Outcome, CommandError> {
    let taken = async {
        while waiting.exists() {
            tokio::time::sleep(POLL).await;
        }
    };
    if tokio::time::timeout(RESTORE_TIMEOUT, taken).await.is_err() {
        let text = "no kubelet with --single-node runs here now; the backup is restored when it starts\n";
        return Ok(Outcome { text: text.to_owned(), code: ATTENTION });
    }
    match std::fs::read_to_string(directory.join(FAILED)) {
        Ok(why) => Err(CommandError::Failed(format!("{} is not restored: {why}", file.display()))),
        Err(_) => Ok(Outcome { text: format!("restored {}\n", file.display()), code: 0 }),
    }
}

fn not_running(error: ClientError) -> CommandError {
    if let ClientError::Absent(socket) | ClientError::NotRunning(socket) = &error {
        return CommandError::Failed(format!(
            "no kubelet with --single-node runs here: nothing answers at {} (--root-dir names another root directory)",
            socket.display()
        ));
    }
    error.into()
}

/// A new file that only its owner can read.
fn private(file: &Path) -> std::io::Result<File> {
    File::options().write(true).create(true).truncate(true).mode(0o600).open(file)
}

/// Gives a file that is whole its name, which is there after a crash of the machine, too.
fn put_in_place(whole: &File, new: &Path, file: &Path) -> std::io::Result<()> {
    whole.sync_all()?;
    std::fs::rename(new, file)?;
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

/// The file with this after its name.
fn named(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_line_is_known_however_the_parts_come() {
        for parts in [&["a\nb\n{}\n"][..], &["a\nb\n", "{}\n"], &["a\nb", "\n{", "}\n"], &["a\n", "b\n{}\n"]]
        {
            let mut last = Vec::new();
            parts.iter().for_each(|part| remember_last_line(&mut last, part.as_bytes()));
            assert_eq!(last, b"{}\n", "{parts:?}");
        }
    }

    #[test]
    fn backup_is_known_by_its_first_line() {
        let is_backup = |text: &str| is_backup(&mut text.as_bytes()).unwrap();
        assert!(is_backup("{\"singleNodeBackup\":1,\"revision\":7}\n{}\n"));
        assert!(!is_backup("") && !is_backup("kind: Pod\n") && !is_backup("{\"kind\":\"Pod\"}\n"));
    }
}
