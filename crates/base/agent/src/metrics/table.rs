//! The samples of one family, by the values of its labels. Values come from fixed sets, or from outside: beyond a bound
//! they are counted together.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use stats_core::exposition::{Kind, Value, family, line};

use super::Histogram;

/// Rows of one family. Only families with label values from outside can reach it.
const MAX_ROWS: usize = 256;
/// In keys, between the values of labels.
const SEPARATOR: char = '\n';
/// Replaces each value once the table is full.
const OTHER: &str = "Other";

/// Name, labels and help of a family.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    pub name: &'static str,
    pub help: &'static str,
    pub labels: &'static [&'static str],
}

impl Family {
    pub const fn new(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self { name, help, labels }
    }

    /// The labels with the values that were joined in `key`.
    fn label<'a>(&self, key: &'a str) -> Vec<(&'static str, &'a str)> {
        self.labels.iter().copied().zip(key.split(SEPARATOR)).collect()
    }
}

fn key<T>(rows: &BTreeMap<String, T>, values: &[&str]) -> String {
    let mut key = values.join("\n");
    if rows.len() >= MAX_ROWS && !rows.contains_key(&key) {
        key = vec![OTHER; values.len()].join("\n");
    }
    key
}

#[derive(Debug, Default)]
pub struct Counts(Mutex<BTreeMap<String, u64>>);

impl Counts {
    /// Adds one to the row with these values, in the order of the family's labels.
    pub fn add(&self, values: &[&str]) {
        self.add_many(values, 1);
    }

    pub fn add_many(&self, values: &[&str], count: u64) {
        let mut rows = self.0.lock();
        let key = key(&rows, values);
        *rows.entry(key).or_default() += count;
    }

    /// Subtracts one, for gauges.
    pub fn take(&self, values: &[&str]) {
        let mut rows = self.0.lock();
        let key = key(&rows, values);
        if let Some(count) = rows.get_mut(&key) {
            *count = count.saturating_sub(1);
        }
    }

    pub fn set(&self, values: &[&str], number: u64) {
        let mut rows = self.0.lock();
        let key = key(&rows, values);
        rows.insert(key, number);
    }

    pub fn write(&self, text: &mut String, kind: Kind, of: Family) {
        family(text, of.name, kind, of.help);
        for (key, count) in &*self.0.lock() {
            line(text, of.name, &of.label(key), Value::Integer(*count), None);
        }
    }
}

#[derive(Debug)]
pub struct Histograms {
    limits: &'static [f64],
    new: fn(&'static [f64]) -> Histogram,
    rows: Mutex<BTreeMap<String, Histogram>>,
}

impl Histograms {
    /// For durations.
    pub const fn new(limits: &'static [f64]) -> Self {
        Self { limits, new: Histogram::new, rows: Mutex::new(BTreeMap::new()) }
    }

    pub const fn of_numbers(limits: &'static [f64]) -> Self {
        Self { limits, new: Histogram::of_numbers, rows: Mutex::new(BTreeMap::new()) }
    }

    pub fn observe(&self, values: &[&str], took: Duration) {
        self.with(values, |histogram| histogram.observe(took));
    }

    pub fn observe_number(&self, values: &[&str], number: u64) {
        self.with(values, |histogram| histogram.observe_number(number));
    }

    fn with(&self, values: &[&str], observe: impl FnOnce(&Histogram)) {
        let mut rows = self.rows.lock();
        let key = key(&rows, values);
        observe(rows.entry(key).or_insert_with(|| (self.new)(self.limits)));
    }

    pub fn write(&self, text: &mut String, of: Family) {
        family(text, of.name, Kind::Histogram, of.help);
        for (key, histogram) in &*self.rows.lock() {
            histogram.write(text, of.name, &of.label(key));
        }
    }
}

/// A family with one sample.
pub fn one(text: &mut String, name: &str, kind: Kind, help: &str, labels: &[(&str, &str)], number: u64) {
    family(text, name, kind, help);
    line(text, name, labels, Value::Integer(number), None);
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAMILY: Family = Family::new("calls_total", &["code", "method"], "Calls.");

    #[test]
    fn samples_are_written_with_their_labels() {
        let counts = Counts::default();
        counts.add(&["200", "GET"]);
        counts.add(&["200", "GET"]);
        counts.add(&["<error>", "PUT"]);
        counts.take(&["200", "GET"]);
        let mut text = String::new();
        counts.write(&mut text, Kind::Gauge, FAMILY);
        assert_eq!(
            text,
            "# HELP calls_total Calls.\n# TYPE calls_total gauge\n\
             calls_total{code=\"200\",method=\"GET\"} 1\ncalls_total{code=\"<error>\",method=\"PUT\"} 1\n"
        );
    }

    #[test]
    fn rows_beyond_the_bound_are_counted_as_other() {
        let counts = Counts::default();
        for code in 0..10 * MAX_ROWS {
            counts.add(&[&code.to_string(), "GET"]);
        }
        let mut text = String::new();
        counts.write(&mut text, Kind::Counter, FAMILY);
        assert_eq!(text.lines().count(), 2 + MAX_ROWS + 1);
        let rest = 9 * MAX_ROWS;
        assert!(text.contains(&format!("{{code=\"Other\",method=\"Other\"}} {rest}\n")), "{text}");
    }
}
