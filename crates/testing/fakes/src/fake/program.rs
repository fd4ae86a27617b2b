//! The behaviour of a container's process: how long it runs, how it handles SIGTERM, and the results of commands in it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use model::request::ExecResult;

/// Exit codes of processes that were ended by a signal.
pub(super) const BY_SIGTERM: i32 = 143;
pub(super) const BY_SIGKILL: i32 = 137;

type OnExec = Arc<dyn Fn(&[String]) -> Exec + Send + Sync>;

/// The life of a container's process.
#[derive(Clone)]
pub struct Program {
    /// When it exits by itself, and how.
    pub(super) ends: Option<(Duration, i32)>,
    /// How long it continues after SIGTERM, and its exit code then; `None` ignores the signal.
    pub(super) on_term: Option<(Duration, i32)>,
    /// The reason reported for its exit, where the runtime gives one of its own.
    pub(super) reason: Option<&'static str>,
    /// How long after the exit the runtime records the reason.
    pub(super) reason_after: Duration,
    pub(super) message: String,
    pub(super) output: Vec<String>,
    pub(super) on_exec: OnExec,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("ends", &self.ends)
            .field("on_term", &self.on_term)
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

impl Program {
    /// Runs until it is stopped; exits at once on SIGTERM.
    #[must_use]
    pub fn runs() -> Self {
        Self {
            ends: None,
            on_term: Some((Duration::ZERO, BY_SIGTERM)),
            reason: None,
            reason_after: Duration::ZERO,
            message: String::new(),
            output: Vec::new(),
            on_exec: Arc::new(|_| Exec::exits(0)),
        }
    }

    /// Exits by itself with that code, that long after it started.
    #[must_use]
    pub fn exits(code: i32, after: Duration) -> Self {
        Self { ends: Some((after, code)), ..Self::runs() }
    }

    /// Allocates memory until the kernel kills it.
    #[must_use]
    pub fn runs_out_of_memory(after: Duration) -> Self {
        Self { reason: Some("OOMKilled"), ..Self::exits(BY_SIGKILL, after) }
    }

    /// The runtime reports the reason that long after the exit.
    #[must_use]
    pub fn explained_after(self, after: Duration) -> Self {
        Self { reason_after: after, ..self }
    }

    /// Ignores SIGTERM, so it is killed at the end of its grace period.
    #[must_use]
    pub fn ignoring_term(self) -> Self {
        Self { on_term: None, ..self }
    }

    /// On SIGTERM, takes that long to exit with that code.
    #[must_use]
    pub fn stopping(self, after: Duration, code: i32) -> Self {
        Self { on_term: Some((after, code)), ..self }
    }

    /// Has this message in its status when it has exited.
    #[must_use]
    pub fn with_message(self, message: &str) -> Self {
        Self { message: message.to_owned(), ..self }
    }

    /// Writes these lines to its standard output as soon as it starts.
    #[must_use]
    pub fn printing(self, lines: &[&str]) -> Self {
        Self { output: lines.iter().map(|line| (*line).to_owned()).collect(), ..self }
    }

    /// Answers commands run in it.
    #[must_use]
    pub fn on_exec(self, answer: impl Fn(&[String]) -> Exec + Send + Sync + 'static) -> Self {
        Self { on_exec: Arc::new(answer), ..self }
    }
}

/// The result of a command run in a container.
#[derive(Clone, Debug)]
pub struct Exec {
    pub(super) result: ExecResult,
    pub(super) takes: Duration,
}

impl Exec {
    /// Exits at once with that code and no output.
    #[must_use]
    pub fn exits(exit_code: i32) -> Self {
        Self { result: ExecResult { exit_code, ..Default::default() }, takes: Duration::ZERO }
    }

    /// Prints to standard output.
    #[must_use]
    pub fn printing(mut self, text: &str) -> Self {
        self.result.stdout = text.as_bytes().to_vec();
        self
    }

    /// Prints to standard error.
    #[must_use]
    pub fn complaining(mut self, text: &str) -> Self {
        self.result.stderr = text.as_bytes().to_vec();
        self
    }

    /// Takes that long.
    #[must_use]
    pub fn taking(self, takes: Duration) -> Self {
        Self { takes, ..self }
    }
}

/// Programs by container name or image.
#[derive(Debug, Default)]
pub(super) struct Programs {
    of: BTreeMap<String, Vec<Program>>,
}

impl Programs {
    pub(super) fn set(&mut self, name_or_image: &str, programs: Vec<Program>) {
        self.of.insert(name_or_image.to_owned(), programs);
    }

    /// The program of an instance: the n-th start of a container gets the n-th program or the last one.
    pub(super) fn find(&self, names: &[&str], attempt: u32) -> Program {
        let programs = names.iter().find_map(|name| self.of.get(*name));
        let index = usize::try_from(attempt).unwrap_or(usize::MAX);
        let program = programs.and_then(|all| all.get(index).or_else(|| all.last()));
        program.cloned().unwrap_or_else(Program::runs)
    }
}
