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
use crate::decode::{self, Decoded, Line, MAX_OBJECT};
use crate::error::in_full;

/// Of a line that is longer than [`MAX_OBJECT`], this much is kept: enough for the name and version of its object.
const CUT_LINE: usize = 64 << 10;

/// Changes of objects of this kind. `ends` is when the watch is ended by the client, if the server has not ended it before.
pub(crate) fn changes<K: Decoded>(
    call: String,
    kind: &'static str,
    body: Answer,
    ends: Instant,
) -> Changes<K> {
    let lines = lines(Watch { call: call.clone(), body, ends, lines: Lines::default() });
    Events { call, kind, lines, has_failed: false, decoded: PhantomData }.boxed()
}

/// The lines as changes of one kind, until an error: changes after it may be incomplete.
struct Events<K> {
    call: String,
    kind: &'static str,
    lines: BoxStream<'static, ClusterResult<Line>>,
    has_failed: bool,
    decoded: PhantomData<fn() -> K>,
}

impl<K: Decoded> Stream for Events<K> {
    type Item = ClusterResult<Change<K>>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.has_failed {
            return Poll::Ready(None);
        }
        let line = ready!(self.lines.poll_next_unpin(context));
        let event = line.map(|line| line.and_then(|line| decode::event(&self.call, self.kind, &line)));
        self.has_failed = matches!(event, Some(Err(_)));
        Poll::Ready(event)
    }
}

fn lines(watch: Watch) -> BoxStream<'static, ClusterResult<Line>> {
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
    async fn next(&mut self) -> Option<ClusterResult<Line>> {
        loop {
            while let Some(line) = self.lines.next() {
                if !line.json.trim_ascii().is_empty() {
                    return Some(Ok(line));
                }
            }
            if self.lines.is_endless() {
                let message = format!("a watch event is larger than {} MiB", MAX_OBJECT >> 20);
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

/// Splits received bytes into lines. Of a line that is too long, only the beginning is kept.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// The beginning of a line, or several lines.
    buffer: BytesMut,
    /// Length of the part of the buffer that has no end of line.
    searched: usize,
    /// The beginning of the line that is being skipped.
    cut: Option<Bytes>,
}

impl Lines {
    pub(crate) fn feed(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// The next line, with its end.
    pub(crate) fn next(&mut self) -> Option<Line> {
        let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
        if let Some(end) = unsearched.iter().position(|byte| *byte == b'\n') {
            let line = self.buffer.split_to(self.searched + end + 1);
            self.searched = 0;
            return Some(match self.cut.take() {
                Some(json) => Line { json, is_cut: true },
                None if line.len() > MAX_OBJECT => Line { json: beginning(&line), is_cut: true },
                None => Line { json: line.freeze(), is_cut: false },
            });
        }
        self.searched = self.buffer.len();
        if self.cut.is_some() || self.buffer.len() > MAX_OBJECT {
            self.cut.get_or_insert_with(|| beginning(&self.buffer));
            (self.buffer, self.searched) = (BytesMut::new(), 0);
        }
        None
    }

    /// The incomplete last line is too long, and does not begin like an event about an object.
    fn is_endless(&self) -> bool {
        self.cut.as_deref().is_some_and(|beginning| !decode::is_about_an_object(beginning))
    }

    /// The incomplete last line, as far as it is kept.
    pub(crate) fn rest(&self) -> &[u8] {
        self.cut.as_deref().unwrap_or(&self.buffer)
    }
}

fn beginning(line: &[u8]) -> Bytes {
    Bytes::copy_from_slice(line.get(..CUT_LINE).unwrap_or(line))
}
