//! What a kind of thing needs to be listed.

use std::fmt::Debug;

use jiff::Timestamp;
use model::inventory::Inventory;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A row of a table. Its `Debug` text is what decides whether it has changed.
pub(crate) trait Row: Debug + Sized {
    /// Where the kubelet has the document with all rows.
    const PATH: &'static str;
    const HEADING: &'static [&'static str];
    /// The columns that only `-o wide` has.
    const WIDE: &'static [&'static str];
    type Document: Document;

    fn rows(document: Self::Document) -> Vec<Self>;
    fn cells(&self, now: Timestamp) -> Vec<String>;
    fn wide_cells(&self, now: Timestamp) -> Vec<String>;
    /// As `-o name` prints it: `pod/default/web`.
    fn name(&self) -> String;
}

/// What the kubelet answers to a request for rows.
pub(crate) trait Document: Serialize + DeserializeOwned {
    /// Without what is not listed.
    fn listed(self) -> Self {
        self
    }
    fn is_empty(&self) -> bool;
    /// Why something is missing.
    fn problems(&self) -> &[String];
}

impl<I: Serialize + DeserializeOwned> Document for Inventory<I> {
    fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn problems(&self) -> &[String] {
        &self.problems
    }
}

/// An item of an [`Inventory`].
pub(super) trait Item: Debug + Serialize + DeserializeOwned {
    const PATH: &'static str;
    const HEADING: &'static [&'static str];
    const WIDE: &'static [&'static str];

    fn cells(&self, now: Timestamp) -> Vec<String>;
    fn wide_cells(&self, now: Timestamp) -> Vec<String>;
    fn name(&self) -> String;
}

impl<I: Item> Row for I {
    const PATH: &'static str = I::PATH;
    const HEADING: &'static [&'static str] = I::HEADING;
    const WIDE: &'static [&'static str] = I::WIDE;
    type Document = Inventory<I>;

    fn rows(document: Inventory<I>) -> Vec<I> {
        document.items
    }

    fn cells(&self, now: Timestamp) -> Vec<String> {
        Item::cells(self, now)
    }

    fn wide_cells(&self, now: Timestamp) -> Vec<String> {
        Item::wide_cells(self, now)
    }

    fn name(&self) -> String {
        Item::name(self)
    }
}
