//! Which process listens at a TCP port, from `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// A socket that accepts connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    pub address: IpAddr,
    pub port: u16,
    /// `nginx (pid 812)`; empty if that is not known.
    pub holder: String,
}

/// Processes that are looked at; a machine with more does not say who listens.
const MAX_PROCESSES: usize = 20_000;

/// The sockets that listen at one of the ports.
#[must_use]
pub fn tcp_listeners(ports: &[u16]) -> Vec<Listener> {
    listeners(Path::new("/proc"), ports)
}

fn listeners(proc: &Path, ports: &[u16]) -> Vec<Listener> {
    let tables =
        ["net/tcp", "net/tcp6"].map(|table| fs::read_to_string(proc.join(table)).unwrap_or_default());
    let found: Vec<_> = tables.iter().flat_map(|table| table.lines()).filter_map(parse).collect();
    let found: Vec<_> = found.into_iter().filter(|(_, port, _)| ports.contains(port)).collect();
    if found.is_empty() {
        return Vec::new();
    }
    let holders = holders(proc, &found.iter().map(|(.., inode)| *inode).collect::<Vec<_>>());
    let listener = |(address, port, inode): (IpAddr, u16, u64)| Listener {
        address,
        port,
        holder: holders.get(&inode).cloned().unwrap_or_default(),
    };
    found.into_iter().map(listener).collect()
}

/// The state of a socket that listens, in the fourth column.
const LISTEN: &str = "0A";

/// Address, port and inode of a line about a socket that listens.
fn parse(line: &str) -> Option<(IpAddr, u16, u64)> {
    let mut columns = line.split_whitespace();
    let (local, state) = (columns.nth(1)?, columns.nth(1)?);
    let inode = columns.nth(5)?.parse().ok()?;
    let (address, port) = local.split_once(':').filter(|_| state == LISTEN)?;
    let words: Vec<u32> = (0..address.len() / 8)
        .map(|word| u32::from_str_radix(address.get(word * 8..word * 8 + 8)?, 16).ok())
        .collect::<Option<_>>()?;
    // The bytes of each word are in the order of the machine.
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let address = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(v4) => IpAddr::V4(Ipv4Addr::from(v4)),
        Err(_) => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.as_slice()).ok()?)),
    };
    Some((address, u16::from_str_radix(port, 16).ok()?, inode))
}

/// The processes that have these sockets.
fn holders(proc: &Path, inodes: &[u64]) -> BTreeMap<u64, String> {
    let mut found = BTreeMap::new();
    let processes = fs::read_dir(proc).into_iter().flatten().flatten().take(MAX_PROCESSES);
    for process in processes {
        let name = process.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let files = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        for target in files.filter_map(|file| fs::read_link(file.path()).ok()) {
            let inode = target
                .to_str()
                .and_then(|text| text.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
            let Some(inode) = inode.filter(|inode| inodes.contains(inode)) else { continue };
            let comm = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            found.insert(inode, format!("{} (pid {pid})", comm.trim()));
        }
        if found.len() == inodes.len() {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn process_that_listens_is_found_by_its_port() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let found = tcp_listeners(&[port]);
        let [listener] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((listener.address, listener.port), ("127.0.0.1".parse().unwrap(), port));
        assert!(listener.holder.ends_with(&format!("(pid {})", std::process::id())), "{listener:?}");
        drop(socket);
        // A process that another test starts has a copy until it executes its program.
        let deadline = Instant::now() + Duration::from_secs(60);
        while !tcp_listeners(&[port]).is_empty() {
            assert!(Instant::now() < deadline, "{:?}", tcp_listeners(&[port]));
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn lines_that_are_no_listener_are_left_out() {
        let line = |state: &str| {
            format!(
                "0: 0100007F:1F90 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 0 0 4242 1"
            )
        };
        assert_eq!(parse(&line(LISTEN)), Some((IpAddr::from([127, 0, 0, 1]), 8080, 4242)));
        assert_eq!(parse(&line("01")), None);
        for broken in
            ["", "sl local_address rem_address st", "0: 0100007F 0 0A", "0: ÄÄÄÄÄÄÄÄ:1 0 0A a b c d e 1"]
        {
            assert_eq!(parse(broken), None, "{broken}");
        }
    }
}
