//! Fuzz targets (`scripts/fuzz`) of the gRPC server for registrations of device plugins, and of the answers of CSI drivers. Inputs that were found once are in
//! `fuzz/corpus`, and are run again with every test run.

use std::cell::Cell;

use grpc_api::csi as wire;
use prost::Message;

use crate::{csi_convert, grpc_unary_server};

/// A name, which is also that of a corpus, and the function to run with each input.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[("grpc_unary_server", grpc_unary_server), ("csi_answers", csi_answers)];

/// An answer is refused, or has its bounds and no negative size. The first byte chooses the call.
pub fn csi_answers(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    match choice % 4 {
        0 => {
            let Ok(answer) = wire::NodeGetInfoResponse::decode(data) else { return };
            let Ok(info) = csi_convert::node_info(answer) else { return };
            let topology: usize = info.topology.iter().map(|(key, value)| key.len() + value.len()).sum();
            assert!(info.node_id.len() <= 256 && topology <= 4096);
        }
        1 => {
            let Ok(answer) = wire::NodeGetVolumeStatsResponse::decode(data) else { return };
            let Ok(stats) = csi_convert::stats(answer) else { return };
            assert!(stats.condition.is_none_or(|condition| condition.message.len() <= 1024));
            for usage in stats.bytes.into_iter().chain(stats.inodes) {
                assert!(usage.available >= 0 && usage.total >= 0 && usage.used >= 0);
            }
        }
        2 => {
            let Ok(answer) = wire::NodeExpandVolumeResponse::decode(data) else { return };
            assert!(
                csi_convert::capacity(&answer).is_ok_and(|bytes| bytes >= 0) == (answer.capacity_bytes >= 0)
            );
        }
        _ => {
            let Ok(answer) = wire::NodeGetCapabilitiesResponse::decode(data) else { return };
            let _ = csi_convert::node_capabilities(&answer);
        }
    }
}

/// Any input, with or without the HTTP/2 preface, ends in a response or an error; messages are bounded, and there are no more
/// of them than frames.
pub fn grpc_unary_server(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let sent = if choice % 4 == 0 { data.to_vec() } else { [grpc_unary_server::PREFACE, data].concat() };
    let calls = Cell::new(0);
    let served = grpc_unary_server::serve(tokio::io::join(sent.as_slice(), tokio::io::sink()), |message| {
        calls.set(calls.get() + 1);
        assert!(message.len() <= grpc_unary_server::MAX_MESSAGE_BYTES);
        let answer = if choice % 2 == 0 { Ok(message) } else { Err("refused".to_owned()) };
        async move { answer }
    });
    // Never pends, because all bytes are available.
    if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().build() {
        let ended = runtime.block_on(served);
        // The end of the input ends the connection, so only a client that sends GOAWAY ends it without an error.
        assert!(ended.is_err() || !data.is_empty());
    }
    assert!(calls.get() <= sent.len() / 9, "a call needs a frame");
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_corpus_violates_no_property() {
        fixtures::run_fuzz_corpus(super::TARGETS);
    }
}
