# shellcheck shell=bash
# Makes the files that scripts/package writes, all from one tree of installed files. Needs scripts/lib.sh, and VERSION, OUT, WORK and
# SOURCE_DATE_EPOCH. Two runs with the same programs write the same bytes.

FILES=$REPO/packaging

# stage PROGRAM TREE: the tree of installed files, with the manual pages and completion scripts that are in WORK.
stage() {
    local tree=$2 doc=$2/usr/share/doc/kubelet-rs page
    rm -rf "$tree"
    install -D -m 755 "$1" "$tree/usr/bin/kubelet"
    install -D -m 755 "$FILES/kubelet-stop-pods" "$tree/usr/sbin/kubelet-stop-pods"
    install -D -m 644 "$FILES/kubelet.service" "$tree/usr/lib/systemd/system/kubelet.service"
    install -D -m 644 "$FILES/kubelet.yaml" "$tree/etc/kubernetes/kubelet.yaml"
    install -d -m 755 "$tree/etc/kubernetes/kubelet.conf.d" "$tree/etc/kubernetes/manifests"
    install -D -m 644 -t "$tree/usr/share/kubelet-rs" "$FILES/99-kubelet-rs.conflist" "$FILES/50-systemd-resolved.conf"
    install -D -m 644 "$WORK/documents/kubelet.bash" "$tree/usr/share/bash-completion/completions/kubelet"
    install -D -m 644 "$WORK/documents/_kubelet" "$tree/usr/share/zsh/vendor-completions/_kubelet"
    install -D -m 644 "$WORK/documents/kubelet.fish" "$tree/usr/share/fish/vendor_completions.d/kubelet.fish"
    install -D -m 644 -t "$tree/usr/share/man/man8" "$WORK"/documents/*.8 "$FILES/kubelet-stop-pods.8"
    for page in "$tree"/usr/share/man/man8/*.8; do gzip -9n "$page"; done
    install -D -m 644 "$REPO/docs/operate/packages.md" "$doc/README.md"
    install -D -m 644 "$REPO/CHANGELOG.md" "$doc/changelog" && gzip -9n "$doc/changelog"
    write_copyright >"$doc/copyright"
    install -D -m 644 "$WORK/licences" "$doc/licences" && gzip -9n "$doc/licences"
    find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

write_copyright() {
    cat <<'TEXT'
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: kubelet-rs

Files: *
Copyright: the kubelet-rs developers
License: Apache-2.0
 On Debian systems the text of the Apache License 2.0 is in /usr/share/common-licenses/Apache-2.0.
Comment:
 The program contains the crates that /usr/share/doc/kubelet-rs/licences.gz lists, under the licences in that file.
TEXT
}

# fixed_tar DIRECTORY FILE NAME...: an archive with fixed order, owners and times.
fixed_tar() {
    local directory=$1 file=$2
    shift 2
    tar -C "$directory" --sort=name --owner=0 --group=0 --numeric-owner --format=gnu --mtime="@$SOURCE_DATE_EPOCH" -cf "$file" "$@"
}

# ------------------------------------------------------------------------------------------------------------- .deb
# libraries_of PROGRAM: the packages that have the libraries it is linked with, and the oldest C library that has all that it uses.
libraries_of() {
    local needs oldest
    needs=$(objdump -p "$1")
    oldest=$(sed -n 's/.* GLIBC_\([0-9.]*\)$/\1/p' <<<"$needs" | sort -V | tail -n 1)
    # Packed relocations are read by the loader since that version.
    if grep -q GLIBC_ABI_DT_RELR <<<"$needs"; then oldest=$(printf '%s\n2.36\n' "$oldest" | sort -V | tail -n 1); fi
    printf 'libc6 (>= %s)' "$oldest"
    if grep -q 'NEEDED *libgcc_s' <<<"$needs"; then printf ', libgcc-s1'; fi
}

# make_deb ARCHITECTURE TREE
make_deb() {
    local tree=$WORK/deb size script
    rm -rf "$tree"
    cp -a "$2" "$tree"
    install -d -m 755 "$tree/DEBIAN"
    # In whole blocks, as the policy says: a disk would give another number.
    size=$(find "$2" -type f -printf '%s\n' | awk '{ sum += int(($1 + 1023) / 1024) } END { print sum }')
    sed -e "s/@VERSION@/$VERSION/" -e "s/@ARCHITECTURE@/$1/" -e "s/@SIZE@/$size/" -e "s/@KUBERNETES@/$KUBERNETES/" \
        -e "s/@LIBRARIES@/$(libraries_of "$2/usr/bin/kubelet")/" "$FILES/debian/control.in" >"$tree/DEBIAN/control"
    echo /etc/kubernetes/kubelet.yaml >"$tree/DEBIAN/conffiles"
    for script in postinst prerm postrm; do install -m 755 "$FILES/debian/$script" "$tree/DEBIAN/$script"; done
    (cd "$tree" && find . -path ./DEBIAN -prune -o -type f ! -path ./etc/kubernetes/kubelet.yaml -printf '%P\n' | LC_ALL=C sort | xargs md5sum) \
        >"$tree/DEBIAN/md5sums"
    chmod 644 "$tree"/DEBIAN/control "$tree"/DEBIAN/conffiles "$tree"/DEBIAN/md5sums
    find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    # A program that was not built here is for a test, which does not wait for the best compression.
    dpkg-deb --root-owner-group -Zxz -z"$([ -n "$PROGRAM" ] && echo 0 || echo 6)" --threads-max=1 --build "$tree" "$OUT/kubelet-rs_${VERSION}_$1.deb" >/dev/null
}

# ------------------------------------------------------------------------------------------- archive and OCI image
# make_archive ARCHITECTURE TREE
make_archive() {
    local name=kubelet-rs-$VERSION-linux-$1
    rm -rf "$WORK/archive"
    mkdir "$WORK/archive"
    cp -a "$2" "$WORK/archive/$name"
    fixed_tar "$WORK/archive" "$WORK/archive.tar" "$name"
    gzip -9n <"$WORK/archive.tar" >"$OUT/$name.tar.gz"
}

# put_blob LAYOUT FILE TYPE: moves the file to the blobs of an image, and prints its descriptor.
put_blob() {
    local sum size
    sum=$(sha256sum "$2" | cut -d' ' -f1)
    size=$(stat -c %s "$2")
    mv "$2" "$1/blobs/sha256/$sum"
    jq -cn --arg type "$3" --arg digest "sha256:$sum" --argjson size "$size" '{mediaType: $type, digest: $digest, size: $size}'
}

# make_image ARCHITECTURE TREE: an image with the tree as its only layer, as the OCI image specification lays it out in a directory.
make_image() {
    local layout=$WORK/layout created difference layer config manifest
    created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%FT%TZ)
    rm -rf "$layout"
    mkdir -p "$layout/blobs/sha256"
    fixed_tar "$2" "$WORK/layer.tar" etc usr
    difference=$(sha256sum "$WORK/layer.tar" | cut -d' ' -f1)
    gzip -9n "$WORK/layer.tar"
    layer=$(put_blob "$layout" "$WORK/layer.tar.gz" application/vnd.oci.image.layer.v1.tar+gzip)
    jq -cn --arg architecture "$1" --arg created "$created" --arg difference "sha256:$difference" --arg version "$VERSION" '{
        created: $created, architecture: $architecture, os: "linux",
        config: {Env: ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"], Entrypoint: ["/usr/bin/kubelet"],
            Labels: {"org.opencontainers.image.title": "kubelet-rs", "org.opencontainers.image.version": $version,
                "org.opencontainers.image.licenses": "Apache-2.0"}},
        rootfs: {type: "layers", diff_ids: [$difference]},
        history: [{created: $created, created_by: "scripts/package"}]}' >"$WORK/config.json"
    config=$(put_blob "$layout" "$WORK/config.json" application/vnd.oci.image.config.v1+json)
    jq -cn --argjson config "$config" --argjson layer "$layer" '{schemaVersion: 2, mediaType: "application/vnd.oci.image.manifest.v1+json",
        config: $config, layers: [$layer]}' >"$WORK/manifest.json"
    manifest=$(put_blob "$layout" "$WORK/manifest.json" application/vnd.oci.image.manifest.v1+json)
    # A tag may have no tilde.
    jq -cn --argjson manifest "$manifest" --arg architecture "$1" --arg tag "${VERSION//\~/-}" '{schemaVersion: 2,
        mediaType: "application/vnd.oci.image.index.v1+json", manifests: [$manifest + {platform: {architecture: $architecture, os: "linux"},
            annotations: {"io.containerd.image.name": "localhost/kubelet-rs:\($tag)", "org.opencontainers.image.ref.name": $tag}}]}' \
        >"$layout/index.json"
    printf '{"imageLayoutVersion":"1.0.0"}' >"$layout/oci-layout"
    fixed_tar "$layout" "$OUT/kubelet-rs-$VERSION-linux-$1.oci.tar" blobs index.json oci-layout
}

# --------------------------------------------------------------------------------------- what is inside, and licences
# crates_of TRIPLE: the crates that the program is built from, a name and a version on each line, without those of tests.
crates_of() {
    (cd "$REPO" && cargo tree --quiet --locked -p kubelet --edges normal --target "$1" --prefix none --format '{p}') |
        awk '{ print $1, substr($2, 2) }' | LC_ALL=C sort -u
}

# checksums: "name version" and the checksum of each crate in Cargo.lock, as a JSON object.
checksums() {
    awk -F'"' '/^name = /{ name = $2 } /^version = /{ version = $2 } /^checksum = /{ print name " " version "\t" $2 }' "$REPO/Cargo.lock" |
        jq -Rn '[inputs | split("\t") | {key: .[0], value: .[1]}] | from_entries'
}

# What a static program contains besides crates. The licences of the C library and of the compiler's library let it be linked.
other_parts() {
    local libc gcc
    libc=$(dpkg-query -W -f '${Version}' libc6-dev 2>/dev/null || echo unknown)
    gcc=$(gcc -dumpversion)
    jq -n --arg rust "$(rust_version)" --arg libc "$libc" --arg gcc "$gcc" '[
        {SPDXID: "SPDXRef-rust-std", name: "rust-std", versionInfo: $rust, licenseDeclared: "MIT OR Apache-2.0"},
        {SPDXID: "SPDXRef-glibc", name: "glibc", versionInfo: $libc, licenseDeclared: "LGPL-2.1-or-later"},
        {SPDXID: "SPDXRef-libgcc", name: "libgcc", versionInfo: $gcc, licenseDeclared: "GPL-3.0-or-later WITH GCC-exception-3.1"}]'
}

# make_spdx ARCHITECTURE
make_spdx() {
    local triple
    triple=$(triple_of "$1")
    crates_of "$triple" >"$WORK/crates"
    (cd "$REPO" && cargo metadata --quiet --locked --format-version 1 --filter-platform "$triple") |
        jq --argjson used "$(jq -Rn '[inputs]' <"$WORK/crates")" --argjson sums "$(checksums)" --argjson other "$(other_parts)" \
            --arg name "kubelet-rs-linux-$1" --arg version "$VERSION" --arg created "$(date -u -d "@$SOURCE_DATE_EPOCH" +%FT%TZ)" \
            -f "$FILES/spdx.jq" >"$OUT/kubelet-rs-$VERSION-linux-$1.spdx.json"
}

# write_licences FILE: the texts of the licences of all crates, each text once, with the crates that have it.
write_licences() {
    local directory=$WORK/texts name path file sum
    rm -rf "$directory"
    mkdir "$directory"
    (cd "$REPO" && cargo metadata --quiet --locked --format-version 1 --filter-platform "$(triple_of amd64)") |
        jq -r '.packages[] | select(.source) | "\(.name) \(.version)\t\(.license // "see its files")\t\(.manifest_path)"' |
        LC_ALL=C sort >"$WORK/packages"
    while IFS=$'\t' read -r name license path; do
        grep -qxF "$name" "$WORK/crates" || continue
        echo "$name: $license" >>"$directory/summary"
        while read -r file; do
            sum=$(sha256sum "$file" | cut -c 1-16)
            [ -e "$directory/$sum.text" ] || cp "$file" "$directory/$sum.text"
            echo "$name" >>"$directory/$sum.crates"
        done < <(find "$(dirname "$path")" -maxdepth 1 -type f \( -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'notice*' -o -iname 'copyright*' \) | LC_ALL=C sort)
    done <"$WORK/packages"
    {
        printf 'Crates in the program kubelet, with their licences. The texts follow.\n\n'
        cat "$directory/summary"
        printf '\nRust standard library: MIT OR Apache-2.0. A static program also contains the GNU C library (LGPL-2.1-or-later; its source is\n'
        printf 'that of the Debian package glibc, and scripts/package links the program with another version of it) and the library of\n'
        printf 'the GNU compiler (GPL-3.0-or-later with the runtime library exception).\n'
        for file in "$directory"/*.text; do
            printf '\n%s\n%s\n\n' '--------------------------------------------------------------------------------' \
                "$(LC_ALL=C sort -u "${file%.text}.crates" | paste -s -d, | sed 's/,/, /g' | fold -s -w 100)"
            cat "$file"
        done
    } >"$1"
}
