//! The format of a recording: for each call `> name request`, then `~ milliseconds` if it took long, then `< answer` for each
//! message, `! code message` if it failed, and `= path content` for each log that the runtime has written since.

use std::fmt::Write;
use std::time::Duration;

use tonic::{Code, Status};

/// A shorter time says nothing about the call.
const WORTH_RECORDING: Duration = Duration::from_millis(900);

#[derive(Clone, Debug, Default)]
pub(super) struct Exchange {
    pub(super) call: String,
    pub(super) request: String,
    pub(super) took: Duration,
    pub(super) answers: Vec<String>,
    /// Logs that the runtime has written, by their path below the directory of the test.
    pub(super) logs: Vec<(String, String)>,
    /// Number and message of the status.
    pub(super) error: Option<(i32, String)>,
}

impl Exchange {
    pub(super) fn status(&self) -> Option<Status> {
        self.error.as_ref().map(|(code, message)| Status::new(Code::from(*code), message))
    }
}

pub(super) fn print(exchanges: &[Exchange]) -> String {
    let mut text = String::new();
    for exchange in exchanges {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", format!("> {} {}", exchange.call, exchange.request).trim_end());
        if exchange.took >= WORTH_RECORDING {
            let _ = writeln!(text, "~ {}", exchange.took.as_millis());
        }
        for answer in &exchange.answers {
            let _ = writeln!(text, "{}", format!("< {answer}").trim_end());
        }
        for (path, content) in &exchange.logs {
            let _ = writeln!(text, "= {path} {}", content.replace('\n', "\\n"));
        }
        if let Some((code, message)) = &exchange.error {
            let _ = writeln!(text, "! {code} {}", message.replace('\n', "\\n"));
        }
    }
    text
}

/// The calls of a recording; an error has the line that is none of the above.
pub(super) fn parse(text: &str) -> Result<Vec<Exchange>, String> {
    let mut exchanges: Vec<Exchange> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (kind, rest) = line.split_at(1);
        let rest = rest.trim_start();
        let malformed = || format!("malformed line in a recording: {line}");
        if kind == ">" {
            let (call, request) = rest.split_once(' ').unwrap_or((rest, ""));
            let (call, request) = (call.to_owned(), request.to_owned());
            exchanges.push(Exchange { call, request, ..Exchange::default() });
            continue;
        }
        let last = exchanges.last_mut().ok_or_else(malformed)?;
        match kind {
            "<" => last.answers.push(rest.to_owned()),
            "=" => {
                let (path, content) = rest.split_once(' ').unwrap_or((rest, ""));
                last.logs.push((path.to_owned(), content.replace("\\n", "\n")));
            }
            "~" => last.took = Duration::from_millis(rest.parse().map_err(|_| malformed())?),
            "!" => {
                let (code, message) = rest.split_once(' ').unwrap_or((rest, ""));
                let code = code.parse().map_err(|_| malformed())?;
                last.error = Some((code, message.replace("\\n", "\n")));
            }
            _ => return Err(malformed()),
        }
    }
    Ok(exchanges)
}
