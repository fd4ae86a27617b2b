//! The processors and memory of a machine, and which are near each other.

use std::collections::BTreeMap;
use std::fmt;

use crate::cpu_set::CpuSet;

/// A logical processor that is online.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Processor {
    pub id: u32,
    /// The smallest id of the processors that share its core. Ids of the hardware repeat in each socket.
    pub core: u32,
    pub socket: u32,
    pub numa_node: u32,
    /// The last cache that it shares with others (L3), by the id that the hardware gives it; its socket if it has none.
    pub uncore_cache: u32,
}

/// A part of the memory, with the processors next to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaNode {
    pub id: u32,
    pub memory_bytes: u64,
    /// The number of huge pages by the bytes of one.
    pub huge_pages: BTreeMap<u64, u64>,
    /// The cost of access to each node, in the order of their ids; 10 is local.
    pub distances: Vec<u64>,
}

/// Where processors and memory are. A machine without NUMA has a node for each package, which is one on most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineTopology {
    /// In the order of their ids.
    pub processors: Vec<Processor>,
    /// In the order of their ids; a node may have no processor, or no memory.
    pub numa_nodes: Vec<NumaNode>,
}

impl MachineTopology {
    #[must_use]
    pub fn cpus(&self) -> CpuSet {
        self.processors.iter().map(|processor| processor.id).collect()
    }
}

/// Up to 64 NUMA nodes, by id.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NumaMask(u64);

impl NumaMask {
    pub const EMPTY: Self = Self(0);

    /// Ids from 64 on are left out.
    pub fn of(ids: impl IntoIterator<Item = u32>) -> Self {
        let bits = ids.into_iter().filter(|id| *id < u64::BITS).fold(0, |bits, id| bits | (1 << id));
        Self(bits)
    }

    #[must_use]
    pub const fn has(self, id: u32) -> bool {
        id < u64::BITS && self.0 & (1 << id) != 0
    }

    #[must_use]
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Fewer nodes, or as many of which those with small ids come first.
    #[must_use]
    pub const fn is_narrower_than(self, other: Self) -> bool {
        if self.count() == other.count() { self.0 < other.0 } else { self.count() < other.count() }
    }

    /// Ids, smallest first.
    pub fn ids(self) -> impl Iterator<Item = u32> {
        (0..u64::BITS).filter(move |id| self.has(*id))
    }

    /// Every combination of these nodes but the empty one: single nodes first, and those with small ids before others. There are 2ⁿ − 1,
    /// so the caller limits the number of nodes.
    #[must_use]
    pub fn subsets(self) -> Vec<Self> {
        let ids: Vec<u32> = self.ids().collect();
        (1..=ids.len()).flat_map(|size| combinations(&ids, size)).collect()
    }
}

fn combinations(ids: &[u32], size: usize) -> Vec<NumaMask> {
    if size == 0 {
        return vec![NumaMask::EMPTY];
    }
    let with_first = |at: usize| {
        let first = NumaMask::of([ids[at]]);
        combinations(&ids[at + 1..], size - 1).into_iter().map(move |rest| rest.or(first))
    };
    (0..ids.len()).flat_map(with_first).collect()
}

/// The bits, node 0 last, with an even number of digits.
impl fmt::Display for NumaMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = (u64::BITS - self.0.leading_zeros()).next_multiple_of(2).max(2) as usize;
        write!(f, "{:0digits$b}", self.0)
    }
}

impl fmt::Debug for NumaMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrower_masks_have_fewer_nodes_then_smaller_ids() {
        for (narrow, wide) in
            [([0].as_slice(), [0, 1].as_slice()), (&[3], &[0, 1]), (&[0], &[1]), (&[0, 2], &[1, 2])]
        {
            let (narrow, wide) = (NumaMask::of(narrow.iter().copied()), NumaMask::of(wide.iter().copied()));
            assert!(narrow.is_narrower_than(wide) && !wide.is_narrower_than(narrow), "{narrow} {wide}");
        }
        let same = NumaMask::of([1]);
        assert!(!same.is_narrower_than(same));
    }

    #[test]
    fn subsets_are_in_the_order_of_their_size_then_ids() {
        let subsets: Vec<Vec<u32>> =
            NumaMask::of([0, 1, 3]).subsets().into_iter().map(|mask| mask.ids().collect()).collect();
        let expected: [&[u32]; 7] = [&[0], &[1], &[3], &[0, 1], &[0, 3], &[1, 3], &[0, 1, 3]];
        assert_eq!(subsets, expected);
        assert!(NumaMask::EMPTY.subsets().is_empty());
    }

    #[test]
    fn masks_are_written_as_an_even_number_of_bits() {
        for (ids, text) in [
            ([].as_slice(), "00"),
            (&[0], "01"),
            (&[0, 1], "11"),
            (&[2], "0100"),
            (&[63, 64], &format!("1{}", "0".repeat(63))),
        ] {
            assert_eq!(NumaMask::of(ids.iter().copied()).to_string(), *text);
        }
    }
}
