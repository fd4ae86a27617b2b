//! Converts between `model` types and CRI messages. Pure; any message of a runtime becomes a plain value.

pub(crate) mod container;
pub(crate) mod image;
pub(crate) mod resources;
pub(crate) mod sandbox;
pub(crate) mod security;
pub(crate) mod stats;

use std::collections::BTreeMap;

use jiff::Timestamp;
use model::PodUid;
use model::annotations::POD_UID_LABEL;
use ports::runtime::Scope;

/// Unix nanoseconds. Zero means "not yet", and so does the negative number of a zero time in Go.
pub(crate) fn time(nanoseconds: i64) -> Option<Timestamp> {
    if nanoseconds <= 0 {
        return None;
    }
    Timestamp::from_nanosecond(i128::from(nanoseconds)).ok()
}

/// A creation time. If a runtime omits it, it is the earliest time, so that the object sorts last.
pub(crate) fn created_at(nanoseconds: i64) -> Timestamp {
    time(nanoseconds).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The label selector for the scope of a listing.
pub(crate) fn selector(scope: &Scope) -> Option<BTreeMap<String, String>> {
    match scope {
        Scope::Node => None,
        Scope::Pod(uid) => Some(of_pod(uid)),
    }
}

fn of_pod(uid: &PodUid) -> BTreeMap<String, String> {
    BTreeMap::from([(POD_UID_LABEL.to_owned(), uid.as_str().to_owned())])
}

/// The first text, or the second if it is empty.
pub(crate) fn first_set(preferred: String, otherwise: String) -> String {
    if preferred.is_empty() { otherwise } else { preferred }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unset_time_is_none() {
        assert_eq!(time(0), None);
        assert_eq!(time(-6_795_364_578_871_345_152), None);
        assert_eq!(created_at(0), Timestamp::UNIX_EPOCH);
    }

    #[test]
    fn times_keep_their_nanoseconds() {
        let at = time(1_700_000_000_123_456_789).unwrap();
        assert_eq!(at.as_nanosecond(), 1_700_000_000_123_456_789);
        assert!(time(i64::MAX).is_some());
    }
}
