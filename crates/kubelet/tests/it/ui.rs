//! `kubelet ui` on a real node, also as a browser shows it.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::node::{FOREVER, Node, http_get, shell_pod, uid};

const BROWSER: &str = "/usr/bin/chromium-headless-shell";

/// The process, and the address that it printed. It is killed when this is dropped.
struct Page {
    process: Child,
    address: String,
}

impl Page {
    fn of(node: &Node) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_kubelet"))
            .args(["ui", "--address", "127.0.0.1:0", "--root-dir"])
            .arg(node.path("root"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("the command runs");
        let mut line = String::new();
        let mut output = BufReader::new(process.stdout.take().expect("its output"));
        output.read_line(&mut line).expect("an address");
        let address = line.split(' ').find(|word| word.starts_with("http://")).unwrap_or_default().to_owned();
        Self { process, address }
    }

    fn port(&self) -> u16 {
        let host = self.address.trim_start_matches("http://").split('/').next().unwrap_or_default();
        host.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port")
    }

    fn get(&self, path: &str) -> Result<String, String> {
        let secret = self.address.rsplit('=').next().unwrap_or_default();
        http_get("127.0.0.1", self.port(), &format!("{path}?secret={secret}"))
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What the browser has after the scripts ran for some seconds: the document, or a picture in `picture`.
fn browse(address: &str, window: &str, picture: Option<&Path>) -> String {
    let output = match picture {
        Some(path) => format!("--screenshot={}", path.display()),
        None => "--dump-dom".to_owned(),
    };
    let profile = tempfile::tempdir().expect("a directory");
    let run = Command::new(BROWSER)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--timeout=20000"])
        .args(["--virtual-time-budget=8000", &format!("--window-size={window}"), &output])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(address)
        .output()
        .expect("the browser runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8_lossy(&run.stdout).into_owned()
}

#[test]
fn page_shows_the_node_and_its_pods_to_those_who_have_its_address() {
    let node = Node::start();
    node.apply("web", &shell_pod("web", FOREVER));
    // A text from outside that would be a script if it were not shown as a text.
    let mut bad = shell_pod("bad", FOREVER);
    bad["spec"]["volumes"] =
        json!([{"name": "v", "hostPath": {"path": "/<script>alert(1)</script>", "type": "Directory"}}]);
    node.apply("bad", &bad);
    let web = uid(&node.running("web"));
    let page = Page::of(&node);

    let refused = http_get("127.0.0.1", page.port(), "/v1/pods").expect_err("the secret is missing");
    assert!(refused.contains("403"), "{refused}");
    let refused = page.get("/v1/exec").expect_err("it only reads");
    assert!(refused.contains("404"), "{refused}");
    let pods: Value = serde_json::from_str(&page.get("/v1/pods").expect("the pods")).expect("JSON");
    assert!(pods["pods"].as_array().expect("pods").iter().any(|pod| pod["uid"] == json!(web)), "{pods}");
    assert!(page.get(&format!("/v1/pods/{web}/start.svg")).expect("a picture").starts_with("<svg"));
    node.eventually("the use is read", |_| {
        let history: Value =
            serde_json::from_str(&page.get("/history")?).map_err(|error| error.to_string())?;
        let readings = history.as_array().map_or(0, Vec::len);
        if readings > 0 { Ok(()) } else { Err(history.to_string()) }
    });

    if !Path::new(BROWSER).exists() {
        println!("skipped the browser: {BROWSER} is not installed");
        return;
    }
    // The browser stops at some moment, and a request that is under way then fails.
    let shown = node.eventually("the page shows answers to all its requests", |_| {
        let shown = browse(&page.address, "1200,1600", None);
        if shown.contains("id=\"away\" role=\"alert\" hidden") { Ok(shown) } else { Err(shown) }
    });
    for text in [
        "default/web-node",
        "default/bad-node",
        "The node",
        "Use in the last hour",
        "hostPath type check failed",
    ] {
        assert!(shown.contains(text), "{text} is missing: {shown}");
    }
    assert!(shown.contains("&lt;script&gt;alert(1)") && !shown.contains("<script>alert(1)"), "{shown}");
    for (name, window) in [("ui.png", "1200,1600"), ("ui-phone.png", "400,900")] {
        let directory = match std::env::var_os("RECORD_TRANSCRIPTS") {
            Some(_) => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate"),
            None => node.path("root"),
        };
        let picture = directory.join(name);
        browse(&page.address, window, Some(&picture));
        let bytes = std::fs::metadata(&picture).expect("a picture").len();
        assert!(bytes > 20_000, "the picture is not empty: {bytes} bytes");
    }
}
