//! The record of calls, their faults, and those that hang.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use model::csi::{ExpandRequest, PublishRequest, StageRequest};

use super::volumes::Volumes;
use super::{CsiFault, CsiMethod};

/// A call that hangs.
pub(super) struct Held {
    volume_id: Option<String>,
    pub(super) carry_out: Box<dyn FnOnce(&mut Volumes) + Send>,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&self.volume_id).finish()
    }
}

/// A queued fault, for any volume if it names none.
#[derive(Debug)]
struct PendingFault {
    volume_id: Option<String>,
    fault: CsiFault,
}

#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) lines: Vec<String>,
    pub(super) stages: Vec<StageRequest>,
    pub(super) publishes: Vec<PublishRequest>,
    pub(super) expansions: Vec<ExpandRequest>,
    pub(super) violations: Vec<String>,
    counts: BTreeMap<CsiMethod, usize>,
    faults: BTreeMap<CsiMethod, VecDeque<PendingFault>>,
    always: BTreeMap<CsiMethod, CsiFault>,
    held: Vec<Held>,
    /// Calls that change a volume and whose callers wait.
    in_flight: Vec<(String, CsiMethod)>,
}

impl Calls {
    pub(super) fn record(&mut self, method: CsiMethod, volume_id: Option<&str>) {
        *self.counts.entry(method).or_default() += 1;
        if !method.is_read() {
            self.lines.push(line(method, volume_id));
        }
    }

    pub(super) fn forget(&mut self) {
        self.lines.clear();
        self.stages.clear();
        self.publishes.clear();
        self.expansions.clear();
        self.counts.clear();
    }

    pub(super) fn count(&self, method: CsiMethod) -> usize {
        self.counts.get(&method).copied().unwrap_or_default()
    }

    pub(super) fn violation(&mut self, method: CsiMethod, volume_id: Option<&str>, what: &str) {
        self.violations.push(format!("{}: {what}", line(method, volume_id)));
    }

    // ---- faults ----

    pub(super) fn push_fault(&mut self, method: CsiMethod, volume_id: Option<String>, fault: CsiFault) {
        self.faults.entry(method).or_default().push_back(PendingFault { volume_id, fault });
    }

    pub(super) fn set_fault_always(&mut self, method: CsiMethod, fault: Option<CsiFault>) {
        match fault {
            Some(fault) => self.always.insert(method, fault),
            None => self.always.remove(&method),
        };
    }

    pub(super) fn clear_faults(&mut self) {
        self.faults.clear();
        self.always.clear();
    }

    pub(super) fn take_fault(&mut self, method: CsiMethod, volume_id: Option<&str>) -> Option<CsiFault> {
        let queued = self.faults.get_mut(&method).and_then(|queue| {
            let applies = |pending: &PendingFault| {
                pending.volume_id.is_none() || pending.volume_id.as_deref() == volume_id
            };
            queue.remove(queue.iter().position(applies)?)
        });
        queued.map(|pending| pending.fault).or_else(|| self.always.get(&method).cloned())
    }

    // ---- calls that take time ----

    pub(super) fn hold(
        &mut self,
        volume_id: Option<String>,
        carry_out: impl FnOnce(&mut Volumes) + Send + 'static,
    ) {
        self.held.push(Held { volume_id, carry_out: Box::new(carry_out) });
    }

    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    pub(super) fn take_held(&mut self) -> Vec<Held> {
        std::mem::take(&mut self.held)
    }

    /// The process ended, so what hung is never done.
    pub(super) fn drop_held(&mut self) {
        self.held.clear();
    }

    pub(super) fn is_held(&self, volume_id: &str) -> bool {
        self.held.iter().any(|held| held.volume_id.as_deref() == Some(volume_id))
    }

    /// The call for the volume whose caller waits, if any.
    pub(super) fn in_flight(&self, volume_id: &str) -> Option<CsiMethod> {
        self.in_flight.iter().find(|(volume, _)| volume == volume_id).map(|(_, method)| *method)
    }

    pub(super) fn begin(&mut self, volume_id: &str, method: CsiMethod) {
        self.in_flight.push((volume_id.to_owned(), method));
    }

    pub(super) fn end(&mut self, volume_id: &str, method: CsiMethod) {
        let at = self.in_flight.iter().position(|(volume, of)| volume == volume_id && *of == method);
        if let Some(at) = at {
            self.in_flight.remove(at);
        }
    }
}

fn line(method: CsiMethod, volume_id: Option<&str>) -> String {
    match volume_id {
        Some(volume_id) => format!("{method:?} {volume_id}"),
        None => format!("{method:?}"),
    }
}
