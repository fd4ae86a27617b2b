# An SPDX 2.3 document with all that is inside the program. Input: `cargo metadata`. Arguments: $used, the crates that the program is
# built from, as "name version"; $sums, their checksums by "name version" (Cargo.lock); $name, $version, $created, $other, further packages.

def key: "\(.name) \(.version)";
def id: "SPDXRef-crate-" + (key | gsub("[^A-Za-z0-9.-]"; "-"));
def is_ours: .source == null;

def unknown: {filesAnalyzed: false, licenseConcluded: "NOASSERTION", copyrightText: "NOASSERTION"};

def package: {
    SPDXID: id,
    name: .name,
    versionInfo: .version,
    downloadLocation: (if is_ours then "NOASSERTION" else "https://crates.io/api/v1/crates/\(.name)/\(.version)/download" end),
    # Older crates write the alternative with a slash.
    licenseDeclared: ((.license // "NOASSERTION") | gsub(" ?/ ?"; " OR "))
}
+ unknown
+ (if is_ours then {} else {
    externalRefs: [{referenceCategory: "PACKAGE-MANAGER", referenceType: "purl", referenceLocator: "pkg:cargo/\(.name)@\(.version)"}]
} end)
+ (if $sums[key] then {checksums: [{algorithm: "SHA256", checksumValue: $sums[key]}]} else {} end);

([$used[] | {key: ., value: true}] | from_entries) as $is_used
| [.packages[] | select($is_used[key])] as $crates
| ([$crates[] | {key: .id, value: id}] | from_entries) as $ids
| ([$crates[] | select(.name == "kubelet" and is_ours)][0] | id) as $program
| ([.resolve.nodes[] | select($ids[.id]) | . as $node | $node.deps[]
    | select($ids[.pkg] and any(.dep_kinds[]; .kind == null))
    | {spdxElementId: $ids[$node.id], relationshipType: "DEPENDS_ON", relatedSpdxElement: $ids[.pkg]}] | unique) as $edges
| {
    spdxVersion: "SPDX-2.3",
    dataLicense: "CC0-1.0",
    SPDXID: "SPDXRef-DOCUMENT",
    name: $name,
    documentNamespace: "https://spdx.org/spdxdocs/\($name)-\($version)",
    creationInfo: {created: $created, creators: ["Organization: kubelet-rs"]},
    packages: (($crates | map(package) | sort_by(.SPDXID)) + ($other | map({downloadLocation: "NOASSERTION"} + unknown + .))),
    relationships: ([{spdxElementId: "SPDXRef-DOCUMENT", relationshipType: "DESCRIBES", relatedSpdxElement: $program}]
        + $edges
        + ($other | map({spdxElementId: $program, relationshipType: "STATIC_LINK", relatedSpdxElement: .SPDXID})))
}
