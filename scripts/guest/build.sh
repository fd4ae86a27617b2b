# shellcheck shell=bash
# Builds the guest of scripts/vm: a Debian of this machine's own release on a disk image, and its kernel. Both are kept below
# .cache/vm until this recipe changes. Needs scripts/lib.sh, and WORK for temporary files.

# The guest's release is this machine's, because programs built here need this machine's C library, or a newer one that is asked for.
RELEASE=${GUEST_RELEASE:-$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")}
CACHE=$REPO/.cache/vm/$RELEASE
GUEST_FILES=$REPO/scripts/guest
KERNEL_PACKAGE=linux-image-cloud-amd64
# The programs that the tests and the programs under test run, and those that a usual node has.
GUEST_PACKAGES=systemd,systemd-sysv,dbus,udev,kmod,mount,procps,iproute2,iptables,curl,jq,openssl,busybox-static
GUEST_PACKAGES+=,containerd,runc,containernetworking-plugins,kubernetes-client,docker-registry,apache2-utils
GUEST_PACKAGES+=,apparmor,nfs-kernel-server,nfs-common

# ----------------------------------------------------------------------------------------------- building the guest
# Only the guest needs these, so scripts/setup does not install them.
ensure_vm_packages() {
    ensure_programs guest qemu-system-x86_64:qemu-system-x86 mmdebstrap:mmdebstrap mkfs.ext4:e2fsprogs debugfs:e2fsprogs objcopy:binutils
}

# Changes when the guest must be built again.
recipe() {
    { echo "$RELEASE" && cat "$GUEST_FILES"/*.{service,target} "$GUEST_FILES/build.sh"; } | sha256sum | cut -d' ' -f1
}

download_kernel() {
    local package
    package=$(apt-cache depends "$KERNEL_PACKAGE" 2>/dev/null | awk '/Depends: linux-image/ { print $2; exit }')
    [ -n "$package" ] && (cd "$WORK" && apt-get -qq -o APT::Sandbox::User=root download "$package") >>"$WORK/log" 2>&1
}

# The kernel is unpacked, not installed: its package would build an initial RAM disk, and this kernel needs none, because
# NVMe and ext4 are in it.
unpack_kernel() {
    local root=$1 version
    # Package lists that are missing, or older than the latest kernel, are downloaded.
    download_kernel || { apt-get -qq update >>"$WORK/log" 2>&1 && download_kernel; } ||
        die "failed to download Debian's kernel ($KERNEL_PACKAGE):" "$(tail -n 3 "$WORK/log")"
    mkdir "$WORK/kernel"
    dpkg-deb -x "$WORK"/linux-image-*.deb "$WORK/kernel"
    version=$(ls "$WORK/kernel/lib/modules")
    # Most modules are drivers for hardware that the guest does not have.
    find "$WORK/kernel/lib/modules/$version/kernel/drivers" -mindepth 1 -maxdepth 1 \
        ! -name net ! -name block ! -name virtio ! -name char -exec rm -rf {} +
    cp -a "$WORK/kernel/lib/modules" "$root/usr/lib/modules"
    chroot "$root" depmod "$version"
    cp "$WORK/kernel/boot/vmlinuz-$version" "$WORK/vmlinuz"
}

# Configuration that packages leave to the administrator.
configure_guest() {
    local root=$1 unit
    cp "$GUEST_FILES"/*.service "$GUEST_FILES"/*.target "$root/etc/systemd/system/"
    echo guest >"$root/etc/hostname"
    printf '127.0.0.1 localhost guest\n::1 localhost\n' >"$root/etc/hosts"
    printf '/dev/nvme0n1 / ext4 rw,noatime 0 0\n/dev/nvme0n2 /exchange ext4 rw,noatime 0 0\n' >"$root/etc/fstab"
    mkdir -p "$root/exchange"
    # Without an id systemd treats the boot as the first one and asks questions; a fixed one is enough.
    echo 6b7562656c65742d72732d6775657374 >"$root/etc/machine-id"
    chroot "$root" passwd -q -d root
    printf 'overlay\nbr_netfilter\n' >"$root/etc/modules-load.d/node.conf"
    # A volatile journal causes no disk writes.
    mkdir -p "$root/etc/systemd/journald.conf.d"
    printf '[Journal]\nStorage=volatile\nRateLimitIntervalSec=0\n' >"$root/etc/systemd/journald.conf.d/guest.conf"
    # Services of the packages that no test needs; a test that needs one starts it.
    for unit in containerd docker-registry nfs-server nfs-client.target rpcbind.service rpcbind.socket nfs-blkmap \
        apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer dpkg-db-backup.timer e2scrub_reap; do
        chroot "$root" systemctl -q disable "$unit" >>"$WORK/log" 2>&1 || true
    done
    for unit in systemd-firstboot systemd-machine-id-commit systemd-update-utmp systemd-network-generator systemd-pstore \
        systemd-hwdb-update ldconfig systemd-remount-fs; do
        ln -sf /dev/null "$root/etc/systemd/system/$unit.service"
    done
}

build_guest() {
    local root=$WORK/root site
    site=$(mirror_of Debian)
    mkdir -p "$CACHE"
    say "downloading and unpacking Debian $RELEASE"
    mmdebstrap --quiet --mode=root --variant=minbase --include="$GUEST_PACKAGES" --aptopt='Apt::Install-Recommends "false"' \
        --aptopt='Acquire::Check-Valid-Until "false"' --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        "$RELEASE" "$root" "$site" >>"$WORK/log" 2>&1 || {
        tail -n 15 "$WORK/log" >&2
        die "failed to build the guest; the end of mmdebstrap's log is above."
    }
    unpack_kernel "$root"
    configure_guest "$root"
    say "packing the disk image"
    # The file is sparse: it grows with its content.
    rm -f "$CACHE/recipe"
    make_disk "$root" "$CACHE/root.ext4" 6G
    mv "$WORK/vmlinuz" "$CACHE/vmlinuz"
    rm -rf "$root" "$WORK/kernel"
    recipe >"$CACHE/recipe"
}

# make_disk FOLDER FILE SIZE: packs the folder without mounting anything. No journal, because the files are not needed after a crash.
make_disk() {
    rm -f "$2"
    mkfs.ext4 -q -F -O ^has_journal -E lazy_itable_init=1,root_owner=0:0 -m 0 -d "$1" "$2" "$3" >>"$WORK/log" 2>&1 ||
        die "mkfs.ext4 failed to pack $1:" "$(tail -n 3 "$WORK/log")"
}

ensure_guest() {
    if [ "$(cat "$CACHE/recipe" 2>/dev/null)" = "$(recipe)" ]; then
        say "found the guest in $CACHE"
    else
        build_guest
        say "built the guest in $CACHE, $(du -h "$CACHE/root.ext4" | cut -f1)"
    fi
}
