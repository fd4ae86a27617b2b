//! The pprof format: a gzipped protobuf message with a string table. Only the fields that are used.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use prost::Message;

/// A named value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) name: String,
    pub(super) value: u64,
}

impl Sample {
    pub(super) const fn new(name: String, value: u64) -> Self {
        Self { name, value }
    }
}

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_types: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<WireSample>,
    #[prost(message, repeated, tag = "4")]
    locations: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    functions: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    texts: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct WireSample {
    #[prost(uint64, repeated, tag = "1")]
    locations: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    values: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    lines: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
}

/// Encodes one location for each sample; `kind` and `unit` are those of the values.
pub(super) fn encode(kind: &str, unit: &str, samples: &[Sample], now: Timestamp) -> io::Result<Vec<u8>> {
    // The first string must be empty: it is the value of unset names.
    let mut profile = Profile {
        texts: vec![String::new(), kind.to_owned(), unit.to_owned()],
        sample_types: vec![ValueType { kind: 1, unit: 2 }],
        time_nanos: i64::try_from(now.as_nanosecond()).unwrap_or_default(),
        ..Profile::default()
    };
    for (id, sample) in (1..).zip(samples) {
        let name = i64::try_from(profile.texts.len()).unwrap_or_default();
        profile.texts.push(sample.name.clone());
        profile.functions.push(Function { id, name });
        profile.locations.push(Location { id, lines: vec![Line { function: id }] });
        let values = vec![i64::try_from(sample.value).unwrap_or(i64::MAX)];
        profile.samples.push(WireSample { locations: vec![id], values });
    }
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&profile.encode_to_vec())?;
    packed.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn every_pprof_sample_refers_to_its_name() {
        let samples = [Sample::new("one".to_owned(), 1), Sample::new("two".to_owned(), 22)];
        let packed = encode("cpu", "nanoseconds", &samples, Timestamp::UNIX_EPOCH).unwrap();
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(&*packed).read_to_end(&mut bytes).unwrap();
        let profile = Profile::decode(&*bytes).unwrap();
        assert_eq!(profile.texts, ["", "cpu", "nanoseconds", "one", "two"]);
        assert_eq!(profile.sample_types, [ValueType { kind: 1, unit: 2 }]);
        let second = &profile.samples[1];
        assert_eq!((&*second.locations, &*second.values), (&[2][..], &[22][..]));
        let function = profile.locations[1].lines[0].function;
        let function = profile.functions.iter().find(|f| f.id == function).unwrap();
        assert_eq!(function.name, 4);
    }
}
