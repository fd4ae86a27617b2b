//! A slow network between a client and a server: a TCP proxy that passes on a number of bytes a second, of all connections together.
//!
//! Its rate can be changed while connections are open; with rate 0 they stall, and stay open.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};

/// Passed on at once; connections take turns.
const PACKET: usize = 1024;
/// How often a stalled link looks at its rate.
const STALL_INTERVAL: Duration = Duration::from_millis(20);

/// One direction.
#[derive(Debug)]
struct Direction {
    bytes_per_second: Arc<AtomicU64>,
    passed: AtomicU64,
    /// When the packet before is through.
    free: Mutex<Instant>,
}

impl Direction {
    fn new(bytes_per_second: &Arc<AtomicU64>) -> Arc<Self> {
        let free = Mutex::new(Instant::now());
        Arc::new(Self { bytes_per_second: Arc::clone(bytes_per_second), passed: AtomicU64::new(0), free })
    }

    /// Waits until so many bytes are through.
    async fn pass(&self, bytes: usize) {
        let mut free = self.free.lock().await;
        let mut rate = self.bytes_per_second.load(Ordering::Relaxed);
        while rate == 0 {
            sleep(STALL_INTERVAL).await;
            rate = self.bytes_per_second.load(Ordering::Relaxed);
        }
        let bytes = bytes as u64;
        *free =
            (*free).max(Instant::now()) + Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / rate);
        sleep_until(*free).await;
        self.passed.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The proxy, until it is dropped: then its connections break.
#[derive(Debug)]
pub struct SlowLink {
    port: u16,
    bytes_per_second: Arc<AtomicU64>,
    to_client: Arc<Direction>,
    task: JoinHandle<()>,
}

impl SlowLink {
    /// Accepts connections at a port of this machine and passes them on to `server`, with this rate in each direction.
    ///
    /// # Errors
    /// There is no free port.
    pub async fn start(server: SocketAddr, bytes_per_second: u64) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let bytes_per_second = Arc::new(AtomicU64::new(bytes_per_second));
        let [to_client, to_server] = [(); 2].map(|()| Direction::new(&bytes_per_second));
        let answers = Arc::clone(&to_client);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    Some(_) = connections.join_next(), if !connections.is_empty() => {}
                    accepted = listener.accept() => {
                        let Ok((client, _)) = accepted else { return };
                        connections.spawn(connect(client, server, Arc::clone(&to_server), Arc::clone(&answers)));
                    }
                }
            }
        });
        Ok(Self { port, bytes_per_second, to_client, task })
    }

    /// The port for clients.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Changes the rate; 0 stalls every connection.
    pub fn set_rate(&self, bytes_per_second: u64) {
        self.bytes_per_second.store(bytes_per_second, Ordering::Relaxed);
    }

    /// How many bytes have come through to clients.
    #[must_use]
    pub fn bytes_to_clients(&self) -> u64 {
        self.to_client.passed.load(Ordering::Relaxed)
    }
}

impl Drop for SlowLink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn connect(client: TcpStream, server: SocketAddr, up: Arc<Direction>, down: Arc<Direction>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::join!(copy(from_client, to_server, &up), copy(from_server, to_client, &down));
}

/// Passes everything on until one end closes.
async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, direction: &Direction) {
    let mut packet = [0; PACKET];
    while let Ok(bytes) = from.read(&mut packet).await {
        if bytes == 0 {
            break;
        }
        direction.pass(bytes).await;
        if to.write_all(&packet[..bytes]).await.is_err() {
            return;
        }
    }
    // The other end may have closed already.
    let _ = to.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_share_the_rate_and_a_stalled_link_stays_open() {
        let server = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let link = SlowLink::start(server.local_addr().expect("an address"), 100_000).await.expect("a link");
        let mut clients = Vec::new();
        let began = Instant::now();
        for _ in 0..2 {
            clients.push(TcpStream::connect(("127.0.0.1", link.port())).await.expect("connected"));
            let (mut accepted, _) = server.accept().await.expect("accepted");
            tokio::spawn(async move { accepted.write_all(&[7; 20_000]).await });
        }
        for client in &mut clients {
            let mut all = Vec::new();
            client.read_to_end(&mut all).await.expect("its bytes");
            assert_eq!(all, [7; 20_000]);
        }
        assert!(began.elapsed() >= Duration::from_millis(390), "{:?}", began.elapsed());
        assert_eq!(link.bytes_to_clients(), 40_000);

        link.set_rate(0);
        let mut stalled = TcpStream::connect(("127.0.0.1", link.port())).await.expect("connected");
        let (mut accepted, _) = server.accept().await.expect("accepted");
        accepted.write_all(&[7; 10]).await.expect("sent");
        let mut byte = [0];
        let read = tokio::time::timeout(Duration::from_millis(100), stalled.read_exact(&mut byte)).await;
        assert!(read.is_err(), "{read:?}");
        link.set_rate(100_000);
        stalled.read_exact(&mut byte).await.expect("it goes on");
    }
}
