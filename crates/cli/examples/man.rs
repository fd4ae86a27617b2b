//! Writes the manual pages and the completion scripts: `cargo run --locked -p cli --example man -- DIRECTORY`.
//!
//! `kubelet.8` has the flags of the kubelet, and `kubelet-COMMAND.8` is made from the definition of each command, like its `--help`.
//! `kubelet.bash`, `_kubelet` (zsh) and `kubelet.fish` are what `kubelet completion` prints.
#![expect(clippy::print_stderr, reason = "a command line tool")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;

fn main() -> ExitCode {
    let Some(directory) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: man DIRECTORY");
        return ExitCode::from(2);
    };
    match write_all(&directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("failed to write to {}: {error}", directory.display());
            ExitCode::FAILURE
        }
    }
}

fn write_all(directory: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    std::fs::write(directory.join("kubelet.8"), of_the_kubelet())?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut cli::definition(), "kubelet", directory)?;
    }
    let mut all = cli::definition().disable_help_subcommand(true);
    all.build();
    all.get_subcommands().try_for_each(|command| write_command(directory, "kubelet", command))
}

/// The page of a command, and those of its own commands.
fn write_command(directory: &Path, before: &str, command: &Command) -> std::io::Result<()> {
    let name = format!("{before}-{}", command.get_name());
    let mut page = Vec::new();
    // Names of commands are static texts in clap.
    let title: &'static str = name.clone().leak();
    let named = command.clone().name(title).bin_name(name.replace('-', " "));
    clap_mangen::Man::new(named).section("8").render(&mut page)?;
    std::fs::write(directory.join(format!("{name}.8")), page)?;
    command
        .get_subcommands()
        .filter(|own| own.get_name() != "help")
        .try_for_each(|own| write_command(directory, &name, own))
}

fn of_the_kubelet() -> String {
    // A line that begins with a dot or a quotation mark would be a request to the formatter.
    let escaped = |text: &str| {
        let line = |line: &str| match line.starts_with(['.', '\'']) {
            true => format!("\\&{line}\n"),
            false => format!("{line}\n"),
        };
        text.replace('\\', "\\e").replace('-', "\\-").lines().map(line).collect::<String>()
    };
    format!(
        ".TH kubelet 8\n.SH NAME\nkubelet \\- the Kubernetes node agent\n.SH SYNOPSIS\n.B kubelet\n[flags]\n.br\n.B kubelet\nCOMMAND\n\
         .SH DESCRIPTION\n.nf\n{}.fi\n.SH COMMANDS\n.nf\n{}.fi\n",
        escaped(&config::flags::help()),
        escaped(&cli::summary()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_script_of_each_shell_knows_the_commands() {
        let directory = tempfile::tempdir().unwrap();
        write_all(directory.path()).unwrap();
        for name in ["kubelet.bash", "_kubelet", "kubelet.fish"] {
            let script = std::fs::read_to_string(directory.path().join(name)).unwrap();
            assert!(script.contains("why") && script.contains("doctor"), "{name}: {script}");
        }
    }

    #[test]
    fn kubelet_and_each_command_have_a_page_with_examples() {
        let directory = tempfile::tempdir().unwrap();
        write_all(directory.path()).unwrap();
        let page = |name: &str| std::fs::read_to_string(directory.path().join(format!("{name}.8"))).unwrap();
        assert!(page("kubelet").contains("\\-\\-config") && page("kubelet").contains("kubelet why"));
        let names = [
            "why",
            "get",
            "describe",
            "logs",
            "exec",
            "stats",
            "events",
            "ui",
            "doctor",
            "config-check",
            "version",
        ];
        for name in names {
            let text = page(&format!("kubelet-{name}"));
            assert!(text.contains(".SH NAME") && text.contains("Example"), "{name}: {text}");
        }
    }
}
