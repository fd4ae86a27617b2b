//! A bounded queue of log lines, and a thread that writes them to its file. A reader that stalls (journald, a pipe, a terminal)
//! never blocks the process: lines that do not fit are dropped and counted, and the count is logged when the reader continues.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Bytes of lines in the queue.
const MAX_BYTES: usize = 256 << 10;
/// The buffer is shrunk to this size after it was written.
const KEPT_BYTES: usize = 16 << 10;
const STACK_BYTES: usize = 128 << 10;
/// Delay before the next write to a non-blocking descriptor that was full.
const RETRY: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct LogQueue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    lines: Vec<u8>,
    /// Lines dropped since the last time that the count was logged.
    dropped: u64,
    is_writing: bool,
    /// The thread that writes was started.
    is_running: bool,
}

impl LogQueue {
    pub(super) const fn new() -> Self {
        let state = State { lines: Vec::new(), dropped: 0, is_writing: false, is_running: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Starts the thread. Before that, `push` writes lines itself, to stderr.
    pub(super) fn start(&'static self, out: File, dropped_line: fn(u64) -> String) -> io::Result<()> {
        let thread = std::thread::Builder::new().name("log".into()).stack_size(STACK_BYTES);
        self.state.lock().is_running = true;
        let started = thread.spawn(move || self.run(out, dropped_line));
        if started.is_err() {
            self.state.lock().is_running = false;
        }
        started.map(drop)
    }

    /// Never waits for the reader.
    pub(super) fn push(&self, line: &str) {
        let mut state = self.state.lock();
        if !state.is_running {
            drop(state);
            // An error of the log cannot be logged.
            let _ = io::stderr().lock().write_all(line.as_bytes());
            return;
        }
        if state.lines.len() + line.len() > MAX_BYTES {
            state.dropped += 1;
            return;
        }
        state.lines.extend_from_slice(line.as_bytes());
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until everything is written, or for `limit`. Returns whether everything is.
    pub(super) fn flush(&self, limit: Duration) -> bool {
        let is_busy = |state: &mut State| {
            state.is_running && (state.is_writing || !state.lines.is_empty() || state.dropped > 0)
        };
        let mut state = self.state.lock();
        !self.changed.wait_while_for(&mut state, is_busy, limit).timed_out()
    }

    fn run(&self, mut out: impl Write, dropped_line: fn(u64) -> String) {
        let mut lines = Vec::new();
        loop {
            let dropped = self.take(&mut lines);
            write(&mut out, &lines);
            if dropped > 0 {
                write(&mut out, dropped_line(dropped).as_bytes());
            }
            lines.clear();
            lines.shrink_to(KEPT_BYTES);
        }
    }

    /// Waits for lines, and returns how many were dropped after them.
    fn take(&self, lines: &mut Vec<u8>) -> u64 {
        let mut state = self.state.lock();
        state.is_writing = false;
        self.changed.notify_all();
        while state.lines.is_empty() && state.dropped == 0 {
            self.changed.wait(&mut state);
        }
        std::mem::swap(&mut state.lines, lines);
        state.is_writing = true;
        std::mem::take(&mut state.dropped)
    }
}

/// After an error that is not temporary, the rest is lost.
fn write(out: &mut impl Write, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(0) => return,
            Ok(length) => bytes = bytes.get(length..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::park_timeout(RETRY),
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    fn dropped_line(count: u64) -> String {
        format!("{count} dropped\n")
    }

    fn running() -> (&'static LogQueue, io::PipeReader) {
        let (reader, writer) = io::pipe().unwrap();
        let queue: &'static LogQueue = Box::leak(Box::new(LogQueue::new()));
        queue.state.lock().is_running = true;
        std::thread::spawn(move || queue.run(writer, dropped_line));
        (queue, reader)
    }

    #[test]
    fn lines_are_written_in_their_order() {
        let (queue, reader) = running();
        let mut read = BufReader::new(reader).lines();
        for number in 0..100 {
            queue.push(&format!("line {number}\n"));
        }
        for number in 0..100 {
            assert_eq!(read.next().unwrap().unwrap(), format!("line {number}"));
        }
        assert!(queue.flush(Duration::from_secs(60)));
    }

    #[test]
    fn a_reader_that_stalls_costs_lines_and_no_time_and_learns_how_many() {
        let (queue, reader) = running();
        let line = format!("{}\n", "x".repeat(1023));
        let pushed = 2000;
        for _ in 0..pushed {
            queue.push(&line);
        }
        assert!(queue.state.lock().lines.capacity() <= 2 * MAX_BYTES, "bounded");
        assert!(!queue.flush(Duration::from_millis(50)), "the log is not read");
        let reader = std::thread::spawn(move || {
            let (mut whole, mut dropped) = (0, 0);
            for text in
                BufReader::new(reader).lines().map(|line| line.unwrap()).take_while(|text| text != "after")
            {
                // The writer may have taken lines while others were dropped, so there may be more than one count.
                match text.strip_suffix(" dropped") {
                    Some(count) => dropped += count.parse::<usize>().unwrap(),
                    None => whole += usize::from(text.len() == 1023),
                }
            }
            (whole, dropped)
        });
        assert!(queue.flush(Duration::from_secs(60)));
        queue.push("after\n");
        let (whole, dropped) = reader.join().unwrap();
        assert!(dropped > pushed / 2, "{dropped}");
        assert_eq!(whole + dropped, pushed);
        assert!(queue.flush(Duration::from_secs(60)));
    }
}
