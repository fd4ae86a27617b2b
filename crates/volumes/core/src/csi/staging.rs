//! Which volumes are staged on this node, for which pods, and when one that no pod uses any more is unstaged.
//!
//! ```text
//!            first user                     last user leaves
//!   (absent) ----------> used, maybe staged ---------------> unstage due --> under way --> (absent)
//!                              ^    a user comes back            ^               | fails
//!                              `------------------------------- failed <---------'
//! ```
//! A user is added before anything is on disk, and removed after its files are gone. What a restarted kubelet finds on disk is added
//! in the same way, without knowing whether it was staged completely: then the driver is asked again, which does no harm.
//! Never: calling a driver, which is `agent::volumes::csi`.

use std::collections::BTreeMap;

use model::{MonoTime, PodUid};

use crate::engine::wait_after;
use crate::selinux::VolumeLabel;

/// A volume as its driver stages it: filesystems by handle, devices by PersistentVolume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StagedVolume {
    pub driver: String,
    pub handle: String,
    /// The name of the PersistentVolume of a device.
    pub device: Option<String>,
}

/// A volume of a pod, by the name of its directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VolumeUser {
    pub pod: PodUid,
    pub name: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Unstage {
    #[default]
    Idle,
    UnderWay {
        failures: u32,
    },
    Failed {
        failures: u32,
        until: MonoTime,
    },
}

/// The SELinux label of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Label {
    /// No user has one, or what is on disk does not say.
    #[default]
    Unknown,
    /// As found on disk.
    Found(String),
    /// That of its first user.
    Of(VolumeLabel),
}

/// What follows from the SELinux label that a user wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Labelled {
    /// The volume gets the label.
    First,
    /// It has that label, or will get it.
    Same,
    /// It has another label. Unless `is_refused`, the volume is used all the same.
    Conflict { known: Option<String>, is_refused: bool },
    /// It is still mounted with another label, and is unstaged first.
    Unstaging,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entry {
    /// Whether the volume is, or may be, published to each of them.
    users: BTreeMap<VolumeUser, bool>,
    label: Label,
    /// The driver has confirmed it since this kubelet started.
    is_staged: bool,
    unstage: Unstage,
}

/// The volumes that are, or may be, staged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Staging {
    volumes: BTreeMap<StagedVolume, Entry>,
}

impl Staging {
    /// The pod is about to use the volume, or uses it.
    pub fn add_user(&mut self, volume: &StagedVolume, user: VolumeUser) {
        self.volumes.entry(volume.clone()).or_default().users.entry(user).or_default();
    }

    /// The driver is about to publish the volume to the user, or certainly did not.
    pub fn set_published(&mut self, volume: &StagedVolume, user: &VolumeUser, is_published: bool) {
        let entry = self.volumes.get_mut(volume);
        if let Some(known) = entry.and_then(|entry| entry.users.get_mut(user)) {
            *known = is_published;
        }
    }

    /// A volume of a pod was found on disk.
    pub fn add_found_user(&mut self, volume: &StagedVolume, user: VolumeUser) {
        self.volumes.entry(volume.clone()).or_default().users.insert(user, true);
    }

    /// As [`Self::add_user`] on a node with SELinux. `is_enforced`: the volume is mounted with a label, so that a pod that wants
    /// another one cannot use it.
    pub fn add_labelled_user(
        &mut self,
        volume: &StagedVolume,
        user: VolumeUser,
        wanted: &VolumeLabel,
        is_enforced: bool,
    ) -> Labelled {
        let Some(entry) = self.volumes.get_mut(volume) else {
            let entry =
                Entry { users: [(user, false)].into(), label: Label::Of(wanted.clone()), ..Entry::default() };
            self.volumes.insert(volume.clone(), entry);
            return Labelled::First;
        };
        let outcome = entry.compare(&user, wanted, is_enforced);
        match &outcome {
            Labelled::First => entry.label = Label::Of(wanted.clone()),
            Labelled::Conflict { is_refused: true, .. } | Labelled::Unstaging => return outcome,
            Labelled::Same | Labelled::Conflict { is_refused: false, .. } => {
                if entry.label == Label::Unknown {
                    let wanted = wanted.wanted.clone();
                    entry.label = Label::Of(VolumeLabel { mount: None, wanted });
                }
            }
        }
        entry.users.entry(user).or_default();
        outcome
    }

    /// The label with which the volume is mounted.
    #[must_use]
    pub fn label(&self, volume: &StagedVolume) -> Option<&str> {
        self.volumes.get(volume).and_then(|entry| entry.label.mounted())
    }

    /// A volume was found on disk that was staged or published with that label.
    pub fn set_found_label(&mut self, volume: &StagedVolume, label: String) {
        if let Some(entry) = self.volumes.get_mut(volume).filter(|entry| entry.label == Label::Unknown) {
            entry.label = Label::Found(label);
        }
    }

    /// A staged volume was found on disk; who uses it is added apart.
    pub fn add_found(&mut self, volume: StagedVolume) {
        self.volumes.entry(volume).or_default();
    }

    /// The volume of the pod is gone from disk.
    pub fn remove_user(&mut self, volume: &StagedVolume, user: &VolumeUser) {
        if let Some(entry) = self.volumes.get_mut(volume) {
            entry.users.remove(user);
        }
    }

    /// Everything that the pod used is gone from disk.
    pub fn remove_pod(&mut self, pod: &PodUid) {
        for entry in self.volumes.values_mut() {
            entry.users.retain(|user, _| user.pod != *pod);
        }
    }

    /// The driver staged the volume, or it is not known any more whether it is staged.
    pub fn set_staged(&mut self, volume: &StagedVolume, is_staged: bool) {
        if let Some(entry) = self.volumes.get_mut(volume) {
            entry.is_staged = is_staged;
        }
    }

    #[must_use]
    pub fn is_staged(&self, volume: &StagedVolume) -> bool {
        self.volumes.get(volume).is_some_and(|entry| entry.is_staged)
    }

    #[must_use]
    pub fn is_used(&self, volume: &StagedVolume) -> bool {
        self.volumes.get(volume).is_some_and(|entry| !entry.users.is_empty())
    }

    /// Another pod has the volume, or may have it.
    #[must_use]
    pub fn is_published_elsewhere(&self, volume: &StagedVolume, pod: &PodUid) -> bool {
        let entry = self.volumes.get(volume);
        entry.is_some_and(|entry| {
            entry.users.iter().any(|(user, is_published)| *is_published && user.pod != *pod)
        })
    }

    /// The pod uses some of the volumes.
    #[must_use]
    pub fn is_used_by(&self, pod: &PodUid) -> bool {
        self.volumes.values().any(|entry| entry.users.keys().any(|user| user.pod == *pod))
    }

    #[must_use]
    pub fn volumes(&self) -> Vec<StagedVolume> {
        self.volumes.keys().cloned().collect()
    }

    /// Some volume of the driver is staged or used.
    #[must_use]
    pub fn has_volumes_of(&self, driver: &str) -> bool {
        self.volumes.keys().any(|volume| volume.driver == driver)
    }

    /// The volumes to unstage now; each is under way until [`Self::unstage_ended`].
    pub fn take_due(&mut self, now: MonoTime) -> Vec<StagedVolume> {
        let mut due = Vec::new();
        for (volume, entry) in &mut self.volumes {
            if let Some(failures) = entry.due(now) {
                entry.unstage = Unstage::UnderWay { failures };
                due.push(volume.clone());
            }
        }
        due
    }

    /// Returns whether nothing is left of the volume. One that failed is repeated after a while, unless a pod uses it then.
    pub fn unstage_ended(&mut self, volume: &StagedVolume, is_gone: bool, now: MonoTime) -> bool {
        let Some(entry) = self.volumes.get_mut(volume) else { return true };
        let Unstage::UnderWay { failures } = entry.unstage else { return false };
        entry.is_staged = false;
        if is_gone {
            entry.unstage = Unstage::Idle;
            if entry.users.is_empty() {
                self.volumes.remove(volume);
                return true;
            }
        } else {
            let failures = failures.saturating_add(1);
            entry.unstage = Unstage::Failed { failures, until: now + wait_after(failures) };
        }
        false
    }

    /// A driver is back: what failed is repeated at once.
    pub fn retry(&mut self) {
        for entry in self.volumes.values_mut() {
            if matches!(entry.unstage, Unstage::Failed { .. }) {
                entry.unstage = Unstage::Idle;
            }
        }
    }

    /// When [`Self::take_due`] has something next; `None` if only an event changes that.
    #[must_use]
    pub fn wake_at(&self) -> Option<MonoTime> {
        let unused = self.volumes.values().filter(|entry| entry.users.is_empty());
        let times = unused.filter_map(|entry| match entry.unstage {
            Unstage::Idle => Some(MonoTime::ZERO),
            Unstage::Failed { until, .. } => Some(until),
            Unstage::UnderWay { .. } => None,
        });
        times.min()
    }
}

impl Label {
    fn mounted(&self) -> Option<&str> {
        match self {
            Self::Unknown => None,
            Self::Found(label) => Some(label),
            Self::Of(label) => label.mount.as_deref(),
        }
    }
}

impl Entry {
    /// What it means that this user wants that label.
    fn compare(&self, user: &VolumeUser, wanted: &VolumeLabel, is_enforced: bool) -> Labelled {
        let (mounted, known, compared) = match &self.label {
            Label::Unknown => (None, wanted.wanted.as_ref(), wanted.wanted.as_ref()),
            // What it wants besides is not known of a volume that was found.
            Label::Found(label) => (Some(label), Some(label), wanted.mount.as_ref()),
            Label::Of(label) => (label.mount.as_ref(), label.wanted.as_ref(), wanted.wanted.as_ref()),
        };
        if self.users.contains_key(user) {
            return Labelled::Same;
        }
        if self.users.is_empty() {
            return if mounted == wanted.mount.as_ref() { Labelled::First } else { Labelled::Unstaging };
        }
        match known == compared {
            true => Labelled::Same,
            false => Labelled::Conflict { known: known.cloned(), is_refused: is_enforced },
        }
    }

    /// The failures so far, if the volume is to be unstaged now.
    fn due(&self, now: MonoTime) -> Option<u32> {
        match self.unstage {
            _ if !self.users.is_empty() => None,
            Unstage::Idle => Some(0),
            Unstage::Failed { failures, until } if until <= now => Some(failures),
            Unstage::Failed { .. } | Unstage::UnderWay { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn volume(handle: &str) -> StagedVolume {
        StagedVolume { driver: "d".to_owned(), handle: handle.to_owned(), device: None }
    }

    fn user(pod: &str) -> VolumeUser {
        VolumeUser { pod: PodUid::from(pod.to_owned()), name: "pv".to_owned() }
    }

    fn at(seconds: u64) -> MonoTime {
        MonoTime::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_volume_is_unstaged_after_its_last_user_left() {
        let mut staging = Staging::default();
        staging.add_user(&volume("v"), user("a"));
        staging.add_user(&volume("v"), user("b"));
        staging.set_staged(&volume("v"), true);
        staging.remove_user(&volume("v"), &user("a"));
        assert_eq!((staging.take_due(at(0)), staging.wake_at()), (vec![], None));
        staging.remove_pod(&PodUid::from("b".to_owned()));
        assert_eq!(staging.take_due(at(0)), [volume("v")]);
        assert_eq!(staging.take_due(at(0)), [], "it is under way");
        assert!(staging.unstage_ended(&volume("v"), true, at(1)));
        assert_eq!(staging, Staging::default());
    }

    #[test]
    fn a_volume_is_published_elsewhere_while_another_pod_has_it_or_may_have_it() {
        let (mut staging, b) = (Staging::default(), PodUid::from("b".to_owned()));
        staging.add_user(&volume("v"), user("a"));
        assert!(!staging.is_published_elsewhere(&volume("v"), &b), "the driver has not been called");
        staging.set_published(&volume("v"), &user("a"), true);
        staging.add_user(&volume("v"), user("a"));
        assert!(staging.is_published_elsewhere(&volume("v"), &b));
        assert!(!staging.is_published_elsewhere(&volume("v"), &user("a").pod), "it is its own");
        staging.set_published(&volume("v"), &user("a"), false);
        assert!(!staging.is_published_elsewhere(&volume("v"), &b));
        staging.add_found_user(&volume("v"), user("a"));
        assert!(staging.is_published_elsewhere(&volume("v"), &b), "it was found on disk");
        staging.remove_user(&volume("v"), &user("a"));
        assert!(!staging.is_published_elsewhere(&volume("v"), &b));
    }

    #[test]
    fn a_failed_unstaging_is_repeated_after_half_a_second_and_at_once_when_the_driver_is_back() {
        let mut staging = Staging::default();
        staging.add_found(volume("v"));
        assert_eq!(staging.take_due(at(0)), [volume("v")]);
        assert!(!staging.unstage_ended(&volume("v"), false, at(0)));
        assert_eq!(staging.wake_at(), Some(MonoTime::ZERO + Duration::from_millis(500)));
        assert_eq!(staging.take_due(at(0)), []);
        assert_eq!(staging.take_due(at(1)), [volume("v")]);
        staging.unstage_ended(&volume("v"), false, at(1));
        assert_eq!(staging.wake_at(), Some(at(2)));
        staging.retry();
        assert_eq!(staging.take_due(at(1)), [volume("v")]);
    }

    #[test]
    fn a_volume_whose_unstaging_has_an_unknown_result_is_staged_again_for_the_next_pod() {
        let mut staging = Staging::default();
        staging.add_user(&volume("v"), user("a"));
        staging.set_staged(&volume("v"), true);
        staging.remove_user(&volume("v"), &user("a"));
        staging.take_due(at(0));
        staging.add_user(&volume("v"), user("b"));
        assert!(!staging.unstage_ended(&volume("v"), false, at(1)));
        assert!(!staging.is_staged(&volume("v")) && staging.is_used(&volume("v")));
        assert_eq!(staging.take_due(at(9)), [], "a pod uses it");
    }

    fn label(text: &str) -> VolumeLabel {
        VolumeLabel { mount: Some(text.to_owned()), wanted: Some(text.to_owned()) }
    }

    #[test]
    fn a_volume_gets_the_label_of_the_next_pod_after_it_was_unstaged() {
        let mut staging = Staging::default();
        assert_eq!(staging.add_labelled_user(&volume("v"), user("a"), &label("x"), true), Labelled::First);
        assert_eq!(staging.add_labelled_user(&volume("v"), user("a"), &label("x"), true), Labelled::Same);
        let conflict = Labelled::Conflict { known: Some("x".to_owned()), is_refused: true };
        assert_eq!(staging.add_labelled_user(&volume("v"), user("b"), &label("y"), true), conflict);
        staging.remove_user(&volume("v"), &user("a"));
        assert_eq!(
            staging.add_labelled_user(&volume("v"), user("b"), &label("y"), true),
            Labelled::Unstaging
        );
        assert_eq!(staging.take_due(at(0)), [volume("v")], "the pod that waits is no user");
        assert!(staging.unstage_ended(&volume("v"), true, at(1)));
        assert_eq!(staging.add_labelled_user(&volume("v"), user("b"), &label("y"), true), Labelled::First);
        assert_eq!(staging.label(&volume("v")), Some("y"));
    }

    #[test]
    fn a_volume_that_was_found_with_a_label_keeps_it() {
        let mut staging = Staging::default();
        staging.add_user(&volume("v"), user("a"));
        staging.set_found_label(&volume("v"), "x".to_owned());
        assert_eq!(staging.add_labelled_user(&volume("v"), user("a"), &label("x"), true), Labelled::Same);
        assert_eq!(staging.add_labelled_user(&volume("v"), user("b"), &label("x"), true), Labelled::Same);
        let conflict = Labelled::Conflict { known: Some("x".to_owned()), is_refused: true };
        assert_eq!(staging.add_labelled_user(&volume("v"), user("c"), &label("y"), true), conflict);
        assert_eq!((staging.label(&volume("v")), staging.label(&volume("w"))), (Some("x"), None));
    }

    /// Its files are the runtime's to relabel, although it would get a label today.
    #[test]
    fn a_volume_in_use_that_was_found_without_a_label_has_none() {
        let mut staging = Staging::default();
        staging.add_user(&volume("v"), user("a"));
        assert_eq!(staging.add_labelled_user(&volume("v"), user("a"), &label("x"), true), Labelled::Same);
        assert_eq!(staging.label(&volume("v")), None);
        staging.add_found(volume("w"));
        assert_eq!(
            staging.add_labelled_user(&volume("w"), user("a"), &label("x"), true),
            Labelled::Unstaging
        );
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Use(u8),
        Leave(u8),
        Found,
        TakeDue,
        Ended(bool),
        Retry,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0_u8..3).prop_map(Step::Use),
            (0_u8..3).prop_map(Step::Leave),
            Just(Step::Found),
            Just(Step::TakeDue),
            any::<bool>().prop_map(Step::Ended),
            Just(Step::Retry),
        ];
        prop::collection::vec(step, 0..40)
    }

    proptest! {
        #[test]
        fn no_used_volume_is_unstaged_no_unused_one_is_forgotten_and_one_act_is_under_way(steps in steps()) {
            let (mut staging, mut under_way, mut now) = (Staging::default(), false, 0);
            for step in steps {
                now += 1;
                match step {
                    Step::Use(pod) => staging.add_user(&volume("v"), user(&pod.to_string())),
                    Step::Leave(pod) => staging.remove_user(&volume("v"), &user(&pod.to_string())),
                    Step::Found => staging.add_found(volume("v")),
                    Step::TakeDue => {
                        let is_used = staging.is_used(&volume("v"));
                        let due = staging.take_due(at(now));
                        prop_assert!(due.is_empty() || (!is_used && !under_way));
                        under_way |= !due.is_empty();
                    }
                    Step::Ended(is_gone) => {
                        staging.unstage_ended(&volume("v"), is_gone && under_way, at(now));
                        under_way = false;
                    }
                    Step::Retry => staging.retry(),
                }
                let is_known = staging.has_volumes_of("d");
                let is_waiting = staging.wake_at().is_some() || under_way || staging.is_used(&volume("v"));
                prop_assert!(!is_known || is_waiting, "an unused volume waits for its unstaging");
            }
        }
    }
}
