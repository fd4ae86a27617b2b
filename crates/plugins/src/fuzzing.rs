//! Fuzz target (`scripts/fuzz`) of the gRPC server at which device plugins register. What was found once lies in `fuzz/corpus`,
//! and is tried again with every test run.

use std::cell::Cell;

use crate::one_call;

/// A name, which is also that of a corpus, and what is done with each input.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[("grpc_unary_server", grpc_unary_server)];

/// Whatever a client sends, with or without the preface of HTTP/2, ends in an answer or an error; no message is larger than
/// its bound, and there are no more of them than frames can carry.
pub fn grpc_unary_server(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let sent = if choice % 4 == 0 { data.to_vec() } else { [one_call::PREFACE, data].concat() };
    let calls = Cell::new(0);
    let served = one_call::serve(tokio::io::join(sent.as_slice(), tokio::io::sink()), |message| {
        calls.set(calls.get() + 1);
        assert!(message.len() <= one_call::MAX_MESSAGE_BYTES);
        let answer = if choice % 2 == 0 { Ok(message) } else { Err("refused".to_owned()) };
        async move { answer }
    });
    // Nothing here waits: bytes that are there are all there is.
    if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().build() {
        let ended = runtime.block_on(served);
        // The end of the bytes is the end of the connection, so only a client that says goodbye ends it well.
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
