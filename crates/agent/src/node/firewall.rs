//! Keeps the node's own chains in its firewall: makes what is missing at the start, and again whenever somebody has emptied
//! the tables. What belongs there, `kubelet_core::firewall` says. A node without the program does without.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::firewall::{CANARIES, Family, Piece, pieces};
use ports::HostError;
use ports::host::ProgramCall;

use crate::context::Context;
use crate::error_chain::chain;

const PERIOD: Duration = Duration::from_secs(60);
/// It waits for others itself; see [`kubelet_core::firewall`].
const DEADLINE: Duration = Duration::from_secs(15);

/// The chains of one family of addresses.
#[derive(Debug)]
pub(crate) struct Firewall {
    ctx: Arc<Context>,
    family: Family,
    /// Everything was there once, so that the canaries stand for all of it.
    is_made: bool,
    /// What went wrong last, so that it is said once.
    said: Option<String>,
}

/// Why a round ended early.
enum Trouble {
    /// There is no such program.
    NoProgram,
    Failed(String),
}

impl Firewall {
    pub(crate) const fn new(ctx: Arc<Context>, family: Family) -> Self {
        Self { ctx, family, is_made: false, said: None }
    }

    /// Runs until dropped, or until there turns out to be nothing to do it with.
    pub(crate) async fn run(mut self) {
        let program = self.family.program();
        loop {
            match self.round().await {
                Ok(()) => (self.is_made, self.said) = (true, None),
                Err(Trouble::NoProgram) => {
                    return tracing::info!(program, "iptables is not available, not creating its chains");
                }
                Err(Trouble::Failed(why)) => {
                    if self.said.as_ref() != Some(&why) {
                        tracing::error!(program, err = why, "Failed to create iptables chains");
                    }
                    (self.is_made, self.said) = (false, Some(why));
                }
            }
            let clock = self.ctx.clock;
            clock.sleep_until(clock.mono() + PERIOD).await;
        }
    }

    async fn round(&self) -> Result<(), Trouble> {
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
                self.ask(piece.remedy()).await?.map_err(Trouble::Failed)?;
            }
        }
        Ok(())
    }

    async fn lacks_none_of(&self, pieces: &[Piece]) -> Result<bool, Trouble> {
        for piece in pieces {
            if self.ask(piece.question()).await?.is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The inner error is the program's own complaint.
    async fn ask(&self, args: Vec<String>) -> Result<Result<(), String>, Trouble> {
        let program = self.family.program();
        let said = args.join(" ");
        let call = ProgramCall {
            path: PathBuf::from(program),
            args,
            env: Vec::new(),
            input: Vec::new(),
            deadline: DEADLINE,
        };
        match self.ctx.processes.run_to_end(&call).await {
            Ok(end) if end.code == Some(0) => Ok(Ok(())),
            Ok(end) => Ok(Err(format!("{program} {said}: {}", end.complaint))),
            Err(error) if error.is_not_found() => Err(Trouble::NoProgram),
            Err(error @ (HostError::Io { .. } | HostError::Invalid(_) | HostError::GivenUp(_))) => {
                Err(Trouble::Failed(chain(&error)))
            }
        }
    }
}
