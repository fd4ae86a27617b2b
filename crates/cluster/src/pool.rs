//! A few connections to one server: calls share them, and old ones make way without a call being lost.
//!
//! Bounds: at most [`HTTP2_CONNECTIONS`] connections of HTTP/2 take calls, beyond that calls wait within them; of
//! HTTP/1.1 as many as there are calls, of which [`HTTP1_IDLE`] are kept when they have nothing to do. One attempt at
//! a time is made to open the first connection, and everybody waits for that one.

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
/// How often a call looks for another connection when the one it got turned out to be closed.
const TRIES: usize = 4;

type Opening = BoxFuture<'static, Result<Arc<Connection>, DialError>>;

pub(crate) struct Pool {
    dialer: Dialer,
    authority: Authority,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Counts how often everything was thrown away.
    generation: u64,
    connections: Vec<Arc<Connection>>,
    /// Gone when nobody waits for it any more.
    opening: Option<WeakShared<Opening>>,
    /// The server spoke HTTP/1.1 last time, so that each call needs a connection of its own.
    one_each: bool,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("dialer", &self.dialer).finish_non_exhaustive()
    }
}

enum Place {
    Free(StreamPermit),
    Opening(Shared<Opening>),
    /// To be opened for this call alone.
    Own(Opening),
}

impl Pool {
    pub(crate) fn new(dialer: Dialer, authority: Authority) -> Arc<Self> {
        Arc::new(Self { dialer, authority, state: Mutex::default() })
    }

    /// Sends the request over some connection. Whoever drops the future gives the call up.
    pub(crate) async fn send(self: &Arc<Self>, request: Outgoing) -> Result<Response<Answer>, SendError> {
        let mut failure = String::new();
        for _ in 0..TRIES {
            let permit = match self.permit().await {
                Ok(permit) => permit,
                Err(error) => return Err(SendError::Unsent(error.to_string())),
            };
            match permit.send(request.clone(), &self.authority).await {
                Err(SendError::Unsent(words)) => failure = words,
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
        // Outside of the lock: the last handle to a connection ends its tasks.
        drop(old);
    }

    async fn permit(self: &Arc<Self>) -> Result<StreamPermit, DialError> {
        loop {
            let connection = match self.place() {
                Place::Free(permit) => return Ok(permit),
                Place::Opening(opening) => opening.await?,
                Place::Own(opening) => opening.await?,
            };
            if let Some(permit) = connection.permit() {
                return Ok(permit);
            }
        }
    }

    fn place(self: &Arc<Self>) -> Place {
        let version = self.dialer.version();
        let mut state = self.state.lock();
        let fits = |connection: &Arc<Connection>| connection.version() == version && !connection.is_closed();
        let old: Vec<_> = state.connections.extract_if(.., |connection| !fits(connection)).collect();
        let place = self.place_in(&mut state);
        drop(state);
        drop(old);
        place
    }

    fn place_in(self: &Arc<Self>, state: &mut State) -> Place {
        if let Some(permit) = state.connections.iter().find_map(Connection::permit) {
            return Place::Free(permit);
        }
        let multiplexed = state.connections.iter().filter(|connection| connection.is_http2());
        if multiplexed.clone().count() >= HTTP2_CONNECTIONS
            && let Some(connection) = multiplexed.min_by_key(|connection| connection.running())
        {
            return Place::Free(connection.permit_beyond_limit());
        }
        if state.one_each {
            return Place::Own(self.open(state.generation));
        }
        if let Some(opening) = state.opening.as_ref().and_then(WeakShared::upgrade) {
            return Place::Opening(opening);
        }
        let opening = self.open(state.generation).shared();
        state.opening = opening.downgrade();
        Place::Opening(opening)
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
