//! Health: `/healthz`, `/livez` and `/readyz`, each with its checks, which are below it, too (`/readyz/storage`).

use ::http::{Response, StatusCode};

use crate::api::Api;
use crate::http::{Body, Query, response};

const TEXT: &str = "text/plain; charset=utf-8";

struct Check {
    name: &'static str,
    passes: fn(&Api) -> bool,
}

/// The server answers.
const PING: Check = Check { name: "ping", passes: |_| true };
/// The last change was stored. A full disk makes no restart necessary, so that this is no matter of `/livez`.
const STORAGE: Check = Check { name: "storage", passes: |api| api.store.takes_changes() };

fn checks(endpoint: &str) -> &'static [Check] {
    if endpoint == "livez" { const { &[PING] } } else { const { &[PING, STORAGE] } }
}

/// All checks, but for those that the query excludes. `verbose` lists them.
pub(super) fn all(api: &Api, endpoint: &str, query: &Query) -> Response<Body> {
    let mut excluded: Vec<&str> = query.all("exclude").filter(|name| !name.is_empty()).collect();
    let (mut lines, mut passed) = (String::new(), true);
    for check in checks(endpoint) {
        let name = check.name;
        let line = if excluded.contains(&name) {
            excluded.retain(|other| *other != name);
            format!("[+]{name} excluded: ok\n")
        } else if (check.passes)(api) {
            format!("[+]{name} ok\n")
        } else {
            passed = false;
            format!("[-]{name} failed: reason withheld\n")
        };
        lines.push_str(&line);
    }
    if !excluded.is_empty() {
        let names: Vec<String> = excluded.iter().map(|name| format!("{name:?}")).collect();
        let names = names.join(",");
        lines.push_str(&format!("warn: some health checks cannot be excluded: no matches for {names}\n"));
    }
    let is_verbose = query.all("verbose").next().is_some();
    match passed {
        true if is_verbose => text(StatusCode::OK, format!("{lines}{endpoint} check passed\n")),
        true => text(StatusCode::OK, "ok".to_owned()),
        false => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{lines}{endpoint} check failed\n")),
    }
}

/// One check.
pub(super) fn one(api: &Api, endpoint: &str, name: &str) -> Response<Body> {
    match checks(endpoint).iter().find(|check| check.name == name) {
        Some(check) if (check.passes)(api) => text(StatusCode::OK, "ok".to_owned()),
        Some(_) => {
            let why = "internal server error: the last change was not stored\n";
            text(StatusCode::INTERNAL_SERVER_ERROR, why.to_owned())
        }
        None => text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
    }
}

fn text(code: StatusCode, text: String) -> Response<Body> {
    response::bytes(code, TEXT, text)
}
