//! Fuzz targets (`scripts/fuzz`) for the parsers of client input: queries, headers and the frames of upgraded connections.
//! Each function takes any bytes, and panics if a property is violated. Inputs that were found once are in `fuzz/corpus`, and
//! are run again with every test run.

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use jiff::Timestamp;
use tokio::io::AsyncReadExt;

use crate::access::attributes;
use crate::endpoints::container_logs;
use crate::endpoints::logs;
use crate::grpc_socket::authority::ValidAuthority;
use crate::query::pairs;
use crate::streaming;
use crate::streaming::spdy;
use crate::streaming::websocket;
use crate::transport::counted;

/// A name, which is also that of a corpus, and the function to run with each input.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[
    ("log_query", log_query),
    ("node_log_query", node_log_query),
    ("headers", headers),
    ("websocket_frames", websocket_frames),
    ("spdy_frames", spdy_frames),
    ("authority", authority),
];

/// The query of a container log is rejected, or its options are valid.
pub fn log_query(data: &[u8]) {
    let query = pairs(Some(&String::from_utf8_lossy(data)));
    let _ = container_logs::options::read(&query, Timestamp::UNIX_EPOCH, true);
}

/// In a query of the node's logs, the name of a service cannot escape from a directory or become another argument of a
/// command.
pub fn node_log_query(data: &[u8]) {
    let query = pairs(Some(&String::from_utf8_lossy(data)));
    let Ok(logs::options::Wanted::Logs(log_query)) = logs::options::read(&query) else { return };
    if log_query.check().is_ok() {
        assert!(log_query.services.len() + log_query.files.len() <= 4, "at most four: {log_query:?}");
        let is_way_out = |service: &String| service.contains(['/', '.', '\\', '\0', '\n', ' ']);
        assert!(!log_query.services.iter().any(is_way_out), "{log_query:?}");
    }
}

/// The head of a request: the first line is a path, each other line a header.
pub fn headers(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let path = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let mut headers = HeaderMap::new();
    for line in lines.take(100) {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    assert!(
        !attributes::of(&Method::GET, &path).subresources.is_empty(),
        "every path must require a permission: {path}"
    );
    let _ = counted::path_of(&path);
    for protocol in ["v5.channel.k8s.io", "SPDY/3.1+portforward.k8s.io"] {
        if websocket::offers(&headers, protocol) {
            let _ = websocket::accept(&headers, protocol);
        }
    }
    if let Ok(ports) = streaming::ports(&headers, &pairs(path.split_once('?').map(|(_, query)| query))) {
        assert!(!ports.contains(&0));
    }
}

/// The pieces that are read contain no more bytes than were received, and do not depend on how the bytes were split.
pub fn websocket_frames(data: &[u8]) {
    within(async {
        let mut reader = websocket::FrameReader::new(data);
        let mut read = 0;
        while let Ok(piece) = reader.next().await {
            match piece {
                websocket::Piece::Data { bytes, .. } | websocket::Piece::Ping(bytes) => read += bytes.len(),
                websocket::Piece::Close => break,
            }
        }
        assert!(read <= data.len(), "{read} of {}", data.len());
    });
}

/// As [`websocket_frames`].
pub fn spdy_frames(data: &[u8]) {
    within(async {
        let mut reader = spdy::FrameReader::new(data);
        let mut read = 0;
        while let Ok(piece) = reader.next().await {
            match piece {
                spdy::Piece::Data { bytes, .. } => read += bytes.len(),
                spdy::Piece::End { .. } | spdy::Piece::Ping(_) => {}
                spdy::Piece::GoAway => break,
            }
        }
        assert!(read <= data.len(), "{read} of {}", data.len());
    });
}

/// Only `%` and `/` are replaced, so nothing changes its length; the result does not depend on how the bytes were split, and is
/// the same when it is read again. The first byte says where to split.
pub fn authority(data: &[u8]) {
    let Some((split, frames)) = data.split_first() else { return };
    let sent = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", frames].concat();
    let (start, end) = sent.split_at(usize::from(*split).min(sent.len()));
    within(async {
        let (mut split, mut whole, mut again) = (Vec::new(), Vec::new(), Vec::new());
        let _ = ValidAuthority::new(start.chain(end)).read_to_end(&mut split).await;
        let _ = ValidAuthority::new(&*sent).read_to_end(&mut whole).await;
        let _ = ValidAuthority::new(&*whole).read_to_end(&mut again).await;
        assert_eq!(whole.len(), sent.len());
        assert!(whole == split && whole == again);
    });
}

fn within(work: impl Future<Output = ()>) {
    // Never pends, because all bytes are available.
    if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().build() {
        runtime.block_on(work);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_corpus_violates_no_property() {
        fixtures::run_fuzz_corpus(super::TARGETS);
    }
}
