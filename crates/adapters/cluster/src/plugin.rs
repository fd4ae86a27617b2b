//! Exec credential plugins (`client.authentication.k8s.io`): runs them, and caches their credentials until they expire.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use http::header::HeaderValue;
use jiff::Timestamp;
use parking_lot::Mutex;
use ports::Clock;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use crate::access::Plugin;
use crate::encode::bearer;
use crate::tls::{ClientIdentity, Tls};

/// Timeout of a plugin; it is also killed when no call waits for it any more.
const PLUGIN_DEADLINE: Duration = Duration::from_secs(60);
const MAX_OUTPUT: u64 = 1 << 20;
/// Limit for the part of its error output in messages.
const MAX_COMPLAINT: u64 = 4 << 10;

type Login = BoxFuture<'static, Result<Option<HeaderValue>, String>>;

#[derive(Debug)]
pub(crate) struct PluginLogin {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    plugin: Plugin,
    clock: Clock,
    tls: Option<Arc<Tls>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: Option<Held>,
    /// The last certificate that it returned.
    identity: Option<(String, String)>,
    /// Concurrent calls wait for the same run. Dropped when none waits any more.
    running: Option<WeakShared<Login>>,
}

#[derive(Clone, Debug)]
struct Held {
    header: Option<HeaderValue>,
    expires: Option<Timestamp>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    api_version: String,
    kind: String,
    status: Option<ExecStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ExecStatus {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
    expiration_timestamp: Option<Timestamp>,
}

impl PluginLogin {
    pub(crate) fn new(plugin: &Plugin, clock: Clock, tls: Option<Arc<Tls>>) -> Self {
        let inner = Inner { plugin: plugin.clone(), clock, tls, state: Mutex::default() };
        Self { inner: Arc::new(inner) }
    }

    /// # Errors
    /// The plugin could not be run, failed, or returned no credentials.
    pub(crate) async fn authorization(&self) -> Result<Option<HeaderValue>, String> {
        let run = {
            let mut state = self.inner.state.lock();
            let now = self.inner.clock.now().wall;
            if let Some(held) = &state.held
                && held.expires.is_none_or(|expires| now < expires)
            {
                return Ok(held.header.clone());
            }
            self.run(&mut state)
        };
        run.await
    }

    /// The next call runs the plugin again.
    pub(crate) fn forget(&self) {
        self.inner.state.lock().held = None;
    }

    fn run(&self, state: &mut State) -> Shared<Login> {
        if let Some(running) = state.running.as_ref().and_then(WeakShared::upgrade) {
            return running;
        }
        let inner = Arc::clone(&self.inner);
        let run = async move {
            let result = inner.log_in().await;
            inner.state.lock().running = None;
            result.map_err(|problem| format!("exec plugin {}: {problem}", inner.plugin.command))
        };
        let run = run.boxed().shared();
        state.running = run.downgrade();
        run
    }
}

impl Inner {
    async fn log_in(&self) -> Result<Option<HeaderValue>, String> {
        let output = tokio::time::timeout(PLUGIN_DEADLINE, self.output())
            .await
            .map_err(|_| format!("timed out after {PLUGIN_DEADLINE:?}"))??;
        let status = self.parse(&output)?;
        let header = status.token.as_deref().map(bearer).transpose()?;
        let identity = status.client_certificate_data.zip(status.client_key_data);
        if header.is_none() && identity.is_none() {
            return Err("its output has neither a token nor a certificate with its key".to_owned());
        }
        if let Some((certificate, key)) = identity {
            self.take_identity(certificate, key)?;
        }
        let held = Held { header: header.clone(), expires: status.expiration_timestamp };
        self.state.lock().held = Some(held);
        Ok(header)
    }

    fn parse(&self, output: &[u8]) -> Result<ExecStatus, String> {
        let credential: ExecCredential = serde_json::from_slice(output)
            .map_err(|error| format!("its output is not an ExecCredential: {error}"))?;
        if credential.kind != "ExecCredential" || credential.api_version != self.plugin.api_version {
            return Err(format!(
                "its output is a {} of {}, but must be an ExecCredential of {}",
                credential.kind, credential.api_version, self.plugin.api_version
            ));
        }
        credential.status.ok_or_else(|| "its output has no status".to_owned())
    }

    /// Only a changed certificate requires new connections.
    fn take_identity(&self, certificate: String, key: String) -> Result<(), String> {
        let given = (certificate, key);
        if self.state.lock().identity.as_ref() == Some(&given) {
            return Ok(());
        }
        let identity = ClientIdentity::from_pem(given.0.as_bytes(), given.1.as_bytes());
        if let Some(tls) = &self.tls {
            identity.and_then(|identity| tls.set_identity(identity)).map_err(|error| error.to_string())?;
        }
        self.state.lock().identity = Some(given);
        Ok(())
    }

    async fn output(&self) -> Result<Vec<u8>, String> {
        let mut child = Command::new(&self.plugin.command)
            .args(&self.plugin.args)
            .envs(&self.plugin.env)
            .env("KUBERNETES_EXEC_INFO", self.request().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| self.not_started(&error))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (output, complaint) = tokio::join!(read(stdout, MAX_OUTPUT), read(stderr, MAX_COMPLAINT));
        let status = child.wait().await.map_err(|error| error.to_string())?;
        if status.success() {
            return Ok(output);
        }
        let complaint = String::from_utf8_lossy(&complaint).trim().to_owned();
        Err(if complaint.is_empty() { status.to_string() } else { format!("{status}: {complaint}") })
    }

    fn not_started(&self, error: &std::io::Error) -> String {
        match self.plugin.install_hint.trim() {
            "" => format!("failed to run: {error}"),
            hint => format!("failed to run: {error}\n{hint}"),
        }
    }

    /// The input of the plugin.
    fn request(&self) -> Value {
        let mut spec = json!({"interactive": false});
        if let Some(cluster) = &self.plugin.cluster {
            spec["cluster"] = cluster.clone();
        }
        json!({"apiVersion": self.plugin.api_version, "kind": "ExecCredential", "spec": spec})
    }
}

async fn read(pipe: Option<impl AsyncRead + Unpin>, most: u64) -> Vec<u8> {
    let mut content = Vec::new();
    if let Some(pipe) = pipe {
        // A read error ends the output; the exit status shows whether the plugin failed.
        let _ = pipe.take(most).read_to_end(&mut content).await;
    }
    content
}
