//! A small D-Bus client: calls to the first process of the machine, over the socket that it keeps for root
//! (`docs/decisions/0011-own-dbus-client.md`).
//!
//! Owns nothing: each [`Connection`] is made for one piece of work and closed after it. Never decides what to call.

mod wire;

use std::io;
use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

pub(crate) use wire::{Body, Message, Variant};
use wire::{FIXED_HEADER, MessageType};

/// Nothing that is asked here has an answer that comes near to this.
const MOST_BYTES: usize = 1 << 20;
/// Lines of the greeting are short.
const MOST_LINE: usize = 1024;

/// Who is called, and by which name.
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
    #[error("the other side does not know who we are: {0:?}")]
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
    serial: u32,
    /// Signals that came while an answer was awaited.
    signals: Vec<Message>,
}

impl Connection {
    pub(crate) async fn open(socket: &Path) -> Result<Self, DbusError> {
        let mut stream = UnixStream::connect(socket).await?;
        // Who we are is told by the socket itself; the number only has to agree.
        let uid = rustix::process::geteuid().as_raw().to_string();
        let hex: String = uid.bytes().map(|byte| format!("{byte:02x}")).collect();
        // In one piece, with nothing behind it: systemd looks at what it read together with `BEGIN` only when something
        // more comes, and a call there would wait until its caller gives up. Nothing else is sent before the answer.
        stream.write_all(format!("\0AUTH EXTERNAL {hex}\r\nBEGIN\r\n").as_bytes()).await?;
        let answer = read_line(&mut stream).await?;
        if !answer.starts_with("OK") {
            return Err(DbusError::Refused(answer));
        }
        Ok(Self { stream, serial: 0, signals: Vec::new() })
    }

    /// Calls, and waits for the answer.
    pub(crate) async fn call(&mut self, method: Method, body: &Body) -> Result<Message, DbusError> {
        self.serial += 1;
        self.stream.write_all(&wire::method_call(self.serial, method, body)).await?;
        loop {
            let message = self.read().await?;
            match message.kind {
                MessageType::Signal => self.signals.push(message),
                MessageType::Return if message.reply_to == Some(self.serial) => return Ok(message),
                MessageType::Error if message.reply_to == Some(self.serial) => {
                    let text = message.reader().string().unwrap_or_default();
                    return Err(DbusError::Failed { name: message.error_name, message: text });
                }
                // Somebody asks us, or answers what nobody asked.
                MessageType::Call | MessageType::Return | MessageType::Error => {}
            }
        }
    }

    /// The next signal, in the order in which they came.
    pub(crate) async fn signal(&mut self) -> Result<Message, DbusError> {
        if !self.signals.is_empty() {
            return Ok(self.signals.remove(0));
        }
        loop {
            let message = self.read().await?;
            match message.kind {
                MessageType::Signal => return Ok(message),
                MessageType::Call | MessageType::Return | MessageType::Error => {}
            }
        }
    }

    async fn read(&mut self) -> Result<Message, DbusError> {
        let mut bytes = vec![0; FIXED_HEADER];
        self.stream.read_exact(&mut bytes).await?;
        let rest = wire::rest_of(&bytes).filter(|rest| *rest <= MOST_BYTES).ok_or(DbusError::Garbled)?;
        bytes.resize(FIXED_HEADER + rest, 0);
        self.stream.read_exact(bytes.get_mut(FIXED_HEADER..).unwrap_or_default()).await?;
        Message::parse(bytes).ok_or(DbusError::Garbled)
    }
}

/// Byte by byte: what follows the line belongs to somebody else.
async fn read_line(stream: &mut UnixStream) -> Result<String, DbusError> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        if line.len() >= MOST_LINE {
            return Err(DbusError::Garbled);
        }
        line.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
}

#[cfg(test)]
pub(crate) mod tests;
