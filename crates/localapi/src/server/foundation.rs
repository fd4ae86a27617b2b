//! What a server stands on: its objects, its certificate authority and the key that signs tokens, from a database, from a stopped server, or
//! new.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::{StartError, certificates};
use crate::auth::authority::{Authority, KeyAndCertificate};
use crate::auth::service_account::Signer;
use crate::options::Options;
use crate::store::Store;
use crate::store::disk::{self, DatabaseProblem};

/// Names of texts in the database.
const CERTIFICATE: &str = "authority.crt";
const KEY: &str = "authority.key";
const TOKENS: &str = "tokens.key";

pub(super) fn lay(options: &Options, now: Timestamp) -> Result<(Arc<Store>, Authority, Signer), StartError> {
    if let Some(file) = &options.database {
        let (disk, saved) = disk::open(file, || new_identity(now))?;
        let text = |name: &str| {
            let text = saved.identity.get(name).cloned();
            text.ok_or_else(|| DatabaseProblem::Damaged {
                file: file.clone(),
                what: format!("it has no {name}"),
            })
        };
        let pem = |name: &str| text(name).map(|text| String::from_utf8_lossy(&text).into_owned());
        let authority = KeyAndCertificate { certificate: pem(CERTIFICATE)?, key: pem(KEY)? };
        let (authority, signer) = (Authority::from_pem(authority).map_err(certificates)?, text(TOKENS)?);
        let store = Store::on_disk(disk, saved, options.history);
        return Ok((Arc::new(store), authority, signer_of(signer)?));
    }
    match &options.state {
        Some(state) => {
            let authority = Authority::from_pem(state.authority.clone()).map_err(certificates)?;
            Ok((Arc::clone(&state.store), authority, signer_of(state.token_key.clone())?))
        }
        None => {
            let store = Store::new(options.history);
            Ok((Arc::new(store), Authority::generate(now).map_err(certificates)?, new_signer()?))
        }
    }
}

fn new_identity(now: Timestamp) -> Result<BTreeMap<String, Vec<u8>>, StartError> {
    let authority = Authority::generate(now).map_err(certificates)?.pem().clone();
    let texts = [
        (CERTIFICATE, authority.certificate.into_bytes()),
        (KEY, authority.key.into_bytes()),
        (TOKENS, new_signer()?.pkcs8().to_vec()),
    ];
    Ok(texts.map(|(name, text)| (name.to_owned(), text)).into())
}

fn new_signer() -> Result<Signer, StartError> {
    Signer::generate().map_err(|error| StartError::TokenKey(error.to_string()))
}

fn signer_of(key: Vec<u8>) -> Result<Signer, StartError> {
    Signer::from_pkcs8(key).map_err(|error| StartError::TokenKey(error.to_string()))
}
