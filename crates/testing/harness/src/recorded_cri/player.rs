//! A server that answers from a recording. A request that is not in it fails, and is reported at the end.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tonic::{Request, Response, Status};

use super::exchange::{Exchange, parse};
use super::serve::{Answer, Handler, serve};
use super::text;

/// A call that took longer is not waited for longer: the cases only measure that a grace period of a second passes.
const LONGEST_WAIT: Duration = Duration::from_millis(1100);

/// A running server.
#[derive(Debug)]
pub struct RecordedCri {
    socket: PathBuf,
    played: Arc<Played>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Played {
    dir: String,
    /// Each with whether it was played.
    exchanges: Mutex<Vec<(Exchange, bool)>>,
    unexpected: Mutex<Vec<String>>,
}

impl RecordedCri {
    /// Plays the text of a recording at `recorded.sock` in the directory of the test.
    pub fn serve(dir: &Path, recording: &str) -> io::Result<Self> {
        let exchanges = parse(recording).map_err(io::Error::other)?;
        let played = Arc::new(Played {
            dir: dir.display().to_string(),
            exchanges: Mutex::new(exchanges.into_iter().map(|exchange| (exchange, false)).collect()),
            unexpected: Mutex::default(),
        });
        let playing = Arc::clone(&played);
        let handler: Handler =
            Arc::new(move |path, request| Box::pin(play(Arc::clone(&playing), path, request)));
        let socket = dir.join("recorded.sock");
        let task = serve(&socket, &handler)?;
        Ok(Self { socket, played, task })
    }

    /// `unix://…`, the format of the kubelet's configuration.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// Requests that the recording does not have, and recorded ones that were not made.
    #[must_use]
    pub fn differences(&self) -> Vec<String> {
        let unexpected = self.played.unexpected.lock();
        let exchanges = self.played.exchanges.lock();
        let missing = exchanges.iter().filter(|(_, was_played)| !was_played);
        let missing = missing.map(|(of, _)| format!("never called: {} {}", of.call, of.request));
        unexpected.iter().map(|call| format!("not in the recording: {call}")).chain(missing).collect()
    }
}

impl Drop for RecordedCri {
    fn drop(&mut self) {
        self.task.abort();
        // The directory may have been removed already.
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl Played {
    /// The first recorded answer to this request that was not given yet.
    fn next(&self, call: &str, request: &str) -> Option<Exchange> {
        let mut exchanges = self.exchanges.lock();
        let (exchange, was_played) = exchanges
            .iter_mut()
            .find(|(of, was_played)| !was_played && of.call == call && of.request == request)?;
        *was_played = true;
        Some(exchange.clone())
    }
}

async fn play(played: Arc<Played>, path: String, request: Request<Vec<u8>>) -> Answer {
    let method =
        text::method(&path).ok_or_else(|| Status::unimplemented(format!("unknown method {path}")))?;
    let seen = text::request(method.input(), request.get_ref(), &played.dir);
    let Some(exchange) = played.next(method.name(), &seen) else {
        let call = format!("{} {seen}", method.name());
        played.unexpected.lock().push(call.clone());
        return Err(Status::failed_precondition(format!("not in the recording: {call}")));
    };
    if exchange.took > Duration::ZERO && !method.is_server_streaming() {
        tokio::time::sleep(exchange.took.min(LONGEST_WAIT)).await;
    }
    for (path, content) in &exchange.logs {
        let path = Path::new(&played.dir).join(path);
        let directory = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let written = directory.and_then(|()| std::fs::write(&path, content));
        written.map_err(|error| Status::internal(format!("{}: {error}", path.display())))?;
    }
    let mut items = Vec::new();
    for answer in &exchange.answers {
        items.push(Ok(text::bytes(method.output(), answer, &played.dir).map_err(Status::internal)?));
    }
    let Some(error) = exchange.status() else {
        let answers = stream::iter(items);
        // A stream of events stays open.
        let open = method.is_server_streaming();
        return Ok(Response::new(if open {
            answers.chain(stream::pending()).boxed()
        } else {
            answers.boxed()
        }));
    };
    if items.is_empty() {
        return Err(error);
    }
    items.push(Err(error));
    Ok(Response::new(stream::iter(items).boxed()))
}
