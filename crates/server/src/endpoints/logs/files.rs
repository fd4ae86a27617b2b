//! Serves a directory tree over HTTP, with the listings, redirects and time headers of Go's file server.

use std::fmt::Write;
use std::path::PathBuf;

use axum::body::Body;
use axum::response::Response;
use futures_util::stream;
use http::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, IF_MODIFIED_SINCE, LAST_MODIFIED, LOCATION, RANGE,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use jiff::Timestamp;
use ports::host::{DirEntry, OpenFile};
use ports::node_api::{SystemLog, SystemLogError};

use crate::Api;
use crate::answer;

const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const TIME: &str = "%a, %d %b %Y %H:%M:%S GMT";
const INDEX: &str = "/index.html";
const PIECE_BYTES: u64 = 64 << 10;
/// The part of a file that determines its content type.
const SNIFFED_BYTES: usize = 512;

/// Serves a path that begins with a slash.
pub(super) async fn show(api: &Api, path: &str, query: Option<&str>, headers: &HeaderMap) -> Response {
    if path.ends_with(INDEX) {
        return redirect("./", query);
    }
    let clean = clean(path);
    let found = open(api, &clean).await;
    let name = clean.rsplit('/').next().unwrap_or_default();
    match (found, path.ends_with('/')) {
        (Err(error), _) => refuse(&error),
        (Ok(SystemLog::Directory { .. }), false) => redirect(&format!("{name}/"), query),
        (Ok(SystemLog::File { .. }), true) => redirect(&format!("../{name}"), query),
        (Ok(SystemLog::Directory { modified, entries }), true) => {
            match open(api, &format!("{clean}{INDEX}")).await {
                Ok(SystemLog::File { modified, size_bytes, file }) => {
                    content(INDEX, modified, size_bytes, file, headers).await
                }
                Ok(SystemLog::Directory { .. }) | Err(_) if is_known(modified, headers) => {
                    unchanged(modified)
                }
                Ok(SystemLog::Directory { .. }) | Err(_) => {
                    let listing = answer::with_type(StatusCode::OK, HTML, listing(&entries));
                    with(listing, [(LAST_MODIFIED, time(modified))])
                }
            }
        }
        (Ok(SystemLog::File { modified, size_bytes, file }), false) => {
            content(&clean, modified, size_bytes, file, headers).await
        }
    }
}

async fn open(api: &Api, clean: &str) -> Result<SystemLog, SystemLogError> {
    api.system_log(&PathBuf::from(clean.trim_start_matches('/'))).await
}

/// The path with `.`, `..` and doubled slashes resolved; it begins with a slash and never leads above it.
pub(super) fn clean(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    format!("/{}", parts.join("/"))
}

fn refuse(error: &SystemLogError) -> Response {
    match error {
        SystemLogError::NotFound => answer::error(StatusCode::NOT_FOUND, "404 page not found"),
        SystemLogError::Denied => answer::error(StatusCode::FORBIDDEN, "403 Forbidden"),
        SystemLogError::Failed(why) => {
            tracing::warn!(err = why, "Failed to read node log");
            answer::error(StatusCode::INTERNAL_SERVER_ERROR, "500 Internal Server Error")
        }
    }
}

/// Redirects to a relative path, because the path prefix is not known here; the query is kept.
fn redirect(to: &str, query: Option<&str>) -> Response {
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    with(response, [(LOCATION, format!("{}{query}", escaped(to)))])
}

fn with<const N: usize>(mut response: Response, headers: [(HeaderName, String); N]) -> Response {
    for (name, value) in headers {
        // An invalid header value is left out.
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

fn time(at: Timestamp) -> String {
    at.strftime(TIME).to_string()
}

/// Whether the client has the version of that second (`If-Modified-Since`).
fn is_known(modified: Timestamp, headers: &HeaderMap) -> bool {
    let since = headers.get(IF_MODIFIED_SINCE).and_then(|value| value.to_str().ok());
    let since = since.and_then(|text| jiff::civil::DateTime::strptime(TIME, text).ok());
    let since = since.and_then(|time| time.to_zoned(jiff::tz::TimeZone::UTC).ok());
    since.is_some_and(|since| modified.as_second() <= since.timestamp().as_second())
}

fn unchanged(modified: Timestamp) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    with(response, [(LAST_MODIFIED, time(modified))])
}

fn listing(entries: &[DirEntry]) -> String {
    let mut page =
        "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n".to_owned();
    for entry in entries {
        let name = format!("{}{}", entry.name, if entry.is_dir { "/" } else { "" });
        // A colon in the first segment would make it a scheme.
        let here = if name.contains(':') { "./" } else { "" };
        // Writing to a string cannot fail.
        let _ = writeln!(page, "<a href=\"{here}{}\">{}</a>", escaped(&name), marked(&name));
    }
    page.push_str("</pre>\n");
    page
}

/// Escapes a name for the path of a URL.
fn escaped(name: &str) -> String {
    let mut shown = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!'()*".contains(&byte) {
            shown.push(char::from(byte));
        } else {
            let _ = write!(shown, "%{byte:02X}");
        }
    }
    shown.replace('&', "&amp;").replace('\'', "&#39;")
}

/// Escapes a name for HTML text.
fn marked(name: &str) -> String {
    let name = name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    name.replace('"', "&#34;").replace('\'', "&#39;")
}

async fn content(
    path: &str,
    modified: Timestamp,
    size: u64,
    file: Box<dyn OpenFile>,
    headers: &HeaderMap,
) -> Response {
    if is_known(modified, headers) {
        return unchanged(modified);
    }
    let range = headers.get(RANGE).and_then(|value| value.to_str().ok()).map(|text| range(text, size));
    let (status, start, end) = match range {
        None | Some(Ok(None)) => (StatusCode::OK, 0, size),
        Some(Ok(Some((start, end)))) => (StatusCode::PARTIAL_CONTENT, start, end),
        Some(Err(())) => {
            let refusal =
                answer::error(StatusCode::RANGE_NOT_SATISFIABLE, "invalid range: failed to overlap");
            return with(refusal, [(CONTENT_RANGE, format!("bytes */{size}"))]);
        }
    };
    let kind = match file.read_at(0, SNIFFED_BYTES).await {
        Ok(beginning) => kind(path, &beginning),
        Err(error) => return refuse(&SystemLogError::Failed(error.to_string())),
    };
    let pieces = stream::try_unfold((file, start), move |(file, at)| async move {
        let length = end.saturating_sub(at).min(PIECE_BYTES);
        let piece = file.read_at(at, usize::try_from(length).unwrap_or(0)).await?;
        let next = at.saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
        Ok::<_, ports::HostError>((!piece.is_empty()).then_some((piece, (file, next))))
    });
    let response = answer::with_type(status, HeaderValue::from_static(kind), Body::from_stream(pieces));
    let response = with(
        response,
        [
            (LAST_MODIFIED, time(modified)),
            (CONTENT_LENGTH, end.saturating_sub(start).to_string()),
            (ACCEPT_RANGES, "bytes".to_owned()),
        ],
    );
    if status == StatusCode::OK {
        return response;
    }
    with(response, [(CONTENT_RANGE, format!("bytes {start}-{}/{size}", end.saturating_sub(1)))])
}

/// Begin and end of a single range. `None`: the whole file, also if several ranges are requested. An error is a range outside
/// the file.
fn range(text: &str, size: u64) -> Result<Option<(u64, u64)>, ()> {
    let Some(text) = text.strip_prefix("bytes=") else { return Err(()) };
    if text.contains(',') {
        return Ok(None);
    }
    let (first, last) = text.trim().split_once('-').ok_or(())?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| ());
    let (start, end) = match (first, last) {
        ("", last) => (size.saturating_sub(number(last)?), size),
        (first, "") => (number(first)?, size),
        (first, last) => (number(first)?, number(last)?.saturating_add(1).min(size)),
    };
    if start < end { Ok(Some((start, end))) } else { Err(()) }
}

/// The content type: text, unless the name or the first bytes indicate another type. A log is never served as HTML.
fn kind(path: &str, beginning: &[u8]) -> &'static str {
    let is_odd = |byte: &u8| matches!(byte, 0..=8 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f);
    if path.ends_with(".html") {
        "text/html; charset=utf-8"
    } else if path.ends_with(".json") {
        "application/json"
    } else if beginning.starts_with(&[0x1f, 0x8b, 0x08]) {
        "application/x-gzip"
    } else if beginning.iter().any(is_odd) {
        "application/octet-stream"
    } else {
        "text/plain; charset=utf-8"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_cannot_leave_the_root_directory() {
        for (path, expected) in [
            ("/", "/"),
            ("/a/./b//c/", "/a/b/c"),
            ("/../../etc/shadow", "/etc/shadow"),
            ("/a/../..", "/"),
            ("b.log", "/b.log"),
        ] {
            assert_eq!(clean(path), expected);
        }
    }

    #[test]
    fn directory_listing_escapes_names() {
        let entry = |name: &str, is_dir| DirEntry {
            name: name.to_owned(),
            is_dir,
            is_symlink: false,
            target_exists: true,
            size_bytes: 0,
        };
        let page = listing(&[entry("a<b>&c", false), entry("pods", true), entry("x:y 1%", false)]);
        assert_eq!(
            page,
            "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n\
             <a href=\"a%3Cb%3E&amp;c\">a&lt;b&gt;&amp;c</a>\n<a href=\"pods/\">pods/</a>\n\
             <a href=\"./x:y%201%25\">x:y 1%</a>\n</pre>\n"
        );
    }

    #[test]
    fn range_request_selects_a_part_of_the_file() {
        assert_eq!(range("bytes=0-3", 10), Ok(Some((0, 4))));
        assert_eq!(range("bytes=8-", 10), Ok(Some((8, 10))));
        assert_eq!(range("bytes=-4", 10), Ok(Some((6, 10))));
        assert_eq!(range("bytes=4-400", 10), Ok(Some((4, 10))));
        assert_eq!(range("bytes=0-1,3-4", 10), Ok(None));
        for text in ["bytes=10-", "bytes=5-2", "lines=1-2", "bytes=x"] {
            assert_eq!(range(text, 10), Err(()), "{text}");
        }
    }

    #[test]
    fn content_type_is_text_unless_name_or_bytes_indicate_another() {
        assert_eq!(kind("/a.log", b"<html>\x1b[0m"), "text/plain; charset=utf-8");
        assert_eq!(kind("/a.log.gz", &[0x1f, 0x8b, 8, 0]), "application/x-gzip");
        assert_eq!(kind("/wtmp", &[7, 0, 0]), "application/octet-stream");
    }

    #[test]
    fn unmodified_file_is_not_sent_again() {
        let modified: Timestamp = "2026-01-02T03:04:05.6Z".parse().unwrap();
        let with = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(IF_MODIFIED_SINCE, text.parse().unwrap());
            is_known(modified, &headers)
        };
        assert_eq!(time(modified), "Fri, 02 Jan 2026 03:04:05 GMT");
        assert!(with("Fri, 02 Jan 2026 03:04:05 GMT"));
        assert!(!with("Fri, 02 Jan 2026 03:04:04 GMT") && !with("yesterday"));
    }
}
