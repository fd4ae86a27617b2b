//! A pool of connections to one server: calls share them, and old ones are replaced without losing a call.
//!
//! Bounds: at most [`HTTP2_CONNECTIONS`] connections of HTTP/2 take calls, beyond that calls wait within them; of
//! HTTP/1.1 as many as there are calls, of which [`HTTP1_IDLE`] are kept when idle. Only one attempt at a time is made to
//! open the first connection, and all calls wait for it.

use std::fmt;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use http::Response;
use http::uri::Authority;
use parking_lot::Mutex;

use crate::connection::{Answer, Connection, Outgoing, SendError, StreamPermit};
use crate::dial::{DialError, Dialer};
use crate::error::in_full;

const HTTP2_CONNECTIONS: usize = 8;
const HTTP1_IDLE: usize = 8;
/// Attempts of a call to get another connection when the one it got was closed.
const MAX_ATTEMPTS: usize = 4;

type Opening = BoxFuture<'static, Result<Arc<Connection>, DialError>>;

pub(crate) struct Pool {
    dialer: Dialer,
    authority: Authority,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Counts how often all connections were dropped.
    generation: u64,
    connections: Vec<Arc<Connection>>,
    /// Dropped when no call waits for it any more.
    opening: Option<WeakShared<Opening>>,
    /// The server used HTTP/1.1 last time, so that each call needs its own connection.
    one_each: bool,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("dialer", &self.dialer).finish_non_exhaustive()
    }
}

enum Slot {
    Free(StreamPermit),
    Opening(Shared<Opening>),
    /// To be opened for this call only.
    Own(Opening),
}

impl Pool {
    pub(crate) fn new(dialer: Dialer, authority: Authority) -> Arc<Self> {
        Arc::new(Self { dialer, authority, state: Mutex::default() })
    }

    /// Sends the request over some connection. Dropping the future abandons the call.
    pub(crate) async fn send(self: &Arc<Self>, request: Outgoing) -> Result<Response<Answer>, SendError> {
        let mut failure = String::new();
        for _ in 0..MAX_ATTEMPTS {
            let permit = match self.permit().await {
                Ok(permit) => permit,
                Err(error) => return Err(SendError::Unsent(error.to_string())),
            };
            match permit.send(request.clone(), &self.authority).await {
                Err(SendError::Unsent(error)) => failure = error,
                other => return other,
            }
        }
        Err(SendError::Unsent(failure))
    }

    /// Later calls get new connections; calls under way keep theirs.
    pub(crate) fn renew(&self) {
        let mut state = self.state.lock();
        state.generation += 1;
        state.opening = None;
        let old = std::mem::take(&mut state.connections);
        drop(state);
        // Outside of the lock: dropping the last handle to a connection ends its tasks.
        drop(old);
    }

    async fn permit(self: &Arc<Self>) -> Result<StreamPermit, DialError> {
        loop {
            let connection = match self.slot() {
                Slot::Free(permit) => return Ok(permit),
                Slot::Opening(opening) => opening.await?,
                Slot::Own(opening) => opening.await?,
            };
            if let Some(permit) = connection.permit() {
                return Ok(permit);
            }
        }
    }

    fn slot(self: &Arc<Self>) -> Slot {
        let version = self.dialer.version();
        let mut state = self.state.lock();
        let fits = |connection: &Arc<Connection>| connection.version() == version && !connection.is_closed();
        let old: Vec<_> = state.connections.extract_if(.., |connection| !fits(connection)).collect();
        let slot = self.slot_in(&mut state);
        drop(state);
        drop(old);
        slot
    }

    fn slot_in(self: &Arc<Self>, state: &mut State) -> Slot {
        if let Some(permit) = state.connections.iter().find_map(Connection::permit) {
            return Slot::Free(permit);
        }
        let multiplexed = state.connections.iter().filter(|connection| connection.is_http2());
        if multiplexed.clone().count() >= HTTP2_CONNECTIONS
            && let Some(connection) = multiplexed.min_by_key(|connection| connection.running())
        {
            return Slot::Free(connection.permit_beyond_limit());
        }
        if state.one_each {
            return Slot::Own(self.open(state.generation));
        }
        if let Some(opening) = state.opening.as_ref().and_then(WeakShared::upgrade) {
            return Slot::Opening(opening);
        }
        let opening = self.open(state.generation).shared();
        state.opening = opening.downgrade();
        Slot::Opening(opening)
    }

    fn open(self: &Arc<Self>, generation: u64) -> Opening {
        let pool = Arc::clone(self);
        async move {
            let opened = pool.opened().await;
            let mut state = pool.state.lock();
            if state.generation == generation {
                state.opening = None;
                if let Ok(connection) = &opened {
                    state.one_each = !connection.is_http2();
                    state.keep(connection);
                }
            }
            drop(state);
            opened
        }
        .boxed()
    }

    async fn opened(&self) -> Result<Arc<Connection>, DialError> {
        let dialed = self.dialer.dial().await?;
        let opened = Connection::open(dialed).await;
        opened.map(Arc::new).map_err(|error| DialError::new(in_full(&error)))
    }
}

impl State {
    fn keep(&mut self, connection: &Arc<Connection>) {
        let idle = |connection: &Arc<Connection>| !connection.is_http2() && connection.running() == 0;
        if self.connections.iter().filter(|connection| idle(connection)).count() >= HTTP1_IDLE
            && let Some(oldest) = self.connections.iter().position(idle)
        {
            self.connections.remove(oldest);
        }
        self.connections.push(Arc::clone(connection));
    }
}
