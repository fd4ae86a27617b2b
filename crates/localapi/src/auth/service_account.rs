//! Service account tokens: JSON web tokens signed with ES256. A review also checks that the account, pod, Secret or node
//! in the token still exists.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use ring::digest;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};
use serde_json::{Value, json};

use super::User;
use crate::object;
use crate::store::{Key, Objects};

/// The issuer of the tokens (`iss`), which is also the audience of the API server.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// The user of a service account is this, its namespace, a colon and its name.
const USER_PREFIX: &str = "system:serviceaccount:";

/// What is before the point of a P-256 key in its DER encoding (SubjectPublicKeyInfo): the algorithm, the curve and the length.
const PUBLIC_KEY_HEAD: &[u8] = &[
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// The key that signs tokens.
#[derive(Debug)]
pub(crate) struct Signer {
    key: EcdsaKeyPair,
    pkcs8: Vec<u8>,
    random: SystemRandom,
}

/// The key cannot be generated, read or used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignerError {
    #[error("failed to generate the token signing key")]
    Generate,
    #[error("failed to read the token signing key")]
    Read,
    #[error("failed to sign a token")]
    Sign,
}

/// An object, next to the service account, that a token is bound to: the token is invalid once the object is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BoundObject {
    /// `pod`, `secret` or `node`, the claim's name.
    pub(crate) claim: &'static str,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// The claims of a new token.
#[derive(Clone, Debug)]
pub(crate) struct TokenClaims {
    pub(crate) namespace: String,
    pub(crate) account: String,
    pub(crate) account_uid: String,
    pub(crate) audiences: Vec<String>,
    pub(crate) bound: Vec<BoundObject>,
    pub(crate) id: String,
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
}

impl Signer {
    pub(crate) fn generate() -> Result<Self, SignerError> {
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
            .map_err(|_| SignerError::Generate)?;
        Self::from_pkcs8(pkcs8.as_ref().to_vec())
    }

    pub(crate) fn from_pkcs8(pkcs8: Vec<u8>) -> Result<Self, SignerError> {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &pkcs8, &random)
            .map_err(|_| SignerError::Read)?;
        Ok(Self { key, pkcs8, random })
    }

    pub(crate) fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }

    /// As in the real server: the hash of the encoded public key.
    fn key_id(&self) -> String {
        let encoded = [PUBLIC_KEY_HEAD, self.key.public_key().as_ref()].concat();
        URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, &encoded))
    }

    /// The key that verifies the tokens, as JSON Web Key.
    pub(crate) fn public_key(&self) -> Value {
        // One byte for the form, then the two coordinates.
        let point = self.key.public_key().as_ref().get(1..).unwrap_or_default();
        let (x, y) = point.split_at(point.len() / 2);
        json!({
            "use": "sig",
            "kty": "EC",
            "kid": self.key_id(),
            "crv": "P-256",
            "alg": "ES256",
            "x": URL_SAFE_NO_PAD.encode(x),
            "y": URL_SAFE_NO_PAD.encode(y),
        })
    }

    pub(crate) fn token(&self, new: &TokenClaims) -> Result<String, SignerError> {
        let head = json!({"alg": "ES256", "kid": self.key_id(), "typ": "JWT"});
        let mut own = json!({
            "namespace": new.namespace,
            "serviceaccount": {"name": new.account, "uid": new.account_uid},
        });
        for bound in &new.bound {
            own[bound.claim] = json!({"name": bound.name, "uid": bound.uid});
        }
        let claims = json!({
            "iss": ISSUER,
            "sub": user_name(&new.namespace, &new.account),
            "aud": new.audiences,
            "iat": new.from.as_second(),
            "nbf": new.from.as_second(),
            "exp": new.until.as_second(),
            "jti": new.id,
            "kubernetes.io": own,
        });
        let signed = format!("{}.{}", encode(&head), encode(&claims));
        let signature = self.key.sign(&self.random, signed.as_bytes()).map_err(|_| SignerError::Sign)?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// The claims of a token that this key signed; `None` for any other token.
    fn claims(&self, token: &str) -> Option<Value> {
        let (signed, signature) = token.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key().as_ref())
            .verify(signed.as_bytes(), &signature)
            .ok()?;
        let (_, claims) = signed.split_once('.')?;
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
    }

    /// The user of a token and those of the `wanted` audiences that it is valid for, or why it is invalid. `None` for a token
    /// that this key did not sign.
    pub(crate) fn review(
        &self,
        token: &str,
        wanted: &[String],
        objects: &Objects,
        now: Timestamp,
    ) -> Option<Result<(User, Vec<String>), String>> {
        let claims = self.claims(token)?;
        Some(validate_claims(&claims, wanted, objects, now))
    }
}

fn validate_claims(
    claims: &Value,
    wanted: &[String],
    objects: &Objects,
    now: Timestamp,
) -> Result<(User, Vec<String>), String> {
    let second = |field: &str| claims[field].as_i64().ok_or_else(|| format!("the token has no {field}"));
    if now.as_second() >= second("exp")? {
        return Err("service account token has expired".to_owned());
    }
    if now.as_second() < second("nbf")? {
        return Err("service account token is not valid yet".to_owned());
    }
    let audiences: Vec<&str> = object::items(claims, "/aud").iter().filter_map(Value::as_str).collect();
    let common: Vec<String> =
        wanted.iter().filter(|wanted| audiences.contains(&wanted.as_str())).cloned().collect();
    if common.is_empty() {
        return Err(format!("token audiences {audiences:?} is invalid for the target audiences {wanted:?}"));
    }
    let own = &claims["kubernetes.io"];
    let namespace = object::text(own, "/namespace");
    for (claim, resource, namespace) in [
        ("serviceaccount", "serviceaccounts", namespace),
        ("pod", "pods", namespace),
        ("secret", "secrets", namespace),
        ("node", "nodes", ""),
    ] {
        // The token of a pod names its node for information only; it stays valid without the node.
        let informs = claim == "node" && own.get("pod").is_some();
        if let Some(reference) = own.get(claim).filter(|_| !informs) {
            check_exists(
                objects,
                &Key::new(resource, namespace, object::text(reference, "/name")),
                reference,
            )?;
        }
    }
    Ok((user_of(own, object::text(claims, "/jti")), common))
}

fn check_exists(objects: &Objects, key: &Key, reference: &Value) -> Result<(), String> {
    let found = objects.get(key).ok_or_else(|| format!("{} {} has been deleted", key.resource, key.name))?;
    if object::uid(found) == object::text(reference, "/uid") {
        Ok(())
    } else {
        Err(format!("{} {} has another UID than the token", key.resource, key.name))
    }
}

fn user_of(own: &Value, id: &str) -> User {
    let namespace = object::text(own, "/namespace");
    let name = user_name(namespace, object::text(own, "/serviceaccount/name"));
    let mut user = User::new(name, groups(namespace));
    user.uid = object::text(own, "/serviceaccount/uid").to_owned();
    let mut extra = |key: &str, value: &str| {
        if !value.is_empty() {
            user.extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value.to_owned()]);
        }
    };
    extra("credential-id", &if id.is_empty() { String::new() } else { format!("JTI={id}") });
    extra("pod-name", object::text(own, "/pod/name"));
    extra("pod-uid", object::text(own, "/pod/uid"));
    extra("node-name", object::text(own, "/node/name"));
    extra("node-uid", object::text(own, "/node/uid"));
    user
}

pub(crate) fn user_name(namespace: &str, account: &str) -> String {
    format!("{USER_PREFIX}{namespace}:{account}")
}

fn encode(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// The namespace and the name of the service account that has this user name. They may be invalid names.
pub(crate) fn parts(user: &str) -> Option<(&str, &str)> {
    user.strip_prefix(USER_PREFIX)?.split_once(':')
}

/// The groups of all service accounts of a namespace.
pub(crate) fn groups(namespace: &str) -> [String; 2] {
    ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::store::{NotStored, Store, Write};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    /// A store with an account and a pod of these UIDs.
    fn store(account: &str, pod: &str) -> Store {
        let store = Store::new(10);
        for (resource, name, uid) in [("serviceaccounts", "robot", account), ("pods", "p", pod)] {
            let object = json!({"metadata": {"name": name, "namespace": "a", "uid": uid}});
            let key = Key::new(resource, "a", name);
            store.write(&key, |_, _| Ok::<_, NotStored>(Write::Put(object))).unwrap();
        }
        store
    }

    fn token(signer: &Signer) -> String {
        let bound = BoundObject { claim: "pod", name: "p".to_owned(), uid: "pod".to_owned() };
        let new = TokenClaims {
            namespace: "a".to_owned(),
            account: "robot".to_owned(),
            account_uid: "account".to_owned(),
            audiences: vec!["aud".to_owned()],
            bound: vec![bound],
            id: "id".to_owned(),
            from: at(0),
            until: at(600),
        };
        signer.token(&new).unwrap()
    }

    fn reviewed(
        signer: &Signer,
        token: &str,
        store: &Store,
        audience: &str,
        now: i64,
    ) -> Option<Result<String, String>> {
        let reviewed = store.read(|objects| signer.review(token, &[audience.to_owned()], objects, at(now)));
        reviewed.map(|reviewed| reviewed.map(|(user, _)| user.name))
    }

    #[test]
    fn token_is_valid_until_it_expires_for_its_audience_and_while_its_objects_exist() {
        let signer = Signer::generate().unwrap();
        let (token, store_with_both) = (token(&signer), store("account", "pod"));
        let name = "system:serviceaccount:a:robot".to_owned();
        assert_eq!(reviewed(&signer, &token, &store_with_both, "aud", 10), Some(Ok(name)));
        let why = |store: &Store, audience: &str, now: i64| {
            reviewed(&signer, &token, store, audience, now).unwrap().unwrap_err()
        };
        assert!(why(&store_with_both, "aud", 600).contains("expired"));
        assert!(why(&store_with_both, "aud", -10).contains("not valid yet"));
        assert!(why(&store_with_both, "other", 10).contains("audiences"));
        assert!(why(&store("account", "another"), "aud", 10).contains("pods p has another UID"));
        assert!(why(&store("another", "pod"), "aud", 10).contains("serviceaccounts robot"));
    }

    #[test]
    fn token_is_verified_with_the_public_key_that_it_names() {
        let signer = Signer::generate().unwrap();
        let (key, token) = (signer.public_key(), token(&signer));
        let parts: Vec<&str> = token.split('.').collect();
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
        let head: Value = serde_json::from_slice(&decode(parts[0])).unwrap();
        assert_eq!((&head["alg"], &head["kid"]), (&key["alg"], &key["kid"]));
        let coordinate = |name: &str| decode(object::text(&key, name));
        let point = [vec![4], coordinate("/x"), coordinate("/y")].concat();
        let signed = format!("{}.{}", parts[0], parts[1]);
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
        public.verify(signed.as_bytes(), &decode(parts[2])).unwrap();
    }

    #[test]
    fn token_of_another_key_and_modified_token_are_not_accepted() {
        let signer = Signer::generate().unwrap();
        let (own, store_with_both) = (token(&signer), store("account", "pod"));
        let foreign = token(&Signer::generate().unwrap());
        assert_eq!(reviewed(&signer, &foreign, &store_with_both, "aud", 10), None);
        let mut changed = own.clone();
        changed.insert(own.find('.').unwrap() + 3, 'x');
        assert_eq!(reviewed(&signer, &changed, &store_with_both, "aud", 10), None);
        let again = Signer::from_pkcs8(signer.pkcs8().to_vec()).unwrap();
        assert!(reviewed(&again, &own, &store_with_both, "aud", 10).unwrap().is_ok());
    }
}
