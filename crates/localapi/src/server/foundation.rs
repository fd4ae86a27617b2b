//! What a server stands on: its objects, its certificate authority and the key that signs tokens, from a database, from a stopped server, or
//! new.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;

use super::backup;
use super::identity::{self, CERTIFICATE, KEY, TOKENS};
use super::{StartError, certificates};
use crate::auth::authority::{Authority, KeyAndCertificate};
use crate::auth::service_account::Signer;
use crate::options::Options;
use crate::store::Store;
use crate::store::disk::{self, DatabaseProblem, Durable};
use crate::store::seal::Seal;

pub(super) struct Foundation {
    pub(super) store: Arc<Store>,
    pub(super) authority: Authority,
    pub(super) signer: Signer,
    pub(super) durable: Option<Durable>,
}

pub(super) fn lay(options: &Options, now: Timestamp) -> Result<Foundation, StartError> {
    if let Some(file) = &options.database {
        // A key that is missing while there is a database is lost, and a new one would not help.
        let may_create = !file.exists();
        let key = options.encryption_key.as_deref();
        let seal = key.map(|key| Seal::of_file(key, may_create)).transpose()?.map(Arc::new);
        backup::restore(file, seal.as_ref());
        let (disk, saved) = disk::open(file, seal.clone(), || new_identity(now))?;
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
        let store = Arc::new(Store::on_disk(disk, saved, options.history));
        let directory = file.parent().map(Path::to_owned).unwrap_or_default();
        let durable = Some(Durable { directory, seal });
        return Ok(Foundation { store, authority, signer: signer_of(signer)?, durable });
    }
    let (store, authority, signer) = match &options.state {
        Some(state) => {
            let authority = Authority::from_pem(state.authority.clone()).map_err(certificates)?;
            (Arc::clone(&state.store), authority, signer_of(state.token_key.clone())?)
        }
        None => {
            let store = Store::new(options.history);
            (Arc::new(store), Authority::generate(now).map_err(certificates)?, new_signer()?)
        }
    };
    Ok(Foundation { store, authority, signer, durable: None })
}

fn new_identity(now: Timestamp) -> Result<BTreeMap<String, Vec<u8>>, StartError> {
    let authority = Authority::generate(now).map_err(certificates)?;
    Ok(identity::texts(authority.pem(), new_signer()?.pkcs8()))
}

fn new_signer() -> Result<Signer, StartError> {
    Signer::generate().map_err(|error| StartError::TokenKey(error.to_string()))
}

fn signer_of(key: Vec<u8>) -> Result<Signer, StartError> {
    Signer::from_pkcs8(key).map_err(|error| StartError::TokenKey(error.to_string()))
}
