//! The volumes that this node uses or is about to use, for `volumesInUse` in the status of the Node: the attach/detach
//! controller does not detach them.
//!
//! Owns: the set of their names and which of them the API has. Never: what is mounted, or writing the status.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::watch;

/// Volumes of one node, with a margin over what drivers and pods allow.
const MAX_VOLUMES: usize = 8192;

/// A handle; clones share the set. Every task may use it.
#[derive(Clone, Debug)]
pub struct VolumesInUse {
    state: watch::Sender<State>,
}

#[derive(Debug, Default)]
struct State {
    wanted: Arc<BTreeSet<String>>,
    /// `wanted` has every volume of an earlier run: names that only the API has are not in use any more.
    is_complete: bool,
    /// Those of `wanted` that the API has.
    reported: BTreeSet<String>,
}

/// What the status is to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedVolumes {
    pub names: Arc<BTreeSet<String>>,
    pub is_complete: bool,
}

impl Default for VolumesInUse {
    fn default() -> Self {
        Self { state: watch::Sender::new(State::default()) }
    }
}

impl VolumesInUse {
    /// The volume is in use from now on, before it is attached; idempotent.
    ///
    /// # Errors
    /// The node uses too many volumes.
    pub fn add(&self, unique_name: &str) -> Result<(), String> {
        let mut is_full = false;
        self.state.send_if_modified(|state| {
            is_full = state.wanted.len() >= MAX_VOLUMES && !state.wanted.contains(unique_name);
            !is_full && Arc::make_mut(&mut state.wanted).insert(unique_name.to_owned())
        });
        if is_full {
            return Err(format!("volume {unique_name} cannot be used: {MAX_VOLUMES} volumes are in use"));
        }
        Ok(())
    }

    /// The volume is unmounted from its node-wide place and may be detached; idempotent.
    pub fn remove(&self, unique_name: &str) {
        self.state.send_if_modified(|state| {
            // A volume that is added again later must be reported again.
            state.reported.remove(unique_name);
            state.wanted.contains(unique_name) && Arc::make_mut(&mut state.wanted).remove(unique_name)
        });
    }

    /// Every volume that was in use when the kubelet started has been added. Until then the names in the API stay.
    pub fn complete(&self) {
        self.state.send_if_modified(|state| !std::mem::replace(&mut state.is_complete, true));
    }

    /// Waits until the API has a status of this node with the volume. Cancel safe.
    pub async fn reported(&self, unique_name: &str) {
        let mut state = self.state.subscribe();
        // The sender lives as long as `self`.
        let _ = state.wait_for(|state| state.reported.contains(unique_name)).await;
    }

    pub fn wanted(&self) -> WantedVolumes {
        let state = self.state.borrow();
        WantedVolumes { names: state.wanted.clone(), is_complete: state.is_complete }
    }

    /// Notifies of changes; also of reports.
    pub fn changes(&self) -> VolumeChanges {
        VolumeChanges(self.state.subscribe())
    }

    /// The API has a status of this node with these volumes. A volume that was removed meanwhile does not count: the next
    /// status, which may be under way, will not have it.
    pub fn record_reported(&self, names: &[String]) {
        self.state.send_if_modified(|state| {
            let reported: BTreeSet<String> =
                names.iter().filter(|name| state.wanted.contains(*name)).cloned().collect();
            let is_new = reported != state.reported;
            state.reported = reported;
            is_new
        });
    }
}

/// Waits for changes of the set.
#[derive(Debug)]
pub struct VolumeChanges(watch::Receiver<State>);

impl VolumeChanges {
    pub fn mark_unchanged(&mut self) {
        self.0.mark_unchanged();
    }

    /// Cancel safe.
    pub async fn changed(&mut self) -> Result<(), watch::error::RecvError> {
        self.0.changed().await
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn volume_is_reported_once_a_status_with_it_is_in_the_api() {
        let in_use = VolumesInUse::default();
        in_use.add("a").unwrap();
        assert!(in_use.reported("a").now_or_never().is_none());
        in_use.record_reported(&names(&["b"]));
        assert!(in_use.reported("a").now_or_never().is_none());
        in_use.record_reported(&names(&["a", "b"]));
        assert!(in_use.reported("a").now_or_never().is_some());
        assert!(in_use.reported("b").now_or_never().is_none(), "b is not in use");
    }

    #[test]
    fn removed_and_added_volume_is_reported_again() {
        let in_use = VolumesInUse::default();
        in_use.add("a").unwrap();
        in_use.record_reported(&names(&["a"]));
        in_use.remove("a");
        // The answer to a status from before the removal.
        in_use.record_reported(&names(&["a"]));
        in_use.add("a").unwrap();
        assert!(in_use.reported("a").now_or_never().is_none());
        in_use.record_reported(&names(&["a"]));
        assert!(in_use.reported("a").now_or_never().is_some());
    }

    #[test]
    fn only_changes_wake_the_node_status() {
        let in_use = VolumesInUse::default();
        let mut changes = in_use.changes();
        let mut is_woken = |what: &dyn Fn()| {
            changes.mark_unchanged();
            what();
            changes.changed().now_or_never().is_some()
        };
        assert!(is_woken(&|| in_use.add("a").unwrap()));
        assert!(!is_woken(&|| in_use.add("a").unwrap()));
        assert!(is_woken(&|| in_use.complete()));
        assert!(!is_woken(&|| in_use.complete()));
        assert!(!is_woken(&|| in_use.remove("b")));
        assert!(is_woken(&|| in_use.remove("a")));
        assert_eq!(in_use.wanted(), WantedVolumes { names: Arc::default(), is_complete: true });
    }

    #[test]
    fn volumes_in_use_are_bounded() {
        let in_use = VolumesInUse::default();
        for n in 0..MAX_VOLUMES {
            in_use.add(&n.to_string()).unwrap();
        }
        assert!(in_use.add("7").is_ok());
        assert!(in_use.add("one more").is_err());
    }
}
