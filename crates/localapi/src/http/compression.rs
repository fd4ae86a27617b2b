//! Compression of large responses, as the real server compresses them: gzip, from 128 KiB.

use std::io::Write;

use ::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::{BodyExt, Full};
use hyper::body::Body as _;

use super::Body;

/// Smaller responses are not compressed.
const THRESHOLD: u64 = 128 * 1024;

/// Whether the client accepts gzip.
pub(crate) fn is_accepted(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|accepted| accepted.split(',').any(|encoding| encoding.trim() == "gzip"))
}

/// Compresses a response that is complete and large. A watch has no length and stays as it is.
pub(crate) async fn compress(response: Response<Body>) -> Result<Response<Body>, String> {
    let is_large = response.body().size_hint().exact().is_some_and(|length| length > THRESHOLD);
    if !is_large || response.status() != StatusCode::OK {
        return Ok(response);
    }
    let (mut head, body) = response.into_parts();
    let text = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
    let compressed = gzip(&text).map_err(|error| error.to_string())?;
    head.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    head.headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    let body = Full::new(Bytes::from(compressed)).map_err(|never| match never {}).boxed_unsync();
    Ok(Response::from_parts(head, body))
}

fn gzip(text: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text)?;
    encoder.finish()
}
