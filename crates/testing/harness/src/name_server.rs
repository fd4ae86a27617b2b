//! A DNS server on a loopback address of its own: every name leads to 127.0.0.1, until the server is made to hang. Needs root,
//! because resolvers know only port 53.

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the thread waits for a question before it checks whether it must end.
const POLL: Duration = Duration::from_millis(100);
const HEADER: usize = 12;
const TYPE_A: [u8; 2] = [0, 1];

#[derive(Debug)]
pub struct NameServer {
    address: String,
    hangs: Arc<AtomicBool>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NameServer {
    /// Takes the first free address of a range that depends on the process.
    pub fn start() -> io::Result<Self> {
        let (address, socket) = bind()?;
        socket.set_read_timeout(Some(POLL))?;
        let (hangs, ends) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (thread_hangs, thread_ends) = (Arc::clone(&hangs), Arc::clone(&ends));
        let thread = std::thread::Builder::new().name("DNS server".to_owned()).spawn(move || {
            let mut buffer = [0; 512];
            while !thread_ends.load(Ordering::Relaxed) {
                let Ok((length, client)) = socket.recv_from(&mut buffer) else { continue };
                let question = buffer.get(..length).unwrap_or_default();
                if let Some(answer) =
                    compute_answer(question).filter(|_| !thread_hangs.load(Ordering::Relaxed))
                {
                    // A client that is gone asks no more.
                    let _ = socket.send_to(&answer, client);
                }
            }
        })?;
        Ok(Self { address, hangs, ends, thread: Some(thread) })
    }

    /// What a resolver is configured with.
    #[must_use]
    pub fn resolv_conf(&self) -> String {
        format!("nameserver {}\noptions timeout:5 attempts:2\n", self.address)
    }

    /// Whether it reads questions without answering.
    pub fn set_hanging(&self, hangs: bool) {
        self.hangs.store(hangs, Ordering::Relaxed);
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic in that thread has been printed already.
            let _ = thread.join();
        }
    }
}

fn bind() -> io::Result<(String, UdpSocket)> {
    let mut last = io::Error::other("no address was tried");
    for number in 1..=254 {
        let address = format!("127.53.{}.{number}", std::process::id() % 250);
        match UdpSocket::bind((address.as_str(), 53)) {
            Ok(socket) => return Ok((address, socket)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The answer to a message with one question: 127.0.0.1 for an address of IPv4, and otherwise that there is none.
fn compute_answer(message: &[u8]) -> Option<Vec<u8>> {
    let end_of_name = HEADER + message.get(HEADER..)?.iter().position(|byte| *byte == 0)? + 1;
    let question = message.get(HEADER..end_of_name + 4)?;
    let is_address = message.get(end_of_name..end_of_name + 2)? == TYPE_A;
    let mut answer = message.get(..2)?.to_vec();
    // A recursive answer without error; one question, one answer or none.
    answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
    answer.extend(question);
    if is_address {
        // The name of the question, type A, class IN, valid for no time, four bytes.
        answer.extend([0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1]);
    }
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(kind: u8) -> Vec<u8> {
        [&[7, 8, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], b"\x03web\x04test\0", &[0, kind, 0, 1]].concat()
    }

    #[test]
    fn name_server_answers_addresses_of_ipv4_only() {
        let answer = compute_answer(&question(1)).expect("an answer");
        assert!(answer.starts_with(&[7, 8, 0x81, 0x80, 0, 1, 0, 1]) && answer.ends_with(&[127, 0, 0, 1]));
        let none = compute_answer(&question(28)).expect("an answer");
        assert!(none.starts_with(&[7, 8, 0x81, 0x80, 0, 1, 0, 0]) && none.ends_with(&[0, 28, 0, 1]));
        assert_eq!(compute_answer(b"short"), None);
    }
}
