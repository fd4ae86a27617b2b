# shellcheck shell=bash
# Makes the guest of scripts/vm: a Debian of this machine's own release on a disk image, and its kernel. Both are kept below
# .cache/vm until something of this recipe changes. Needs scripts/lib.sh, and WORK for what is thrown away.

# The guest's release is this machine's, because programs built here need this machine's C library.
RELEASE=$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")
CACHE=$REPO/.cache/vm/$RELEASE
GUEST_FILES=$REPO/scripts/guest
KERNEL_PACKAGE=linux-image-cloud-amd64
# What the tests and the programs under test call, and what makes the guest a node like many others.
GUEST_PACKAGES=systemd,systemd-sysv,dbus,udev,kmod,mount,procps,iproute2,iptables,curl,jq,openssl,busybox-static
GUEST_PACKAGES+=,containerd,runc,containernetworking-plugins,kubernetes-client,docker-registry,apache2-utils
GUEST_PACKAGES+=,apparmor,nfs-kernel-server,nfs-common

# ------------------------------------------------------------------------------------------------- making the guest
# Only who uses the guest needs these, so scripts/setup does not install them.
ensure_vm_packages() {
    PACKAGES="qemu-system-x86_64:qemu-system-x86 mmdebstrap:mmdebstrap mkfs.ext4:e2fsprogs debugfs:e2fsprogs objcopy:binutils" ensure_packages
}

# Changes when the guest has to be made again.
recipe() {
    { echo "$RELEASE" && cat "$GUEST_FILES"/*.{service,target} "$GUEST_FILES/build.sh"; } | sha256sum | cut -d' ' -f1
}

# The mirror this machine uses for Debian itself.
mirror() {
    # shellcheck disable=SC2016  # apt's own placeholders
    apt-get indextargets --format '$(ORIGIN) $(SITE)' 'Created-By: Packages' 2>/dev/null |
        awk '$1 == "Debian" && $2 !~ /security/ { print $2; exit }'
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
    # Lists that are missing, or older than the latest kernel, are fetched.
    download_kernel || { apt-get -qq update >>"$WORK/log" 2>&1 && download_kernel; } ||
        die "Debian's kernel ($KERNEL_PACKAGE) could not be fetched:" "$(tail -n 3 "$WORK/log")"
    mkdir "$WORK/kernel"
    dpkg-deb -x "$WORK"/linux-image-*.deb "$WORK/kernel"
    version=$(ls "$WORK/kernel/lib/modules")
    # Drivers for machines that this guest is not are most of the modules.
    find "$WORK/kernel/lib/modules/$version/kernel/drivers" -mindepth 1 -maxdepth 1 \
        ! -name net ! -name block ! -name virtio ! -name char -exec rm -rf {} +
    cp -a "$WORK/kernel/lib/modules" "$root/usr/lib/modules"
    chroot "$root" depmod "$version"
    cp "$WORK/kernel/boot/vmlinuz-$version" "$WORK/vmlinuz"
}

# What the packages leave to the person who installs a machine.
configure_guest() {
    local root=$1 unit
    cp "$GUEST_FILES"/*.service "$GUEST_FILES"/*.target "$root/etc/systemd/system/"
    echo guest >"$root/etc/hostname"
    printf '127.0.0.1 localhost guest\n::1 localhost\n' >"$root/etc/hosts"
    printf '/dev/nvme0n1 / ext4 rw,noatime 0 0\n/dev/nvme0n2 /exchange ext4 rw,noatime 0 0\n' >"$root/etc/fstab"
    mkdir -p "$root/exchange"
    # The same id each time would do; without one systemd takes the boot for the first one and asks questions.
    echo 6b7562656c65742d72732d6775657374 >"$root/etc/machine-id"
    chroot "$root" passwd -q -d root
    printf 'overlay\nbr_netfilter\n' >"$root/etc/modules-load.d/node.conf"
    # A journal that survives nothing costs no disk writes.
    mkdir -p "$root/etc/systemd/journald.conf.d"
    printf '[Journal]\nStorage=volatile\nRateLimitIntervalSec=0\n' >"$root/etc/systemd/journald.conf.d/guest.conf"
    # Services that the packages bring and no test wants; those that one does want, it starts.
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
    site=$(mirror)
    [ -n "$site" ] || die "found no Debian mirror among this machine's package sources." "Try: apt-get update"
    mkdir -p "$CACHE"
    say "fetching and unpacking Debian $RELEASE"
    mmdebstrap --quiet --mode=root --variant=minbase --include="$GUEST_PACKAGES" --aptopt='Apt::Install-Recommends "false"' \
        --aptopt='Acquire::Check-Valid-Until "false"' --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        "$RELEASE" "$root" "$site" >>"$WORK/log" 2>&1 || {
        tail -n 15 "$WORK/log" >&2
        die "the guest could not be made; the last words of mmdebstrap are above."
    }
    unpack_kernel "$root"
    configure_guest "$root"
    say "packing it"
    # The file is sparse: it grows with what is in it.
    rm -f "$CACHE/recipe"
    make_disk "$root" "$CACHE/root.ext4" 6G
    mv "$WORK/vmlinuz" "$CACHE/vmlinuz"
    rm -rf "$root" "$WORK/kernel"
    recipe >"$CACHE/recipe"
}

# make_disk FOLDER FILE SIZE: without mounting anything. No journal: nobody needs these files after a crash.
make_disk() {
    rm -f "$2"
    mkfs.ext4 -q -F -O ^has_journal -E lazy_itable_init=1,root_owner=0:0 -m 0 -d "$1" "$2" "$3" >>"$WORK/log" 2>&1 ||
        die "mkfs.ext4 could not pack $1:" "$(tail -n 3 "$WORK/log")"
}

ensure_guest() {
    if [ "$(cat "$CACHE/recipe" 2>/dev/null)" = "$(recipe)" ]; then
        say "the guest is here: $CACHE"
    else
        build_guest
        say "made: $CACHE, $(du -h "$CACHE/root.ext4" | cut -f1)"
    fi
}
