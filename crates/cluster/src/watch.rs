//! The stream of changes of a watch: one JSON object a line.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use http_body_util::BodyExt;
use ports::cluster::{Change, Changes, ClusterError, ClusterResult};
use tokio::time::Instant;

use crate::connection::Answer;
use crate::decode::{self, Object};
use crate::error::in_full;

/// Limit for one line in bytes. Objects in etcd have at most 1.5 MiB.
const MAX_LINE: usize = 8 << 20;

/// `ends` is when the watch is ended by the client, if the server has not ended it before.
pub(crate) fn changes<K: Object>(call: String, body: Answer, ends: Instant) -> Changes<K> {
    let lines = lines(Watch { call: call.clone(), body, ends, lines: Lines::default() });
    Events { call, lines, has_failed: false, kind: PhantomData }.boxed()
}

/// The lines as changes of one kind, until one is malformed: changes after an error may be incomplete.
struct Events<K> {
    call: String,
    lines: BoxStream<'static, ClusterResult<Bytes>>,
    has_failed: bool,
    kind: PhantomData<fn() -> K>,
}

impl<K: Object> Stream for Events<K> {
    type Item = ClusterResult<Change<K>>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.has_failed {
            return Poll::Ready(None);
        }
        let line = ready!(self.lines.poll_next_unpin(context));
        let event = line.map(|line| line.and_then(|line| decode::event(&self.call, &line)));
        self.has_failed = matches!(event, Some(Err(_)));
        Poll::Ready(event)
    }
}

fn lines(watch: Watch) -> BoxStream<'static, ClusterResult<Bytes>> {
    futures_util::stream::unfold(watch, |mut watch| async move {
        let line = watch.next().await?;
        Some((line, watch))
    })
    .boxed()
}

struct Watch {
    call: String,
    body: Answer,
    ends: Instant,
    lines: Lines,
}

impl Watch {
    /// The next line that is not empty.
    async fn next(&mut self) -> Option<ClusterResult<Bytes>> {
        loop {
            while let Some(line) = self.lines.next() {
                if !line.trim_ascii().is_empty() {
                    return Some(Ok(line));
                }
            }
            if self.lines.rest().len() > MAX_LINE {
                let message = format!("a watch event is larger than {} MiB", MAX_LINE >> 20);
                return Some(Err(ClusterError::Failed { call: self.call.clone(), code: 200, message }));
            }
            let frame = match tokio::time::timeout_at(self.ends, self.body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => return Some(Err(self.broken(in_full(&error)))),
                Ok(None) if self.lines.rest().trim_ascii().is_empty() => return None,
                Ok(None) => {
                    return Some(Err(self.broken("the watch ended in the middle of an event".to_owned())));
                }
                Err(_) => return None,
            };
            if let Ok(data) = frame.into_data() {
                self.lines.feed(&data);
            }
        }
    }

    fn broken(&self, message: String) -> ClusterError {
        ClusterError::Unreachable { call: self.call.clone(), message }
    }
}

/// Splits received bytes into lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// The beginning of a line, or several lines.
    buffer: BytesMut,
    /// Length of the part of the buffer that has no end of line.
    searched: usize,
}

impl Lines {
    pub(crate) fn feed(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// The next line, with its end.
    pub(crate) fn next(&mut self) -> Option<Bytes> {
        let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
        match unsearched.iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                let line = self.buffer.split_to(self.searched + end + 1);
                self.searched = 0;
                Some(line.freeze())
            }
            None => {
                self.searched = self.buffer.len();
                None
            }
        }
    }

    /// The incomplete last line.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.buffer
    }
}
