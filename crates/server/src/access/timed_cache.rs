//! A cache with a time to live for each entry, and a maximum number of entries.

use std::collections::HashMap;
use std::hash::Hash;

use model::MonoTime;
use parking_lot::Mutex;

#[derive(Debug)]
pub(super) struct TimedCache<K, V> {
    limit: usize,
    entries: Mutex<HashMap<K, (MonoTime, V)>>,
}

impl<K: Hash + Eq + Clone, V: Clone> TimedCache<K, V> {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, entries: Mutex::default() }
    }

    /// The value, if there is one that has not expired.
    pub(super) fn get(&self, key: &K, now: MonoTime) -> Option<V> {
        let entries = self.entries.lock();
        entries.get(key).filter(|(until, _)| now < *until).map(|(_, value)| value.clone())
    }

    /// If the cache is full, the entry that expires first is removed.
    pub(super) fn put(&self, key: K, value: V, until: MonoTime) {
        let mut entries = self.entries.lock();
        if entries.len() >= self.limit && !entries.contains_key(&key) {
            let first = entries.iter().min_by_key(|(_, (until, _))| *until).map(|(key, _)| key.clone());
            if let Some(first) = first {
                entries.remove(&first);
            }
        }
        entries.insert(key, (until, value));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(second: u64) -> MonoTime {
        MonoTime::from_start(Duration::from_secs(second))
    }

    #[test]
    fn entry_is_valid_until_it_expires() {
        let cache = TimedCache::new(2);
        cache.put("a", 1, at(10));
        assert_eq!((cache.get(&"a", at(9)), cache.get(&"a", at(10))), (Some(1), None));
        assert_eq!(cache.get(&"b", at(0)), None);
    }

    #[test]
    fn full_cache_removes_the_entry_that_expires_first() {
        let cache = TimedCache::new(2);
        cache.put("a", 1, at(20));
        cache.put("b", 2, at(10));
        cache.put("a", 3, at(20));
        cache.put("c", 4, at(30));
        assert_eq!(
            (cache.get(&"a", at(0)), cache.get(&"b", at(0)), cache.get(&"c", at(0))),
            (Some(3), None, Some(4))
        );
        assert_eq!(cache.entries.lock().len(), 2);
    }
}
