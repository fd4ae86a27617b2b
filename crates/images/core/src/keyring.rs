//! Credentials for registries (docs/behaviour/images.md): the config files of `docker login` and other tools, and which of
//! their entries match an image. Never reads a file or calls a registry.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::digest::sha256_hex;
use model::request::RegistryAuth;
use serde::Deserialize;
use serde_json::Value;

use super::access::{PodCredentials, PullSecret, PullServiceAccount};
use super::name::without_tag;

/// A credential, and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    pub auth: RegistryAuth,
    pub source: CredentialSource,
}

/// Which pods may pull with a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialSource {
    /// Every pod of the node.
    Node,
    /// Pods that name the secret. Its hash is that of the whole credential.
    Secret(PullSecret),
    /// Pods that run as this service account.
    ServiceAccount(PullServiceAccount),
}

impl Credential {
    /// SHA-256 over the credential as JSON, as all kubelets of this release write it into pull records.
    #[must_use]
    pub fn hash(auth: &RegistryAuth) -> String {
        let fields = [
            ("username", &auth.username),
            ("password", &auth.password),
            ("auth", &auth.auth),
            ("serveraddress", &auth.server_address),
            ("identitytoken", &auth.identity_token),
            ("registrytoken", &auth.registry_token),
        ];
        let is_given = |(_, value): &(&str, &String)| !value.is_empty();
        let field = |(name, value): (&str, &String)| format!("{name:?}:{}", Value::from(value.as_str()));
        let fields: Vec<String> = fields.into_iter().filter(is_given).map(field).collect();
        // The Go kubelet's JSON encoder escapes HTML characters, so the hash does, too.
        let text = format!("{{{}}}", fields.join(","));
        let text = text.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e");
        sha256_hex(text.as_bytes())
    }
}

/// The credentials by which a pod can be verified. The node's own are available to every pod, and prove nothing.
#[must_use]
pub fn pod_credentials(credentials: &[Credential]) -> PodCredentials {
    let mut shown = PodCredentials::default();
    for credential in credentials {
        match &credential.source {
            CredentialSource::Node => {}
            CredentialSource::Secret(secret) => shown.secrets.push(secret.clone()),
            CredentialSource::ServiceAccount(account) => shown.service_account = Some(account.clone()),
        }
    }
    shown
}

/// Credentials by registry, with the more exact locations first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keyring {
    /// Keys are `host[:port][/path]`; the host may have `*` in its labels.
    entries: BTreeMap<String, Vec<Credential>>,
}

/// Why a credentials file cannot be used. The message never contains a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    #[error("not a docker config file: line {line}, column {column}: {problem}")]
    Json { line: usize, column: usize, problem: &'static str },
    #[error("credentials of registry {registry:?}: auth is not base64")]
    NotBase64 { registry: String },
    #[error("credentials of registry {registry:?}: auth does not hold user:password")]
    NoColon { registry: String },
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ConfigFile {
    auths: BTreeMap<String, Entry>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    username: String,
    password: String,
    auth: String,
    #[serde(alias = "identityToken")]
    identitytoken: String,
    #[serde(alias = "registryToken")]
    registrytoken: String,
}

/// The location of Docker Hub's credentials.
const DOCKER_HUB_KEY: &str = "index.docker.io";

impl Keyring {
    /// Reads a `config.json` (credentials under `auths`) or a `.dockerconfigjson` secret.
    ///
    /// # Errors
    /// The text is not such a file, or the credentials of a registry are invalid.
    pub fn parse_config_json(text: &str) -> Result<Self, KeyringError> {
        let file: ConfigFile = serde_json::from_str(text).map_err(|e| json_error(&e))?;
        Self::of(file.auths)
    }

    /// Parses a `.dockercfg`: the older format, without `auths` around it.
    ///
    /// # Errors
    /// As [`Keyring::parse_config_json`].
    pub fn parse_dockercfg(text: &str) -> Result<Self, KeyringError> {
        Self::of(serde_json::from_str(text).map_err(|e| json_error(&e))?)
    }

    fn of(auths: BTreeMap<String, Entry>) -> Result<Self, KeyringError> {
        let mut keyring = Self::default();
        for (registry, entry) in auths {
            keyring.add(&registry, credentials(&registry, entry)?, CredentialSource::Node);
        }
        Ok(keyring)
    }

    /// Adds a credential for all images that match `location`, after the existing ones.
    pub fn add(&mut self, location: &str, auth: RegistryAuth, source: CredentialSource) {
        self.entries.entry(location_key(location)).or_default().push(Credential { auth, source });
    }

    /// The same credentials, restricted to pods with that secret.
    #[must_use]
    pub fn from_secret(mut self, secret: &PullSecret) -> Self {
        for credential in self.entries.values_mut().flatten() {
            let credential_hash = Credential::hash(&credential.auth);
            credential.source = CredentialSource::Secret(PullSecret { credential_hash, ..secret.clone() });
        }
        self
    }

    /// Adds the credentials of another keyring, after the existing ones.
    pub fn merge(&mut self, other: Self) {
        for (location, credentials) in other.entries {
            self.entries.entry(location).or_default().extend(credentials);
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The credentials to try for an image, in order: those for a longer path first. Empty: pull without credentials.
    #[must_use]
    pub fn credentials_for(&self, image: &str) -> Vec<Credential> {
        let target = without_tag(image);
        // Reverse order puts `host/path` before `host`, its beginning.
        let matching = self.entries.iter().rev().filter(|(location, _)| matches(location, target));
        let mut found: Vec<_> = matching.flat_map(|(_, credentials)| credentials).cloned().collect();
        if is_docker_hub(target) {
            found.extend(self.entries.get(DOCKER_HUB_KEY).into_iter().flatten().cloned());
        }
        found
    }
}

fn json_error(error: &serde_json::Error) -> KeyringError {
    // The parser's message may quote the text, and the text contains secrets.
    let problem = match error.classify() {
        serde_json::error::Category::Syntax => "not JSON",
        serde_json::error::Category::Eof => "ends too early",
        serde_json::error::Category::Data => "a value has the wrong type",
        serde_json::error::Category::Io => "cannot be read",
    };
    KeyringError::Json { line: error.line(), column: error.column(), problem }
}

fn credentials(registry: &str, entry: Entry) -> Result<RegistryAuth, KeyringError> {
    let mut auth = RegistryAuth {
        username: entry.username,
        password: entry.password,
        identity_token: entry.identitytoken,
        registry_token: entry.registrytoken,
        ..RegistryAuth::default()
    };
    if !entry.auth.is_empty() {
        (auth.username, auth.password) = decode_auth(registry, &entry.auth)?;
    }
    Ok(auth)
}

/// `auth` is base64 of `user:password`.
fn decode_auth(registry: &str, auth: &str) -> Result<(String, String), KeyringError> {
    let registry = || registry.to_owned();
    let decoded = STANDARD.decode(auth.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let decoded = decoded.ok_or_else(|| KeyringError::NotBase64 { registry: registry() })?;
    let (user, password) =
        decoded.split_once(':').ok_or_else(|| KeyringError::NoColon { registry: registry() })?;
    // Some writers pad with zero bytes.
    Ok((user.to_owned(), password.trim_end_matches('\0').to_owned()))
}

/// `https://host/v1/path` is stored as `host/path`.
fn location_key(registry: &str) -> String {
    let location =
        ["https://", "http://"].iter().find_map(|scheme| registry.strip_prefix(scheme)).unwrap_or(registry);
    let (host, path) = location.split_once('/').unwrap_or((location, ""));
    let path = match path.split_once('/') {
        Some(("v1" | "v2", rest)) => rest,
        _ if matches!(path, "v1" | "v2") => "",
        Some(_) | None => path,
    };
    let path = path.trim_end_matches('/');
    if path.is_empty() { host.to_owned() } else { format!("{host}/{path}") }
}

/// Whether the image is on Docker Hub: without a host, or with Docker Hub's.
fn is_docker_hub(image: &str) -> bool {
    match image.split_once('/') {
        None => !image.is_empty(),
        Some(("docker.io" | "index.docker.io", _)) => true,
        Some((host, _)) => !host.is_empty() && !host.contains(['.', ':']) && host != "localhost",
    }
}

/// The same port, a host that matches label by label, and a path that is a prefix of the image's.
pub(super) fn matches(location: &str, image: &str) -> bool {
    let (glob_host, glob_path) = location.split_once('/').unwrap_or((location, ""));
    let (host, path) = image.split_once('/').unwrap_or((image, ""));
    let (glob_host, glob_port) = glob_host.split_once(':').unwrap_or((glob_host, ""));
    let (host, port) = host.split_once(':').unwrap_or((host, ""));
    let (globs, labels): (Vec<_>, Vec<_>) = (glob_host.split('.').collect(), host.split('.').collect());
    glob_port == port
        && globs.len() == labels.len()
        && path.starts_with(glob_path)
        && globs.iter().zip(&labels).all(|(glob, label)| glob_matches(glob.as_bytes(), label.as_bytes()))
}

/// `*` stands for any text and `?` for any one character.
fn glob_matches(glob: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // Position of the last star, and how much of the text it has matched.
    let mut star: Option<(usize, usize)> = None;
    while from < text.len() {
        match (glob.get(at), star) {
            (Some(b'*'), _) => {
                star = Some((at, from));
                at += 1;
            }
            (Some(byte), _) if *byte == b'?' || Some(byte) == text.get(from) => {
                at += 1;
                from += 1;
            }
            (_, Some((star_at, taken))) => {
                star = Some((star_at, taken + 1));
                at = star_at + 1;
                from = taken + 1;
            }
            (_, None) => return false,
        }
    }
    glob.iter().skip(at).all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// A keyring with one user for each location, called by the location's position; and the users found for an image.
    #[track_caller]
    fn check(locations: &[&str], image: &str, expected: &[&str]) {
        let auths: serde_json::Map<_, _> =
            locations.iter().map(|l| ((*l).to_owned(), json!({"username": l, "password": "p"}))).collect();
        let keyring = Keyring::parse_config_json(&json!({ "auths": auths }).to_string()).unwrap();
        let found: Vec<_> = keyring.credentials_for(image).into_iter().map(|c| c.auth.username).collect();
        assert_eq!(found, expected, "{locations:?} {image}");
    }

    #[test]
    fn a_registry_is_found_by_its_host() {
        check(&["quay.io"], "quay.io/a/b:1", &["quay.io"]);
        check(&["quay.io"], "quay.io/a/b@sha256:00", &["quay.io"]);
        check(&["quay.io"], "gcr.io/a/b", &[]);
        check(&["https://quay.io/v2/"], "quay.io/a", &["https://quay.io/v2/"]);
        check(&["http://quay.io"], "quay.io/a", &["http://quay.io"]);
    }

    #[test]
    fn credentials_for_a_longer_path_come_first() {
        check(
            &["quay.io", "quay.io/a", "quay.io/a/b"],
            "quay.io/a/b:1",
            &["quay.io/a/b", "quay.io/a", "quay.io"],
        );
        check(&["quay.io/z", "quay.io"], "quay.io/a", &["quay.io"]);
    }

    #[test]
    fn the_port_must_be_the_same() {
        check(&["localhost:5000"], "localhost:5000/a", &["localhost:5000"]);
        check(&["localhost"], "localhost:5000/a", &[]);
        check(&["r.example:80"], "r.example/a", &[]);
    }

    #[test]
    fn stars_stand_for_labels() {
        check(&["*.example.org"], "r.example.org/a", &["*.example.org"]);
        check(&["*.example.org"], "r.s.example.org/a", &[]);
        check(&["*.*.example.org"], "r.s.example.org/a", &["*.*.example.org"]);
        check(&["reg*.example.org:5000/x"], "registry.example.org:5000/x/y", &["reg*.example.org:5000/x"]);
        check(&["r?.example.org"], "r1.example.org/a", &["r?.example.org"]);
        check(&["r?.example.org"], "r.example.org/a", &[]);
    }

    #[test]
    fn images_without_a_host_are_docker_hubs() {
        let hub = "https://index.docker.io/v1/";
        for image in ["nginx", "nginx:1", "user/app", "docker.io/user/app"] {
            check(&[hub], image, &[hub]);
        }
        check(&[hub], "quay.io/a", &[]);
        check(&[hub], "host:5000/a", &[]);
    }

    #[test]
    fn users_are_read_from_auth_too() {
        let auth = STANDARD.encode("me:a:b");
        let keyring =
            Keyring::parse_config_json(&json!({"auths": {"r.io": {"auth": auth}}}).to_string()).unwrap();
        let found = &keyring.credentials_for("r.io/a")[0].auth;
        assert_eq!((found.username.as_str(), found.password.as_str()), ("me", "a:b"));
    }

    #[test]
    fn tokens_are_kept() {
        let text = json!({"auths": {"r.io": {"identitytoken": "i", "registrytoken": "r"}}}).to_string();
        let found = &Keyring::parse_config_json(&text).unwrap().credentials_for("r.io/a")[0].auth;
        assert_eq!((found.identity_token.as_str(), found.registry_token.as_str()), ("i", "r"));
    }

    #[test]
    fn dockercfg_has_no_auths() {
        let keyring = Keyring::parse_dockercfg(r#"{"r.io": {"username": "u", "password": "p"}}"#).unwrap();
        assert_eq!(keyring.credentials_for("r.io/a").len(), 1);
        assert!(Keyring::parse_config_json("{}").unwrap().is_empty());
    }

    #[test]
    fn credential_is_identified_by_its_hash() {
        let auth =
            RegistryAuth { username: "me".into(), password: "a<b\"c".into(), ..RegistryAuth::default() };
        // Of {"username":"me","password":"a\\u003cb\\"c"}, where the backslashes are part of the text.
        let expected = "ac2f127d1194833c428c246a09c8c61008f921cc0e75944609b9bbfef848f04b";
        assert_eq!(Credential::hash(&auth), expected);
    }

    #[test]
    fn pod_credentials_do_not_include_those_of_the_node() {
        let text = json!({"r.io": {"username": "u", "password": "p"}}).to_string();
        let node = Keyring::parse_dockercfg(&text).unwrap();
        let secret = PullSecret { name: "s".into(), ..PullSecret::default() };
        let mut all = node.clone().from_secret(&secret);
        all.merge(node);
        let credentials = all.credentials_for("r.io/a");
        let shown = pod_credentials(&credentials);
        assert_eq!(credentials.len(), 2);
        assert_eq!(shown.secrets.len(), 1);
        assert_eq!(shown.secrets[0].credential_hash, Credential::hash(&credentials[0].auth));
    }

    #[test]
    fn keyrings_add_up() {
        let ring = |user: &str| {
            Keyring::parse_dockercfg(&json!({"r.io": {"username": user, "password": "p"}}).to_string())
                .unwrap()
        };
        let mut both = ring("a");
        both.merge(ring("b"));
        let users: Vec<_> = both.credentials_for("r.io/x").into_iter().map(|c| c.auth.username).collect();
        assert_eq!(users, ["a", "b"]);
    }

    #[test]
    fn invalid_credentials_are_reported_without_secrets() {
        let error = |text: &str| Keyring::parse_config_json(text).unwrap_err().to_string();
        assert_eq!(error("{"), "not a docker config file: line 1, column 1: ends too early");
        assert_eq!(
            error(r#"{"auths": {"r": {"password": 12345}}}"#),
            "not a docker config file: line 1, column 34: a value has the wrong type"
        );
        assert_eq!(
            error(r#"{"auths": {"r": {"auth": "!!"}}}"#),
            r#"credentials of registry "r": auth is not base64"#
        );
        let no_colon = STANDARD.encode("secret");
        assert_eq!(
            error(&json!({"auths": {"r": {"auth": no_colon}}}).to_string()),
            r#"credentials of registry "r": auth does not hold user:password"#
        );
    }

    proptest! {
        #[test]
        fn any_text_is_answered_without_a_panic(text in "\\PC{0,60}", image in "\\PC{0,40}") {
            if let Ok(keyring) = Keyring::parse_config_json(&text) {
                let _ = keyring.credentials_for(&image);
            }
            let _ = Keyring::parse_dockercfg(&text);
            let _ = matches(&text, &image);
        }

        #[test]
        fn a_text_matches_itself_and_a_star(text in "[a-z]{0,10}") {
            prop_assert!(glob_matches(text.as_bytes(), text.as_bytes()));
            prop_assert!(glob_matches(b"*", text.as_bytes()));
            let starred = text.clone() + "*";
            prop_assert!(glob_matches(starred.as_bytes(), text.as_bytes()));
        }
    }
}
