//! What fuzzers (`scripts/fuzz`) throw at the readers of credentials and names of images: each function takes any bytes, and panics
//! where a promise is broken. What was found once lies in `fuzz/corpus`, and is tried again with every test run.

use crate::keyring::Keyring;
use crate::name;

/// A name, which is also that of a corpus, and what is done with each input.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[("docker_config", docker_config)];

/// Credentials that can be read are found for the places they name, and for no name of an image that cannot be one.
pub fn docker_config(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for keyring in [Keyring::parse_config_json(&text), Keyring::parse_dockercfg(&text)].into_iter().flatten()
    {
        let _ = keyring.credentials_for("registry.example/team/app:1");
    }
    if let Ok(image) = name::with_default_tag(&text) {
        assert_eq!(name::with_default_tag(&image).as_ref(), Ok(&image), "a whole name is left as it is");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_corpus_violates_no_property() {
        fixtures::run_fuzz_corpus(super::TARGETS);
    }
}
