//! An unmodified kubectl with a home directory of its own, so that it uses no files of the machine's user.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::server::{Pair, Stream, connect_to};

const PODS: &str = "/api/v1/namespaces/default/pods";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

/// A connection that is kept for the next request, with its credentials.
type KeptConnection = Arc<Mutex<Option<(PathBuf, BufReader<Stream>)>>>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Kubectl {
    pub(crate) kubeconfig: PathBuf,
    pub(crate) home: PathBuf,
    pub(crate) kept: KeptConnection,
}

impl Kubectl {
    pub(crate) fn binary() -> OsString {
        std::env::var_os("KUBECTL").unwrap_or_else(|| "/usr/bin/kubectl".into())
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.within(Command::new(Self::binary()), arguments)
    }

    /// Does the same where another program starts it.
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

    /// Starts it; the caller gets its input and output.
    pub(crate) fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).spawn().expect("kubectl (Debian: kubernetes-client) can be run")
    }

    /// Starts it in the background; its output goes to the file.
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

    /// Its output when it succeeds; its error output otherwise.
    pub(crate) fn attempt(&self, arguments: &[&str]) -> Result<String, String> {
        stdout_of(&self.run(arguments, ""))
    }

    #[track_caller]
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        self.run_with_input(arguments, "")
    }

    /// Its output when it succeeds with this input.
    #[track_caller]
    pub(crate) fn run_with_input(&self, arguments: &[&str], input: &str) -> String {
        let result = stdout_of(&self.run(arguments, input));
        result.unwrap_or_else(|error| panic!("kubectl {arguments:?}: {error}"))
    }

    /// `kubectl apply` of these objects.
    #[track_caller]
    pub(crate) fn apply(&self, objects: &[Value]) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        self.run_with_input(&["apply", "-f", "-"], &list.to_string());
    }

    /// One object as `kubectl get -o json` shows it; the error where there is none. Tests poll this, so it is read without
    /// starting a program.
    pub(crate) fn get(&self, kind: &str, name: &str) -> Result<Value, String> {
        let text = match kind {
            "pod" => self.read(&format!("{PODS}/{name}"))?,
            "pvc" => self.read(&format!("{CLAIMS}/{name}"))?,
            "node" => self.read(&format!("/api/v1/nodes/{name}"))?,
            other => self.attempt(&["get", other, name, "-o", "json"])?,
        };
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }

    /// All pods of the namespace, read in the same way.
    pub(crate) fn pods(&self) -> Result<Vec<Value>, String> {
        self.list(PODS)
    }

    /// The events of an object, read in the same way.
    pub(crate) fn events(&self, kind: &str, name: &str) -> Result<Vec<Value>, String> {
        let selector = format!("involvedObject.kind%3D{kind}%2CinvolvedObject.name%3D{name}");
        self.list(&format!("/api/v1/events?fieldSelector={selector}"))
    }

    /// The objects of the collection at that path, read in the same way.
    pub(crate) fn list(&self, path: &str) -> Result<Vec<Value>, String> {
        let text = self.read(path)?;
        let list: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        list["items"].as_array().cloned().ok_or(text)
    }

    /// Creates objects as `kubectl create` does, in the same way: for tests where moments count, and for emulated machines.
    #[track_caller]
    pub(crate) fn create(&self, objects: &[Value]) {
        for object in objects {
            let path = match object["kind"].as_str() {
                Some("Pod") => PODS,
                Some("PersistentVolumeClaim") => CLAIMS,
                Some("PersistentVolume") => "/api/v1/persistentvolumes",
                Some("PriorityClass") => "/apis/scheduling.k8s.io/v1/priorityclasses",
                kind => panic!("{kind:?} cannot be created like this"),
            };
            self.must("POST", path, &object.to_string());
        }
    }

    /// Creates the object of this JSON at that path, in the same way. kubectl cannot read every object that the API stores.
    #[track_caller]
    pub(crate) fn post(&self, path: &str, json: &str) {
        self.must("POST", path, json);
    }

    /// Creates all of these objects at that path over one connection: hundreds of handshakes would cost the processors more than the rest.
    #[track_caller]
    pub(crate) fn post_all(&self, path: &str, objects: impl IntoIterator<Item = Value>) {
        let mut stream = BufReader::new(self.connect().expect("a connection"));
        for object in objects {
            let answer = exchange(&mut stream, &format!("POST {path}"), &object.to_string());
            answer.and_then(into_result).unwrap_or_else(|error| panic!("POST {path}: {error}"));
        }
    }

    /// Replaces the object at that path, in the same way.
    #[track_caller]
    pub(crate) fn put(&self, path: &str, json: &str) {
        self.must("PUT", path, json);
    }

    /// Writes the status of a PersistentVolumeClaim.
    #[track_caller]
    pub(crate) fn write_claim_status(&self, name: &str, claim: &Value) {
        self.must("PUT", &format!("{CLAIMS}/{name}/status"), &claim.to_string());
    }

    /// Changes the status of the object at that path, as a controller does: again if another client was faster.
    #[track_caller]
    pub(crate) fn change_status(&self, path: &str, change: impl Fn(&mut Value)) {
        loop {
            let text = self.read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
            let mut object = serde_json::from_str(&text).expect("an object");
            change(&mut object);
            match self.request("PUT", &format!("{path}/status"), &object.to_string()) {
                Ok(_) => return,
                Err(error) => assert!(error.contains("Conflict"), "{path}: {error}"),
            }
        }
    }

    /// Deletes a pod with its own grace period, and does not wait for its end.
    #[track_caller]
    pub(crate) fn delete(&self, pod: &str) {
        self.must("DELETE", &format!("{PODS}/{pod}"), "");
    }

    #[track_caller]
    fn must(&self, method: &str, path: &str, body: &str) {
        self.request(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"));
    }

    fn read(&self, path: &str) -> Result<String, String> {
        self.request("GET", path, "")
    }

    /// The response of the API server at that path, with the credentials of the kubeconfig.
    fn request(&self, method: &str, path: &str, body: &str) -> Result<String, String> {
        let what = format!("{method} {path}");
        let mut kept = self.kept.lock();
        // The server may have stopped since; a request that changes something is not repeated.
        if let Some((of, stream)) = kept.as_mut()
            && method == "GET"
            && *of == self.kubeconfig
            && let Ok(answer) = exchange(stream, &what, body)
        {
            return into_result(answer);
        }
        *kept = None;
        let mut stream = BufReader::new(self.connect()?);
        let answer = exchange(&mut stream, &what, body)?;
        *kept = Some((self.kubeconfig.clone(), stream));
        into_result(answer)
    }

    fn connect(&self) -> Result<Stream, String> {
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
        connect_to(port, "127.0.0.1", authority.as_bytes(), Some(&client))
    }
}

/// One request and its response: status and body. The connection stays open.
fn exchange(stream: &mut BufReader<Stream>, what: &str, body: &str) -> Result<(u16, String), String> {
    let failed = |error: std::io::Error| error.to_string();
    let head = "Host: node\r\nContent-Type: application/json\r\n";
    let request = format!("{what} HTTP/1.1\r\n{head}Content-Length: {}\r\n\r\n{body}", body.len());
    stream.get_mut().write_all(request.as_bytes()).map_err(failed)?;
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).map_err(failed)? == 0 {
            return Err("the connection has ended".to_owned());
        }
    }
    let head = head.to_ascii_lowercase();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or("no status")?;
    let mut body = Vec::new();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    if let Some(length) = length {
        read_part(stream, &mut body, length.trim().parse().map_err(|_| "no length")?).map_err(failed)?;
        return Ok((status, String::from_utf8_lossy(&body).into_owned()));
    }
    loop {
        let mut size = String::new();
        stream.read_line(&mut size).map_err(failed)?;
        let size = usize::from_str_radix(size.trim(), 16).map_err(|_| "no size of a chunk")?;
        read_part(stream, &mut body, size).map_err(failed)?;
        stream.read_line(&mut String::new()).map_err(failed)?;
        if size == 0 {
            return Ok((status, String::from_utf8_lossy(&body).into_owned()));
        }
    }
}

fn read_part(stream: &mut BufReader<Stream>, body: &mut Vec<u8>, size: usize) -> std::io::Result<()> {
    let begin = body.len();
    body.resize(begin + size, 0);
    stream.read_exact(&mut body[begin..])
}

fn into_result((status, body): (u16, String)) -> Result<String, String> {
    if (200..300).contains(&status) { Ok(body) } else { Err(body) }
}

fn stdout_of(output: &Output) -> Result<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}
