//! Bearer tokens: static tokens, bootstrap tokens (Secrets in kube-system), and tokens of service accounts.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::service_account::{ISSUER, Signer};
use super::{BOOTSTRAPPERS, User};
use crate::object;
use crate::store::{Key, Objects};

/// A static token and the user that it authenticates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticToken {
    pub token: String,
    pub user: String,
    pub uid: String,
    pub groups: Vec<String>,
}

/// All sources of bearer tokens.
#[derive(Debug)]
pub(crate) struct Tokens {
    pub(crate) static_tokens: Vec<StaticToken>,
    pub(crate) signer: Signer,
}

impl Tokens {
    /// The user of a token and the audiences it is valid for, or why it is invalid.
    pub(crate) fn review(
        &self,
        token: &str,
        audiences: &[String],
        objects: &Objects,
        now: Timestamp,
    ) -> Result<(User, Vec<String>), String> {
        if let Some(known) =
            self.static_tokens.iter().find(|known| equal_in_constant_time(&known.token, token))
        {
            let user =
                User { uid: known.uid.clone(), ..User::new(&known.user, known.groups.iter().cloned()) };
            return Ok((user, audiences.to_vec()));
        }
        if let Some(reviewed) = self.signer.review(token, audiences, objects, now) {
            return reviewed;
        }
        match bootstrap(token, objects, now) {
            Some(user) => Ok((user, audiences.to_vec())),
            None => Err("invalid bearer token".to_owned()),
        }
    }

    /// The audiences that a token needs for requests to the API server itself.
    pub(crate) fn own_audiences() -> Vec<String> {
        vec![ISSUER.to_owned()]
    }
}

/// Compares in constant time, so that the duration does not reveal the common prefix.
fn equal_in_constant_time(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

fn bootstrap(token: &str, objects: &Objects, now: Timestamp) -> Option<User> {
    let (id, secret) = token.split_once('.')?;
    let stored = objects.get(&Key::new("secrets", "kube-system", &format!("bootstrap-token-{id}")))?;
    let field = |name: &str| decoded(&stored["data"][name]);
    let expired = match field("expiration").as_str() {
        "" => false,
        at => at.parse::<Timestamp>().is_ok_and(|at| at <= now),
    };
    let good = object::text(stored, "/type") == "bootstrap.kubernetes.io/token"
        && !object::is_terminating(stored)
        && field("token-id") == id
        && equal_in_constant_time(&field("token-secret"), secret)
        && field("usage-bootstrap-authentication") == "true"
        && !expired;
    let extra = field("auth-extra-groups");
    let extra =
        extra.split(',').filter(|group| group.starts_with("system:bootstrappers:")).map(str::to_owned);
    let groups: Vec<String> = std::iter::once(BOOTSTRAPPERS.to_owned()).chain(extra).collect();
    good.then(|| User::new(format!("system:bootstrap:{id}"), groups))
}

fn decoded(value: &Value) -> String {
    let bytes = value.as_str().and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

/// The Secret of the bootstrap token `id.secret`; `None` if the token does not have that form.
pub(crate) fn bootstrap_secret(token: &str) -> Option<Value> {
    let (id, secret) = token.split_once('.')?;
    let letters = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let good = id.len() == 6 && secret.len() == 16 && letters(id) && letters(secret);
    let encoded = |text: &str| STANDARD.encode(text);
    good.then(|| {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system"},
            "type": "bootstrap.kubernetes.io/token",
            "data": {
                "token-id": encoded(id),
                "token-secret": encoded(secret),
                "usage-bootstrap-authentication": encoded("true"),
                "usage-bootstrap-signing": encoded("true"),
            },
        })
    })
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::store::{NotStored, Store, Write};

    const TOKEN: &str = "abcdef.0123456789abcdef";

    /// Reviews a token with the Secret of [`TOKEN`], changed by `change`, in the store.
    fn reviewed(token: &str, change: impl FnOnce(&mut Value)) -> Result<String, String> {
        let mut secret = bootstrap_secret(TOKEN).unwrap();
        change(&mut secret);
        let store = Store::new(10);
        let key = Key::new("secrets", "kube-system", "bootstrap-token-abcdef");
        store.write(&key, |_, _| Ok::<_, NotStored>(Write::Put(secret))).unwrap();
        let known = StaticToken {
            token: "static".to_owned(),
            user: "user".to_owned(),
            uid: "7".to_owned(),
            groups: Vec::new(),
        };
        let tokens = Tokens { static_tokens: vec![known], signer: Signer::generate().unwrap() };
        let now = "2026-06-01T00:00:00Z".parse().unwrap();
        let audiences = Tokens::own_audiences();
        store.read(|objects| tokens.review(token, &audiences, objects, now)).map(|(user, _)| user.name)
    }

    #[test]
    fn bootstrap_token_is_valid_as_long_as_its_secret_allows_it() {
        assert_eq!(reviewed(TOKEN, |_| {}).unwrap(), "system:bootstrap:abcdef");
        assert!(reviewed("abcdef.0123456789abcdee", |_| {}).is_err());
        assert!(reviewed(TOKEN, |secret| secret["type"] = json!("Opaque")).is_err());
        let expires = |at: &'static str| {
            move |secret: &mut Value| secret["data"]["expiration"] = json!(STANDARD.encode(at))
        };
        assert!(reviewed(TOKEN, expires("2026-05-31T23:59:59Z")).is_err());
        assert!(reviewed(TOKEN, expires("2026-06-01T00:00:01Z")).is_ok());
        assert!(
            reviewed(TOKEN, |secret| secret["data"]["usage-bootstrap-authentication"] = json!("")).is_err()
        );
    }

    #[test]
    fn static_tokens_are_accepted_and_unknown_tokens_are_not() {
        assert_eq!(reviewed("static", |_| {}).unwrap(), "user");
        for token in ["", "stati", "static2", "a.b.c", "nonsense"] {
            assert!(reviewed(token, |_| {}).is_err(), "{token}");
        }
    }

    #[test]
    fn malformed_bootstrap_tokens_have_no_secret() {
        for token in ["abcdef", "ABCDEF.0123456789abcdef", "abcdef.0123", ""] {
            assert!(bootstrap_secret(token).is_none(), "{token}");
        }
    }
}
