//! A small D-Bus client: calls to the first process of the machine, over the socket that it keeps for root, and to others over
//! the message bus (`docs/decisions/0011-own-dbus-client.md`).
//!
//! Owns nothing: the caller closes its [`Connection`]. Never decides what to call.

mod received;
mod wire;

use std::io;
use std::path::Path;

use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;

use received::Received;
pub(crate) use wire::{Body, Message, MessageType, Variant};

/// How many signals are kept while an answer is awaited. The connection fails if more arrive.
const MAX_SIGNALS: usize = 1000;
/// The first call on the message bus, without which it carries no other.
const HELLO: Method = Method {
    destination: "org.freedesktop.DBus",
    path: "/org/freedesktop/DBus",
    interface: "org.freedesktop.DBus",
    member: "Hello",
};

/// The destination and the name of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Method {
    pub(crate) destination: &'static str,
    pub(crate) path: &'static str,
    pub(crate) interface: &'static str,
    pub(crate) member: &'static str,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum DbusError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("authentication was refused: {0:?}")]
    Refused(String),
    #[error("what came is no D-Bus message")]
    Garbled,
    /// The other side answered with an error.
    #[error("{name}: {message}")]
    Failed { name: String, message: String },
}

#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    received: Received,
    serial: u32,
    /// Signals that came while an answer was awaited.
    signals: Vec<Message>,
}

impl Connection {
    /// To systemd itself.
    pub(crate) async fn open(socket: &Path) -> Result<Self, DbusError> {
        Self::greet(socket, "", &["OK"]).await
    }

    /// To the message bus, whose answers may carry open files.
    pub(crate) async fn open_bus(socket: &Path) -> Result<Self, DbusError> {
        let mut bus = Self::greet(socket, "NEGOTIATE_UNIX_FD\r\n", &["OK", "AGREE_UNIX_FD"]).await?;
        bus.call(HELLO, &Body::default()).await?;
        Ok(bus)
    }

    async fn greet(socket: &Path, wishes: &str, answers: &[&str]) -> Result<Self, DbusError> {
        let mut stream = UnixStream::connect(socket).await?;
        // The server reads the user from the socket's peer credentials; the number only has to agree.
        let uid = rustix::process::geteuid().as_raw().to_string();
        let hex: String = uid.bytes().map(|byte| format!("{byte:02x}")).collect();
        // In one piece, with nothing behind it: systemd parses data that it read together with `BEGIN` only when more data
        // arrives, and a call there would wait until its caller gives up. Nothing else is sent before the answer.
        stream.write_all(format!("\0AUTH EXTERNAL {hex}\r\n{wishes}BEGIN\r\n").as_bytes()).await?;
        let mut connection = Self { stream, received: Received::default(), serial: 0, signals: Vec::new() };
        for expected in answers {
            let answer = connection.line().await?;
            if !answer.starts_with(expected) {
                return Err(DbusError::Refused(answer));
            }
        }
        Ok(connection)
    }

    /// Sends a call; the answer is one of the [`next`](Self::next) messages, and refers to the returned number.
    pub(crate) async fn send(&mut self, method: Method, body: &Body) -> io::Result<u32> {
        self.serial += 1;
        self.stream.write_all(&wire::method_call(self.serial, method, body)).await?;
        Ok(self.serial)
    }

    /// Calls, and waits for the answer.
    pub(crate) async fn call(&mut self, method: Method, body: &Body) -> Result<Message, DbusError> {
        let serial = self.send(method, body).await?;
        loop {
            let message = self.next().await?;
            match message.kind {
                MessageType::Signal if self.signals.len() < MAX_SIGNALS => self.signals.push(message),
                MessageType::Signal => return Err(DbusError::Garbled),
                MessageType::Return if message.reply_to == Some(serial) => return Ok(message),
                MessageType::Error if message.reply_to == Some(serial) => return Err(message.failure()),
                // A call to the kubelet, or an answer without a call.
                MessageType::Call | MessageType::Return | MessageType::Error => {}
            }
        }
    }

    /// The next signal, in the order in which they came.
    ///
    /// Cancel safe: received bytes are kept.
    pub(crate) async fn signal(&mut self) -> Result<Message, DbusError> {
        if !self.signals.is_empty() {
            return Ok(self.signals.remove(0));
        }
        loop {
            let message = self.next().await?;
            match message.kind {
                MessageType::Signal => return Ok(message),
                MessageType::Call | MessageType::Return | MessageType::Error => {}
            }
        }
    }

    /// The next message of any kind.
    ///
    /// Cancel safe: received bytes are kept.
    pub(crate) async fn next(&mut self) -> Result<Message, DbusError> {
        loop {
            if let Some(message) = self.received.take_message()? {
                return Ok(message);
            }
            self.receive().await?;
        }
    }

    async fn line(&mut self) -> Result<String, DbusError> {
        loop {
            if let Some(line) = self.received.take_line()? {
                return Ok(line);
            }
            self.receive().await?;
        }
    }

    /// Receives more bytes.
    async fn receive(&mut self) -> io::Result<()> {
        loop {
            self.stream.readable().await?;
            let (stream, received) = (&self.stream, &mut self.received);
            match stream.try_io(Interest::READABLE, || received.take_in(stream)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }
}

/// For fuzzers: the bodies of all messages, the bytes coming in pieces, and what can be read in each of them.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn read_all(data: &[u8], piece: usize) -> Vec<Vec<u8>> {
    let mut received = Received::default();
    let mut bodies = Vec::new();
    for piece in data.chunks(piece.max(1)) {
        received.feed(piece);
        loop {
            match received.take_message() {
                Ok(Some(message)) => bodies.push(message.read_as_anything()),
                Ok(None) => break,
                Err(_) => return bodies,
            }
        }
    }
    bodies
}

#[cfg(test)]
pub(crate) mod tests;
