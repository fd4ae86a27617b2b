//! The documents with which other programs verify the tokens of service accounts: the configuration of the issuer, and its key.

use ::http::{Response, StatusCode};
use serde_json::json;

use crate::api::Api;
use crate::auth::service_account::ISSUER;
use crate::http::{Body, response};

const KEY_SET: &str = "application/jwk-set+json";

pub(super) fn configuration(api: &Api) -> Response<Body> {
    let document = json!({
        "issuer": ISSUER,
        "jwks_uri": format!("https://{}/openid/v1/jwks", api.address),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    });
    response::json(StatusCode::OK, &document)
}

pub(super) fn keys(api: &Api) -> Response<Body> {
    let document = json!({"keys": [api.tokens.signer.public_key()]});
    response::bytes(StatusCode::OK, KEY_SET, document.to_string())
}
