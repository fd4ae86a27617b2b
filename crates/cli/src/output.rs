//! The formats of an answer.

use clap::{Arg, ArgMatches};
use serde::Serialize;

use crate::CommandError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Wide,
    Name,
    Json,
    Yaml,
}

impl Format {
    const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Wide => "wide",
            Self::Name => "name",
            Self::Json => "json",
            Self::Yaml => "yaml",
        }
    }
}

/// `-o`, with the formats that the command has.
pub(crate) fn argument(formats: &'static [Format]) -> Arg {
    Arg::new("output")
        .short('o')
        .long("output")
        .value_name("FORMAT")
        .default_value("text")
        .value_parser(formats.iter().map(|format| format.name()).collect::<Vec<_>>())
        .help("How the answer is printed")
}

pub(crate) fn of(matches: &ArgMatches) -> Format {
    let name = matches.get_one::<String>("output").map_or("text", String::as_str);
    named(name).unwrap_or(Format::Text)
}

/// The format of that name.
pub(crate) fn named(name: &str) -> Option<Format> {
    let all = [Format::Text, Format::Wide, Format::Name, Format::Json, Format::Yaml];
    all.into_iter().find(|format| format.name() == name)
}

/// The document as JSON or YAML.
pub(crate) fn document(document: &impl Serialize, format: Format) -> Result<String, CommandError> {
    if format == Format::Yaml {
        return serde_saphyr::to_string(document).map_err(|error| CommandError::Encode(error.to_string()));
    }
    let json = serde_json::to_string_pretty(document);
    json.map(|json| format!("{json}\n")).map_err(|error| CommandError::Encode(error.to_string()))
}
