//! The images of the fake: known by the names they were pulled with and by their id.

use std::collections::BTreeMap;

use model::request::{ImageObservation, ImageRequest};

use super::Method;

#[derive(Debug, Default)]
pub(super) struct Images {
    by_name: BTreeMap<String, ImageObservation>,
    refused: BTreeMap<String, String>,
    /// By name: the only user that may pull the image.
    private: BTreeMap<String, String>,
    /// Ids are digests without their algorithm, as those of CRI-O.
    pub(super) plain_ids: bool,
    /// The newest request of each method.
    pub(super) requests: BTreeMap<Method, ImageRequest>,
}

impl Images {
    /// Adds the image; returns its id.
    pub(super) fn add(&mut self, name: &str) -> String {
        let plain = self.plain_ids;
        let image = self.by_name.entry(name.to_owned()).or_insert_with(|| {
            let mut image = describe(name);
            if plain && let Some(digits) = image.id.strip_prefix("sha256:") {
                image.id = digits.to_owned();
            }
            image
        });
        image.id.clone()
    }

    /// Adds the image as it is.
    pub(super) fn put(&mut self, name: &str, image: ImageObservation) {
        self.by_name.insert(name.to_owned(), image);
    }

    pub(super) fn refuse(&mut self, name: &str, message: &str) {
        self.refused.insert(name.to_owned(), message.to_owned());
    }

    pub(super) fn keep_private(&mut self, name: &str, user: &str) {
        self.private.insert(name.to_owned(), user.to_owned());
    }

    /// Pulls the image as that user (anonymous: `""`); returns its id, or the error.
    pub(super) fn pull(&mut self, name: &str, user: &str) -> Result<String, String> {
        if self.private.get(name).is_some_and(|allowed| allowed != user) {
            return Err(format!("pull access denied for {name}"));
        }
        match self.refused.get(name) {
            Some(message) => Err(message.clone()),
            None => Ok(self.add(name)),
        }
    }

    /// By name, id or digest reference.
    pub(super) fn find(&self, reference: &str) -> Option<&ImageObservation> {
        self.by_name.get(reference).or_else(|| {
            self.by_name.values().find(|image| {
                image.id == reference || image.repo_digests.iter().any(|digest| digest == reference)
            })
        })
    }

    pub(super) fn remove(&mut self, reference: &str) {
        let Some(id) = self.find(reference).map(|image| image.id.clone()) else { return };
        self.by_name.retain(|_, image| image.id != id);
    }

    pub(super) fn list(&self) -> Vec<ImageObservation> {
        self.by_name.values().cloned().collect()
    }
}

/// An image whose id follows from its name, so that tests can compute it.
fn describe(name: &str) -> ImageObservation {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let digest = format!("sha256:{hash:064x}");
    let repository = name.split('@').next().unwrap_or(name);
    let repository = match repository.rsplit_once(':') {
        // A colon before a slash belongs to a port.
        Some((before, tag)) if !tag.contains('/') => before,
        Some(_) | None => repository,
    };
    ImageObservation {
        repo_tags: if name.contains('@') { Vec::new() } else { vec![name.to_owned()] },
        repo_digests: vec![format!("{repository}@{digest}")],
        id: digest,
        size_bytes: 1_000_000,
        ..Default::default()
    }
}
