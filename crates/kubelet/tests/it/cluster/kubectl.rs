//! An unmodified kubectl, with a home of its own, so that it reads and caches nothing of the machine's user.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::server::{Pair, connect_to, send};

#[derive(Clone, Debug)]
pub(crate) struct Kubectl {
    pub(crate) kubeconfig: PathBuf,
    pub(crate) home: PathBuf,
}

impl Kubectl {
    pub(crate) fn binary() -> OsString {
        std::env::var_os("KUBECTL").unwrap_or_else(|| "/usr/bin/kubectl".into())
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.within(Command::new(Self::binary()), arguments)
    }

    /// The same where another program starts it.
    pub(crate) fn within(&self, mut command: Command, arguments: &[&str]) -> Command {
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", &self.home)
            .env("KUBECONFIG", &self.kubeconfig)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Starts it; all it reads and writes is the caller's.
    pub(crate) fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).spawn().expect("kubectl (Debian: kubernetes-client) can be run")
    }

    /// Starts it and leaves it running; what it says goes to the file.
    pub(crate) fn start_into(&self, arguments: &[&str], file: File) -> Child {
        let mut command = self.command(arguments);
        command.stdin(Stdio::null()).stdout(file).stderr(Stdio::null());
        command.spawn().expect("kubectl (Debian: kubernetes-client) can be run")
    }

    /// Runs it to its end, with `input` as its standard input.
    pub(crate) fn run(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = self.start(arguments);
        let mut stdin = child.stdin.take().expect("its standard input is ours");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // One that fails early does not read to the end.
                let _ = stdin.write_all(input.as_bytes());
            });
            child.wait_with_output().expect("kubectl ends")
        })
    }

    /// What it says when it succeeds; what it complains about when it does not.
    pub(crate) fn attempt(&self, arguments: &[&str]) -> Result<String, String> {
        said(&self.run(arguments, ""))
    }

    #[track_caller]
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        self.feed(arguments, "")
    }

    /// What it says when it succeeds with this input.
    #[track_caller]
    pub(crate) fn feed(&self, arguments: &[&str], input: &str) -> String {
        let said = said(&self.run(arguments, input));
        said.unwrap_or_else(|complaint| panic!("kubectl {arguments:?}: {complaint}"))
    }

    /// `kubectl apply` of these objects.
    #[track_caller]
    pub(crate) fn apply(&self, objects: &[Value]) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        self.feed(&["apply", "-f", "-"], &list.to_string());
    }

    /// One object as `kubectl get -o json` shows it; the complaint where there is none. Pods and nodes, which tests ask for
    /// over and over, are read without starting a program for it.
    pub(crate) fn get(&self, kind: &str, name: &str) -> Result<Value, String> {
        let text = match kind {
            "pod" => self.read(&format!("/api/v1/namespaces/default/pods/{name}"))?,
            "node" => self.read(&format!("/api/v1/nodes/{name}"))?,
            other => self.attempt(&["get", other, name, "-o", "json"])?,
        };
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }

    /// All pods of the namespace, read likewise.
    pub(crate) fn pods(&self) -> Result<Vec<Value>, String> {
        self.list("/api/v1/namespaces/default/pods")
    }

    /// The events about an object, read likewise.
    pub(crate) fn events(&self, kind: &str, name: &str) -> Result<Vec<Value>, String> {
        let selector = format!("involvedObject.kind%3D{kind}%2CinvolvedObject.name%3D{name}");
        self.list(&format!("/api/v1/events?fieldSelector={selector}"))
    }

    fn list(&self, path: &str) -> Result<Vec<Value>, String> {
        let text = self.read(path)?;
        let list: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        list["items"].as_array().cloned().ok_or(text)
    }

    /// Makes pods as `kubectl create` does, likewise: where moments count, and in an emulated machine.
    #[track_caller]
    pub(crate) fn create(&self, pods: &[Value]) {
        for pod in pods {
            let made = self.ask("POST", "/api/v1/namespaces/default/pods", &pod.to_string());
            made.unwrap_or_else(|complaint| panic!("{}: {complaint}", pod["metadata"]["name"]));
        }
    }

    /// Deletes one, with the time to end that it asks for.
    #[track_caller]
    pub(crate) fn delete(&self, pod: &str) {
        let deleted = self.ask("DELETE", &format!("/api/v1/namespaces/default/pods/{pod}"), "");
        deleted.unwrap_or_else(|complaint| panic!("{pod}: {complaint}"));
    }

    fn read(&self, path: &str) -> Result<String, String> {
        self.ask("GET", path, "")
    }

    /// What the API server answers at that path to whom the kubeconfig names.
    fn ask(&self, method: &str, path: &str, body: &str) -> Result<String, String> {
        let config = std::fs::read(&self.kubeconfig).map_err(|error| error.to_string())?;
        let config: Value = serde_json::from_slice(&config).expect("localapi writes JSON");
        let (cluster, user) = (&config["clusters"][0]["cluster"], &config["users"][0]["user"]);
        let server = cluster["server"].as_str().expect("an address");
        let port = server.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
        let pem = |value: &Value| String::from_utf8(STANDARD.decode(value.as_str()?).ok()?).ok();
        let authority = pem(&cluster["certificate-authority-data"]).expect("an authority");
        let client = Pair {
            certificate: pem(&user["client-certificate-data"]).expect("a certificate"),
            key: pem(&user["client-key-data"]).expect("a key"),
        };
        let stream = connect_to(port, "127.0.0.1", authority.as_bytes(), Some(&client))?;
        let answer = send(stream, &format!("{method} {path}"), "Content-Type: application/json\r\n", body)?;
        if (200..300).contains(&answer.status) { Ok(answer.body) } else { Err(answer.body) }
    }
}

fn said(output: &Output) -> Result<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}
