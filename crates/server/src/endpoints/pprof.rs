//! `/debug/pprof/`: profiles of this process in pprof's format. A Rust program does not record stacks, so profiles are by
//! thread and by kind of memory; profiles that only a Go runtime has return an explanation.

mod format;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use http::header::CONTENT_DISPOSITION;
use http::{HeaderValue, StatusCode};
use ports::OwnProcess;

use self::format::{Sample, encode};
use crate::answer;
use crate::query;
use crate::state::MainState;

const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");
/// Default duration of a CPU profile.
const DEFAULT_SECONDS: u64 = 30;
const MAX_SECONDS: u64 = 300;

/// The profiles with their descriptions.
const PROFILES: [(&str, &str); 4] = [
    ("goroutine", "threads of the process, by name and state, and the number of its tasks"),
    ("heap", "memory in use, by the kinds that the kernel distinguishes"),
    ("profile", "CPU time by thread, over ?seconds= (default 30)"),
    ("threadcreate", "threads of the process, by name"),
];
/// Profiles that only a Go runtime has.
const OF_GO: [&str; 5] = ["allocs", "block", "mutex", "symbol", "trace"];

pub(crate) async fn index() -> Response {
    let mut page =
        "<html>\n<head>\n<title>/debug/pprof/</title>\n</head>\n<body>\n/debug/pprof/<br>\n<table>\n"
            .to_owned();
    for (name, shows) in PROFILES {
        // Writing to a string cannot fail.
        let _ = writeln!(page, "<tr><td><a href='{name}?debug=1'>{name}</a></td><td>{shows}</td></tr>");
    }
    page.push_str("<tr><td><a href='cmdline'>cmdline</a></td><td>the command line</td></tr>\n</table>\n</body>\n</html>\n");
    answer::with_type(StatusCode::OK, HTML, page)
}

pub(crate) async fn profile(
    State(state): State<MainState>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let query = query::pairs(query.as_deref());
    let process = &*state.process;
    let samples = match &*name {
        "cmdline" => return answer::text(StatusCode::OK, process.command_line().join("\0")),
        "goroutine" | "threadcreate" => of_threads(process, name == "goroutine"),
        "heap" => process.memory().into_iter().map(|(kind, bytes)| Sample::new(kind, bytes)).collect(),
        "profile" => {
            let seconds = query::first(&query, "seconds").and_then(|text| text.parse().ok());
            let seconds = seconds.filter(|seconds| *seconds > 0).unwrap_or(DEFAULT_SECONDS);
            of_processor(process, Duration::from_secs(seconds.min(MAX_SECONDS))).await
        }
        name if OF_GO.contains(&name) => {
            let text = format!("{name}: this profile is only available from a Go runtime");
            return answer::error(StatusCode::NOT_IMPLEMENTED, &text);
        }
        _ => return answer::error(StatusCode::NOT_FOUND, "Unknown profile"),
    };
    let wants_text = query::first(&query, "debug").is_some_and(|level| level != "0");
    let (kind, unit) = match &*name {
        "heap" => ("inuse_space", "bytes"),
        "profile" => ("cpu", "nanoseconds"),
        _ => ("threads", "count"),
    };
    if wants_text {
        let total: u64 = samples.iter().map(|sample| sample.value).sum();
        let mut page = format!("{name} profile: total {total} {unit}\n");
        if name == "goroutine" {
            let _ = writeln!(page, "tasks: {}", process.tasks());
        }
        for Sample { name, value } in &samples {
            let _ = writeln!(page, "{value} @ {name}");
        }
        return answer::text(StatusCode::OK, page);
    }
    match encode(kind, unit, &samples, state.clock.now().wall) {
        Ok(body) => {
            let mut response = answer::with_type(StatusCode::OK, BYTES, body);
            if let Ok(value) = HeaderValue::try_from(format!("attachment; filename=\"{name}\"")) {
                response.headers_mut().insert(CONTENT_DISPOSITION, value);
            }
            response
        }
        Err(error) => answer::error(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn of_threads(process: &dyn OwnProcess, with_state: bool) -> Vec<Sample> {
    let mut counts = BTreeMap::new();
    for thread in process.threads() {
        let name = if with_state { format!("{} ({})", thread.name, thread.state) } else { thread.name };
        *counts.entry(name).or_default() += 1;
    }
    counts.into_iter().map(|(name, count)| Sample::new(name, count)).collect()
}

/// CPU time of each thread during `span`.
async fn of_processor(process: &dyn OwnProcess, span: Duration) -> Vec<Sample> {
    let before: BTreeMap<_, _> =
        process.threads().into_iter().map(|thread| (thread.id, thread.cpu_time)).collect();
    tokio::time::sleep(span).await;
    let used = process.threads().into_iter().map(|thread| {
        let used = thread.cpu_time.saturating_sub(before.get(&thread.id).copied().unwrap_or_default());
        let nanos = u64::try_from(used.as_nanos()).unwrap_or(u64::MAX);
        Sample::new(format!("{} [{}]", thread.name, thread.id), nanos)
    });
    used.collect()
}
