//! One watch of a client that reads each event by itself: what client-go's reflector and kube-rs' watcher build on.

use std::collections::BTreeMap;

use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tokio::time::timeout;

use crate::server::TIMEOUT;

/// A running watch.
pub(crate) struct Watch {
    body: Body,
    text: Vec<u8>,
}

impl Watch {
    /// `path` has at least one parameter, to which `watch` is added.
    pub(crate) async fn open(client: &Client, path: &str) -> Self {
        let request =
            http::Request::get(format!("{path}&watch=true")).body(Body::empty()).expect("a request");
        let response = timeout(TIMEOUT, client.send(request)).await.expect("in time").expect("an answer");
        assert_eq!(response.status(), 200, "{path}");
        Self { body: response.into_body(), text: Vec::new() }
    }

    /// The next event; `None` at the end of the watch.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        let line = self.next_line().await?;
        Some(serde_json::from_slice(&line).expect("an event"))
    }

    /// The text of the next event.
    pub(crate) async fn next_line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                return Some(self.text.drain(..=end).collect());
            }
            let frame = timeout(TIMEOUT, self.body.frame()).await.expect("an event in time")?;
            self.text.extend_from_slice(&frame.expect("a frame").into_data().unwrap_or_default());
        }
    }

    /// The next event as `TYPE name`.
    pub(crate) async fn line(&mut self) -> String {
        let event = self.next().await.expect("an event");
        format!("{} {}", event["type"].as_str().unwrap_or_default(), name(&event["object"]))
    }

    /// All events until the watch ends.
    pub(crate) async fn rest(mut self) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// The resourceVersion of an object or a list.
pub(crate) fn version(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("a resourceVersion: {object}"))
}

/// The objects that a client knows, which checks that each event follows from what it knows.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) objects: BTreeMap<String, Value>,
    pub(crate) version: u64,
}

impl Known {
    pub(crate) fn of_list(list: &Value) -> Self {
        let items = list["items"].as_array().expect("items");
        let objects = items.iter().map(|item| (name(item).to_owned(), item.clone())).collect();
        Self { objects, version: version(list) }
    }

    /// Takes an event, which is newer than all before.
    pub(crate) fn apply(&mut self, event: &Value) {
        let (kind, mut object) = (event["type"].as_str().unwrap_or_default(), event["object"].clone());
        let new = version(&object);
        assert!(new > self.version, "version {} is followed by {event}", self.version);
        self.version = new;
        // The items of a list have neither.
        let fields = object.as_object_mut().expect("an object");
        fields.remove("kind");
        fields.remove("apiVersion");
        let name = name(&object).to_owned();
        let was_known = match kind {
            "DELETED" => self.objects.remove(&name).is_some(),
            _ => self.objects.insert(name, object).is_some(),
        };
        assert_eq!(was_known, kind != "ADDED", "{event}");
    }
}
