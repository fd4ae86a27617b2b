//! The events that the recorder recorded lately: those in the trails of pods, and those about the node.

use model::PodRef;
use model::explain::TrailStep;
use model::inventory::{EventItem, Inventory, PodSelection};

use crate::serving::explain::selected;
use crate::serving::pod_lookup::PodLookup;

pub(super) fn list(lookup: &PodLookup, of: &PodSelection) -> Inventory<EventItem> {
    let trails = &lookup.ctx.recorder.trails;
    let mut items: Vec<EventItem> = Vec::new();
    for entry in selected(lookup, of) {
        let steps = trails.of(&entry.identity.uid).0;
        items.extend(merged(steps, |step| of_pod(&entry.identity, step)));
    }
    if *of == PodSelection::default() {
        let node = &lookup.ctx.settings.node_name;
        items.extend(merged(trails.of_node(), |step| of_node(node, step)));
    }
    items.sort_by_key(|item| item.last_seen);
    items.into()
}

/// A trail has the first time and the latest of what happened again and again: with the same message they are one event.
fn merged(steps: Vec<TrailStep>, show: impl Fn(TrailStep) -> EventItem) -> Vec<EventItem> {
    let mut items: Vec<EventItem> = Vec::new();
    for step in steps.into_iter().filter(|step| step.is_event) {
        let item = show(step);
        let same = |known: &&mut EventItem| {
            (&known.reason, &known.container, &known.message)
                == (&item.reason, &item.container, &item.message)
        };
        match items.iter_mut().find(same) {
            Some(known) => {
                known.count = known.count.saturating_add(item.count);
                known.last_seen = item.last_seen;
            }
            None => items.push(item),
        }
    }
    items
}

fn of_pod(pod: &PodRef, step: TrailStep) -> EventItem {
    EventItem {
        kind: "Pod".to_owned(),
        namespace: pod.namespace.to_string(),
        name: pod.name.to_string(),
        container: step.container.clone(),
        ..event(step)
    }
}

/// A step with a name in the place of the container's is about a PersistentVolume.
fn of_node(node: &str, mut step: TrailStep) -> EventItem {
    let (kind, name) = match step.container.take() {
        Some(volume) => ("PersistentVolume", volume),
        None => ("Node", node.to_owned()),
    };
    EventItem { kind: kind.to_owned(), name, ..event(step) }
}

fn event(step: TrailStep) -> EventItem {
    EventItem {
        event_type: if step.is_warning { "Warning" } else { "Normal" }.to_owned(),
        reason: step.reason,
        message: step.message,
        first_seen: step.began,
        last_seen: step.began,
        count: step.count,
        ..EventItem::default()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn first_and_latest_of_a_repeated_event_are_one_and_other_steps_are_none() {
        let step = |reason: &str, message: &str, second: i64, count: u32| TrailStep {
            reason: reason.to_owned(),
            message: message.to_owned(),
            began: Timestamp::from_second(second).unwrap(),
            count,
            is_event: reason != "Accepted",
            ..TrailStep::default()
        };
        let steps = vec![
            step("Accepted", "", 1, 1),
            step("BackOff", "wait", 2, 1),
            step("Failed", "a", 3, 1),
            step("BackOff", "wait", 9, 7),
            step("Failed", "b", 10, 2),
        ];
        let items = merged(steps, |step| of_pod(&PodRef::new("default", "web", "u"), step));
        let shown: Vec<String> = items
            .iter()
            .map(|item| {
                let (first, last) = (item.first_seen.as_second(), item.last_seen.as_second());
                format!("{} {} {first}-{last} x{}", item.reason, item.message, item.count)
            })
            .collect();
        assert_eq!(shown, ["BackOff wait 2-9 x8", "Failed a 3-3 x1", "Failed b 10-10 x2"]);
    }
}
