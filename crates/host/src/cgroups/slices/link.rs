//! One connection to systemd for all who want something of it at the same time.
//!
//! systemd tells every connection of every job. If each request had one of its own, a hundred pods that start together would
//! have it write, and us read, a hundred times what becomes of all hundred.
//!
//! Never lets one wait for another: a job that does not come to its end holds up nobody but who asked for it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc::{Receiver, Sender, channel, error::SendError};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::dbus::{Body, Connection, DbusError, Message, MessageType, Method};

/// How long the connection stays when nobody wants anything of it: pods come and go one after another, too.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);
/// Requests that have not been sent yet. Who comes when it is full waits until some are.
const MAX_UNSENT: usize = 64;

#[derive(Debug)]
pub(super) struct Link {
    socket: PathBuf,
    served: Mutex<Served>,
}

#[derive(Debug, Default)]
struct Served {
    /// To who serves the connection, if one is open.
    requests: Option<Sender<Request>>,
    tasks: JoinSet<()>,
}

/// When a request is fulfilled.
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

/// Who waits, and for what.
#[derive(Debug)]
struct Waiting {
    member: &'static str,
    until: Until,
    fulfilled: oneshot::Sender<Result<(), DbusError>>,
}

impl Waiting {
    /// Whoever has given up does not hear of it.
    fn answer(self, result: Result<(), DbusError>) {
        let _ = self.fulfilled.send(result);
    }
}

impl Link {
    pub(super) fn new(socket: PathBuf) -> Self {
        Self { socket, served: Mutex::default() }
    }

    pub(super) async fn ask(&self, method: Method, body: Body, until: Until) -> Result<(), DbusError> {
        let (fulfilled, answer) = oneshot::channel();
        let waiting = Waiting { member: method.member, until, fulfilled };
        self.hand_over(Request { method, body, waiting }).await;
        answer.await.unwrap_or_else(|_| Err(broken("nobody serves the connection to systemd")))
    }

    async fn hand_over(&self, request: Request) {
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

/// Until nobody has wanted anything for a while, or the connection breaks: then all who wait are told so.
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
    while is_open || !jobs.are_none() {
        tokio::select! {
            request = requests.recv(), if is_open => match request {
                Some(Request { method, body, waiting }) => {
                    jobs.asked(systemd.send(method, &body).await?, waiting);
                    idle.set(sleep(IDLE_TIMEOUT));
                }
                None => is_open = false,
            },
            message = systemd.next() => jobs.heard(&message?),
            () = &mut idle => {
                jobs.forget_who_has_given_up();
                match jobs.are_none() {
                    // What is in there already still comes.
                    true => requests.close(),
                    false => idle.set(sleep(IDLE_TIMEOUT)),
                }
            }
        }
    }
    Ok(())
}

/// Who waits for which answer, and for the end of which job.
#[derive(Debug, Default)]
struct Jobs {
    asked: BTreeMap<u32, Waiting>,
    begun: BTreeMap<String, Waiting>,
}

impl Jobs {
    fn are_none(&self) -> bool {
        self.asked.is_empty() && self.begun.is_empty()
    }

    fn asked(&mut self, serial: u32, waiting: Waiting) {
        self.asked.insert(serial, waiting);
    }

    fn forget_who_has_given_up(&mut self) {
        self.asked.retain(|_, waiting| !waiting.fulfilled.is_closed());
        self.begun.retain(|_, waiting| !waiting.fulfilled.is_closed());
    }

    fn heard(&mut self, message: &Message) {
        match message.kind {
            MessageType::Return => self.answered(message),
            MessageType::Error => self.refused(message),
            MessageType::Signal if message.member == "JobRemoved" => self.ended(message),
            // Somebody asks us, or tells what nobody here waits for.
            MessageType::Signal | MessageType::Call => {}
        }
    }

    fn answered(&mut self, message: &Message) {
        let Some(waiting) = message.reply_to.and_then(|serial| self.asked.remove(&serial)) else { return };
        match (waiting.until, message.reader().string()) {
            (Until::Answered, _) => waiting.answer(Ok(())),
            (Until::JobDone, None) => waiting.answer(Err(DbusError::Garbled)),
            // systemd tells who began a job which one it is before it tells anybody that the job has ended.
            (Until::JobDone, Some(job)) => drop(self.begun.insert(job, waiting)),
        }
    }

    fn refused(&mut self, message: &Message) {
        let Some(waiting) = message.reply_to.and_then(|serial| self.asked.remove(&serial)) else { return };
        waiting.answer(Err(message.failure()));
    }

    fn ended(&mut self, message: &Message) {
        let mut arguments = message.reader();
        let (_number, job) = (arguments.number(), arguments.string().unwrap_or_default());
        let Some(waiting) = self.begun.remove(&job) else { return };
        let (_unit, result) = (arguments.string(), arguments.string().unwrap_or_default());
        let member = waiting.member;
        waiting.answer(match result.as_str() {
            "done" => Ok(()),
            result => {
                Err(DbusError::Failed { name: member.to_owned(), message: format!("the job is {result}") })
            }
        });
    }

    /// All who wait.
    fn all(&mut self) -> Vec<Waiting> {
        let (asked, begun) = (std::mem::take(&mut self.asked), std::mem::take(&mut self.begun));
        asked.into_values().chain(begun.into_values()).collect()
    }
}

fn broken(why: &str) -> DbusError {
    DbusError::Io(std::io::Error::other(why.to_owned()))
}

#[cfg(test)]
mod tests;
