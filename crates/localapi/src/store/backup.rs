//! A backup: everything that a database holds, as lines of JSON, so that a later version and a person can read it. What is sealed on disk is
//! sealed in it, too.

#[cfg(test)]
mod tests;

use std::io::{BufRead, Read as _};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::disk::{self, NotStored, Saved};
use super::seal::{self, NotOpened, Seal};
use super::stored;
use crate::json;

/// The format, in the first line.
const FORMAT: u64 = 1;
const HEADER: &str = "singleNodeBackup";
/// An object has at most three mebibytes, and a third more in base64.
const MAX_LINE: u64 = 8 << 20;

/// A text that is no backup, or not a whole one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackupProblem {
    #[error("it is no backup of kubelet single-node backup")]
    NoBackup,
    #[error("it has the format {0}; this version knows {FORMAT}")]
    Newer(u64),
    #[error("it is not complete: its last line is missing")]
    Incomplete,
    #[error("line {0}: it is neither a text nor an object of this server")]
    Line(usize),
    #[error("line {0}: {1}")]
    Sealed(usize, NotOpened),
    #[error("line {0}: {1}")]
    Read(usize, std::io::Error),
}

/// The lines of a backup, each with its end, made one after the other.
pub(crate) fn lines(
    saved: Saved,
    seal: Option<Arc<Seal>>,
    created: String,
) -> impl Iterator<Item = Result<Vec<u8>, NotStored>> {
    let count = saved.objects.len();
    let header = json!({HEADER: FORMAT, "revision": saved.revision, "created": created});
    let for_texts = seal.clone();
    let texts = saved.identity.into_iter().map(move |(name, text)| {
        let text = disk::encode(&name, text, for_texts.as_deref())?;
        Ok(json!({"text": name, "content": STANDARD.encode(text)}))
    });
    let objects = saved.objects.into_iter().map(move |(key, object)| {
        let name = disk::name_of(&key);
        let text = disk::encode(&name, object.to_vec(), seal.as_deref())?;
        Ok(match seal::is_sealed(&text) {
            true => json!({"key": name, "sealed": STANDARD.encode(text)}),
            false => json!({"key": name, "object": stored::decode(&object)}),
        })
    });
    let all = std::iter::once(Ok(header)).chain(texts).chain(objects);
    all.chain(std::iter::once(Ok(json!({"objects": count})))).map(|line| {
        let mut line = line?.to_string().into_bytes();
        line.push(b'\n');
        Ok(line)
    })
}

/// Reads a backup, which must be whole.
pub(crate) fn read(mut from: impl BufRead, seal: Option<&Seal>) -> Result<Saved, BackupProblem> {
    let mut saved = Saved::default();
    let mut number = 0;
    loop {
        number += 1;
        let mut line = Vec::new();
        let mut limited = (&mut from).take(MAX_LINE);
        let length =
            limited.read_until(b'\n', &mut line).map_err(|error| BackupProblem::Read(number, error))?;
        if length == 0 {
            return Err(if number == 1 { BackupProblem::NoBackup } else { BackupProblem::Incomplete });
        }
        let line: Value = match json::decode(&line) {
            Ok(line) => line,
            Err(_) if number == 1 => return Err(BackupProblem::NoBackup),
            Err(_) => return Err(BackupProblem::Line(number)),
        };
        if number == 1 {
            saved.revision = header(&line)?;
        } else if let Some(count) = line.get("objects").and_then(Value::as_u64) {
            let is_whole = usize::try_from(count).is_ok_and(|count| count == saved.objects.len());
            return if is_whole { Ok(saved) } else { Err(BackupProblem::Incomplete) };
        } else {
            take(&mut saved, &line, seal, number)?;
        }
    }
}

fn header(line: &Value) -> Result<u64, BackupProblem> {
    match line.get(HEADER).and_then(Value::as_u64) {
        None => Err(BackupProblem::NoBackup),
        Some(format) if format > FORMAT => Err(BackupProblem::Newer(format)),
        Some(_) => line.get("revision").and_then(Value::as_u64).ok_or(BackupProblem::NoBackup),
    }
}

fn take(saved: &mut Saved, line: &Value, seal: Option<&Seal>, number: usize) -> Result<(), BackupProblem> {
    let wrong = || BackupProblem::Line(number);
    let text = |field: &str| line.get(field).and_then(Value::as_str);
    let decoded = |field: &str| text(field).and_then(|text| STANDARD.decode(text).ok()).ok_or_else(wrong);
    let opened = |name: &str, text: Vec<u8>| {
        disk::decode(name, &text, seal).map_err(|error| BackupProblem::Sealed(number, error))
    };
    if let Some(name) = text("text") {
        saved.identity.insert(name.to_owned(), opened(name, decoded("content")?)?);
        return Ok(());
    }
    let name = text("key").ok_or_else(wrong)?;
    let key = disk::key_of(name).ok_or_else(wrong)?;
    let object = match line.get("object") {
        Some(object) => object.clone(),
        None => json::decode(&opened(name, decoded("sealed")?)?).map_err(|_| wrong())?,
    };
    saved.objects.insert(key, stored::encode(&object).map_err(|_| wrong())?);
    Ok(())
}
