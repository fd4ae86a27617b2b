//! The notify socket of systemd, and the period of its watchdog.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Sends a state such as `READY=1`. False without a supervisor.
///
/// # Errors
/// The socket named by `NOTIFY_SOCKET` does not accept it.
pub fn sd_notify(state: &str) -> io::Result<bool> {
    match std::env::var_os("NOTIFY_SOCKET") {
        Some(socket) if !socket.is_empty() => notify(&socket, state).map(|()| true),
        Some(_) | None => Ok(false),
    }
}

/// A leading `@` names an abstract socket.
fn notify(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    let sender = UnixDatagram::unbound()?;
    // A stuck supervisor must not block the kubelet.
    sender.set_nonblocking(true)?;
    sender.send_to_addr(state.as_bytes(), &address).map(drop)
}

/// The interval in which systemd expects `WATCHDOG=1`; `None` if it does not watch this process.
#[must_use]
pub fn watchdog_interval() -> Option<Duration> {
    let variable = |name| std::env::var(name).ok();
    watchdog(variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"), std::process::id())
}

fn watchdog(micros: Option<String>, pid: Option<String>, own_pid: u32) -> Option<Duration> {
    let for_us = pid.is_none_or(|pid| pid.parse() == Ok(own_pid));
    let micros: u64 = micros?.parse().ok()?;
    (for_us && micros > 0).then(|| Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(micros: &str) -> Option<String> {
        Some(micros.to_owned())
    }

    #[test]
    fn the_watchdog_counts_only_for_the_named_process() {
        let minute = Some(Duration::from_secs(60));
        assert_eq!(watchdog(text("60000000"), None, 7), minute);
        assert_eq!(watchdog(text("60000000"), text("7"), 7), minute);
        assert_eq!(watchdog(text("60000000"), text("8"), 7), None);
        assert_eq!(watchdog(text("0"), None, 7), None);
        assert_eq!(watchdog(text("soon"), None, 7), None);
        assert_eq!(watchdog(None, text("7"), 7), None);
    }

    #[test]
    fn a_state_reaches_a_socket_in_the_filesystem() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let supervisor = UnixDatagram::bind(&path).unwrap();
        notify(path.as_os_str(), "READY=1").unwrap();
        let mut heard = [0; 16];
        let length = supervisor.recv(&mut heard).unwrap();
        assert_eq!(&heard[..length], b"READY=1");
    }

    #[test]
    fn a_state_reaches_an_abstract_socket() {
        let name = format!("kubelet-rs-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let supervisor = UnixDatagram::bind_addr(&address).unwrap();
        notify(OsStr::new(&format!("@{name}")), "WATCHDOG=1").unwrap();
        let mut heard = [0; 16];
        let length = supervisor.recv(&mut heard).unwrap();
        assert_eq!(&heard[..length], b"WATCHDOG=1");
    }

    #[test]
    fn notify_to_a_missing_supervisor_is_an_error() {
        assert!(notify(OsStr::new("/nonexistent/notify"), "READY=1").is_err());
    }
}
