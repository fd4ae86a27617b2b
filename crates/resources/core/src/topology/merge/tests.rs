use proptest::prelude::*;

use super::super::tests::{hints, info, shown};
use super::*;

#[test]
fn max_of_min_affinity_counts_table() {
    let cases: [(&[&str], u32); 7] = [
        (&[], 0),
        (&["+"], 0),
        (&["0+"], 1),
        (&["01+"], 2),
        (&["01+ 012+"], 2),
        (&["01+ 012+", "012+"], 3),
        (&["01+ 012+", "012+ 0123+"], 3),
    ];
    for (resources, expected) in cases {
        let all: Vec<_> = resources.iter().map(|text| hints(text)).collect();
        assert_eq!(max_of_min_counts(&all), expected, "{resources:?}");
    }
}

/// The best number of nodes of hints that are not preferred, the best hint so far, another one, and whether that is better.
const COMPARE_HINTS: [(u32, &str, &str, bool); 25] = [
    (0, "", "-", false),
    (0, "+", "-", false),
    (0, "", "0+", true),
    (0, "", "0-", true),
    (0, "0-", "0+", true),
    (0, "0+", "0-", false),
    (0, "0+", "0+", false),
    (0, "01+", "0+", true),
    (0, "0+", "01+", false),
    (1, "01-", "01-", false),
    (1, "12-", "01-", true),
    (1, "01-", "12-", false),
    (2, "01-", "0-", false),
    (2, "01-", "01-", false),
    (2, "12-", "01-", true),
    (2, "01-", "12-", false),
    (2, "0-", "012-", false),
    (2, "0-", "01-", true),
    (3, "0-", "01-", true),
    (3, "0-", "12-", true),
    (4, "01-", "123-", true),
    (4, "123-", "01-", false),
    (4, "012-", "012-", false),
    (4, "012-", "123-", false),
    (4, "123-", "012-", true),
];

#[test]
fn compare_hints_narrowest_table() {
    let numa = info(4);
    let merge = Merge { numa: &numa, prefers_closest: false };
    for (best_count, current, candidate, is_better) in COMPARE_HINTS {
        let (current, candidate) = (hints(current).first().copied(), hints(candidate)[0]);
        assert_eq!(is_chosen(&merge, best_count, current, candidate), is_better, "{current:?} {candidate:?}");
    }
}

/// `TestClosest`: two sets of nodes, the first of which is the closest.
#[test]
fn closest_table() {
    let numa = info(4);
    let merge = Merge { numa: &numa, prefers_closest: true };
    for (best, other) in [("0", "02"), ("02", "03"), ("01", "03"), ("23", "03"), ("01", "23")] {
        let key = |text: &str| merge.rank(hints(&format!("{text}+"))[0].nodes.unwrap());
        assert!(key(best) < key(other), "{best} {other}");
    }
}

/// How the original decides between two hints, step by step.
fn is_chosen(
    merge: &Merge<'_>,
    best_count: u32,
    current: Option<TopologyHint>,
    candidate: TopologyHint,
) -> bool {
    let nodes = |hint: TopologyHint| hint.nodes.unwrap();
    let count = nodes(candidate).count();
    let Some(current) = current.filter(|_| count > 0) else { return count > 0 };
    if current.is_preferred != candidate.is_preferred {
        return candidate.is_preferred;
    }
    let is_fitter = merge.rank(nodes(candidate)) < merge.rank(nodes(current));
    let before = nodes(current).count();
    if current.is_preferred || before > best_count {
        return is_fitter;
    }
    if before == best_count {
        return count == best_count && is_fitter;
    }
    if count > best_count {
        return false;
    }
    count == best_count || count > before || (count == before && is_fitter)
}

/// Tries every way to take one hint of each resource.
fn best_of_all_permutations(merge: &Merge<'_>, hints: &[Vec<TopologyHint>]) -> TopologyHint {
    let all = merge.numa.all();
    let mut permutations: Vec<Vec<TopologyHint>> = vec![Vec::new()];
    for resource in hints {
        permutations = permutations
            .iter()
            .flat_map(|taken| resource.iter().map(move |hint| taken.iter().copied().chain([*hint]).collect()))
            .collect();
    }
    let best_count = max_of_min_counts(hints);
    let mut best = None;
    for taken in permutations {
        let masks: Vec<NumaMask> = taken.iter().filter_map(|hint| hint.nodes).collect();
        let are_equal = masks.windows(2).all(|two| two[0] == two[1]);
        let merged = TopologyHint {
            nodes: Some(masks.iter().fold(all, |nodes, mask| nodes.and(*mask))),
            is_preferred: are_equal && taken.iter().all(|hint| hint.is_preferred),
        };
        if is_chosen(merge, best_count, best, merged) {
            best = Some(merged);
        }
    }
    best.unwrap_or(TopologyHint { nodes: Some(all), is_preferred: false })
}

fn any_hints() -> impl Strategy<Value = Vec<Vec<TopologyHint>>> {
    // Node 5 does not exist: a device may name a node that the machine does not have.
    let nodes = proptest::option::weighted(0.9, proptest::collection::btree_set(0..6_u32, 0..5));
    let hint = (nodes, any::<bool>())
        .prop_map(|(nodes, is_preferred)| TopologyHint { nodes: nodes.map(NumaMask::of), is_preferred });
    proptest::collection::vec(proptest::collection::vec(hint, 0..6), 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn merged_hint_is_that_of_trying_every_permutation(hints in any_hints(), prefers_closest in any::<bool>()) {
        let numa = info(5);
        let merge = Merge { numa: &numa, prefers_closest };
        prop_assert_eq!(shown(merge.best(&hints)), shown(best_of_all_permutations(&merge, &hints)));
    }

    #[test]
    fn intersections_are_those_of_every_pair(
        left in proptest::collection::vec(any::<bool>(), 16),
        right in proptest::collection::vec(any::<bool>(), 16),
    ) {
        let mut expected = vec![false; 16];
        for (a, b) in (0..16).flat_map(|a| (0..16).map(move |b| (a, b))).filter(|(a, b)| left[*a] && right[*b]) {
            expected[a & b] = true;
        }
        prop_assert_eq!(intersections(&left, &right), expected);
    }
}

#[test]
fn merge_of_many_resources_with_every_hint_is_fast_enough() {
    let numa = info(8);
    let merge = Merge { numa: &numa, prefers_closest: true };
    let every: Vec<TopologyHint> = numa
        .all()
        .subsets()
        .into_iter()
        .map(|nodes| TopologyHint { nodes: Some(nodes), is_preferred: nodes.count() == 2 })
        .collect();
    // 255 to the power of 40 permutations.
    assert_eq!(shown(merge.best(&vec![every.clone(); 40])), "01+");
    let others: Vec<TopologyHint> =
        every.iter().map(|hint| TopologyHint { is_preferred: false, ..*hint }).collect();
    assert_eq!(shown(merge.best(&vec![others; 40])), "0-");
}

#[test]
fn merge_on_a_machine_with_many_nodes_is_exact_while_few_of_them_are_in_hints() {
    let numa = info(36);
    let merge = Merge { numa: &numa, prefers_closest: false };
    let (cpus, gpus) = (hints("0- 1- 01-"), hints("1- 2- 12-"));
    assert_eq!(shown(merge.best(&[cpus, gpus])), "1-");
    let single = |id| TopologyHint { nodes: Some(NumaMask::of([id])), is_preferred: false };
    let apart: Vec<TopologyHint> = (0..36).map(single).collect();
    let all = TopologyHint { nodes: Some(numa.all()), is_preferred: false };
    assert_eq!(merge.best(std::slice::from_ref(&apart)), all, "too many to look at");
    let preferred: Vec<TopologyHint> =
        apart.iter().map(|hint| TopologyHint { is_preferred: true, ..*hint }).collect();
    assert_eq!(shown(merge.best(&vec![preferred; 9])), "0+", "preferred results are always found");
}
