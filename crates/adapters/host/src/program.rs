//! Runs a program of the node, with input and output. It is killed with all that it started at its deadline, or when its caller
//! stops waiting.

use std::process::Stdio;

use ports::host::{HostError, HostResult, ProgramCall, ProgramOutput};
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use crate::failed;

/// A program that is killed together with what it started, unless it has ended by itself: `mount` leaves the work to
/// another program, which must not mount anything after the call timed out.
struct Running(Child);

const MAX_OUTPUT: u64 = 1 << 20;
/// How much of its standard error is shown.
const MAX_COMPLAINT: u64 = 4 << 10;

pub(crate) async fn run(call: &ProgramCall) -> HostResult<ProgramOutput> {
    let child = Command::new(&call.path)
        .args(&call.args)
        .envs(call.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .process_group(0)
        .spawn()
        .map_err(failed("run", &call.path))?;
    match tokio::time::timeout(call.deadline, finish(Running(child), call)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(HostError::NotFinished(format!(
            "{}: no answer within {:?}",
            call.path.display(),
            call.deadline
        ))),
    }
}

async fn finish(mut running: Running, call: &ProgramCall) -> HostResult<ProgramOutput> {
    let child = &mut running.0;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A program that reads no input closes its end; its exit status decides.
            let _ = stdin.write_all(&call.input).await;
        }
    };
    // One byte more than allowed shows that there was too much.
    let ((), output, stderr) = tokio::join!(feed, read(stdout, MAX_OUTPUT + 1), read(stderr, MAX_COMPLAINT));
    let status = child.wait().await.map_err(failed("wait for", &call.path))?;
    if output.len() as u64 > MAX_OUTPUT {
        return Err(invalid(call, &format!("it wrote more than {MAX_OUTPUT} bytes")));
    }
    let stderr = String::from_utf8_lossy(&stderr).trim().to_owned();
    Ok(ProgramOutput { code: status.code(), output, stderr })
}

fn invalid(call: &ProgramCall, problem: &str) -> HostError {
    HostError::Invalid(format!("{}: {problem}", call.path.display()))
}

async fn read(pipe: Option<impl AsyncRead + Unpin>, most: u64) -> Vec<u8> {
    let mut content = Vec::new();
    if let Some(mut pipe) = pipe {
        // What was read before an error is kept.
        let _ = (&mut pipe).take(most).read_to_end(&mut content).await;
        // The rest is discarded: a program must not wait for a reader that has read enough.
        let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    }
    content
}

impl Drop for Running {
    fn drop(&mut self) {
        // Without an id it has been waited for.
        let id = self.0.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(group) = id {
            // What has ended meanwhile needs no killing.
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use ports::Processes;

    use super::*;

    fn shell(script: &str, input: &str) -> ProgramCall {
        ProgramCall {
            path: Path::new("/bin/sh").to_owned(),
            args: vec!["-c".to_owned(), script.to_owned()],
            env: vec![("WHO".to_owned(), "me".to_owned())],
            input: input.as_bytes().to_vec(),
            deadline: Duration::from_secs(60),
        }
    }

    #[tokio::test]
    async fn program_receives_input_and_environment_and_returns_output() {
        let output = run(&shell("read line; echo \"$line by $WHO\"", "hello\n")).await.unwrap();
        assert_eq!((output.code, &*output.output), (Some(0), &b"hello by me\n"[..]));
        let silent = run(&shell("true", &"x".repeat(1 << 20))).await.unwrap();
        assert_eq!(silent, ProgramOutput { code: Some(0), ..ProgramOutput::default() }, "it need not read");
    }

    #[tokio::test]
    async fn program_failures_report_exit_status_and_stderr() {
        let end = run(&shell("echo no such user >&2; exit 3", "")).await.unwrap();
        assert_eq!((end.code, &*end.stderr), (Some(3), "no such user"));
        let call = shell("echo no such user >&2; exit 3", "");
        let error = crate::LinuxHost::new().run_program(&call).await.unwrap_err().to_string();
        assert_eq!(error, "/bin/sh: exit status: 3: no such user");
        let missing = ProgramCall { path: "/nowhere/program".into(), ..shell("", "") };
        assert!(run(&missing).await.unwrap_err().is_not_found());
        let flood = run(&shell("head -c 3000000 /dev/zero", "")).await.unwrap_err().to_string();
        assert_eq!(flood, "/bin/sh: it wrote more than 1048576 bytes");
    }

    #[tokio::test]
    async fn program_past_its_deadline_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; wait", pid.display());
        let began = Instant::now();
        let call = ProgramCall { deadline: Duration::from_secs(2), ..shell(&script, "") };
        let error = run(&call).await.unwrap_err();
        assert!(
            matches!(&error, HostError::NotFinished(text) if text == "/bin/sh: no answer within 2s"),
            "{error}"
        );
        let pid = std::fs::read_to_string(pid).unwrap();
        let is_gone = || match std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())) {
            // Killed, and maybe not reaped yet.
            Ok(stat) => stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')),
            Err(_) => true,
        };
        while !is_gone() {
            assert!(began.elapsed() < Duration::from_secs(60), "it still runs");
            tokio::task::yield_now().await;
        }
    }
}
