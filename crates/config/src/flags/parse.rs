//! Parses arguments in the manner of pflag. Pure; returns all errors together.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::iter::Peekable;

use serde_json::Value;

use super::{Flag, Kind, Target, find, removed, values};
use crate::error::{ConfigError, ConfigErrors};

/// A parsed command line.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    /// The value of every given flag, by name; a repeated flag adds to a list or map, and otherwise replaces the value.
    pub(crate) given: BTreeMap<&'static str, (&'static Flag, Value)>,
    pub(crate) help: bool,
    /// `Some(raw)` if the version was requested.
    pub(crate) version: Option<bool>,
}

impl Parsed {
    /// A warning for each given flag that is deprecated.
    pub(crate) fn deprecations(&self) -> impl Iterator<Item = String> {
        self.given.values().filter_map(|(flag, _)| flag.deprecation())
    }
}

/// Reads arguments (without the program's own name).
///
/// # Errors
/// Every unknown or removed flag, missing or invalid value, and positional argument.
pub(crate) fn parse(args: impl Iterator<Item = String>) -> Result<Parsed, ConfigErrors> {
    let (parsed, errors) = parse_all(args);
    errors.into_result().map(|()| parsed)
}

/// What can be read of a command line, and everything that is wrong with it.
pub(crate) fn parse_all(args: impl Iterator<Item = String>) -> (Parsed, ConfigErrors) {
    let mut reader =
        Reader { args: args.peekable(), parsed: Parsed::default(), errors: ConfigErrors::default() };
    while let Some(argument) = reader.args.next() {
        if argument == "--" {
            let rest: Vec<String> = reader.args.by_ref().collect();
            rest.into_iter().for_each(|argument| reader.positional(argument));
        } else if let Some(long) = argument.strip_prefix("--") {
            reader.long(long);
        } else if argument.len() > 1 && argument.starts_with('-') {
            reader.short(&argument[1..]);
        } else {
            reader.positional(argument);
        }
    }
    (reader.parsed, reader.errors)
}

struct Reader<I: Iterator> {
    args: Peekable<I>,
    parsed: Parsed,
    errors: ConfigErrors,
}

impl<I: Iterator<Item = String>> Reader<I> {
    fn positional(&mut self, argument: String) {
        self.errors.push(ConfigError::UnknownCommand { argument });
    }

    fn long(&mut self, text: &str) {
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        match find(name) {
            Some(flag) => self.flag(flag, value.map(str::to_owned)),
            None => {
                self.unknown(name);
                // The next argument is most likely its value, and gets no error.
                if value.is_none() {
                    self.args.next_if(|next| !next.starts_with('-'));
                }
            }
        }
    }

    fn unknown(&mut self, name: &str) {
        let plain = name.replace('_', "-");
        self.errors.push(match removed::find(&plain) {
            Some(instead) => ConfigError::RemovedFlag { flag: plain, instead },
            None => ConfigError::UnknownFlag { flag: format!("--{name}"), hint: super::help::hint(&plain) },
        });
    }

    /// `-v3`, `-v=3`, `-v 3`, `-h`; letters may be combined if only the last takes a value.
    fn short(&mut self, letters: &str) {
        let mut rest = letters;
        while let Some(letter) = rest.chars().next() {
            rest = &rest[letter.len_utf8()..];
            match letter {
                'h' => self.parsed.help = true,
                'v' => {
                    let value = rest.strip_prefix('=').unwrap_or(rest).to_owned();
                    let attached = !rest.is_empty();
                    if let Some(flag) = find("v") {
                        self.flag(flag, attached.then_some(value));
                    }
                    return;
                }
                _ => {
                    let flag = format!("-{letter} in -{letters}");
                    self.errors.push(ConfigError::UnknownFlag { flag, hint: String::new() });
                    return;
                }
            }
        }
    }

    fn flag(&mut self, flag: &'static Flag, value: Option<String>) {
        let text = match (value, flag.kind) {
            (Some(value), _) => value,
            (None, Kind::Bool | Kind::Version) => "true".to_owned(),
            (None, _) => match self.args.next() {
                Some(value) => value,
                None => {
                    let expected = flag.kind.expected();
                    return self.errors.push(ConfigError::MissingValue { flag: flag.name, expected });
                }
            },
        };
        match values::read(flag.kind, &text) {
            Ok(value) => self.take(flag, value),
            Err(problem) => {
                self.errors.push(ConfigError::FlagValue { flag: flag.name, value: text, problem });
            }
        }
    }

    fn take(&mut self, flag: &'static Flag, value: Value) {
        if flag.target == Target::Action {
            match (flag.kind, value.as_str(), value.as_bool()) {
                (Kind::Version, Some("raw"), _) => self.parsed.version = Some(true),
                (Kind::Version, ..) => self.parsed.version = (value == true).then_some(false),
                (_, _, on) => self.parsed.help = on.unwrap_or(false),
            }
            return;
        }
        match self.parsed.given.entry(flag.name) {
            Entry::Vacant(entry) => {
                entry.insert((flag, value));
            }
            Entry::Occupied(mut entry) => add(&mut entry.get_mut().1, value),
        }
    }
}

/// A repeated flag: adds to lists and maps, replaces anything else.
fn add(old: &mut Value, new: Value) {
    match (old, new) {
        (Value::Array(old), Value::Array(new)) => old.extend(new),
        (Value::Object(old), Value::Object(new)) => {
            for (key, value) in new {
                match old.get_mut(&key) {
                    Some(Value::Array(at)) if value.is_array() => {
                        at.extend(value.as_array().cloned().unwrap_or_default());
                    }
                    _ => {
                        old.insert(key, value);
                    }
                }
            }
        }
        (old, new) => *old = new,
    }
}
