//! What identifies a server to its clients, as texts of the database: its certificate authority, and the key that signs tokens.

use std::collections::BTreeMap;

use crate::auth::authority::KeyAndCertificate;

/// Names of texts in the database.
pub(super) const CERTIFICATE: &str = "authority.crt";
pub(super) const KEY: &str = "authority.key";
pub(super) const TOKENS: &str = "tokens.key";

pub(super) fn texts(authority: &KeyAndCertificate, token_key: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let texts = [
        (CERTIFICATE, authority.certificate.clone().into_bytes()),
        (KEY, authority.key.clone().into_bytes()),
        (TOKENS, token_key.to_vec()),
    ];
    texts.map(|(name, text)| (name.to_owned(), text)).into()
}
