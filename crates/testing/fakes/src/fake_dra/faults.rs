//! Faults of a driver of dynamic resources, calls that hang, and what tests observe of its calls.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use model::dra::ClaimId;
use ports::plugins::{PluginError, PluginResult};

use super::FakeDraDriver;

/// The calls of a driver that change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DraMethod {
    Prepare,
    Unprepare,
}

impl DraMethod {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Unprepare => "unprepare",
        }
    }
}

/// How a call fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DraFault {
    /// The driver answers with this gRPC code and message; nothing was done.
    Fails(&'static str, &'static str),
    /// The same, but the call was carried out.
    FailsAfterDoing(&'static str, &'static str),
    /// The answer has this error about the first claim, for which nothing was done. The others are carried out.
    RefusesFirst(&'static str),
    /// The answer lacks the first claim, for which nothing was done. The others are carried out.
    SkipsFirst,
    /// No answer until the client's deadline, or until the driver ends; nothing was done.
    Hangs,
    /// The same, but the call was carried out.
    HangsAfterDoing,
    /// Carried out at once, and answered after this long.
    AnswersAfter(Duration),
}

type Callback = dyn Fn(DraMethod, &[ClaimId]) + Send + Sync;

/// What is called with each call, before anything is done.
#[derive(Clone)]
pub(super) struct OnCall(Arc<Callback>);

impl OnCall {
    pub(super) fn notify(&self, method: DraMethod, claims: &[ClaimId]) {
        (self.0)(method, claims);
    }
}

impl fmt::Debug for OnCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnCall").finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    queued: BTreeMap<DraMethod, VecDeque<DraFault>>,
    always: BTreeMap<DraMethod, DraFault>,
    hanging: usize,
}

impl Faults {
    pub(super) fn take(&mut self, method: DraMethod) -> Option<DraFault> {
        let queued = self.queued.get_mut(&method).and_then(VecDeque::pop_front);
        queued.or_else(|| self.always.get(&method).cloned())
    }
}

/// A call that hangs.
struct Hanging<'a>(&'a FakeDraDriver);

impl<'a> Hanging<'a> {
    fn new(driver: &'a FakeDraDriver) -> Self {
        driver.state.lock().faults.hanging += 1;
        Self(driver)
    }
}

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        self.0.state.lock().faults.hanging -= 1;
    }
}

impl FakeDraDriver {
    /// The fault applies to the next call of that method. Faults queue up.
    pub fn fault(&self, method: DraMethod, fault: DraFault) -> &Self {
        self.state.lock().faults.queued.entry(method).or_default().push_back(fault);
        self
    }

    /// The fault applies to every call of that method for which no other is queued, until it is `None` again.
    pub fn fault_always(&self, method: DraMethod, fault: Option<DraFault>) -> &Self {
        {
            let always = &mut self.state.lock().faults.always;
            match fault {
                Some(fault) => always.insert(method, fault),
                None => always.remove(&method),
            };
        }
        self
    }

    /// Removes the faults that have not been applied yet. Calls that hang go on hanging.
    pub fn clear_faults(&self) -> &Self {
        {
            let faults = &mut self.state.lock().faults;
            faults.queued.clear();
            faults.always.clear();
        }
        self
    }

    /// The number of calls that hang.
    #[must_use]
    pub fn hanging(&self) -> usize {
        self.state.lock().faults.hanging
    }

    /// Called at the beginning of each call.
    pub fn watch_calls(&self, on_call: impl Fn(DraMethod, &[ClaimId]) + Send + Sync + 'static) -> &Self {
        self.state.lock().on_call = Some(OnCall(Arc::new(on_call)));
        self
    }

    /// From now on it answers that claims are prepared, writes their CDI files, and does not prepare them.
    pub fn ignore_prepares(&self) -> &Self {
        self.state.lock().breakage.ignores_prepares = true;
        self
    }

    /// From now on it answers that claims are unprepared, and does not unprepare them.
    pub fn ignore_unprepares(&self) -> &Self {
        self.state.lock().breakage.ignores_unprepares = true;
        self
    }

    /// From now on its answers name no device of a claim.
    pub fn hide_devices(&self) -> &Self {
        self.state.lock().breakage.hides_devices = true;
        self
    }

    /// From now on a call whose caller goes away never ends: the next one for the claim is one too many.
    pub fn outlive_callers(&self) -> &Self {
        self.state.lock().breakage.outlives_callers = true;
        self
    }

    async fn hang<T>(&self) -> PluginResult<T> {
        let _hanging = Hanging::new(self);
        std::future::pending().await
    }

    /// The fault of a call before anything is done.
    pub(super) async fn fail_before(&self, fault: Option<&DraFault>) -> PluginResult<()> {
        match fault {
            Some(DraFault::Fails(code, message)) => Err(refusal(code, message)),
            Some(DraFault::Hangs) => self.hang().await,
            Some(
                DraFault::FailsAfterDoing(..)
                | DraFault::RefusesFirst(_)
                | DraFault::SkipsFirst
                | DraFault::HangsAfterDoing
                | DraFault::AnswersAfter(_),
            )
            | None => Ok(()),
        }
    }

    /// The same after it was carried out.
    pub(super) async fn fail_after(&self, fault: Option<&DraFault>) -> PluginResult<()> {
        match fault {
            Some(DraFault::FailsAfterDoing(code, message)) => Err(refusal(code, message)),
            Some(DraFault::HangsAfterDoing) => self.hang().await,
            Some(DraFault::AnswersAfter(time)) => {
                tokio::time::sleep(*time).await;
                Ok(())
            }
            Some(
                DraFault::Fails(..) | DraFault::RefusesFirst(_) | DraFault::SkipsFirst | DraFault::Hangs,
            )
            | None => Ok(()),
        }
    }
}

/// An answer of the driver, or the error of its client.
pub(super) fn refusal(code: &str, message: &str) -> PluginError {
    PluginError::Failed { code: code.to_owned(), message: message.to_owned() }
}
