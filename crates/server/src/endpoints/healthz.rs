//! `/healthz` and its individual checks.

use std::fmt::Write;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::StatusCode;
use ports::NodeApi;
use ports::node_api::CheckFailure;

use crate::Api;
use crate::answer;

type Outcome = Result<(), CheckFailure>;

const PING: &str = "ping";
const LOG: &str = "log";
const SYNC_LOOP: &str = "syncloop";
const DEVICE_PLUGIN: &str = "device-plugin";

/// All checks of the full server.
pub(crate) async fn all(State(api): State<Api>, RawQuery(query): RawQuery) -> Response {
    let devices = check_device_plugins(&*api);
    let checks =
        [(PING, Ok(())), (LOG, Ok(())), (SYNC_LOOP, check_sync_loop(&*api)), (DEVICE_PLUGIN, devices)];
    record(&*api, &checks);
    together(&checks, query.as_deref())
}

/// The checks of the health port.
pub(crate) async fn health_port(State(api): State<Api>, RawQuery(query): RawQuery) -> Response {
    let checks = [(PING, Ok(())), (SYNC_LOOP, check_sync_loop(&*api))];
    record(&*api, &checks);
    together(&checks, query.as_deref())
}

/// Always succeeds: a response shows that the process is alive.
pub(crate) async fn ping(State(api): State<Api>) -> Response {
    single(&*api, PING, Ok(()))
}

/// Always succeeds: the log has its own thread and a bounded queue, so that a blocked log delays nothing.
pub(crate) async fn log(State(api): State<Api>) -> Response {
    single(&*api, LOG, Ok(()))
}

pub(crate) async fn sync_loop(State(api): State<Api>) -> Response {
    single(&*api, SYNC_LOOP, check_sync_loop(&*api))
}

pub(crate) async fn device_plugin(State(api): State<Api>) -> Response {
    single(&*api, DEVICE_PLUGIN, check_device_plugins(&*api))
}

fn check_device_plugins(api: &dyn NodeApi) -> Outcome {
    if api.takes_device_plugins() {
        return Ok(());
    }
    let message =
        "device plugin registration gRPC server failed and no device plugins can register".to_owned();
    Err(CheckFailure { name: DEVICE_PLUGIN, message })
}

fn check_sync_loop(api: &dyn NodeApi) -> Outcome {
    let (age, limit) = api.sync_loop_age();
    if age <= limit {
        return Ok(());
    }
    let message = format!(
        "sync loop took longer than expected: last round {} s ago, limit {} s",
        age.as_secs(),
        limit.as_secs()
    );
    Err(CheckFailure { name: SYNC_LOOP, message })
}

/// `ok`, or the list of checks if one failed or the client requests it (`?verbose`).
fn together(checks: &[(&str, Outcome)], query: Option<&str>) -> Response {
    let mut report = String::new();
    let mut failed = false;
    for (name, outcome) in checks {
        // Writing to a string cannot fail.
        let _ = match outcome {
            Ok(()) => writeln!(report, "[+]{name} ok"),
            Err(failure) => {
                failed = true;
                writeln!(report, "[-]{} failed: {}", failure.name, failure.message)
            }
        };
    }
    let verbose =
        query.is_some_and(|query| query.split('&').any(|pair| pair.split('=').next() == Some("verbose")));
    match (failed, verbose) {
        (true, _) => {
            answer::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{report}healthz check failed\n"))
        }
        (false, true) => answer::text(StatusCode::OK, format!("{report}healthz check passed\n")),
        (false, false) => answer::text(StatusCode::OK, "ok"),
    }
}

/// Reports the checks to the observer.
fn record(api: &dyn NodeApi, checks: &[(&'static str, Outcome)]) {
    if let Some(observer) = api.observer() {
        for (name, outcome) in checks {
            observer.checked(name, outcome.is_ok());
        }
    }
}

fn single(api: &dyn NodeApi, name: &'static str, outcome: Outcome) -> Response {
    let checks = [(name, outcome)];
    record(api, &checks);
    let [(_, outcome)] = checks;
    match outcome {
        Ok(()) => answer::text(StatusCode::OK, "ok"),
        Err(failure) => answer::error(
            StatusCode::INTERNAL_SERVER_ERROR,
            &format!("internal server error: {}", failure.message),
        ),
    }
}
