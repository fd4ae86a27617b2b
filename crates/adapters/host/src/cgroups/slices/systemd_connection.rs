//! One connection to systemd for all concurrent requests.
//!
//! systemd reports every job to every connection. If each request had a connection of its own, a hundred pods that start together
//! would each receive the messages about all hundred jobs.
//!
//! Never lets one request wait for another: a job that does not end delays only its own request.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc::{Receiver, Sender, channel, error::SendError};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::dbus::{Body, Connection, DbusError, Message, MessageType, Method};

/// How long an unused connection stays open: pods often start and end one after another.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);
/// How many requests may be unsent; a further request waits.
const MAX_UNSENT: usize = 64;

#[derive(Debug)]
pub(super) struct SystemdConnection {
    socket: PathBuf,
    served: Mutex<Served>,
}

#[derive(Debug, Default)]
struct Served {
    /// To the task that serves the connection, if one is open.
    requests: Option<Sender<Request>>,
    tasks: JoinSet<()>,
}

/// When a request is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// With the answer.
    Answered,
    /// With the end of the job that the answer names.
    JobDone,
}

#[derive(Debug)]
struct Request {
    method: Method,
    body: Body,
    waiting: Waiting,
}

/// A caller that waits, and for what.
#[derive(Debug)]
struct Waiting {
    member: &'static str,
    until: Until,
    done: oneshot::Sender<Result<(), DbusError>>,
}

impl Waiting {
    /// A caller that no longer waits gets no answer.
    fn answer(self, result: Result<(), DbusError>) {
        let _ = self.done.send(result);
    }
}

impl SystemdConnection {
    pub(super) fn new(socket: PathBuf) -> Self {
        Self { socket, served: Mutex::default() }
    }

    pub(super) async fn call(&self, method: Method, body: Body, until: Until) -> Result<(), DbusError> {
        let (done, answer) = oneshot::channel();
        let waiting = Waiting { member: method.member, until, done };
        self.enqueue(Request { method, body, waiting }).await;
        answer.await.unwrap_or_else(|_| Err(broken("the connection to systemd is not served")))
    }

    async fn enqueue(&self, request: Request) {
        let open = self.served.lock().requests.clone();
        let request = match open {
            None => request,
            Some(open) => match open.send(request).await {
                Ok(()) => return,
                Err(SendError(request)) => request,
            },
        };
        let (sender, receiver) = channel(MAX_UNSENT);
        // It is empty.
        let _ = sender.try_send(request);
        let mut served = self.served.lock();
        // Those that have ended.
        while served.tasks.try_join_next().is_some() {}
        served.tasks.spawn(serve(self.socket.clone(), receiver));
        served.requests = Some(sender);
    }
}

/// Serves the connection until it was idle for a while, or breaks: then all waiting callers get the error.
async fn serve(socket: PathBuf, mut requests: Receiver<Request>) {
    let mut jobs = Jobs::default();
    if let Err(error) = serve_all(&socket, &mut requests, &mut jobs).await {
        requests.close();
        let error = error.to_string();
        jobs.all().into_iter().for_each(|waiting| waiting.answer(Err(broken(&error))));
        while let Some(request) = requests.recv().await {
            request.waiting.answer(Err(broken(&error)));
        }
    }
}

async fn serve_all(
    socket: &Path,
    requests: &mut Receiver<Request>,
    jobs: &mut Jobs,
) -> Result<(), DbusError> {
    let mut systemd = Connection::open(socket).await?;
    let mut idle = Box::pin(sleep(IDLE_TIMEOUT));
    let mut is_open = true;
    while is_open || !jobs.is_empty() {
        tokio::select! {
            request = requests.recv(), if is_open => match request {
                Some(Request { method, body, waiting }) => {
                    jobs.handle_sent(systemd.send(method, &body).await?, waiting);
                    idle.set(sleep(IDLE_TIMEOUT));
                }
                None => is_open = false,
            },
            message = systemd.next() => jobs.handle_message(&message?),
            () = &mut idle => {
                jobs.forget_abandoned();
                match jobs.is_empty() {
                    // Requests that are queued already are still received.
                    true => requests.close(),
                    false => idle.set(sleep(IDLE_TIMEOUT)),
                }
            }
        }
    }
    Ok(())
}

/// The callers that wait for an answer, and for the end of a job.
#[derive(Debug, Default)]
struct Jobs {
    sent: BTreeMap<u32, Waiting>,
    started: BTreeMap<String, Waiting>,
}

impl Jobs {
    fn is_empty(&self) -> bool {
        self.sent.is_empty() && self.started.is_empty()
    }

    fn handle_sent(&mut self, serial: u32, waiting: Waiting) {
        self.sent.insert(serial, waiting);
    }

    fn forget_abandoned(&mut self) {
        self.sent.retain(|_, waiting| !waiting.done.is_closed());
        self.started.retain(|_, waiting| !waiting.done.is_closed());
    }

    fn handle_message(&mut self, message: &Message) {
        match message.kind {
            MessageType::Return => self.handle_return(message),
            MessageType::Error => self.handle_error(message),
            MessageType::Signal if message.member == "JobRemoved" => self.handle_job_removed(message),
            // A call to the kubelet, or a signal that no caller waits for.
            MessageType::Signal | MessageType::Call => {}
        }
    }

    fn handle_return(&mut self, message: &Message) {
        let Some(waiting) = message.reply_to.and_then(|serial| self.sent.remove(&serial)) else { return };
        match (waiting.until, message.reader().string()) {
            (Until::Answered, _) => waiting.answer(Ok(())),
            (Until::JobDone, None) => waiting.answer(Err(DbusError::Garbled)),
            // systemd answers the call that started a job before it reports the end of the job.
            (Until::JobDone, Some(job)) => drop(self.started.insert(job, waiting)),
        }
    }

    fn handle_error(&mut self, message: &Message) {
        let Some(waiting) = message.reply_to.and_then(|serial| self.sent.remove(&serial)) else { return };
        waiting.answer(Err(message.failure()));
    }

    fn handle_job_removed(&mut self, message: &Message) {
        let mut arguments = message.reader();
        let (_number, job) = (arguments.number(), arguments.string().unwrap_or_default());
        let Some(waiting) = self.started.remove(&job) else { return };
        let (_unit, result) = (arguments.string(), arguments.string().unwrap_or_default());
        let member = waiting.member;
        waiting.answer(match result.as_str() {
            "done" => Ok(()),
            result => {
                Err(DbusError::Failed { name: member.to_owned(), message: format!("the job is {result}") })
            }
        });
    }

    /// All waiting callers.
    fn all(&mut self) -> Vec<Waiting> {
        let (sent, started) = (std::mem::take(&mut self.sent), std::mem::take(&mut self.started));
        sent.into_values().chain(started.into_values()).collect()
    }
}

fn broken(why: &str) -> DbusError {
    DbusError::Io(std::io::Error::other(why.to_owned()))
}

#[cfg(test)]
mod tests;
