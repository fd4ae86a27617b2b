//! A map for few entries that stay in memory for as long as a pod exists.
//!
//! Owns: one sorted list without spare capacity. The map of the standard library takes space for eleven entries with its first one, and
//! one that doubles its list for up to twice as many as it has. Not for many entries: each insertion moves those behind it.

/// Entries in the order of their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmallMap<K, V>(Vec<(K, V)>);

impl<K, V> Default for SmallMap<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord, V> SmallMap<K, V> {
    #[must_use]
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: std::borrow::Borrow<Q>,
    {
        let index = self.0.binary_search_by(|(known, _)| known.borrow().cmp(key)).ok()?;
        Some(&self.0[index].1)
    }

    #[must_use]
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: std::borrow::Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// Returns the value that the key had before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.0.binary_search_by(|(known, _)| known.cmp(&key)) {
            Ok(index) => Some(std::mem::replace(&mut self.0[index].1, value)),
            Err(index) => {
                self.0.reserve_exact(1);
                self.0.insert(index, (key, value));
                None
            }
        }
    }

    pub fn retain(&mut self, mut is_kept: impl FnMut(&K, &V) -> bool) {
        let before = self.0.len();
        self.0.retain(|(key, value)| is_kept(key, value));
        if self.0.len() < before {
            self.0.shrink_to_fit();
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for SmallMap<K, V> {
    /// Of entries with the same key the last one stays.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let sorted: std::collections::BTreeMap<K, V> = entries.into_iter().collect();
        let mut entries = Vec::from_iter(sorted);
        entries.shrink_to_fit();
        Self(entries)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn small_map_has_what_a_map_of_the_standard_library_has(
            first in prop::collection::vec((0..9_u8, 0..9_u8), 0..12),
            inserted in prop::collection::vec((0..9_u8, 0..9_u8), 0..12),
            limit in 0..9_u8,
        ) {
            let mut small: SmallMap<u8, u8> = first.iter().copied().collect();
            let mut map: BTreeMap<u8, u8> = first.iter().copied().collect();
            for (key, value) in inserted {
                prop_assert_eq!(small.insert(key, value), map.insert(key, value));
                prop_assert_eq!(small.0.len(), small.0.capacity());
            }
            small.retain(|key, _| *key < limit);
            map.retain(|key, _| *key < limit);
            prop_assert!(small.iter().eq(map.iter()) && small.values().eq(map.values()));
            prop_assert!(small.keys().eq(map.keys()));
            for key in 0..9 {
                prop_assert_eq!(small.get(&key), map.get(&key));
                prop_assert_eq!(small.contains_key(&key), map.contains_key(&key));
            }
            prop_assert_eq!(small.0.len(), small.0.capacity());
        }
    }
}
