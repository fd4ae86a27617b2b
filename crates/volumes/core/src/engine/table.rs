//! The volumes of one pod with their states, counted as they change: an event about one volume must not cost a pass over all
//! of them, since a pod may have thousands.

use std::collections::{BTreeMap, BTreeSet};

use model::MonoTime;

use super::{ReadyVolume, State};

/// Acts under way for the volumes of one pod. More would only wait for each other, and acts for other pods behind them.
const MAX_MOUNTING: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    name: Box<str>,
    state: State,
    /// The latest request names it.
    is_wanted: bool,
}

/// Each volume has a number, in the order of the requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct VolumeTable {
    numbers: BTreeMap<Box<str>, usize>,
    entries: Vec<Entry>,
    /// The volumes of the latest request, in its order.
    wanted: Vec<usize>,
    /// Of the wanted volumes: those that are due.
    due: BTreeSet<usize>,
    /// Of the wanted volumes: those in back-off, by its end.
    retries: BTreeSet<(MonoTime, usize)>,
    mounting: usize,
    /// Neither ready nor due.
    unsettled: usize,
    /// Of the wanted volumes: not ready.
    unready: usize,
    /// Of the wanted volumes: an attempt has not ended, or not begun.
    open: usize,
    /// Of the wanted volumes: cannot be planned.
    refused: usize,
}

impl VolumeTable {
    /// Begins a request for these volumes: `update` gives the next state of each from what is known of it.
    pub(super) fn want(&mut self, volumes: Vec<Box<str>>, update: impl Fn(Option<&State>) -> Option<State>) {
        for number in std::mem::take(&mut self.wanted) {
            self.change(number, |entry| entry.is_wanted = false);
        }
        for name in volumes {
            let next =
                update(self.numbers.get(&name).and_then(|number| Some(&self.entries.get(*number)?.state)));
            let number = *self.numbers.entry(name.clone()).or_insert(self.entries.len());
            if number == self.entries.len() {
                self.entries.push(Entry { name, state: State::Due { failures: 0 }, is_wanted: false });
            }
            let is_new = self.entries.get(number).is_some_and(|entry| !entry.is_wanted);
            self.change(number, |entry| {
                entry.is_wanted = true;
                entry.state = next.unwrap_or_else(|| entry.state.clone());
            });
            if is_new {
                self.wanted.push(number);
            }
        }
    }

    /// Forgets every volume; those of the latest request are due again.
    pub(super) fn begin_again(&mut self) {
        let before = std::mem::take(self);
        let wanted =
            before.wanted.iter().filter_map(|number| Some(before.entries.get(*number)?.name.clone()));
        self.want(wanted.collect(), |_| None);
    }

    /// Gives every volume the state that `update` returns for it, if any.
    pub(super) fn update_all(&mut self, update: impl Fn(&State) -> Option<State>) {
        for number in 0..self.entries.len() {
            if let Some(next) = self.entries.get(number).and_then(|entry| update(&entry.state)) {
                self.change(number, |entry| entry.state = next);
            }
        }
    }

    /// Gives the volume of that name the state that `update` returns for it, if any.
    pub(super) fn update(&mut self, name: &str, update: impl FnOnce(&State) -> Option<State>) {
        let number = self.numbers.get(name).copied();
        let entry = number.and_then(|number| Some((number, self.entries.get(number)?)));
        if let Some((number, next)) = entry.and_then(|(number, entry)| Some((number, update(&entry.state)?)))
        {
            self.change(number, |entry| entry.state = next);
        }
    }

    /// The next wanted volume that is to be mounted now, as long as not too many are: its name, how often it failed, and whether an
    /// attempt was cancelled before its end.
    pub(super) fn start_next(&mut self, now: MonoTime) -> Option<(Box<str>, bool)> {
        let may_start = self.mounting < MAX_MOUNTING;
        let retry = || self.retries.first().filter(|(until, _)| *until <= now).map(|(_, number)| *number);
        let number = self.due.first().copied().or_else(retry).filter(|_| may_start)?;
        let entry = self.entries.get(number)?;
        let (name, is_uncertain) = (entry.name.clone(), matches!(entry.state, State::Uncertain { .. }));
        let failures = entry.state.failures();
        self.change(number, |entry| entry.state = State::Mounting { failures, again: false });
        Some((name, is_uncertain))
    }

    /// When the next back-off of a wanted volume ends. One that has ended waits for the end of an act.
    pub(super) fn retry_at(&self, now: MonoTime) -> Option<MonoTime> {
        self.retries.range((now, usize::MAX)..).next().map(|(until, _)| *until)
    }

    pub(super) const fn is_mounting(&self) -> bool {
        self.mounting > 0
    }

    /// Every volume is ready or due.
    pub(super) const fn is_settled(&self) -> bool {
        self.unsettled == 0
    }

    /// Every wanted volume is ready.
    pub(super) const fn is_ready(&self) -> bool {
        self.unready == 0
    }

    /// No wanted volume is due or being mounted.
    pub(super) const fn is_over(&self) -> bool {
        self.open == 0
    }

    /// Some wanted volume cannot be planned.
    pub(super) const fn has_refused(&self) -> bool {
        self.refused > 0
    }

    pub(super) fn ready(&self) -> impl Iterator<Item = (&str, &ReadyVolume)> {
        self.entries.iter().filter_map(|entry| Some((&*entry.name, entry.state.ready()?)))
    }

    /// The wanted volumes, in the order of the request.
    pub(super) fn wanted(&self) -> impl Iterator<Item = (&str, &State)> {
        let entries = self.wanted.iter().filter_map(|number| self.entries.get(*number));
        entries.map(|entry| (&*entry.name, &entry.state))
    }

    fn change(&mut self, number: usize, change: impl FnOnce(&mut Entry)) {
        self.count(number, false);
        if let Some(entry) = self.entries.get_mut(number) {
            change(entry);
        }
        self.count(number, true);
    }

    /// Adds what the entry counts for, or removes it.
    fn count(&mut self, number: usize, is_added: bool) {
        let Some(Entry { state, is_wanted, .. }) = self.entries.get(number) else { return };
        let is_wanted = *is_wanted;
        let step = |count: &mut usize, is_counted: bool| {
            if is_counted {
                *count = if is_added { count.saturating_add(1) } else { count.saturating_sub(1) };
            }
        };
        step(&mut self.mounting, matches!(state, State::Mounting { .. }));
        step(&mut self.unsettled, !matches!(state, State::Ready(_) | State::Due { .. }));
        step(&mut self.unready, is_wanted && state.ready().is_none());
        step(&mut self.open, is_wanted && state.is_open());
        step(&mut self.refused, is_wanted && state.refusal().is_some());
        if is_wanted && matches!(state, State::Due { .. }) {
            if is_added {
                self.due.insert(number)
            } else {
                self.due.remove(&number)
            };
        }
        if let Some(until) = state.retry_at().filter(|_| is_wanted) {
            let entry = (until, number);
            if is_added {
                self.retries.insert(entry)
            } else {
                self.retries.remove(&entry)
            };
        }
    }
}
