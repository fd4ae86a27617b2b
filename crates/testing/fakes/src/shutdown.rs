//! A machine in memory that announces its shutdown and accepts inhibitors, like logind.
//!
//! Owns [`FakeShutdown`]. It follows logind's rules: an inhibitor that comes too late cannot delay the shutdown any more, and a
//! signal carries only that the state has changed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use ports::shutdown::{Shutdown, ShutdownError, ShutdownLock, ShutdownResult, ShutdownWatch};
use tokio::sync::watch;

/// The fake. Clones share everything.
#[derive(Clone, Debug)]
pub struct FakeShutdown {
    state: Arc<Mutex<State>>,
    /// Changes with every announcement.
    announced: watch::Sender<u64>,
    /// Changes when all connections break.
    broken: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    is_there: bool,
    is_ending: bool,
    max_delay: Duration,
    /// The result of [`ShutdownWatch::max_delay`] after so many more calls, once logind was reloaded.
    granted: (u32, Duration),
    reloads: u32,
    /// The inhibitors that delay the shutdown now.
    locks: u32,
    connections: u32,
}

impl Default for FakeShutdown {
    fn default() -> Self {
        let state = State {
            is_there: true,
            is_ending: false,
            max_delay: Duration::from_secs(5),
            granted: (0, Duration::from_secs(3600)),
            reloads: 0,
            locks: 0,
            connections: 0,
        };
        let counter = || watch::Sender::new(0);
        Self { state: Arc::new(Mutex::new(state)), announced: counter(), broken: counter() }
    }
}

impl FakeShutdown {
    /// Announces the shutdown, or its cancellation.
    pub fn announce(&self, is_ending: bool) {
        self.state.lock().is_ending = is_ending;
        self.hint();
    }

    /// Sends the signal.
    pub fn hint(&self) {
        self.announced.send_modify(|count| *count += 1);
    }

    /// Sends no signal.
    pub fn set_ending(&self, is_ending: bool) {
        self.state.lock().is_ending = is_ending;
    }

    /// Breaks all connections; the argument sets whether new ones can be made.
    pub fn disconnect(&self, comes_back: bool) {
        self.state.lock().is_there = comes_back;
        self.broken.send_modify(|count| *count += 1);
    }

    /// From the next reload on, after that many calls, the shutdown can be delayed for so long.
    pub fn set_delay_after_reload(&self, after: u32, delay: Duration) {
        self.state.lock().granted = (after, delay);
    }

    /// The number of inhibitors.
    #[must_use]
    pub fn locks(&self) -> u32 {
        self.state.lock().locks
    }

    #[must_use]
    pub fn reloads(&self) -> u32 {
        self.state.lock().reloads
    }

    /// How often a client connected, or tried to.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.state.lock().connections
    }
}

fn failed(what: &'static str, why: &str) -> ShutdownError {
    ShutdownError { what, why: why.to_owned() }
}

#[async_trait]
impl Shutdown for FakeShutdown {
    async fn watch(&self) -> ShutdownResult<Box<dyn ShutdownWatch>> {
        let mut state = self.state.lock();
        state.connections += 1;
        if !state.is_there {
            return Err(failed("connect to logind", "scripted: connection refused"));
        }
        drop(state);
        let (announced, broken) = (self.announced.subscribe(), self.broken.subscribe());
        Ok(Box::new(FakeWatch { shutdown: self.clone(), announced, broken }))
    }
}

#[derive(Debug)]
struct FakeWatch {
    shutdown: FakeShutdown,
    announced: watch::Receiver<u64>,
    broken: watch::Receiver<u64>,
}

impl FakeWatch {
    fn check(&self) -> ShutdownResult<()> {
        let is_broken = self.broken.has_changed().unwrap_or(true);
        if is_broken { Err(failed("query logind", "scripted: the connection is broken")) } else { Ok(()) }
    }
}

#[async_trait]
impl ShutdownWatch for FakeWatch {
    async fn is_ending(&mut self) -> ShutdownResult<bool> {
        self.check()?;
        Ok(self.shutdown.state.lock().is_ending)
    }

    async fn max_delay(&mut self) -> ShutdownResult<Duration> {
        self.check()?;
        let mut state = self.shutdown.state.lock();
        if state.reloads > 0 {
            match state.granted {
                (0, delay) => state.max_delay = delay,
                (more, delay) => state.granted = (more - 1, delay),
            }
        }
        Ok(state.max_delay)
    }

    async fn reload(&mut self) -> ShutdownResult<()> {
        self.check()?;
        self.shutdown.state.lock().reloads += 1;
        Ok(())
    }

    async fn inhibit(&mut self) -> ShutdownResult<Box<dyn ShutdownLock>> {
        self.check()?;
        let mut state = self.shutdown.state.lock();
        if state.is_ending {
            return Err(failed("inhibit the shutdown", "scripted: the shutdown is in progress"));
        }
        state.locks += 1;
        drop(state);
        Ok(Box::new(FakeLock(self.shutdown.clone())))
    }

    async fn hint(&mut self) -> ShutdownResult<()> {
        tokio::select! {
            biased;
            _ = self.broken.changed() => Err(failed("wait for logind", "scripted: the connection is broken")),
            changed = self.announced.changed() => changed.map_err(|_| failed("wait for logind", "it is gone")),
        }
    }
}

#[derive(Debug)]
struct FakeLock(FakeShutdown);

impl ShutdownLock for FakeLock {}

impl Drop for FakeLock {
    fn drop(&mut self) {
        self.0.state.lock().locks -= 1;
    }
}
