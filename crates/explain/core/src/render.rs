//! The text of `kubelet why`: plain sentences, as wide as the terminal, with colours where they help.

use jiff::Timestamp;
use model::explain::{
    Cause, ContainerExplanation, Explanation, NearLimit, PodExplanation, TrailStep, Verdict,
};

use crate::amounts::amount;
use crate::times::{clock_time, exact_span, span};

/// How a text is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    pub width: usize,
    pub has_color: bool,
    pub now: Timestamp,
}

const LABEL_WIDTH: usize = 8;
const MIN_WIDTH: usize = 40;

/// The explanation of a pod as text that ends with a line break.
#[must_use]
pub fn pod_text(pod: &PodExplanation, style: Style) -> String {
    let mut out = Text { out: String::new(), style };
    let name = format!("{}/{}", pod.namespace, pod.name);
    let mut first = format!("{name}: {}", pod.summary);
    if let Some(since) = pod.since {
        first = format!("{first} (for {})", span(since, style.now));
    }
    out.paragraph(0, &first, Some(pod.verdict));
    out.labelled("uid", &pod.uid);
    out.labelled("from", &pod.source);
    for cause in &pod.causes {
        out.cause(cause);
    }
    out.containers(&pod.containers);
    out.near_limits(&pod.near_limits);
    out.trail(&pod.trail);
    out.out
}

/// The explanation of the node as text that ends with a line break.
#[must_use]
pub fn node_text(node: &Explanation, style: Style) -> String {
    let mut out = Text { out: String::new(), style };
    out.paragraph(0, &format!("{}: {}", node.name, node.summary), Some(node.verdict));
    let widest = node.checks.iter().map(|check| check.name.chars().count()).max().unwrap_or_default();
    for check in &node.checks {
        out.hanging(&format!("  {:widest$} ", check.name), &check.what);
        let below = format!("  {:widest$} ", "");
        if !check.error.is_empty() {
            out.hanging(&format!("{below}  error  "), &printable(&check.error));
        }
        for advice in &check.advice {
            out.hanging(&format!("{below}  do     "), advice);
        }
    }
    out.out
}

/// Text that is laid out within a width.
pub(crate) struct Text {
    pub(crate) out: String,
    pub(crate) style: Style,
}

impl Text {
    pub(crate) fn line(&mut self, line: &str) {
        self.out.push_str(line.trim_end());
        self.out.push('\n');
    }

    /// Words within the width, each line indented. The first line has the colour of the verdict.
    pub(crate) fn paragraph(&mut self, indent: usize, text: &str, verdict: Option<Verdict>) {
        let width = self.style.width.max(MIN_WIDTH).saturating_sub(indent);
        for (number, line) in wrap(text, width).into_iter().enumerate() {
            let line = match verdict.filter(|_| number == 0) {
                Some(verdict) => self.colored(&line, verdict),
                None => line,
            };
            self.line(&format!("{:indent$}{line}", ""));
        }
    }

    fn colored(&self, line: &str, verdict: Verdict) -> String {
        let code = match verdict {
            Verdict::Fine => 32,
            Verdict::Waiting => 33,
            Verdict::Failed => 31,
        };
        if self.style.has_color { format!("\x1b[{code}m{line}\x1b[0m") } else { line.to_owned() }
    }

    /// `  label   text`, with the following lines of the text below the first.
    fn labelled(&mut self, label: &str, text: &str) {
        let indent = LABEL_WIDTH + 3;
        let width = self.style.width.max(MIN_WIDTH).saturating_sub(indent);
        for (number, line) in wrap(text, width).into_iter().enumerate() {
            let label = if number == 0 { label } else { "" };
            self.line(&format!("  {label:LABEL_WIDTH$} {line}"));
        }
    }

    pub(crate) fn cause(&mut self, cause: &Cause) {
        self.line("");
        self.paragraph(0, &format!("{} ({})", cause.what, cause.reason), None);
        if !cause.error.is_empty() {
            self.labelled("error", &printable(&cause.error));
        }
        if let Some(tried) = tried(cause, self.style.now) {
            self.labelled("tried", &tried);
        }
        if let Some(next) = cause.next_try.filter(|next| *next > self.style.now) {
            self.labelled("next", &format!("in {}, at {}", span(self.style.now, next), clock_time(next)));
        }
        for advice in &cause.advice {
            self.labelled("do", advice);
        }
    }

    fn containers(&mut self, containers: &[ContainerExplanation]) {
        if containers.is_empty() {
            return;
        }
        self.line("");
        self.line("Containers");
        for container in containers {
            let since = container.since.map(|since| format!(" for {}", span(since, self.style.now)));
            let ready = match (&*container.state, container.is_ready) {
                ("running", true) => ", ready",
                ("running", false) => ", not ready",
                _ => "",
            };
            let restarts = match container.restarts {
                0 => String::new(),
                1 => ", restarted once".to_owned(),
                count => format!(", restarted {count} times"),
            };
            let text = format!(
                "{}: {}{}{ready}{restarts}{}",
                container.name,
                container.state,
                since.unwrap_or_default(),
                last_end(container, self.style.now)
            );
            self.paragraph(2, &text, None);
        }
    }

    fn near_limits(&mut self, near: &[NearLimit]) {
        let Some(first) = near.first() else { return };
        self.line("");
        self.line(&format!("Near a limit, as measured {} ago", span(first.measured_at, self.style.now)));
        for NearLimit { resource, part, used, limit, .. } in near {
            let part = part.as_deref().map(|part| format!(" of {part}")).unwrap_or_default();
            let (used, limit) = (amount(resource, *used), amount(resource, *limit));
            self.paragraph(2, &format!("{resource}{part}: {used} of {limit}"), None);
        }
    }

    fn trail(&mut self, trail: &[TrailStep]) {
        let Some(first) = trail.first() else { return };
        self.line("");
        self.line(&format!("What happened, from {}", clock_time(first.began)));
        for step in trail {
            let at = format!("+{}", exact_span(first.began, step.began));
            let took = match step.ended {
                None => " (goes on)".to_owned(),
                Some(ended) if ended > step.began => format!(" ({})", exact_span(step.began, ended)),
                Some(_) => String::new(),
            };
            let times = if step.count > 1 { format!(" x{}", step.count) } else { String::new() };
            let container = step.container.as_ref().map(|name| format!(" [{name}]")).unwrap_or_default();
            let message = match step.message.is_empty() {
                true => String::new(),
                false => format!(": {}", printable(&step.message)),
            };
            let mark = match (step.is_warning, step.is_restored) {
                (true, _) => '!',
                (false, true) => '~',
                (false, false) => ' ',
            };
            self.hanging(
                &format!("{mark} {at:>11}  "),
                &format!("{}{times}{container}{took}{message}", step.reason),
            );
        }
        if trail.iter().any(|step| step.is_restored) {
            self.line("~ is from before the kubelet started, as the runtime and the last status have it.");
        }
    }

    /// The text after a prefix, with its following lines below its first.
    pub(crate) fn hanging(&mut self, prefix: &str, text: &str) {
        let indent = prefix.chars().count();
        let width = self.style.width.max(MIN_WIDTH).saturating_sub(indent);
        for (number, line) in wrap(text, width).into_iter().enumerate() {
            let start = if number == 0 { prefix.to_owned() } else { " ".repeat(indent) };
            self.line(&format!("{start}{line}"));
        }
    }
}

/// `, the last instance ended with OOMKilled, exit code 137, 12 s ago`.
fn last_end(container: &ContainerExplanation, now: Timestamp) -> String {
    if container.last_end.is_empty() {
        return String::new();
    }
    let ago = container.last_end_at.map(|at| format!(", {} ago", span(at, now))).unwrap_or_default();
    let why = match container.ended_for.is_empty() {
        true => String::new(),
        false => format!(": {}", printable(&container.ended_for)),
    };
    format!(", the last instance ended with {}{ago}{why}", printable(&container.last_end))
}

/// `3 times, the last 12 s ago`.
fn tried(cause: &Cause, now: Timestamp) -> Option<String> {
    let last = cause.last_try.map(|at| format!("{} ago", span(at, now)));
    match (cause.tries, last) {
        (Some(0) | None, None) => None,
        (Some(0) | None, Some(last)) => Some(format!("the last time {last}")),
        (Some(1), last) => Some(["once".to_owned()].into_iter().chain(last).collect::<Vec<_>>().join(", ")),
        (Some(count), None) => Some(format!("{count} times")),
        (Some(count), Some(last)) => Some(format!("{count} times, the last {last}")),
    }
}

/// One line without control characters: a message is from outside, and must not steer the terminal.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Breaks a text at spaces into lines of at most `width` characters; a longer word is a line of its own.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > width {
            lines.push(String::new());
            used = 0;
        }
        let Some(line) = lines.last_mut() else { break };
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        line.push_str(word);
        used += length;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_at_spaces_and_control_characters_do_not_reach_the_terminal() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("averylongword b", 4), ["averylongword", "b"]);
        assert_eq!(wrap("", 4), [""]);
        assert_eq!(printable("a\x1b[31mb\nc"), "a [31mb c");
    }

    #[test]
    fn tries_are_counted_in_words() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let cause = |tries, last: Option<i64>| Cause { tries, last_try: last.map(at), ..Cause::default() };
        let words = |tries, last| tried(&cause(tries, last), at(100)).unwrap_or_default();
        assert_eq!(words(None, None), "");
        assert_eq!(words(None, Some(90)), "the last time 10 s ago");
        assert_eq!(words(Some(1), Some(90)), "once, 10 s ago");
        assert_eq!(words(Some(3), Some(90)), "3 times, the last 10 s ago");
        assert_eq!(words(Some(3), None), "3 times");
    }
}
