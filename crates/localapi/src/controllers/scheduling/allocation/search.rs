//! The search for devices: one request after the other, device by device, and back where there is no further one.

use std::collections::{BTreeMap, BTreeSet};

use model::Amount;

use super::constraint::Constraint;
use super::device::{Counter, Device, Inventory};
use super::request::{Choice, Request};
use super::{InUse, MAX_RESULTS};

/// A search that tries devices more often ends: it takes less than a second.
pub(super) const MAX_STEPS: usize = 100_000;

/// Why there is no solution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsolved {
    Impossible,
    TooLong,
}

/// A device for a request: the choice within the request, and the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) request: usize,
    pub(super) choice: usize,
    pub(super) device: usize,
}

pub(super) struct Search<'a> {
    inventory: &'a Inventory,
    in_use: &'a InUse,
    /// Of each claim.
    requests: &'a [Vec<Request>],
    constraints: Vec<Vec<Constraint>>,
    /// Of each claim, what has been chosen so far.
    chosen: Vec<Vec<Chosen>>,
    /// Devices that are not for administrators.
    taken: BTreeSet<usize>,
    counters: Vec<BTreeMap<Counter, Amount>>,
    steps: usize,
}

/// Where the search is: claim, request, choice, and the number of the device within the choice.
#[derive(Clone, Copy)]
struct Position {
    claim: usize,
    request: usize,
    choice: usize,
    device: usize,
    /// Devices of the same choice are taken in their order, because their order does not matter.
    from: usize,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        inventory: &'a Inventory,
        in_use: &'a InUse,
        requests: &'a [Vec<Request>],
        constraints: Vec<Vec<Constraint>>,
    ) -> Self {
        Self {
            inventory,
            in_use,
            requests,
            constraints,
            chosen: vec![Vec::new(); requests.len()],
            taken: BTreeSet::new(),
            counters: vec![inventory.counters().clone()],
            steps: 0,
        }
    }

    pub(super) fn chosen(&self) -> &[Vec<Chosen>] {
        &self.chosen
    }

    pub(super) fn run(&mut self) -> Result<(), Unsolved> {
        if self.request(0, 0)? { Ok(()) } else { Err(Unsolved::Impossible) }
    }

    /// Solves from this request on. The depth of the recursion is bounded by the devices of all claims of a pod.
    fn request(&mut self, claim: usize, request: usize) -> Result<bool, Unsolved> {
        let requests = self.requests;
        let Some(of_claim) = requests.get(claim) else { return Ok(true) };
        let Some(wanted) = of_claim.get(request) else { return self.request(claim + 1, 0) };
        for choice in 0..wanted.choices.len() {
            if self.device(Position { claim, request, choice, device: 0, from: 0 })? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn step(&mut self) -> Result<(), Unsolved> {
        self.steps += 1;
        if self.steps > MAX_STEPS { Err(Unsolved::TooLong) } else { Ok(()) }
    }

    fn device(&mut self, at: Position) -> Result<bool, Unsolved> {
        self.step()?;
        let requests = self.requests;
        let choice = requests.get(at.claim).and_then(|claim| claim.get(at.request)?.choices.get(at.choice));
        let Some(choice) = choice else { return Ok(false) };
        if at.device >= choice.count {
            return self.request(at.claim, at.request + 1);
        }
        let has_space = self.chosen.get(at.claim).is_some_and(|chosen| chosen.len() < MAX_RESULTS);
        if !has_space || choice.matching.len() < choice.count {
            return Ok(false);
        }
        for (position, device) in choice.matching.iter().copied().enumerate().skip(at.from) {
            self.step()?;
            if !self.is_free(at.claim, choice, device) {
                // All means all.
                if choice.wants_all {
                    return Ok(false);
                }
                continue;
            }
            self.take(at, choice, device);
            let next = Position { device: at.device + 1, from: position + 1, ..at };
            if self.device(next)? {
                return Ok(true);
            }
            self.give_back(at, choice, device);
            if choice.wants_all {
                return Ok(false);
            }
        }
        Ok(false)
    }

    fn take(&mut self, at: Position, choice: &Choice, device: usize) {
        if let Some(chosen) = self.chosen.get_mut(at.claim) {
            chosen.push(Chosen { request: at.request, choice: at.choice, device });
        }
        if !choice.admin_access {
            self.taken.insert(device);
            let rest = self.counters.last().map(|counters| self.inventory.without(counters, device));
            self.counters.extend(rest);
        }
    }

    fn give_back(&mut self, at: Position, choice: &Choice, device: usize) {
        if let Some(chosen) = self.chosen.get_mut(at.claim) {
            chosen.pop();
        }
        if !choice.admin_access {
            self.taken.remove(&device);
            self.counters.pop();
        }
    }

    fn is_free(&self, claim: usize, choice: &Choice, device: usize) -> bool {
        let Some(found) = self.inventory.devices.get(device) else { return false };
        let is_in_use = self.taken.contains(&device) || self.in_use.contains_key(&found.id);
        if is_in_use && !choice.admin_access {
            return false;
        }
        let counters = self.counters.last();
        let fits = self.inventory.consumed(device).iter().all(|(counter, amount)| {
            counters.and_then(|counters| counters.get(counter)).is_some_and(|left| left >= amount)
        });
        if !fits && !choice.admin_access {
            return false;
        }
        let chosen = self.devices_of(claim);
        let constraints = self.constraints.get(claim).map(Vec::as_slice).unwrap_or_default();
        // A claim has each device once.
        let is_new = !chosen.iter().any(|(_, other)| other.id == found.id);
        is_new && constraints.iter().all(|constraint| constraint.allows(&choice.name, found, &chosen))
    }

    /// The devices that a claim has so far, with their requests.
    fn devices_of(&self, claim: usize) -> Vec<(&'a str, &'a Device)> {
        let chosen = self.chosen.get(claim).map(Vec::as_slice).unwrap_or_default();
        let (requests, inventory) = (self.requests, self.inventory);
        chosen
            .iter()
            .filter_map(|chosen| {
                let choice = requests.get(claim)?.get(chosen.request)?.choices.get(chosen.choice)?;
                Some((choice.name.as_str(), inventory.devices.get(chosen.device)?))
            })
            .collect()
    }
}
