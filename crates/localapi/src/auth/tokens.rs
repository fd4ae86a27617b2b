//! Bearer tokens: those given at start, bootstrap tokens (Secrets in kube-system), and tokens of service accounts.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::service_account::{ISSUER, Signer};
use super::{BOOTSTRAPPERS, User};
use crate::object;
use crate::store::{Key, Objects};

/// A token of the static token file: who holds it is this user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticToken {
    pub token: String,
    pub user: String,
    pub uid: String,
    pub groups: Vec<String>,
}

/// All that can tell whose a token is.
#[derive(Debug)]
pub(crate) struct Tokens {
    pub(crate) given: Vec<StaticToken>,
    pub(crate) signer: Signer,
}

impl Tokens {
    /// The user of a token and the audiences it is for, or why it is not believed.
    pub(crate) fn review(
        &self,
        token: &str,
        audiences: &[String],
        objects: &Objects,
        now: Timestamp,
    ) -> Result<(User, Vec<String>), String> {
        if let Some(known) = self.given.iter().find(|known| same(&known.token, token)) {
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

    /// What a token must be for when it is shown to the API itself.
    pub(crate) fn own_audiences() -> Vec<String> {
        vec![ISSUER.to_owned()]
    }
}

/// Compares without telling by its time how far they agree.
fn same(one: &str, other: &str) -> bool {
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
        && same(&field("token-secret"), secret)
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

/// The Secret that makes `id.secret` a bootstrap token; none if the token has not that form.
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
    use std::convert::Infallible;

    use super::*;
    use crate::store::{Store, Write};

    const TOKEN: &str = "abcdef.0123456789abcdef";

    /// A store with the Secret of [`TOKEN`], changed by `change`.
    fn judged(shown: &str, change: impl FnOnce(&mut Value)) -> Result<String, String> {
        let mut secret = bootstrap_secret(TOKEN).unwrap();
        change(&mut secret);
        let store = Store::new(10);
        let key = Key::new("secrets", "kube-system", "bootstrap-token-abcdef");
        store.write(&key, |_, _| Ok::<_, Infallible>(Write::Put(secret))).unwrap();
        let given = StaticToken {
            token: "given".to_owned(),
            user: "someone".to_owned(),
            uid: "7".to_owned(),
            groups: Vec::new(),
        };
        let tokens = Tokens { given: vec![given], signer: Signer::generate().unwrap() };
        let now = "2026-06-01T00:00:00Z".parse().unwrap();
        let audiences = Tokens::own_audiences();
        store.read(|objects| tokens.review(shown, &audiences, objects, now)).map(|(user, _)| user.name)
    }

    #[test]
    fn a_bootstrap_token_is_good_while_its_secret_says_so() {
        assert_eq!(judged(TOKEN, |_| {}).unwrap(), "system:bootstrap:abcdef");
        assert!(judged("abcdef.0123456789abcdee", |_| {}).is_err());
        assert!(judged(TOKEN, |secret| secret["type"] = json!("Opaque")).is_err());
        let expires = |at: &'static str| {
            move |secret: &mut Value| secret["data"]["expiration"] = json!(STANDARD.encode(at))
        };
        assert!(judged(TOKEN, expires("2026-05-31T23:59:59Z")).is_err());
        assert!(judged(TOKEN, expires("2026-06-01T00:00:01Z")).is_ok());
        assert!(
            judged(TOKEN, |secret| secret["data"]["usage-bootstrap-authentication"] = json!("")).is_err()
        );
    }

    #[test]
    fn given_tokens_are_known_and_all_others_are_not() {
        assert_eq!(judged("given", |_| {}).unwrap(), "someone");
        for token in ["", "give", "given2", "a.b.c", "nonsense"] {
            assert!(judged(token, |_| {}).is_err(), "{token}");
        }
    }

    #[test]
    fn only_the_right_form_becomes_a_secret() {
        for token in ["abcdef", "ABCDEF.0123456789abcdef", "abcdef.0123", ""] {
            assert!(bootstrap_secret(token).is_none(), "{token}");
        }
    }
}
