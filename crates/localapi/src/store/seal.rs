//! Encryption of what is secret on disk: Secrets and the keys of this server. The key is in a file of its own, so that a copy of the database
//! or a backup alone reveals none of it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};

use crate::files::{self, NewFile};

/// The first byte of a sealed text: neither JSON nor a key begins with it.
const SEALED: u8 = 1;
const KEY_LEN: usize = 32;
/// A key file has one line of 44 characters.
const MAX_FILE: u64 = 1024;

/// A key file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("failed to use the key file {file}: {what}", file = .file.display())]
pub struct KeyProblem {
    pub file: PathBuf,
    pub what: String,
}

/// A text that this key did not seal, or that has changed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is encrypted with another key, or damaged")]
pub(crate) struct NotOpened;

pub(crate) struct Seal {
    key: LessSafeKey,
    random: SystemRandom,
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal")
    }
}

impl Seal {
    /// With the key in this file: base64 of 32 random bytes, readable by its owner only. If it does not exist, it is made if it may.
    pub(crate) fn of_file(file: &Path, may_create: bool) -> Result<Self, KeyProblem> {
        let problem = |what: String| KeyProblem { file: file.to_owned(), what };
        let mut text = String::new();
        match File::open(file) {
            Ok(open) => {
                open.take(MAX_FILE).read_to_string(&mut text).map_err(|error| problem(error.to_string()))?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && may_create => {
                text = new_key().map_err(problem)?;
                create(file, &text).map_err(|error| problem(error.to_string()))?;
            }
            Err(error) => return Err(problem(error.to_string())),
        }
        let key = STANDARD.decode(text.trim()).ok().filter(|key| key.len() == KEY_LEN);
        let key = key.ok_or_else(|| problem("it must have base64 of 32 bytes".to_owned()))?;
        Self::of_key(&key).ok_or_else(|| problem("its key is refused".to_owned()))
    }

    fn of_key(key: &[u8]) -> Option<Self> {
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).ok()?);
        Some(Self { key, random: SystemRandom::new() })
    }

    /// Seals a text under its name, so that it cannot be put in the place of another.
    pub(crate) fn seal(&self, name: &str, mut text: Vec<u8>) -> Result<Vec<u8>, NotOpened> {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).map_err(|_| NotOpened)?;
        let unique = Nonce::assume_unique_for_key(nonce);
        self.key
            .seal_in_place_append_tag(unique, Aad::from(name.as_bytes()), &mut text)
            .map_err(|_| NotOpened)?;
        let mut sealed = vec![SEALED];
        sealed.extend(nonce);
        sealed.append(&mut text);
        Ok(sealed)
    }

    pub(crate) fn open(&self, name: &str, sealed: &[u8]) -> Result<Vec<u8>, NotOpened> {
        let (nonce, text) =
            sealed.get(1..).and_then(|rest| rest.split_at_checked(NONCE_LEN)).ok_or(NotOpened)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| NotOpened)?;
        let mut text = text.to_vec();
        let opened = self.key.open_in_place(nonce, Aad::from(name.as_bytes()), &mut text);
        let length = opened.map_err(|_| NotOpened)?.len();
        text.truncate(length);
        Ok(text)
    }
}

pub(crate) fn is_sealed(text: &[u8]) -> bool {
    text.first() == Some(&SEALED)
}

fn new_key() -> Result<String, String> {
    let mut key = [0; KEY_LEN];
    SystemRandom::new().fill(&mut key).map_err(|_| "no random bytes".to_owned())?;
    Ok(STANDARD.encode(key))
}

/// Whole or not at all: what is sealed with a lost key is lost.
fn create(file: &Path, text: &str) -> std::io::Result<()> {
    if let Some(directory) = file.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let mut new = NewFile::create(file)?;
    writeln!(new.file, "{text}")?;
    new.sync_and_replace()?;
    files::sync_directory(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_opened_with_its_key_and_its_name_only() {
        let seal = Seal::of_key(&[7; KEY_LEN]).unwrap();
        let sealed = seal.seal("secrets/a/b", b"{\"word\":1}".to_vec()).unwrap();
        assert!(is_sealed(&sealed) && !is_sealed(b"{}"));
        assert!(!sealed.windows(4).any(|part| part == b"word"));
        assert_eq!(seal.open("secrets/a/b", &sealed).unwrap(), b"{\"word\":1}");
        assert_eq!(seal.open("secrets/a/c", &sealed), Err(NotOpened));
        assert_eq!(Seal::of_key(&[8; KEY_LEN]).unwrap().open("secrets/a/b", &sealed), Err(NotOpened));
        for length in 0..sealed.len() {
            assert_eq!(seal.open("secrets/a/b", &sealed[..length]), Err(NotOpened), "{length}");
        }
        assert_ne!(seal.seal("secrets/a/b", b"{\"word\":1}".to_vec()).unwrap(), sealed);
    }

    #[test]
    fn key_file_is_made_once_and_a_wrong_one_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("single-node.key");
        let sealed = Seal::of_file(&file, true).unwrap().seal("a", b"text".to_vec()).unwrap();
        assert_eq!(Seal::of_file(&file, true).unwrap().open("a", &sealed).unwrap(), b"text");
        assert!(Seal::of_file(&directory.path().join("other"), false).is_err());
        std::fs::write(&file, "short").unwrap();
        let problem = Seal::of_file(&file, true).unwrap_err().to_string();
        assert!(problem.contains("single-node.key: it must have base64 of 32 bytes"), "{problem}");
    }
}
