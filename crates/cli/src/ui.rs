//! `kubelet ui`: a page for people in a browser on this machine, from the documents of the local socket.
//!
//! The kubelet serves none of it: this process asks it, keeps the last hour of use, and ends with Ctrl-C. The local socket is for root, and
//! every user of the machine may connect to a port of it; so a request needs the secret of the address that is printed.

mod history;
mod serve;

use std::fmt::Write as _;
use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::Arc;

use clap::{Arg, ArgMatches, Command, value_parser};
use tokio::net::TcpListener;

use crate::client::Client;
use crate::{CommandError, Outcome, connection_arguments, print};

use history::History;
use serve::Site;

/// No known service has this port.
const ADDRESS: &str = "127.0.0.1:10290";
/// Bytes of the secret, and of what marks the scripts of the page as ours.
const RANDOM: usize = 16;

pub(crate) fn definition() -> Command {
    let command = Command::new("ui")
        .about("Show the node and its pods as a page for a browser")
        .after_help(
            "Examples:\n  kubelet ui\n  kubelet ui --address 127.0.0.1:8080\n  ssh -L 10290:127.0.0.1:10290 root@NODE kubelet ui\n\n\
             The page needs no network and shows what kubelet why and kubelet get show. Ctrl-C ends it.",
        )
        .arg(
            Arg::new("address")
                .long("address")
                .value_name("ADDRESS:PORT")
                .default_value(ADDRESS)
                .value_parser(value_parser!(SocketAddr))
                .help("Where the page is served; an address of this machine only (127.0.0.1 or [::1])"),
        );
    connection_arguments(command)
}

/// Serves until Ctrl-C.
pub(crate) async fn run(client: &Client, matches: &ArgMatches) -> Result<Outcome, CommandError> {
    let address = matches.get_one::<SocketAddr>("address").copied();
    let address = address.ok_or_else(|| CommandError::Usage("--address is missing".to_owned()))?;
    if !address.ip().is_loopback() {
        return Err(CommandError::Usage(format!(
            "--address {address}: the page is not encrypted, so it is served at 127.0.0.1 or [::1] only; from another machine use ssh \
             -L {port}:127.0.0.1:{port}",
            port = address.port()
        )));
    }
    let random = |error| CommandError::Failed(format!("failed to read /dev/urandom: {error}"));
    let (secret, nonce) = (random_text().map_err(random)?, random_text().map_err(random)?);
    let refused = |error| CommandError::Failed(format!("failed to listen at {address}: {error}"));
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let host = listener.local_addr().map_err(refused)?;
    print(&format!("Open http://{host}/?secret={secret} in a browser on this machine. Ctrl-C ends it.\n"));
    let history = History::default();
    let site = Arc::new(Site { client: client.clone(), secret, nonce, history: history.clone() });
    tokio::select! {
        () = history.follow(client) => {}
        () = serve::serve(listener, &site) => {}
    }
    Ok(Outcome::default())
}

fn random_text() -> std::io::Result<String> {
    let mut bytes = [0; RANDOM];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}
