//! The objects on disk: one redb database, in which each change is one transaction. It is on disk before a client sees the change.
//!
//! Owns: the tables, their format, and what happens after a write that failed: redb refuses further writes then, so the database is opened
//! again for the next change, and what the failed one may have left is replaced by what the server has in memory.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{
    Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, StorageError, TableDefinition,
    WriteTransaction,
};

use super::history::StoredEvent;
use super::seal::{self, NotOpened, Seal};
use super::stored::{Stored, Text};
use super::{Change, Key, Revision};
use crate::files;
use crate::json;
use crate::resources;

/// What these tables mean. A later server reads this one and its own, so that a downgrade by one version is possible.
const FORMAT: u64 = 1;
/// JSON of the objects, by `resource/namespace/name`.
const OBJECTS: TableDefinition<&str, &[u8]> = TableDefinition::new("objects");
/// `format` and `revision`.
const NUMBERS: TableDefinition<&str, u64> = TableDefinition::new("numbers");
/// What identifies this server to its clients: the certificate authority and the key that signs tokens.
const IDENTITY: TableDefinition<&str, &[u8]> = TableDefinition::new("identity");
/// Objects are read from memory, so that only a commit reads pages.
const CACHE_BYTES: usize = 256 << 10;

/// A change that is not on disk, because the disk took no write. No client has seen it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to store the change: {0}")]
pub(crate) struct NotStored(String);

impl NotStored {
    pub(super) fn new(why: impl fmt::Display) -> Self {
        Self(why.to_string())
    }
}

/// A database that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseProblem {
    #[error("another process uses {0}")]
    InUse(PathBuf),
    #[error(
        "the database {file} is damaged: {what}. Bring a backup back with kubelet single-node restore {backup}, or move the file away to begin without any object",
        backup = file.with_file_name(BACKUP).display()
    )]
    Damaged { file: PathBuf, what: String },
    #[error("the database {file} has the format {format} of a newer version; this one knows {FORMAT}")]
    Newer { file: PathBuf, format: u64 },
    #[error("failed to use the database {file}: {what}")]
    Unusable { file: PathBuf, what: String },
    #[error(
        "the database {file} cannot be read: {name} {error}. The key file must be the one with which it was written"
    )]
    Locked { file: PathBuf, name: String, error: String },
}

/// Where the server keeps its own backup, next to the database.
pub(crate) const BACKUP: &str = "backup.jsonl";
/// The file of a backup to restore at the next start.
pub(crate) const RESTORE: &str = "restore.jsonl";
/// Why it was not restored.
pub(crate) const RESTORE_FAILED: &str = "restore.failed";
/// Texts of the identity that are secret end like this.
const SECRET_TEXT: &str = ".key";
const SECRETS: &str = "secrets/";

/// What a database holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Saved {
    pub(crate) revision: Revision,
    pub(crate) objects: BTreeMap<Key, Text>,
    /// Texts by name; empty in a new database.
    pub(crate) identity: BTreeMap<String, Vec<u8>>,
}

/// Where the objects of a server last.
#[derive(Clone, Debug)]
pub(crate) struct Durable {
    /// The directory of the database.
    pub(crate) directory: PathBuf,
    pub(crate) seal: Option<Arc<Seal>>,
}

type Open = Box<dyn Fn() -> Result<Database, DatabaseError> + Send>;

/// The database of a running server, which is its only user.
pub(crate) struct Disk {
    open: Open,
    seal: Option<Arc<Seal>>,
    /// `None` after a failed write.
    database: Option<Database>,
    /// The objects that failed writes may or may not have changed, as they were before.
    uncertain: BTreeMap<String, Option<Arc<Stored>>>,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("is_open", &self.database.is_some()).finish_non_exhaustive()
    }
}

/// Opens the database in this file, or makes one with the identity that `identify` returns. Secrets are sealed, if there is a seal.
pub(crate) fn open<E: From<DatabaseProblem>>(
    file: &Path,
    seal: Option<Arc<Seal>>,
    identify: impl FnOnce() -> Result<BTreeMap<String, Vec<u8>>, E>,
) -> Result<(Disk, Saved), E> {
    match std::fs::metadata(file) {
        // redb takes an empty file for a new database, but it is what a power cut leaves of a file.
        Ok(metadata) if metadata.len() == 0 => {
            return Err(
                DatabaseProblem::Damaged { file: file.to_owned(), what: "it is empty".to_owned() }.into()
            );
        }
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let new = Saved { revision: 1, identity: identify()?, ..Saved::default() };
            create(file, &new, seal.as_deref())
                .map_err(|what| DatabaseProblem::Unusable { file: file.to_owned(), what })?;
        }
        Err(error) => {
            return Err(DatabaseProblem::Unusable { file: file.to_owned(), what: error.to_string() }.into());
        }
    }
    let path = file.to_owned();
    let opened = Disk::open(Box::new(move || builder().open(&path)), seal);
    Ok(opened.map_err(|error| problem(file, error))?)
}

/// Every page is checked when a database is opened, so that a damaged one is refused and not believed.
fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true);
    builder
}

/// Makes a database in another file and renames it, so that a file of that name is always whole.
pub(crate) fn create(file: &Path, saved: &Saved, seal: Option<&Seal>) -> Result<(), String> {
    let failed = |error: &dyn fmt::Display| error.to_string();
    let new = files::new_path(file);
    files::remove(&new).map_err(|error| failed(&error))?;
    let mut options = File::options();
    options.write(true).create_new(true).mode(0o600).open(&new).map_err(|error| failed(&error))?;
    let database = builder().create(&new).map_err(|error| failed(&error))?;
    initialise(&database, saved, seal).map_err(|error| failed(&error))?;
    drop(database);
    std::fs::rename(&new, file).map_err(|error| failed(&error))?;
    files::sync_directory(file).map_err(|error| failed(&error))
}

fn initialise(database: &Database, saved: &Saved, seal: Option<&Seal>) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    for (key, object) in &saved.objects {
        put(&transaction, &name_of(key), Some(object), seal)?;
    }
    {
        transaction.open_table(OBJECTS)?;
        let mut numbers = transaction.open_table(NUMBERS)?;
        numbers.insert("format", FORMAT)?;
        numbers.insert("revision", saved.revision)?;
        let mut texts = transaction.open_table(IDENTITY)?;
        for (name, text) in &saved.identity {
            let text = encode(name, text.clone(), seal).map_err(corrupted)?;
            texts.insert(name.as_str(), text.as_slice())?;
        }
    }
    Ok(transaction.commit()?)
}

fn corrupted(error: impl fmt::Display) -> redb::Error {
    StorageError::Corrupted(error.to_string()).into()
}

/// What is on disk of the text with this name.
pub(super) fn encode(name: &str, text: Vec<u8>, seal: Option<&Seal>) -> Result<Vec<u8>, NotStored> {
    match seal.filter(|_| is_secret(name)) {
        Some(seal) => seal.seal(name, text).map_err(|error| NotStored(error.to_string())),
        None => Ok(text),
    }
}

fn is_secret(name: &str) -> bool {
    name.starts_with(SECRETS) || name.ends_with(SECRET_TEXT)
}

/// The text of what is on disk.
pub(super) fn decode(name: &str, text: &[u8], seal: Option<&Seal>) -> Result<Vec<u8>, NotOpened> {
    match seal {
        _ if !seal::is_sealed(text) => Ok(text.to_vec()),
        Some(seal) => seal.open(name, text),
        None => Err(NotOpened),
    }
}

/// Why a database cannot be read.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Database(#[from] redb::Error),
    #[error("its format is {0}")]
    Newer(u64),
    #[error("{0:?} is no object of this server")]
    Object(String),
    #[error("it has no revision or no format")]
    NoNumbers,
    #[error("{0}: {1}")]
    Sealed(String, NotOpened),
}

fn problem(file: &Path, error: ReadError) -> DatabaseProblem {
    let file = file.to_owned();
    match error {
        ReadError::Database(redb::Error::DatabaseAlreadyOpen) => DatabaseProblem::InUse(file),
        ReadError::Newer(format) => DatabaseProblem::Newer { file, format },
        ReadError::Sealed(name, error) => DatabaseProblem::Locked { file, name, error: error.to_string() },
        ReadError::Database(redb::Error::Io(error))
            if error.kind() != std::io::ErrorKind::InvalidData
                && error.kind() != std::io::ErrorKind::UnexpectedEof =>
        {
            DatabaseProblem::Unusable { file, what: error.to_string() }
        }
        ReadError::Database(_) | ReadError::Object(_) | ReadError::NoNumbers => {
            DatabaseProblem::Damaged { file, what: error.to_string() }
        }
    }
}

/// Reads all of a database, whose format must be known.
fn saved_in(database: &Database, seal: Option<&Seal>) -> Result<Saved, ReadError> {
    let transaction = database.begin_read().map_err(redb::Error::from)?;
    let numbers = transaction.open_table(NUMBERS).map_err(redb::Error::from)?;
    let number = |name: &str| -> Result<u64, ReadError> {
        let found = numbers.get(name).map_err(redb::Error::from)?;
        found.map(|number| number.value()).ok_or(ReadError::NoNumbers)
    };
    let format = number("format")?;
    if format > FORMAT {
        return Err(ReadError::Newer(format));
    }
    let mut saved = Saved { revision: number("revision")?, ..Saved::default() };
    let objects = transaction.open_table(OBJECTS).map_err(redb::Error::from)?;
    for entry in objects.iter().map_err(redb::Error::from)? {
        let (name, text) = entry.map_err(redb::Error::from)?;
        let wrong = || ReadError::Object(name.value().to_owned());
        let Some(key) = key_of(name.value()) else {
            if name.value().split('/').count() != KEY_PARTS {
                return Err(wrong());
            }
            tracing::warn!(
                name = name.value(),
                "an object of a kind that this version does not know stays unused"
            );
            continue;
        };
        let text = opened(name.value(), text.value(), seal)?;
        json::decode(&text).map_err(|_| wrong())?;
        saved.objects.insert(key, Text::from(text));
    }
    let identity = transaction.open_table(IDENTITY).map_err(redb::Error::from)?;
    for entry in identity.iter().map_err(redb::Error::from)? {
        let (name, text) = entry.map_err(redb::Error::from)?;
        saved.identity.insert(name.value().to_owned(), opened(name.value(), text.value(), seal)?);
    }
    Ok(saved)
}

fn opened(name: &str, text: &[u8], seal: Option<&Seal>) -> Result<Vec<u8>, ReadError> {
    decode(name, text, seal).map_err(|error| ReadError::Sealed(name.to_owned(), error))
}

/// Seals what was written without a seal, by an earlier server.
fn seal_all(database: &Database, seal: &Seal) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    for table in [OBJECTS, IDENTITY] {
        let mut table = transaction.open_table(table)?;
        let mut plain = Vec::new();
        for entry in table.iter()? {
            let (name, text) = entry?;
            if is_secret(name.value()) && !seal::is_sealed(text.value()) {
                plain.push((name.value().to_owned(), text.value().to_owned()));
            }
        }
        for (name, text) in plain {
            let sealed = encode(&name, text, Some(seal)).map_err(corrupted)?;
            table.insert(name.as_str(), sealed.as_slice())?;
        }
    }
    Ok(transaction.commit()?)
}

impl Disk {
    fn open(open: Open, seal: Option<Arc<Seal>>) -> Result<(Self, Saved), ReadError> {
        let database = open().map_err(redb::Error::from)?;
        let saved = saved_in(&database, seal.as_deref())?;
        if let Some(seal) = &seal {
            seal_all(&database, seal)?;
        }
        Ok((Self { open, seal, database: Some(database), uncertain: BTreeMap::new() }, saved))
    }

    /// Whether the last write succeeded.
    pub(super) const fn is_open(&self) -> bool {
        self.database.is_some()
    }

    /// Returns when the change is on disk.
    pub(super) fn store(&mut self, event: &StoredEvent) -> Result<(), NotStored> {
        let name = name_of(&event.key);
        let stored = self.commit(&name, event);
        match stored {
            Ok(()) => self.uncertain.clear(),
            // Until a write succeeds this stays what the server has in memory, because no change of it can succeed before.
            Err(_) => drop(self.uncertain.insert(name, event.previous.clone())),
        }
        stored.map_err(|error| NotStored(error.to_string()))
    }

    /// After an error the database is closed.
    fn commit(&mut self, name: &str, event: &StoredEvent) -> Result<(), redb::Error> {
        let database = match self.database.take() {
            Some(database) => database,
            None => (self.open)()?,
        };
        let transaction = database.begin_write()?;
        let seal = self.seal.as_deref();
        for (name, object) in &self.uncertain {
            put(&transaction, name, object.as_ref().map(|object| object.text()), seal)?;
        }
        let object = (event.change != Change::Deleted).then_some(event.object.text());
        put(&transaction, name, object, seal)?;
        transaction.open_table(NUMBERS)?.insert("revision", event.revision)?;
        transaction.commit()?;
        self.database = Some(database);
        Ok(())
    }
}

fn put(
    transaction: &WriteTransaction,
    name: &str,
    object: Option<&Text>,
    seal: Option<&Seal>,
) -> Result<(), redb::Error> {
    let mut objects = transaction.open_table(OBJECTS)?;
    match object {
        Some(object) => {
            let text = encode(name, object.to_vec(), seal).map_err(corrupted)?;
            objects.insert(name, text.as_slice())?;
        }
        None => drop(objects.remove(name)?),
    }
    Ok(())
}

const KEY_PARTS: usize = 3;

/// Neither part has a slash.
pub(super) fn name_of(key: &Key) -> String {
    format!("{}/{}/{}", key.resource, key.namespace, key.name)
}

pub(super) fn key_of(name: &str) -> Option<Key> {
    let mut parts = name.split('/');
    let (resource, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
    (parts.next().is_none() && !name.is_empty())
        .then(|| resources::stored(resource).map(|resource| Key::new(resource.name, namespace, name)))
        .flatten()
}
