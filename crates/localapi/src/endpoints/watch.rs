//! A watch: existing objects or missed changes first, then new changes and bookmarks, until the timeout, the stop of the
//! server, or the overflow of its queue.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::time::{Instant, Interval};

use super::negotiation::{self, Include, Media};
use super::selection::Selection;
use super::{Call, response};
use crate::api::Api;
use crate::clock::Clock;
use crate::http::Body;
use crate::object;
use crate::resources::Resource;
use crate::status::ApiError;
use crate::store::{Change, From, Item, Nothing, Receiver, Revision, Stored, StoredEvent, Subscription};

/// The timeout of a watch that specifies none.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(30 * 60);
/// The longest timeout that a client can set.
const MAX_LIFETIME: Duration = Duration::from_secs(24 * 3600);
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

pub(super) fn watch(call: &Call) -> Result<Response<Body>, ApiError> {
    call.check_watch_options()?;
    let selection = Selection::of(call)?;
    let start = Start::of(call)?;
    let api = &call.api;
    let subscription = api.store.watch(call.resource().name, call.info.namespace.as_deref(), start.from);
    let (subscription, failed) = match subscription {
        Ok(subscription) => (Some(subscription), None),
        // As in the real server, the error is the first and only event of the watch.
        Err(out) => (None, Some(ApiError::too_old(out.requested, out.oldest))),
    };
    let view = View {
        resource: call.resource(),
        media: call.media.clone(),
        include: Include::parse(call.query.get("includeObject"))?,
        selection,
        columns_sent: false,
        writes_text: call.writes_text(),
        unknown_fields: call.api.behaviour.unknown_fields,
        clock: api.clock.clone(),
    };
    let lifetime = call.query.number("timeoutSeconds")?.and_then(|seconds| u64::try_from(seconds).ok());
    let lifetime = lifetime.filter(|seconds| *seconds > 0);
    let lifetime = lifetime.map_or(DEFAULT_LIFETIME, Duration::from_secs).min(MAX_LIFETIME);
    let mut watch_stream = WatchStream::new(Arc::clone(api), view, lifetime, start.bookmarks);
    if let Some(error) = failed {
        watch_stream.ready.push_back(line("ERROR", &error.to_value()));
    }
    if let Some(subscription) = subscription {
        watch_stream.begin(subscription, start.initial_events_end);
    }
    let frames = stream::unfold(watch_stream, |mut watch_stream| async move {
        let lines = watch_stream.next().await?;
        Some((Ok::<_, hyper::Error>(Frame::data(lines)), watch_stream))
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    *response.status_mut() = StatusCode::OK;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(response::JSON));
    Ok(response)
}

/// The start of a watch, and the bookmarks that it sends.
struct Start {
    from: From,
    bookmarks: bool,
    /// Send a bookmark after the initial objects.
    initial_events_end: bool,
}

impl Start {
    fn of(call: &Call) -> Result<Self, ApiError> {
        let bookmarks = call.query.flag("allowWatchBookmarks");
        let revision = call.revision()?;
        let Some(initial) = call.query.get("sendInitialEvents") else {
            let from = revision.map_or(From::Everything, From::After);
            return Ok(Self { from, bookmarks, initial_events_end: false });
        };
        if initial == "true" {
            call.refuse_future(revision)?;
            return Ok(Self { from: From::Everything, bookmarks, initial_events_end: bookmarks });
        }
        Ok(Self { from: revision.map_or(From::Now, From::After), bookmarks, initial_events_end: false })
    }
}

/// The object of an event.
enum Shown {
    Stored(Arc<Stored>),
    Tree(Value),
}

/// How events are written for this client.
struct View {
    resource: &'static Resource,
    media: Media,
    include: Include,
    selection: Selection,
    /// Only the first table of a watch contains the column definitions.
    columns_sent: bool,
    /// Objects are sent as they are stored.
    writes_text: bool,
    unknown_fields: bool,
    clock: Clock,
}

impl View {
    /// The event within the selection: an object that leaves the selection is deleted, one that enters it is added.
    fn select(&self, event: &StoredEvent) -> Option<(&'static str, Shown)> {
        let was = event.previous.as_ref().is_some_and(|previous| self.selection.includes(previous));
        let is = event.change != Change::Deleted && self.selection.includes(&event.object);
        let object = || Shown::Stored(Arc::clone(&event.object));
        match (was, is) {
            (false, false) => None,
            (false, true) => Some(("ADDED", object())),
            (true, true) => Some(("MODIFIED", object())),
            (true, false) if event.change == Change::Deleted => Some(("DELETED", object())),
            (true, false) => {
                // The last state that matched the selection, with the revision of the change.
                let previous = event.previous.as_ref().map(|previous| previous.tree());
                let mut last = previous.as_deref().cloned().unwrap_or_default();
                object::set_resource_version(&mut last, event.revision);
                Some(("DELETED", Shown::Tree(last)))
            }
        }
    }

    fn write(&mut self, kind: &str, object: &Shown) -> Bytes {
        match object {
            Shown::Stored(object) if self.writes_text => text_line(kind, object.text()),
            Shown::Stored(object) => self.write_tree(kind, &object.tree()),
            Shown::Tree(object) => self.write_tree(kind, object),
        }
    }

    fn write_tree(&mut self, kind: &str, object: &Value) -> Bytes {
        let object = negotiation::converted(self.resource, object, self.unknown_fields);
        match &self.media {
            Media::Object => line(kind, &object),
            Media::Metadata(version) => line(kind, &negotiation::metadata_only(&object, version)),
            Media::Table(version) => {
                let objects = [object.into_owned()];
                let mut table =
                    negotiation::as_table(self.resource, &objects, version, self.include, self.clock.now());
                table["metadata"] = json!({"resourceVersion": objects[0]["metadata"]["resourceVersion"]});
                if std::mem::replace(&mut self.columns_sent, true) {
                    table["columnDefinitions"] = Value::Null;
                }
                line(kind, &table)
            }
        }
    }

    fn bookmark(&self, revision: Revision, end_of_initial: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if end_of_initial {
            metadata["annotations"] = json!({INITIAL_EVENTS_END: "true"});
        }
        let (api_version, kind) = match &self.media {
            Media::Object => (self.resource.api_version(), self.resource.kind),
            Media::Table(version) => (format!("meta.k8s.io/{version}"), "Table"),
            Media::Metadata(version) => (format!("meta.k8s.io/{version}"), "PartialObjectMetadata"),
        };
        line("BOOKMARK", &json!({"kind": kind, "apiVersion": api_version, "metadata": metadata}))
    }
}

fn line(kind: &str, object: &Value) -> Bytes {
    text_line(kind, object.to_string().as_bytes())
}

/// One event; its type needs no escapes.
fn text_line(kind: &str, object: &[u8]) -> Bytes {
    [b"{\"type\":\"", kind.as_bytes(), b"\",\"object\":", object, b"}\n"].concat().into()
}

/// The state of one running watch.
struct WatchStream {
    api: Arc<Api>,
    view: View,
    live: Option<Receiver>,
    /// Existing objects that are not sent yet, if a bookmark is to come after them.
    existing: Option<usize>,
    /// Lines that are ready to be sent: one event with its bookmark at most, because what is sent later stays in the queue of the store.
    ready: VecDeque<Bytes>,
    sent_up_to: Revision,
    deadline: Instant,
    bookmarks: Option<Interval>,
}

impl WatchStream {
    fn new(api: Arc<Api>, view: View, lifetime: Duration, bookmarks: bool) -> Self {
        let every = api.behaviour.bookmark_interval;
        let now = Instant::now();
        Self {
            view,
            live: None,
            existing: None,
            ready: VecDeque::new(),
            sent_up_to: 0,
            deadline: now + lifetime,
            bookmarks: bookmarks.then(|| tokio::time::interval_at(now + every, every)),
            api,
        }
    }

    fn begin(&mut self, subscription: Subscription, initial_events_end: bool) {
        self.sent_up_to = subscription.revision;
        self.existing = initial_events_end.then_some(subscription.existing);
        self.live = Some(subscription.live);
        self.end_existing();
    }

    fn queue(&mut self, item: &Item) {
        let selected = match item {
            Item::Existing(object) => {
                let is_shown = self.view.selection.includes(object);
                is_shown.then(|| ("ADDED", Shown::Stored(Arc::clone(object))))
            }
            Item::Event(event) => {
                self.sent_up_to = self.sent_up_to.max(event.revision);
                self.view.select(event)
            }
        };
        if let Some((kind, object)) = selected {
            let line = self.view.write(kind, &object);
            self.ready.push_back(line);
        }
        if let (Item::Existing(_), Some(left)) = (item, self.existing.as_mut()) {
            *left = left.saturating_sub(1);
            self.end_existing();
        }
    }

    /// Queues the bookmark after the last existing object.
    fn end_existing(&mut self) {
        if self.existing == Some(0) {
            self.existing = None;
            self.ready.push_back(self.view.bookmark(self.sent_up_to, true));
        }
    }

    /// The next line; `None` at the end of the watch.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(line);
            }
            let live = self.live.as_mut()?;
            tokio::select! {
                biased;
                () = self.api.closing.cancelled() => return None,
                () = tokio::time::sleep_until(self.deadline) => return None,
                item = live.recv() => self.queue(&item?),
                () = tick(&mut self.bookmarks) => self.queue_bookmark(),
            }
        }
    }

    /// Queues a bookmark of the present revision, if everything up to it is sent: otherwise events come instead.
    fn queue_bookmark(&mut self) {
        let revision = self.api.store.revision();
        match self.live.as_mut().map(Receiver::try_recv) {
            Some(Ok(item)) => self.queue(&item),
            Some(Err(Nothing::Empty)) => {
                self.sent_up_to = self.sent_up_to.max(revision);
                self.ready.push_back(self.view.bookmark(self.sent_up_to, false));
            }
            // The store closed a slow watcher: events are missing, so no bookmark may be sent.
            Some(Err(Nothing::Closed)) | None => self.live = None,
        }
    }
}

async fn tick(interval: &mut Option<Interval>) {
    match interval {
        Some(interval) => drop(interval.tick().await),
        None => std::future::pending().await,
    }
}
