//! The NUMA nodes of the machine and how far they are from each other.

use model::topology::{NumaMask, NumaNode};

/// The cost of access that stands for a missing one; the largest that firmware reports.
const UNREACHABLE: u64 = 255;

/// What the merge of hints needs to know about the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NumaInfo {
    ids: Vec<u32>,
    /// By position in `ids`.
    distances: Vec<Vec<u64>>,
}

impl NumaInfo {
    pub(super) fn of(nodes: &[NumaNode]) -> Self {
        Self {
            ids: nodes.iter().map(|node| node.id).collect(),
            distances: nodes.iter().map(|node| node.distances.clone()).collect(),
        }
    }

    /// Every node.
    pub(super) fn all(&self) -> NumaMask {
        NumaMask::of(self.ids.iter().copied())
    }

    pub(super) fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The sum of the costs of access from each of these nodes to each of them. Masks of the same size compare as by their average.
    pub(super) fn total_distance(&self, mask: NumaMask) -> u64 {
        let positions = || self.ids.iter().enumerate().filter(|(_, id)| mask.has(**id)).map(|(at, _)| at);
        let distance = |from: usize, to: usize| self.distances.get(from).and_then(|row| row.get(to));
        let of_node = |from| positions().map(move |to| distance(from, to).copied().unwrap_or(UNREACHABLE));
        positions().flat_map(of_node).fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes with their distances.
    type Rows<'a> = &'a [(u32, &'a [u64])];

    fn info(rows: Rows<'_>) -> NumaInfo {
        let node = |(id, distances): &(u32, &[u64])| NumaNode {
            id: *id,
            distances: distances.to_vec(),
            ..NumaNode::default()
        };
        NumaInfo::of(&rows.iter().map(node).collect::<Vec<_>>())
    }

    /// `TestCalculateAvgDistanceFor` of the original, whose averages are these sums through the number of pairs.
    #[test]
    fn calculate_average_distance_table() {
        let two: Rows<'_> = &[(0, &[10, 11]), (1, &[11, 10])];
        let four: Rows<'_> =
            &[(0, &[10, 11, 12, 12]), (1, &[11, 10, 12, 12]), (2, &[12, 12, 10, 11]), (3, &[12, 12, 11, 10])];
        let cases: [(Rows<'_>, &[u32], u64); 6] = [
            (&[(0, &[10])], &[0], 10),
            (two, &[0], 10),
            (two, &[0, 1], 42),
            (four, &[0, 2], 44),
            (four, &[0, 2, 3], 100),
            (&[], &[], 0),
        ];
        for (rows, ids, total) in cases {
            assert_eq!(info(rows).total_distance(NumaMask::of(ids.iter().copied())), total, "{ids:?}");
        }
    }

    #[test]
    fn distances_are_in_the_order_of_nodes_whatever_their_ids() {
        let info = info(&[(1, &[10, 20]), (5, &[21, 10])]);
        assert_eq!(info.all(), NumaMask::of([1, 5]));
        assert_eq!(info.total_distance(NumaMask::of([1, 5])), 61);
        assert_eq!(info.total_distance(NumaMask::of([5])), 10);
        assert_eq!(NumaInfo::of(&[NumaNode::default()]).total_distance(NumaMask::of([0])), UNREACHABLE);
    }
}
