//! A map of bounded size that evicts the least recently used entry. Eviction depends on use alone, so it is the same in
//! every run.

/// All entries are in one vector, because a tree of small nodes scatters long-lived memory over the heap. Finding the least
/// recently used entry scans the vector, which only an insertion into a full map needs.
#[derive(Clone, Debug)]
pub(crate) struct Lru<K, V> {
    limit: usize,
    /// In the order of their keys.
    entries: Vec<Entry<K, V>>,
    next_use: u64,
}

#[derive(Clone, Debug)]
struct Entry<K, V> {
    key: K,
    used: u64,
    value: V,
}

impl<K: Ord + Copy, V> Lru<K, V> {
    pub(crate) const fn new(limit: usize) -> Self {
        Self { limit, entries: Vec::new(), next_use: 0 }
    }

    /// The value of a key, marked as used; created by `make` if it does not exist, replacing the least recently used entry.
    pub(crate) fn get_or_insert_with(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V {
        let used = self.next_use;
        self.next_use += 1;
        let index = self.find(key).unwrap_or_else(|_| {
            self.evict_if_full();
            let index = self.find(key).unwrap_or_else(|index| index);
            self.entries.insert(index, Entry { key: *key, used, value: make() });
            index
        });
        let entry = &mut self.entries[index];
        entry.used = used;
        &mut entry.value
    }

    /// The value of a key, without marking it as used.
    pub(crate) fn peek_mut(&mut self, key: &K) -> Option<&mut V> {
        let index = self.find(key).ok()?;
        Some(&mut self.entries[index].value)
    }

    pub(crate) fn remove(&mut self, key: &K) {
        if let Ok(index) = self.find(key) {
            self.entries.remove(index);
        }
    }

    /// Removes all entries with such keys, and returns their memory if most of it is unused then.
    pub(crate) fn remove_all(&mut self, is_unwanted: impl Fn(&K) -> bool) {
        self.entries.retain(|entry| !is_unwanted(&entry.key));
        if self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to(self.entries.len() * 2);
        }
    }

    #[cfg(test)]
    pub(crate) const fn len(&self) -> usize {
        self.entries.len()
    }

    /// The index of the key, or else where to insert it.
    fn find(&self, key: &K) -> Result<usize, usize> {
        self.entries.binary_search_by_key(key, |entry| entry.key)
    }

    /// Removes the least recently used entry of a full map.
    fn evict_if_full(&mut self) {
        if self.entries.len() < self.limit {
            return;
        }
        let oldest = (0..self.entries.len()).min_by_key(|index| self.entries[*index].used);
        if let Some(index) = oldest {
            self.entries.remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lru_evicts_the_least_recently_used_entry() {
        let mut lru = Lru::new(2);
        for key in ["a", "b", "a", "c"] {
            lru.get_or_insert_with(&key, || key.to_owned());
        }
        assert!(lru.peek_mut(&"b").is_none());
        assert!(lru.peek_mut(&"a").is_some() && lru.peek_mut(&"c").is_some());
        lru.remove(&"a");
        lru.remove(&"never");
        lru.get_or_insert_with(&"d", String::new);
        assert!(lru.peek_mut(&"c").is_some() && lru.peek_mut(&"d").is_some());
    }

    #[test]
    fn lru_returns_the_memory_of_removed_entries() {
        let mut lru = Lru::new(1000);
        for key in 0..1000 {
            lru.get_or_insert_with(&key, || key);
        }
        lru.remove_all(|key| *key >= 10);
        assert!(lru.entries.capacity() <= 20, "{}", lru.entries.capacity());
        assert!(lru.peek_mut(&9).is_some() && lru.peek_mut(&10).is_none());
    }

    proptest! {
        #[test]
        fn lru_never_exceeds_its_limit(keys in prop::collection::vec(0..9_u8, 0..60), limit in 1..5_usize) {
            let mut lru = Lru::new(limit);
            for key in keys {
                lru.get_or_insert_with(&key, || key);
                prop_assert!(lru.entries.len() <= limit);
                prop_assert_eq!(lru.peek_mut(&key).copied(), Some(key));
            }
        }
    }
}
