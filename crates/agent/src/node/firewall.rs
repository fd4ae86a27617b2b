//! The kubelet's own iptables chains: creates what is missing at the start, and again whenever the tables were flushed. The
//! rules come from `kubelet_core::node::firewall`. Without iptables on the node there are no chains.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::node::firewall::{CANARIES, Family, Piece, pieces};
use ports::HostError;
use ports::host::ProgramCall;

use base_agent::context::Context;
use base_agent::error_chain::chain;

const PERIOD: Duration = Duration::from_secs(60);
/// iptables itself waits for the xtables lock; see [`kubelet_core::node::firewall`].
const DEADLINE: Duration = Duration::from_secs(15);

/// The chains of one address family.
#[derive(Debug)]
pub(crate) struct Firewall {
    ctx: Arc<Context>,
    family: Family,
    /// All rules existed once, so that checking the canary chains is enough.
    is_made: bool,
    /// The last error, so that it is logged once.
    last_error: Option<String>,
}

/// Why a round ended early.
enum RoundError {
    /// iptables is not installed.
    NoProgram,
    Failed(String),
}

impl Firewall {
    pub(crate) const fn new(ctx: Arc<Context>, family: Family) -> Self {
        Self { ctx, family, is_made: false, last_error: None }
    }

    /// Runs until dropped, or ends if iptables is not installed.
    pub(crate) async fn run(mut self) {
        let program = self.family.program();
        loop {
            match self.round().await {
                Ok(()) => (self.is_made, self.last_error) = (true, None),
                Err(RoundError::NoProgram) => {
                    return tracing::info!(program, "iptables is not available, not creating its chains");
                }
                Err(RoundError::Failed(why)) => {
                    if self.last_error.as_ref() != Some(&why) {
                        tracing::error!(program, err = why, "Failed to create iptables chains");
                    }
                    (self.is_made, self.last_error) = (false, Some(why));
                }
            }
            let clock = self.ctx.clock;
            clock.sleep_until(clock.mono() + PERIOD).await;
        }
    }

    async fn round(&self) -> Result<(), RoundError> {
        if self.is_made && self.lacks_none_of(&CANARIES).await? {
            return Ok(());
        }
        if self.is_made {
            tracing::info!(
                program = self.family.program(),
                "iptables chains were removed externally, creating them again"
            );
        }
        for piece in pieces(self.family) {
            if !self.lacks_none_of(&[piece]).await? {
                self.run_iptables(piece.create_arguments()).await?.map_err(RoundError::Failed)?;
            }
        }
        Ok(())
    }

    async fn lacks_none_of(&self, pieces: &[Piece]) -> Result<bool, RoundError> {
        for piece in pieces {
            if self.run_iptables(piece.check_arguments()).await?.is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The inner error is the error output of iptables.
    async fn run_iptables(&self, args: Vec<String>) -> Result<Result<(), String>, RoundError> {
        let program = self.family.program();
        let arguments = args.join(" ");
        let call = ProgramCall {
            path: PathBuf::from(program),
            args,
            env: Vec::new(),
            input: Vec::new(),
            deadline: DEADLINE,
        };
        match self.ctx.processes.run(&call).await {
            Ok(end) if end.code == Some(0) => Ok(Ok(())),
            Ok(end) => Ok(Err(format!("{program} {arguments}: {}", end.stderr))),
            Err(error) if error.is_not_found() => Err(RoundError::NoProgram),
            Err(error @ (HostError::Io { .. } | HostError::Invalid(_) | HostError::NotFinished(_))) => {
                Err(RoundError::Failed(chain(&error)))
            }
        }
    }
}
