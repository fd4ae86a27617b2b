//! The start of a pod as a waterfall: what took how long, and which of it the start had to wait for.

use std::fmt::Write as _;

use jiff::Timestamp;
use model::explain::{PodExplanation, TrailStep};

use crate::times::exact_span;

/// Columns of the bars in the text.
const BAR_COLUMNS: i64 = 40;
/// Height of a row and width of the bars in the picture, in pixels.
const ROW: i64 = 22;
const BARS: i64 = 640;
const NAMES: i64 = 260;

/// One row of the waterfall.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bar {
    name: String,
    began: i64,
    ended: i64,
    /// Nothing else was under way that ended later: a faster step would have made the start faster.
    is_critical: bool,
    is_open: bool,
    /// From before the kubelet started.
    is_restored: bool,
}

/// The rows of the start, with times in milliseconds since its beginning; empty if the node does not know the start.
fn bars(pod: &PodExplanation, now: Timestamp) -> Vec<Bar> {
    let Some(first) = pod.trail.first() else { return Vec::new() };
    let ready = pod.trail.iter().find(|step| step.reason == "Ready").map(|step| step.began);
    let until = ready.unwrap_or(now);
    let takes_time =
        |step: &&TrailStep| step.began <= until && step.ended.is_none_or(|ended| ended > step.began);
    let since_first = |at: Timestamp| at.duration_since(first.began).as_millis();
    let mut all: Vec<Bar> = pod
        .trail
        .iter()
        .filter(takes_time)
        .map(|step| Bar {
            name: name_of(step),
            began: i64::try_from(since_first(step.began)).unwrap_or(0),
            ended: i64::try_from(since_first(step.ended.unwrap_or(now))).unwrap_or(i64::MAX),
            is_critical: false,
            is_open: step.ended.is_none(),
            is_restored: step.is_restored,
        })
        .collect();
    mark_critical(&mut all);
    all
}

fn name_of(step: &TrailStep) -> String {
    match &step.container {
        Some(container) => format!("{} [{container}]", step.reason),
        None => step.reason.clone(),
    }
}

/// Backwards from the step that ended last: before it the one that ended last until it began, and so on.
fn mark_critical(bars: &mut [Bar]) {
    let mut before = i64::MAX;
    loop {
        let last =
            bars.iter_mut().filter(|bar| !bar.is_critical && bar.ended <= before).max_by_key(|bar| bar.ended);
        let Some(bar) = last else { return };
        bar.is_critical = true;
        before = bar.began;
    }
}

/// The waterfall as text: a row for each step, with `#` for those of the critical path and `-` for the others.
#[must_use]
pub fn waterfall_text(pod: &PodExplanation, now: Timestamp) -> String {
    let bars = bars(pod, now);
    let Some(end) = bars.iter().map(|bar| bar.ended).max() else {
        return "The node does not know how this pod started: it ran before the kubelet did.\n".to_owned();
    };
    let widest = bars.iter().map(|bar| bar.name.chars().count()).max().unwrap_or_default();
    let column = |at: i64| at.saturating_mul(BAR_COLUMNS) / end.max(1);
    let mut text = String::new();
    for bar in &bars {
        let (from, to) = (column(bar.began), column(bar.ended).max(column(bar.began) + 1));
        let mark = if bar.is_critical { '#' } else { '-' };
        let line: String =
            (0..=BAR_COLUMNS).map(|at| if (from..to).contains(&at) { mark } else { ' ' }).collect();
        let took = milliseconds(bar.ended - bar.began);
        let more = match (bar.is_open, bar.is_restored) {
            (true, _) => " so far",
            (false, true) => " (from the runtime)",
            (false, false) => "",
        };
        let _ = writeln!(text, "{:widest$}  |{line}| {took}{more}", bar.name);
    }
    let _ = writeln!(text, "{:widest$}  in all {}; # is what the start waited for", "", milliseconds(end));
    text
}

fn milliseconds(length: i64) -> String {
    let at = |millisecond| Timestamp::from_millisecond(millisecond).unwrap_or_default();
    exact_span(at(0), at(length))
}

/// The waterfall as an SVG picture.
#[must_use]
pub fn waterfall_svg(pod: &PodExplanation, now: Timestamp) -> String {
    let bars = bars(pod, now);
    let end = bars.iter().map(|bar| bar.ended).max().unwrap_or(1).max(1);
    let rows = i64::try_from(bars.len()).unwrap_or_default();
    let (width, height) = (NAMES + BARS + 120, (rows + 2) * ROW);
    let title = escaped(&format!("Start of pod {}/{}", pod.namespace, pod.name));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"13\" role=\"img\"><title>{title}</title><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\
         <text x=\"8\" y=\"16\" font-weight=\"bold\">{title}, {}</text>\n",
        milliseconds(end)
    );
    let mut y = ROW;
    for bar in &bars {
        let x = NAMES + bar.began.saturating_mul(BARS) / end;
        let length = ((bar.ended - bar.began).saturating_mul(BARS) / end).max(2);
        let color = if bar.is_critical { "#c2410c" } else { "#60a5fa" };
        let (name, took) = (escaped(&bar.name), milliseconds(bar.ended - bar.began));
        let opacity = if bar.is_restored { " opacity=\"0.6\"" } else { "" };
        let _ = writeln!(
            svg,
            "<text x=\"8\" y=\"{}\">{name}</text><rect{opacity} x=\"{x}\" y=\"{}\" width=\"{length}\" height=\"{}\" fill=\"{color}\"/>\
             <text x=\"{}\" y=\"{}\">{took}</text>",
            y + 15,
            y + 4,
            ROW - 8,
            x + length + 4,
            y + 15
        );
        y += ROW;
    }
    let restored = match bars.iter().any(|bar| bar.is_restored) {
        true => " Pale: before the kubelet started, as the runtime has it.",
        false => "",
    };
    let _ = writeln!(
        svg,
        "<text x=\"8\" y=\"{}\">Orange: what the start waited for.{restored}</text></svg>",
        y + 15
    );
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millisecond: i64) -> Timestamp {
        Timestamp::from_millisecond(millisecond).unwrap()
    }

    fn step(reason: &str, container: Option<&str>, began: i64, ended: Option<i64>) -> TrailStep {
        TrailStep {
            reason: reason.to_owned(),
            container: container.map(str::to_owned),
            began: at(began),
            ended: ended.map(at),
            count: 1,
            ..TrailStep::default()
        }
    }

    fn pod() -> PodExplanation {
        PodExplanation {
            namespace: "default".to_owned(),
            name: "web<1>".to_owned(),
            trail: vec![
                step("Accepted", None, 0, Some(0)),
                step("PreparingVolumes", None, 0, Some(1000)),
                step("CreatingSandbox", None, 1000, Some(1500)),
                step("EnsuringImage", Some("app"), 1500, Some(9500)),
                step("EnsuringImage", Some("side"), 1500, Some(2500)),
                step("StartingContainer", Some("app"), 9500, Some(10_000)),
                step("Ready", None, 10_000, Some(10_000)),
                step("CreatingContainer", Some("later"), 60_000, Some(61_000)),
            ],
            ..PodExplanation::default()
        }
    }

    #[test]
    fn waterfall_marks_what_the_start_waited_for_and_ends_with_readiness() {
        expect_test::expect![[r##"
            PreparingVolumes         |####                                     | 1.00 s
            CreatingSandbox          |    ##                                   | 500 ms
            EnsuringImage [app]      |      ################################   | 8.00 s
            EnsuringImage [side]     |      ----                               | 1.00 s
            StartingContainer [app]  |                                      ## | 500 ms
                                     in all 10 s; # is what the start waited for
        "##]]
        .assert_eq(&waterfall_text(&pod(), at(70_000)));
    }

    #[test]
    fn picture_has_a_bar_for_each_step_and_escapes_names() {
        let svg = waterfall_svg(&pod(), at(70_000));
        assert_eq!(svg.matches("<rect x=").count(), 5);
        assert!(svg.contains("web&lt;1&gt;") && !svg.contains("web<1>"));
        assert!(waterfall_text(&PodExplanation::default(), at(0)).starts_with("The node does not know"));
    }

    #[test]
    fn start_from_before_the_kubelet_is_shown_as_the_runtime_has_it() {
        let restored = |reason, container, began, ended| TrailStep {
            is_restored: true,
            ..step(reason, container, began, Some(ended))
        };
        let pod = PodExplanation {
            trail: vec![
                restored("BeforeSandbox", None, 0, 2000),
                restored("BeforeContainer", Some("app"), 2000, 8000),
                restored("StartingContainer", Some("app"), 8000, 8500),
                restored("Ready", None, 10_000, 10_000),
                step("Accepted", None, 90_000, Some(90_000)),
                step("Adopted", None, 90_001, Some(90_001)),
            ],
            ..PodExplanation::default()
        };
        expect_test::expect![[r##"
            BeforeSandbox            |#########                                | 2.00 s (from the runtime)
            BeforeContainer [app]    |         ############################    | 6.00 s (from the runtime)
            StartingContainer [app]  |                                     ### | 500 ms (from the runtime)
                                     in all 8.50 s; # is what the start waited for
        "##]]
        .assert_eq(&waterfall_text(&pod, at(100_000)));
        assert_eq!(waterfall_svg(&pod, at(100_000)).matches("<rect opacity").count(), 3);
    }
}
