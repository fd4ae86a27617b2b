//! A watch: what is there or was missed, then every change as it happens, with bookmarks between, until its time is over,
//! the server stops, or the client is too slow for its queue.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;
use tokio::sync::mpsc::error::TryRecvError;
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
use crate::store::{Change, Event, From, Revision, Subscription};

/// How long a watch lasts that names no time itself.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(30 * 60);
/// A client may ask for more, and gets this.
const MAX_LIFETIME: Duration = Duration::from_secs(24 * 3600);
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

pub(super) fn watch(call: &Call) -> Result<Response<Body>, ApiError> {
    let selection = Selection::of(call)?;
    let start = Start::of(call)?;
    let api = &call.api;
    let subscription = api.store.watch(call.resource().name, call.target.namespace.as_deref(), start.from);
    let (subscription, failed) = match subscription {
        Ok(subscription) => (Some(subscription), None),
        // As the real server: the watch begins, and its first and only event is the error.
        Err(out) => (None, Some(ApiError::too_old(out.asked, out.oldest))),
    };
    let view = View {
        resource: call.resource(),
        media: call.media.clone(),
        include: Include::parse(call.query.get("includeObject"))?,
        selection,
        columns_sent: false,
        unknown_fields: call.api.behaviour.unknown_fields,
        clock: api.clock.clone(),
    };
    let lifetime = call.query.number("timeoutSeconds")?.filter(|seconds| *seconds > 0);
    let lifetime = lifetime.map_or(DEFAULT_LIFETIME, Duration::from_secs).min(MAX_LIFETIME);
    let mut feed = Feed::new(Arc::clone(api), view, lifetime, start.bookmarks);
    if let Some(error) = failed {
        feed.ready.push_back(line("ERROR", &error.to_value()));
    }
    if let Some(subscription) = subscription {
        feed.begin(subscription, start.announce);
    }
    let frames = stream::unfold(feed, |mut feed| async move {
        let lines = feed.next().await?;
        Some((Ok::<_, hyper::Error>(Frame::data(lines)), feed))
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    *response.status_mut() = StatusCode::OK;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(response::JSON));
    Ok(response)
}

/// Where the watch begins and what it promised to say.
struct Start {
    from: From,
    bookmarks: bool,
    /// Say when everything that was there at the beginning has been sent.
    announce: bool,
}

impl Start {
    fn of(call: &Call) -> Result<Self, ApiError> {
        let bookmarks = call.query.flag("allowWatchBookmarks");
        let revision: Option<Revision> =
            call.query.number("resourceVersion")?.filter(|revision| *revision > 0);
        let match_rule = call.query.get("resourceVersionMatch");
        let Some(initial) = call.query.get("sendInitialEvents") else {
            if match_rule.is_some() {
                let said = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                return Err(ApiError::bad_request(said));
            }
            let from = revision.map_or(From::Everything, From::After);
            return Ok(Self { from, bookmarks, announce: false });
        };
        if match_rule != Some("NotOlderThan") {
            let said = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            return Err(ApiError::bad_request(said));
        }
        if initial == "true" {
            if revision.is_some_and(|revision| revision > call.api.store.revision()) {
                let current = call.api.store.revision();
                return Err(ApiError::too_large_version(revision.unwrap_or_default(), current));
            }
            return Ok(Self { from: From::Everything, bookmarks, announce: bookmarks });
        }
        Ok(Self { from: revision.map_or(From::Now, From::After), bookmarks, announce: false })
    }
}

/// How events are shown to this client.
struct View {
    resource: &'static Resource,
    media: Media,
    include: Include,
    selection: Selection,
    /// Only the first table of a watch names its columns.
    columns_sent: bool,
    unknown_fields: bool,
    clock: Clock,
}

impl View {
    /// An event as this selection sees it: an object that leaves the selection is deleted, one that enters is added.
    fn select(&self, event: &Event) -> Option<(&'static str, Value)> {
        let was = event.previous.as_ref().is_some_and(|previous| self.selection.matches(previous));
        let is = event.change != Change::Deleted && self.selection.matches(&event.object);
        match (was, is) {
            (false, false) => None,
            (false, true) => Some(("ADDED", (*event.object).clone())),
            (true, true) => Some(("MODIFIED", (*event.object).clone())),
            (true, false) if event.change == Change::Deleted => Some(("DELETED", (*event.object).clone())),
            (true, false) => {
                // As it was when it still belonged here, with the revision of the change.
                let mut last = event.previous.as_deref().cloned().unwrap_or_default();
                object::metadata(&mut last)
                    .insert("resourceVersion".to_owned(), Value::String(event.revision.to_string()));
                Some(("DELETED", last))
            }
        }
    }

    fn show(&mut self, kind: &str, object: &Value) -> Bytes {
        let object = negotiation::shown(self.resource, object, self.unknown_fields);
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
    let mut text = json!({"type": kind, "object": object}).to_string();
    text.push('\n');
    Bytes::from(text)
}

/// The state of one running watch.
struct Feed {
    api: Arc<Api>,
    view: View,
    live: Option<Receiver<Event>>,
    /// Lines that can go out at once.
    ready: VecDeque<Bytes>,
    sent_up_to: Revision,
    deadline: Instant,
    bookmarks: Option<Interval>,
}

impl Feed {
    fn new(api: Arc<Api>, view: View, lifetime: Duration, bookmarks: bool) -> Self {
        let every = api.behaviour.bookmark_interval;
        let now = Instant::now();
        Self {
            view,
            live: None,
            ready: VecDeque::new(),
            sent_up_to: 0,
            deadline: now + lifetime,
            bookmarks: bookmarks.then(|| tokio::time::interval_at(now + every, every)),
            api,
        }
    }

    fn begin(&mut self, subscription: Subscription, announce: bool) {
        let Subscription { initial, backlog, live, revision } = subscription;
        for object in initial.iter().filter(|object| self.view.selection.matches(object)).collect::<Vec<_>>()
        {
            let line = self.view.show("ADDED", object);
            self.ready.push_back(line);
        }
        for event in &backlog {
            self.queue(event);
        }
        self.sent_up_to = revision;
        if announce {
            self.ready.push_back(self.view.bookmark(revision, true));
        }
        self.live = Some(live);
    }

    fn queue(&mut self, event: &Event) {
        self.sent_up_to = self.sent_up_to.max(event.revision);
        if let Some((kind, object)) = self.view.select(event) {
            let line = self.view.show(kind, &object);
            self.ready.push_back(line);
        }
    }

    /// The next line; none when the watch is over.
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
                event = live.recv() => self.queue(&event?),
                () = tick(&mut self.bookmarks) => self.mark(),
            }
        }
    }

    /// A bookmark may name a revision only when all events up to it have gone out before.
    fn mark(&mut self) {
        let revision = self.api.store.revision();
        loop {
            match self.live.as_mut().map(Receiver::try_recv) {
                Some(Ok(event)) => self.queue(&event),
                Some(Err(TryRecvError::Empty)) => break,
                // Cut off for being slow: events are missing, so nothing may be promised.
                Some(Err(TryRecvError::Disconnected)) | None => {
                    self.live = None;
                    return;
                }
            }
        }
        self.sent_up_to = self.sent_up_to.max(revision);
        self.ready.push_back(self.view.bookmark(self.sent_up_to, false));
    }
}

async fn tick(interval: &mut Option<Interval>) {
    match interval {
        Some(interval) => drop(interval.tick().await),
        None => std::future::pending().await,
    }
}
