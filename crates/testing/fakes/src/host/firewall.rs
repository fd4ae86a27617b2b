//! `iptables` in memory: chains and rules by table, created and queried. It does not filter packets.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ports::host::ProgramOutput;

/// What each program has created, as `TABLE CHAIN` and `TABLE CHAIN RULE`, in the order of the rules.
#[derive(Debug, Default)]
pub(super) struct Firewalls(BTreeMap<PathBuf, Vec<String>>);

impl Firewalls {
    pub(super) fn is_one(program: &Path) -> bool {
        [Path::new("iptables"), Path::new("ip6tables")].contains(&program)
    }

    pub(super) fn of(&self, program: &Path) -> Vec<String> {
        self.0.get(program).cloned().unwrap_or_default()
    }

    pub(super) fn empty(&mut self) {
        self.0.clear();
    }

    pub(super) fn run(&mut self, program: &Path, args: &[String]) -> ProgramOutput {
        let has_worked = self.act(program, args);
        let stderr = if has_worked { String::new() } else { "no".to_owned() };
        ProgramOutput { code: Some(i32::from(!has_worked)), stderr, ..ProgramOutput::default() }
    }

    /// Runs `-w SECONDS -t TABLE ACT CHAIN RULE…`; returns whether the real one would have succeeded.
    fn act(&mut self, program: &Path, args: &[String]) -> bool {
        let [_, _, _, table, act, chain, rule @ ..] = args else { return false };
        let lines = self.0.entry(program.to_owned()).or_default();
        let of_chain = format!("{table} {chain}");
        let line = [std::slice::from_ref(&of_chain), rule].concat().join(" ");
        let has = |wanted: &String| lines.contains(wanted);
        let target = rule.iter().skip_while(|word| *word != "-j").nth(1);
        let is_known = |target: &String| !target.starts_with("KUBE-") || has(&format!("{table} {target}"));
        let fits = (has(&of_chain) || !chain.starts_with("KUBE-")) && target.is_none_or(is_known);
        let at = match act.as_str() {
            "-S" => return has(&of_chain),
            "-C" => return fits && has(&line),
            "-N" if !has(&line) => lines.len(),
            "-A" if fits => lines.len(),
            "-I" if fits => 0,
            _ => return false,
        };
        lines.insert(at, line);
        true
    }
}
