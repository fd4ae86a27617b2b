//! Log lines on stderr, in the text format of klog or as JSON, one line for each event. With `splitStream` lines that are no errors
//! go to stdout.
//!
//! `-v` 0 to 3 logs info, warnings and errors, 4 and 5 debug, 6 and more everything. Libraries log only warnings below 8.
//! `--vmodule` raises the verbosity of single files. Where debug lines are shown, warnings and errors that repeat are all shown, too;
//! elsewhere they are counted (`repeats`).

mod queue;
mod repeats;
mod verbosity;

use std::fmt::Write as _;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter, Layer, SubscriberExt};

pub(crate) use verbosity::Verbosity;

use queue::LogQueue;
use repeats::{Repeat, Repeats};

use crate::traces::{OnlySpans, Spans};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// The verbosity of this process; unset before logging has started.
static RULES: OnceLock<Verbosity> = OnceLock::new();

/// For stderr.
static QUEUE: LogQueue = LogQueue::new();
/// For stdout, with split streams only.
static INFO_QUEUE: LogQueue = LogQueue::new();
/// How long the end of the process waits for a reader of the log that stalls.
pub(crate) const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// How lines look, and where they go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) format: LogFormat,
    /// Errors go to stderr, and other lines to stdout.
    pub(crate) is_split: bool,
}

/// Starts logging for the life of the process. A second call changes nothing.
pub(crate) fn start(output: Output, verbosity: Verbosity, spans: Option<Spans>) {
    let layer = Lines { output, process: std::process::id(), repeats: Repeats::default() };
    let dropped_line = match output.format {
        LogFormat::Text => dropped_text,
        LogFormat::Json => dropped_json,
    };
    if let Err(error) = start_queues(output, dropped_line) {
        write_last(&format!("E: cannot start the thread that writes the log: {error}\n"));
    }
    log_panics();
    let rules = RULES.get_or_init(|| verbosity);
    let subscriber = tracing_subscriber::registry().with(layer.with_filter(Rules(rules)));
    // Fails only if there is a subscriber already, as in tests that start twice.
    let _ = match spans {
        None => tracing::subscriber::set_global_default(subscriber),
        Some(spans) => tracing::subscriber::set_global_default(subscriber.with(spans.with_filter(OnlySpans))),
    };
}

/// With descriptors of our own: the locks of the standard library's would be held while a reader stalls.
fn start_queues(output: Output, dropped_line: fn(u64) -> String) -> io::Result<()> {
    QUEUE.start(File::from(io::stderr().as_fd().try_clone_to_owned()?), dropped_line)?;
    if output.is_split {
        INFO_QUEUE.start(File::from(io::stdout().as_fd().try_clone_to_owned()?), dropped_line)?;
    }
    Ok(())
}

/// A panic must not wait for a reader of the log either.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        write_last(&format!("E: thread '{}' {panic}\n", thread.name().unwrap_or("unnamed")));
    }));
}

/// Writes a line that may be the last one, whether logging has started or not.
pub(crate) fn write_last(line: &str) {
    QUEUE.push(line);
    flush(FLUSH_TIMEOUT);
}

/// Waits until all lines are written, or for `limit`.
pub(crate) fn flush(limit: Duration) {
    // After that time the log has no reader. A queue that was not started returns at once.
    let _ = QUEUE.flush(limit);
    let _ = INFO_QUEUE.flush(limit);
}

const DROPPED: &str = "Dropped log lines because the log was not read";

fn dropped_text(count: u64) -> String {
    let location = Location { level: Level::WARN, file: file!(), line: line!() };
    let mut fields = Fields { message: DROPPED.to_owned(), ..Fields::default() };
    fields.rest.push(("count", count.to_string(), true));
    text_line(location, &fields, Timestamp::now(), std::process::id())
}

fn dropped_json(count: u64) -> String {
    let location = Location { level: Level::WARN, file: file!(), line: line!() };
    let mut fields = Fields { message: DROPPED.to_owned(), ..Fields::default() };
    fields.rest.push(("count", count.to_string(), true));
    json_line(location, &fields, Timestamp::now())
}

/// The level and source location of a line.
#[derive(Clone, Copy, Debug)]
struct Location {
    level: Level,
    file: &'static str,
    line: u32,
}

impl Location {
    fn of(metadata: &Metadata<'static>) -> Self {
        let file = metadata.file().unwrap_or("?");
        Self { level: *metadata.level(), file, line: metadata.line().unwrap_or(0) }
    }

    fn file_name(&self) -> &'static str {
        self.file.rsplit('/').next().unwrap_or("?")
    }
}

/// Changes the level of `-v`.
pub(crate) fn set_verbosity(level: u32) {
    let Some(rules) = RULES.get() else { return };
    rules.of_all.store(level, Ordering::Relaxed);
    // Each call site caches whether it is enabled.
    tracing::callsite::rebuild_interest_cache();
}

/// The call sites that are enabled: events only, because spans are no log lines.
struct Rules(&'static Verbosity);

impl<S> Filter<S> for Rules {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        metadata.is_event() && self.0.shows(*metadata.level(), metadata.target(), metadata.file())
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        let shows =
            metadata.is_event() && self.0.shows(*metadata.level(), metadata.target(), metadata.file());
        if shows { Interest::always() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.0.max_level())
    }
}

struct Lines {
    output: Output,
    process: u32,
    repeats: Repeats,
}

impl Lines {
    /// As in the Go kubelet, text lines of warnings count as errors, and JSON lines do not.
    fn queue_of(&self, level: Level) -> &'static LogQueue {
        let last_error = match self.output.format {
            LogFormat::Text => Level::WARN,
            LogFormat::Json => Level::ERROR,
        };
        if self.output.is_split && level > last_error { &INFO_QUEUE } else { &QUEUE }
    }

    /// Adds to a warning or error that repeats how often it came. Returns whether it is logged.
    fn count_repeats(&self, metadata: &Metadata<'static>, fields: &mut Fields, now: Timestamp) -> bool {
        let shows_all =
            || RULES.get().is_some_and(|rules| rules.shows(Level::DEBUG, metadata.target(), metadata.file()));
        if *metadata.level() > Level::WARN || shows_all() {
            return true;
        }
        let place = (metadata.file().unwrap_or_default(), metadata.line().unwrap_or_default());
        match self.repeats.see(place, fields, now) {
            Repeat::First => true,
            Repeat::Silent => false,
            Repeat::Repeated { count, since } => {
                fields.rest.push(("repeated", count.to_string(), true));
                fields.rest.push(("since", since.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), false));
                true
            }
        }
    }
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let now = Timestamp::now();
        if !self.count_repeats(event.metadata(), &mut fields, now) {
            return;
        }
        let line = match self.output.format {
            LogFormat::Text => text_line(Location::of(event.metadata()), &fields, now, self.process),
            LogFormat::Json => json_line(Location::of(event.metadata()), &fields, now),
        };
        self.queue_of(*event.metadata().level()).push(&line);
    }
}

/// Longer fields are cut, because lines may have text of pods and runtimes.
const MAX_FIELD: usize = 16 << 10;

/// Fails when it is full, which ends the formatting of a long value.
struct BoundedText(String);

impl std::fmt::Write for BoundedText {
    fn write_str(&mut self, part: &str) -> std::fmt::Result {
        // One byte over shows that there was more.
        if self.0.len() > MAX_FIELD {
            return Err(std::fmt::Error);
        }
        self.0.push_str(&model::text::cut(part, MAX_FIELD + 1));
        Ok(())
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    /// Name, value, and whether the value is a bare number or boolean.
    rest: Vec<(&'static str, String, bool)>,
}

/// Fields that differ each time that the same thing fails.
const NOT_THE_SAME: [&str; 3] = ["attempt", "delay", "retry"];

/// What makes two lines of one place the same.
impl Hash for Fields {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.message.hash(state);
        self.rest
            .iter()
            .filter(|(name, ..)| !NOT_THE_SAME.contains(name))
            .for_each(|field| field.hash(state));
    }
}

impl Fields {
    fn put(&mut self, field: &Field, value: String, is_bare: bool) {
        match field.name() {
            "message" if self.message.is_empty() => self.message = value,
            name => self.rest.push((name, value, is_bare)),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let mut text = BoundedText(String::new());
        // It fails when the text is full; the text up to there is logged.
        let _ = write!(text, "{value:?}");
        self.put(field, model::text::cut_owned(text.0, MAX_FIELD), false);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, model::text::cut(value, MAX_FIELD).into_owned(), false);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.to_string(), true);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.to_string(), true);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.to_string(), true);
    }
}

/// `I1121 13:00:00.123456    1234 sync_loop.rs:120] "SyncLoop ADD" pod="default/web"`.
fn text_line(location: Location, fields: &Fields, now: Timestamp, process: u32) -> String {
    let letter = match location.level {
        Level::ERROR => 'E',
        Level::WARN => 'W',
        _ => 'I',
    };
    let file = location.file_name();
    let mut line = String::with_capacity(160);
    let time = now.strftime("%m%d %H:%M:%S.%6f");
    let number = location.line;
    let _ = write!(line, "{letter}{time} {process:7} {file}:{number}] {:?}", fields.message);
    for (name, value, is_bare) in &fields.rest {
        let _ = if *is_bare { write!(line, " {name}={value}") } else { write!(line, " {name}={value:?}") };
    }
    line.push('\n');
    line
}

fn json_line(location: Location, fields: &Fields, now: Timestamp) -> String {
    let mut object = serde_json::Map::new();
    let since_epoch = Duration::try_from(now.duration_since(Timestamp::UNIX_EPOCH)).unwrap_or_default();
    object.insert("ts".into(), (since_epoch.as_secs_f64() * 1000.0).into());
    object.insert("caller".into(), format!("{}:{}", location.file_name(), location.line).into());
    object.insert("msg".into(), fields.message.clone().into());
    match location.level {
        Level::ERROR => {}
        Level::WARN => drop(object.insert("level".into(), "warning".into())),
        Level::INFO => drop(object.insert("v".into(), 0.into())),
        _ => drop(object.insert("v".into(), 4.into())),
    }
    for (name, value, is_bare) in &fields.rest {
        let bare = is_bare.then(|| serde_json::from_str(value).ok()).flatten();
        object.insert((*name).to_owned(), bare.unwrap_or_else(|| value.clone().into()));
    }
    let mut line = serde_json::Value::Object(object).to_string();
    line.push('\n');
    line
}
