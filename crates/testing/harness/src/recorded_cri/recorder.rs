//! A proxy in front of a real runtime that writes what it answers into a file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use super::exchange::{Exchange, print};
use super::serve::{Answer, Handler, Raw, serve};
use super::text;
use crate::runtime_calls::connect;

/// Before and after this call, the logs are part of the recording.
const REOPEN: &str = "ReopenContainerLog";

/// A log is renamed to this before it is reopened.
const ROTATED: &str = ".1";

/// Which logs are recorded.
#[derive(Clone, Copy)]
enum LogNames {
    /// Those that were renamed, with their names of before.
    OfBefore,
    OfNow,
}

/// A running proxy. The recording is complete when [`Self::write`] was called.
#[derive(Debug)]
pub struct CriRecorder {
    socket: PathBuf,
    tape: Arc<Tape>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Tape {
    /// The directory of the test, which is replaced.
    dir: String,
    runtime: Channel,
    exchanges: Mutex<Vec<Exchange>>,
}

impl CriRecorder {
    /// Serves at `recorder.sock` in the directory of the test.
    pub fn serve(dir: &Path, runtime: &Path) -> io::Result<Self> {
        let tape = Arc::new(Tape {
            dir: dir.display().to_string(),
            runtime: connect(runtime)?,
            exchanges: Mutex::default(),
        });
        let recording = Arc::clone(&tape);
        let handler: Handler =
            Arc::new(move |path, request| Box::pin(record(Arc::clone(&recording), path, request)));
        let socket = dir.join("recorder.sock");
        let task = serve(&socket, &handler)?;
        Ok(Self { socket, tape, task })
    }

    /// `unix://…`, the format of the kubelet's configuration.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// Ends the proxy and writes all calls up to now.
    pub fn write(self, file: &Path) -> io::Result<()> {
        if let Some(dir) = file.parent() {
            std::fs::create_dir_all(dir)?;
        }
        std::fs::write(file, print(&self.tape.exchanges.lock()))
    }
}

impl Tape {
    /// Adds what the runtime has written into logs to the call with this index.
    fn record_logs(&self, index: usize, names: LogNames) {
        let mut exchanges = self.exchanges.lock();
        let Some(exchange) = exchanges.get_mut(index) else { return };
        let mut directories = vec![Path::new(&self.dir).join("logs")];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    directories.push(path);
                } else if let Ok(content) = std::fs::read_to_string(&path) {
                    let relative = path.strip_prefix(&self.dir).unwrap_or(&path).display().to_string();
                    match (names, relative.strip_suffix(ROTATED)) {
                        (LogNames::OfBefore, Some(name)) => exchange.logs.push((name.to_owned(), content)),
                        (LogNames::OfNow, None) => exchange.logs.push((relative, content)),
                        (LogNames::OfBefore, None) | (LogNames::OfNow, Some(_)) => {}
                    }
                }
            }
        }
        exchange.logs.sort();
    }
}

impl Drop for CriRecorder {
    fn drop(&mut self) {
        self.task.abort();
        // The directory may have been removed already.
        let _ = std::fs::remove_file(&self.socket);
    }
}

async fn record(tape: Arc<Tape>, path: String, request: Request<Vec<u8>>) -> Answer {
    let method =
        text::method(&path).ok_or_else(|| Status::unimplemented(format!("unknown method {path}")))?;
    let seen = text::request(method.input(), request.get_ref(), &tape.dir);
    let exchange = Exchange { call: method.name().to_owned(), request: seen, ..Exchange::default() };
    let index = {
        let mut exchanges = tape.exchanges.lock();
        exchanges.push(exchange);
        exchanges.len() - 1
    };
    let reopens_log = method.name() == REOPEN;
    if reopens_log {
        tape.record_logs(index.saturating_sub(1), LogNames::OfBefore);
    }
    let began = Instant::now();
    let answer = forward(&tape.runtime, &path, request).await;
    let recording = Arc::clone(&tape);
    let note = move |item: &Result<Vec<u8>, Status>| {
        let mut exchanges = recording.exchanges.lock();
        let Some(exchange) = exchanges.get_mut(index) else { return };
        exchange.took = began.elapsed();
        match item {
            Ok(bytes) => exchange.answers.push(text::answer(method.output(), bytes, &recording.dir)),
            Err(status) => {
                let message = text::shortened(status.message(), &recording.dir);
                exchange.error = Some((status.code().into(), message));
            }
        }
    };
    if reopens_log {
        tape.record_logs(index, LogNames::OfNow);
    }
    match answer {
        Ok(answer) => Ok(answer.map(|stream| stream.inspect(note).boxed() as _)),
        Err(status) => {
            note(&Err(status.clone()));
            Err(status)
        }
    }
}

async fn forward(runtime: &Channel, path: &str, request: Request<Vec<u8>>) -> Answer {
    let mut client = tonic::client::Grpc::new(runtime.clone());
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = PathAndQuery::try_from(path).map_err(|error| Status::internal(error.to_string()))?;
    let answer = client.server_streaming(request, path, Raw).await?;
    Ok(Response::new(answer.into_inner().boxed() as _))
}
