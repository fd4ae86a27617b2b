//! Fuzz target (`scripts/fuzz`) of the gRPC server for registrations of device plugins. Inputs that were found once are in
//! `fuzz/corpus`, and are run again with every test run.

use std::cell::Cell;

use crate::grpc_unary_server;

/// A name, which is also that of a corpus, and the function to run with each input.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[("grpc_unary_server", grpc_unary_server)];

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
        testing::run_fuzz_corpus(super::TARGETS);
    }
}
