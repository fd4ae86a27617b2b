//! Pods that several manifests of one source define: which of them is used, and what is wrong with the others.
//!
//! The pod that runs stays: the manifest that defined a name first keeps it, whatever the later ones are called. After a start of the
//! kubelet the pod stays that has a directory on the node, whichever kubelet made it. Never: reading a manifest or the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use model::k8s::Pod;
use model::{PodRef, PodUid};

/// The pods that one file or URL defines.
#[derive(Clone, Copy, Debug)]
pub struct ManifestPods<'a> {
    /// A path or a URL.
    pub origin: &'a str,
    pub pods: &'a [Arc<Pod>],
}

/// Which manifest defines the pod of a full name, and the pod's UID.
pub type Owners = BTreeMap<String, (String, PodUid)>;

/// What is used of all manifests of a source.
#[derive(Clone, Debug, Default)]
pub struct UniquePods {
    /// In the order of the manifests.
    pub pods: Vec<Arc<Pod>>,
    /// The origin and the error of each pod that is not used.
    pub errors: Vec<(String, String)>,
    pub owners: Owners,
}

/// Whether two pods have one full name or one UID, so that [`compute_unique_pods`] must know which pods are on the node.
#[must_use]
pub fn has_duplicates(manifests: &[ManifestPods<'_>]) -> bool {
    let (mut names, mut uids) = (BTreeSet::new(), BTreeSet::new());
    let pods = manifests.iter().flat_map(|manifest| manifest.pods).map(|pod| PodRef::of(pod));
    pods.into_iter().any(|pod| !names.insert(pod.full_name()) || !uids.insert(pod.uid))
}

/// Chooses one pod for each full name and each UID. `owners` is the last result, `on_node` the pods with a directory on the node.
#[must_use]
pub fn compute_unique_pods(
    manifests: &[ManifestPods<'_>],
    owners: &Owners,
    on_node: &BTreeSet<PodUid>,
    node_name: &str,
) -> UniquePods {
    let all = manifests.iter().flat_map(|m| m.pods.iter().map(|pod| Candidate::new(m.origin, pod)));
    let all: Vec<Candidate<'_>> = all.collect();
    let mut by_claim: Vec<usize> = (0..all.len()).collect();
    // The sort is stable: within one claim the order of the manifests decides.
    by_claim.sort_by_key(|index| all[*index].claim(owners, on_node));
    let (mut names, mut uids) = (BTreeMap::new(), BTreeMap::new());
    let mut refused = BTreeMap::new();
    for index in by_claim {
        let candidate = &all[index];
        let (name, uid) = (candidate.full_name(), &candidate.identity.uid);
        match names.get(&name).or_else(|| uids.get(uid)) {
            Some(first) => drop(refused.insert(index, candidate.error(&all[*first], node_name))),
            None => {
                names.insert(name, index);
                uids.insert(uid.clone(), index);
            }
        }
    }
    let mut unique = UniquePods::default();
    for (index, candidate) in all.iter().enumerate() {
        match refused.remove(&index) {
            Some(error) => unique.errors.push((candidate.origin.to_owned(), error)),
            None => unique.accept(candidate),
        }
    }
    unique
}

impl UniquePods {
    fn accept(&mut self, candidate: &Candidate<'_>) {
        let owner = (candidate.origin.to_owned(), candidate.identity.uid.clone());
        self.owners.insert(candidate.full_name(), owner);
        self.pods.push(candidate.pod.clone());
    }
}

/// How well founded the use of a pod is; the least value wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Claim {
    /// It is used already.
    Used,
    /// Its manifest defined the pod of that name, and has changed.
    Changed,
    /// It has a directory on the node.
    OnNode,
    New,
    /// Its file looks like a backup of another one.
    Backup,
}

#[derive(Clone, Debug)]
struct Candidate<'a> {
    origin: &'a str,
    identity: PodRef,
    pod: &'a Arc<Pod>,
}

impl<'a> Candidate<'a> {
    fn new(origin: &'a str, pod: &'a Arc<Pod>) -> Self {
        Self { origin, identity: PodRef::of(pod), pod }
    }

    fn full_name(&self) -> String {
        self.identity.full_name()
    }

    fn claim(&self, owners: &Owners, on_node: &BTreeSet<PodUid>) -> Claim {
        let uid = &self.identity.uid;
        match owners.get(&self.full_name()).filter(|(origin, _)| origin == self.origin) {
            Some((_, used)) if used == uid => Claim::Used,
            Some(_) => Claim::Changed,
            None if on_node.contains(uid) => Claim::OnNode,
            None if is_backup_name(self.origin) => Claim::Backup,
            None => Claim::New,
        }
    }

    /// What is wrong with this pod, because of the one that is used.
    fn error(&self, used: &Self, node_name: &str) -> String {
        let (file, other) = (short(self.origin), short(used.origin));
        let (own, theirs) = (written(&self.identity, node_name), written(&used.identity, node_name));
        let is_same_name = self.full_name() == used.full_name();
        match (is_same_name, self.origin == used.origin) {
            (true, true) => format!("{file}: pod {own:?} is defined more than once"),
            (true, false) => format!("{file}: pod {own:?} is already defined by {other}"),
            (false, _) => format!("{file}: pod {own:?} has the UID of pod {theirs:?} of {other}"),
        }
    }
}

/// All files are in one directory.
fn short(origin: &str) -> &str {
    let name = Path::new(origin).file_name().and_then(|name| name.to_str());
    name.filter(|_| origin.starts_with('/')).unwrap_or(origin)
}

/// The pod's name as in its manifest; with its namespace unless that is the default.
fn written(pod: &PodRef, node_name: &str) -> String {
    let suffix = format!("-{}", node_name.to_lowercase());
    let name = pod.name.strip_suffix(&suffix).unwrap_or(&pod.name);
    match &*pod.namespace {
        "default" => name.to_owned(),
        namespace => format!("{namespace}/{name}"),
    }
}

/// Endings that editors, package managers and people give to copies of a file.
const BACKUP_ENDINGS: [&str; 13] = [
    "~",
    ".bak",
    ".backup",
    ".old",
    ".orig",
    ".save",
    ".swp",
    ".tmp",
    ".rej",
    ".rpmnew",
    ".rpmsave",
    ".dpkg-dist",
    ".dpkg-old",
];

/// Whether the name looks like that of a copy of another file. It is a manifest all the same, as for the Go kubelet.
#[must_use]
pub fn is_backup_name(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    BACKUP_ENDINGS.iter().any(|ending| name.ends_with(ending))
        || (name.starts_with('#') && name.ends_with('#'))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use model::k8s::{ObjectMeta, Pod};
    use proptest::prelude::*;

    use super::*;

    /// A pod reads `name!uid`, with its namespace as `namespace/name!uid`.
    fn pod(word: &str) -> Arc<Pod> {
        let (name, uid) = word.split_once('!').expect("a UID");
        let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
        let metadata = ObjectMeta {
            name: Some(format!("{name}-node1")),
            namespace: Some(namespace.to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectMeta::default()
        };
        Arc::new(Pod { metadata, ..Pod::default() })
    }

    /// A set of manifests reads `/m/a.yaml: web!1 db!2; /m/b.yaml: …`.
    fn compute(text: &str, owners: &Owners, on_node: &[&str]) -> UniquePods {
        let manifests: Vec<(&str, Vec<Arc<Pod>>)> = text
            .split(';')
            .map(|manifest| {
                let (origin, pods) = manifest.split_once(": ").expect("an origin");
                (origin.trim(), pods.split_whitespace().map(pod).collect())
            })
            .collect();
        let manifests: Vec<ManifestPods<'_>> =
            manifests.iter().map(|(origin, pods)| ManifestPods { origin, pods }).collect();
        let on_node = on_node.iter().map(|uid| PodUid::from((*uid).to_owned())).collect();
        let unique = compute_unique_pods(&manifests, owners, &on_node, "Node1");
        assert_eq!(has_duplicates(&manifests), !unique.errors.is_empty());
        unique
    }

    fn shown(unique: &UniquePods) -> String {
        let pods = unique.pods.iter().map(|pod| PodUid::of(pod).to_string());
        let errors = unique.errors.iter().map(|(_, error)| format!("! {error}"));
        pods.chain(errors).collect::<Vec<_>>().join("\n")
    }

    /// Applies the sets in order and shows the last result.
    #[track_caller]
    fn check(sets: &[&str], on_node: &[&str], expected: &Expect) {
        let mut last = UniquePods::default();
        for text in sets {
            last = compute(text, &last.owners, on_node);
        }
        expected.assert_eq(&shown(&last));
    }

    #[test]
    fn running_pod_stays_when_a_manifest_that_sorts_first_defines_its_name() {
        check(
            &["/m/b.yaml: web!1", "/m/a.yaml: web!2; /m/b.yaml: web!1"],
            &[],
            &expect![[r#"
                1
                ! a.yaml: pod "web" is already defined by b.yaml"#]],
        );
    }

    #[test]
    fn changed_manifest_keeps_the_name_of_its_pod() {
        check(
            &["/m/b.yaml: web!1", "/m/a.yaml: web!2; /m/b.yaml: web!3"],
            &["2"],
            &expect![[r#"
                3
                ! a.yaml: pod "web" is already defined by b.yaml"#]],
        );
    }

    #[test]
    fn other_manifest_gets_the_name_when_the_first_one_has_gone() {
        check(
            &["/m/b.yaml: web!1", "/m/a.yaml: web!2; /m/b.yaml: web!1", "/m/a.yaml: web!2"],
            &[],
            &expect!["2"],
        );
    }

    #[test]
    fn pod_with_a_directory_on_the_node_stays_after_a_start() {
        check(
            &["/m/a.yaml: web!2; /m/b.yaml: web!1"],
            &["1"],
            &expect![[r#"
                1
                ! a.yaml: pod "web" is already defined by b.yaml"#]],
        );
    }

    #[test]
    fn first_manifest_is_used_where_no_pod_runs_but_never_a_backup() {
        check(
            &["/m/a.yaml: web!1; /m/b.yaml: web!2"],
            &[],
            &expect![[r#"
                1
                ! b.yaml: pod "web" is already defined by a.yaml"#]],
        );
        check(
            &["/m/web.bak: web!1; /m/web.yaml: web!2"],
            &[],
            &expect![[r#"
                2
                ! web.bak: pod "web" is already defined by web.yaml"#]],
        );
    }

    #[test]
    fn one_uid_in_two_manifests_counts_once() {
        check(
            &["/m/b.yaml: web!1", "/m/a.yaml: copy!1; /m/b.yaml: web!1"],
            &["1"],
            &expect![[r#"
                1
                ! a.yaml: pod "copy" has the UID of pod "web" of b.yaml"#]],
        );
    }

    #[test]
    fn running_pod_stays_when_its_own_manifest_defines_the_name_twice() {
        check(
            &["http://m/all: web!1", "http://m/all: web!2 web!1"],
            &[],
            &expect![[r#"
                1
                ! http://m/all: pod "web" is defined more than once"#]],
        );
    }

    #[test]
    fn one_name_in_two_namespaces_is_two_pods() {
        check(
            &["/m/a.yaml: web!1 kube-system/web!2 kube-system/web!3"],
            &[],
            &expect![[r#"
                1
                2
                ! a.yaml: pod "kube-system/web" is defined more than once"#]],
        );
    }

    #[test]
    fn backup_names_are_those_of_editors_and_package_managers() {
        let backups = ["/m/web.yaml~", "/m/web.yaml.BAK", "/m/#web.yaml#", "/m/web.yaml.rpmsave"];
        assert!(backups.iter().all(|name| is_backup_name(name)));
        let others = ["/m/web.yaml", "/m/web", "/m/old.yaml", "/m.bak/web.yaml", "/m/web.manifest"];
        assert!(!others.iter().any(|name| is_backup_name(name)));
    }

    proptest! {
        #[test]
        fn each_name_and_each_uid_is_used_once_and_owners_never_change(
            words in prop::collection::vec((0..3_u8, 0..3_u8, 0..4_u8), 0..8)
        ) {
            let manifest = |file: u8| {
                let own = words.iter().filter(|(of, ..)| *of == file);
                let pods: Vec<String> = own.map(|(_, name, uid)| format!("p{name}!{uid}")).collect();
                format!("/m/{file}: {}", pods.join(" "))
            };
            let all = [0, 1, 2].map(manifest).join("; ");
            let first = compute(&all, &Owners::new(), &[]);
            let uids: BTreeSet<_> = first.pods.iter().map(|pod| PodUid::of(pod)).collect();
            prop_assert_eq!(uids.len(), first.pods.len());
            prop_assert_eq!(first.owners.len(), first.pods.len());
            prop_assert_eq!(first.pods.len() + first.errors.len(), words.len());
            let reversed = [2, 1, 0].map(manifest).join("; ");
            prop_assert_eq!(compute(&reversed, &first.owners, &[]).owners, first.owners);
        }
    }
}
