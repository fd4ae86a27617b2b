//! The fake as `Processes`: programs answer what the test set.

use std::path::Path;

use async_trait::async_trait;
use ports::Processes;
use ports::host::{HostError, HostResult, ProgramCall, ProgramOutput};

use super::firewall::Firewalls;
use super::port::not_found;
use super::tree::Mount;
use super::{Effect, FakeHost, HostMethod};

impl FakeHost {
    /// Does what the test set for this command line; returns how the program ends if that is a failure.
    fn take_effect(&self, line: &str) -> Option<ProgramOutput> {
        let effects = self.shared.program_effects.lock().clone();
        let effects = effects.into_iter().filter(|(words, _)| line.contains(words)).map(|(_, effect)| effect);
        let (failures, others): (Vec<_>, Vec<_>) =
            effects.partition(|effect| matches!(effect, Effect::Exit(..)));
        if let Some(Effect::Exit(code, output)) = failures.into_iter().next() {
            return Some(ProgramOutput { code: Some(code), stderr: output, ..ProgramOutput::default() });
        }
        for effect in others {
            match effect {
                Effect::Put(path, content) => drop(self.put(path, content)),
                Effect::Link(path, target) => drop(self.put_link(path, target)),
                Effect::Delete(path) => drop(self.delete(path)),
                Effect::Exit(..) => {}
            }
        }
        None
    }

    /// `mount -t TYPE ... TARGET`.
    fn mount_as_called(&self, args: &[String]) -> HostResult<()> {
        let (Some(kind), Some(target)) = (args.get(1), args.last()) else { return Ok(()) };
        let target = Path::new(target);
        let mounted = self.change(target, |tree| tree.mount(target, Mount::Filesystem(kind.clone())));
        mounted.map_err(|source| HostError::Io { what: "mount on", path: target.to_owned(), source })
    }
}

#[async_trait]
impl Processes for FakeHost {
    async fn run(&self, call: &ProgramCall) -> HostResult<ProgramOutput> {
        self.begin(HostMethod::RunProgram, "run", &call.path).await?;
        self.shared.program_calls.lock().push(call.clone());
        let answer = self.shared.programs.lock().get(&call.path).cloned();
        let output = answer.ok_or_else(|| not_found("run", &call.path))?;
        let output =
            output.map_err(|problem| HostError::Invalid(format!("{}: {problem}", call.path.display())))?;
        if let Some(failed) = self.take_effect(&call.args.join(" ")) {
            return Ok(failed);
        }
        if call.path == Path::new("mount") {
            self.mount_as_called(&call.args)?;
        }
        let of_firewall =
            Firewalls::is_one(&call.path).then(|| self.shared.firewalls.lock().run(&call.path, &call.args));
        self.end(HostMethod::RunProgram, "run", &call.path).await?;
        if let Some(end) = of_firewall {
            return Ok(end);
        }
        Ok(ProgramOutput { code: Some(0), output: output.into_bytes(), ..ProgramOutput::default() })
    }
}
