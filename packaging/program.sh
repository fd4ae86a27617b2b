# shellcheck shell=bash
# Builds the kubelet for scripts/package: for amd64 with the Rust of this machine, for arm64 in a Debian 12 of its own below .cache/arm64,
# which has a compiler, a linker and the standard library for that architecture. Needs scripts/lib.sh, and PROFILE and WORK.

# Apart from the other builds, whose flags differ.
PACKAGE_TARGET=$REPO/target/package
CROSS=$REPO/.cache/arm64
# Debian's compiler for browsers is as new as theirs; its usual one is too old. Debian 12, so that the program runs there, too.
CROSS_RELEASE=bookworm
CROSS_PACKAGES=rustc-web,cargo-web,gcc,libc6-dev,gcc-aarch64-linux-gnu,libc6-dev-arm64-cross,ca-certificates

triple_of() {
    case $1 in
        amd64) echo x86_64-unknown-linux-gnu ;;
        arm64) echo aarch64-unknown-linux-gnu ;;
        *) die "no package is built for the architecture $1" ;;
    esac
}

# flags_of LINK REPO CARGO: paths of this machine would make the program another one.
flags_of() {
    local flags="--remap-path-prefix=$2=/kubelet-rs --remap-path-prefix=$3=/cargo"
    [ "$1" = dynamic ] || flags+=" -C target-feature=+crt-static"
    echo "$flags"
}

# build_program ARCHITECTURE dynamic|static FILE
build_program() {
    local triple home=${CARGO_HOME:-${HOME:-/root}/.cargo}
    triple=$(triple_of "$1")
    say "building for $1, $2, profile $PROFILE"
    if [ "$1" = "$(image_architecture)" ]; then
        (cd "$REPO" && CARGO_TARGET_DIR=$PACKAGE_TARGET RUSTFLAGS=$(flags_of "$2" "$REPO" "$home") \
            CFLAGS="-ffile-prefix-map=$home=/cargo -ffile-prefix-map=$REPO=/kubelet-rs" \
            cargo build --quiet --locked --profile "$PROFILE" --target "$triple" -p kubelet --bin kubelet) ||
            die "failed to build the kubelet for $1"
    elif [ "$1" = arm64 ] && [ "$(image_architecture)" = amd64 ]; then
        build_in_cross "$2" "$triple" "$home"
    else
        die "on this machine ($(image_architecture)) no package can be built for $1"
    fi
    install -D -m 755 "$PACKAGE_TARGET/$triple/$PROFILE/kubelet" "$3"
}

ensure_cross() {
    [ "$(cat "$CROSS/packages" 2>/dev/null)" != "$CROSS_RELEASE $CROSS_PACKAGES" ] || return 0
    local site security
    require_root
    ensure_programs cross mmdebstrap:mmdebstrap
    site=$(mirror_of Debian)
    security=$(mirror_of Debian-Security)
    say "unpacking Debian $CROSS_RELEASE with a compiler for arm64 below $CROSS"
    rm -rf --one-file-system "$CROSS"
    mkdir -p "$CROSS"
    # The standard library is a package of the other architecture. The compiler is in the security archive.
    mmdebstrap --quiet --mode=root --variant=apt --architectures=amd64,arm64 --dpkgopt=force-unsafe-io \
        --include="$CROSS_PACKAGES,libstd-rust-web-dev:arm64" --aptopt='Apt::Install-Recommends "false"' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' "$CROSS_RELEASE" "$CROSS/root" \
        "deb $site $CROSS_RELEASE main" "deb $security $CROSS_RELEASE-security main" \
        >"$CROSS/log" 2>&1 || die "failed to unpack the compiler for arm64:" "$(tail -n 5 "$CROSS/log")"
    echo "$CROSS_RELEASE $CROSS_PACKAGES" >"$CROSS/packages"
}

# in_cross COMMAND...: in the Debian for arm64, with this checkout at /kubelet-rs and the crates at /cargo. The mounts are of a namespace
# of their own and end with the command.
in_cross() {
    local home=${CARGO_HOME:-${HOME:-/root}/.cargo}
    # shellcheck disable=SC2016  # for the inner shell
    unshare --mount --pid --fork --kill-child sh -c '
        set -e
        root=$1 repo=$2 home=$3 && shift 3
        mkdir -p "$root/kubelet-rs" "$root/cargo"
        mount --bind "$repo" "$root/kubelet-rs"
        mount --bind "$home" "$root/cargo"
        mount -t proc proc "$root/proc"
        exec chroot "$root" env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root CARGO_HOME=/cargo "$@"
    ' sh "$CROSS/root" "$REPO" "$home" "$@"
}

# build_in_cross LINK TRIPLE CARGO-HOME: without a network, because the crates are here.
build_in_cross() {
    ensure_cross
    (cd "$REPO" && cargo fetch --quiet --locked --target "$2") || die "failed to download the crates"
    in_cross SOURCE_DATE_EPOCH="$SOURCE_DATE_EPOCH" KUBELET_COMMIT="$KUBELET_COMMIT" CARGO_TARGET_DIR="/kubelet-rs/${PACKAGE_TARGET#"$REPO"/}" \
        RUSTFLAGS="$(flags_of "$1" /kubelet-rs /cargo)" CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
        CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc CFLAGS="-ffile-prefix-map=/cargo=/crates" \
        sh -c "cd /kubelet-rs && cargo build --quiet --offline --locked --profile $PROFILE --target $2 -p kubelet --bin kubelet" ||
        die "failed to build the kubelet for arm64"
}
