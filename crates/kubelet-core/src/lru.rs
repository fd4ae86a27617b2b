//! A map of bounded size that forgets what was not used for the longest time. Its order of forgetting depends on use
//! alone, so it is the same in every run.

use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub(crate) struct Lru<K, V> {
    limit: usize,
    entries: BTreeMap<K, (u64, V)>,
    /// Keys by when they were used last.
    uses: BTreeMap<u64, K>,
    next_use: u64,
}

impl<K: Ord + Clone, V> Lru<K, V> {
    pub(crate) const fn new(limit: usize) -> Self {
        Self { limit, entries: BTreeMap::new(), uses: BTreeMap::new(), next_use: 0 }
    }

    /// The value of a key, which counts as used; made by `make` if there is none, in place of the least used entry.
    pub(crate) fn get_or_insert_with(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V {
        let now = self.next_use;
        self.next_use += 1;
        if let Some((used, _)) = self.entries.get(key) {
            self.uses.remove(used);
        } else if self.entries.len() >= self.limit
            && let Some((_, oldest)) = self.uses.pop_first()
        {
            self.entries.remove(&oldest);
        }
        self.uses.insert(now, key.clone());
        let entry = self.entries.entry(key.clone()).or_insert_with(|| (now, make()));
        entry.0 = now;
        &mut entry.1
    }

    /// The value of a key, without using it.
    pub(crate) fn peek_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key).map(|(_, value)| value)
    }

    pub(crate) fn remove(&mut self, key: &K) {
        if let Some((used, _)) = self.entries.remove(key) {
            self.uses.remove(&used);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_was_not_used_for_longest_goes() {
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

    proptest! {
        #[test]
        fn it_never_grows_beyond_its_limit(keys in prop::collection::vec(0..9_u8, 0..60), limit in 1..5_usize) {
            let mut lru = Lru::new(limit);
            for key in keys {
                lru.get_or_insert_with(&key, || key);
                prop_assert!(lru.entries.len() <= limit);
                prop_assert_eq!(lru.entries.len(), lru.uses.len());
                prop_assert_eq!(lru.peek_mut(&key).copied(), Some(key));
            }
        }
    }
}
