# shellcheck shell=bash
# Shared by the other scripts: output, packages, small images made of busybox, and a private containerd. Removes everything
# that such a containerd leaves on the machine, and checks that nothing is left. Never touches the system's containerd, its
# sockets or its images, and never connects to an image registry.

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
RUST_WANTED=1.95
PAUSE_IMAGE=localhost/kubelet-rs/pause:1
BUSYBOX_IMAGE=localhost/kubelet-rs/busybox:1
# shellcheck disable=SC2034  # for the scripts that read this file
TARGET_DIR=${CARGO_TARGET_DIR:-$REPO/target}
# rustup's usual place, for shells that have not read its profile.
if ! command -v cargo >/dev/null && [ -d "${HOME:-/root}/.cargo/bin" ]; then PATH=${HOME:-/root}/.cargo/bin:$PATH; fi

# --------------------------------------------------------------------------------------------------------- output
STARTED_AT=$(date +%s)
if [ -t 1 ]; then BOLD=$'\e[1m' PLAIN=$'\e[0m'; else BOLD='' PLAIN=''; fi
elapsed() { echo $(($(date +%s) - STARTED_AT)); }
step() { printf '\n%s==> [%3ds] %s%s\n' "$BOLD" "$(elapsed)" "$*" "$PLAIN"; }
say() { printf '    %s\n' "$*"; }
die() {
    printf '\nStopped: %s\n' "$1" >&2
    shift
    for line in "$@"; do printf '         %s\n' "$line" >&2; done
    exit 1
}

# wait_for SECONDS WHAT COMMAND...: runs COMMAND every 0.2 s until it succeeds; fails after SECONDS.
wait_for() {
    local deadline=$(($(date +%s) + $1)) what=$2
    shift 2
    until "$@"; do
        if [ "$(date +%s)" -ge "$deadline" ]; then
            say "timed out waiting for $what"
            return 1
        fi
        sleep 0.2
    done
}

# ------------------------------------------------------------------------------------------------------- packages
# Programs by purpose, and the Debian packages that contain them.
declare -A PACKAGES=(
    # A private containerd with pods, and what looks at them.
    [run]="containerd:containerd runc:runc busybox:busybox-static ip:iproute2 curl:curl jq:jq mount:mount"
    # The linker for the compiler.
    [build]="gcc:gcc curl:curl"
    # What only tests and checks run.
    [test]="kubectl:kubernetes-client docker-registry:docker-registry htpasswd:apache2-utils iptables:iptables ps:procps shellcheck:shellcheck"
)
ALL_PURPOSES=(run build test)

# missing_packages PURPOSE...
missing_packages() {
    local purpose pair
    for purpose in "$@"; do
        for pair in ${PACKAGES[$purpose]}; do
            command -v "${pair%%:*}" >/dev/null || echo "${pair#*:}"
        done
        case $purpose in
            run)
                [ -x /usr/lib/cni/bridge ] || echo containernetworking-plugins
                # A dynamic busybox would not run in an image that holds nothing else.
                if command -v busybox >/dev/null && ldd "$(command -v busybox)" >/dev/null 2>&1; then echo busybox-static; fi
                ;;
            build)
                [ -e /etc/ssl/certs/ca-certificates.crt ] || echo ca-certificates
                [ -e /usr/include/stdlib.h ] || echo libc6-dev
                ;;
        esac
    done
}

# What the scripts have installed on this machine, one `kind name` on each line: packages, rustup, toolchain.
INSTALLED=$REPO/.cache/installed
record_installed() {
    mkdir -p "$(dirname "$INSTALLED")"
    printf '%s\n' "$@" >>"$INSTALLED"
    sort -u -o "$INSTALLED" "$INSTALLED"
}

# Programs that are unpacked from their package without installing it: the package contains a service and a web interface,
# five times as large, and neither is needed.
PROMETHEUS_DIR=/usr/local/lib/kubelet-rs
ensure_prometheus() {
    local dir log
    if { command -v promtool && command -v prometheus; } >/dev/null ||
        { [ -x "$PROMETHEUS_DIR/promtool" ] && [ -x "$PROMETHEUS_DIR/prometheus" ]; }; then
        return 0
    fi
    say "unpacking promtool and prometheus into $PROMETHEUS_DIR"
    dir=$(mktemp -d)
    log=$dir/log
    # As root, apt downloads as a user of its own, which must be able to write to the directory.
    chmod 755 "$dir"
    {
        apt-cache policy prometheus 2>/dev/null | grep -q 'Candidate: [0-9]' || apt-get update
        (cd "$dir" && apt-get -o APT::Sandbox::User=root download prometheus) &&
            dpkg-deb --fsys-tarfile "$dir"/prometheus_*.deb |
            tar -x -C "$dir" ./usr/bin/promtool ./usr/bin/prometheus &&
            install -D -m 755 -t "$PROMETHEUS_DIR" "$dir/usr/bin/promtool" "$dir/usr/bin/prometheus"
    } >"$log" 2>&1 || {
        tail -n 15 "$log" >&2
        rm -rf "$dir"
        die "failed to unpack promtool and prometheus from Debian's package prometheus." \
            "Is a Debian mirror reachable? See /etc/apt/sources.list."
    }
    rm -rf "$dir"
}

# mirror_of LABEL: where this machine has the packages of Debian or Debian-Security from.
mirror_of() {
    local site
    # shellcheck disable=SC2016  # apt's own placeholders
    site=$(apt-get indextargets --format '$(LABEL) $(SITE)' 'Created-By: Packages' 2>/dev/null |
        awk -v label="$1" '$1 == label && !found { print $2; found = 1 }')
    [ -n "$site" ] || die "this machine's package sources have no mirror of $1." "Try: apt-get update"
    echo "$site"
}

require_root() {
    [ "$(id -u)" = 0 ] && return 0
    die "must run as root, because containers, mounts and cgroups need it." "Try: sudo $0"
}

# The packages that apt would install for these, dependencies included. One that it would upgrade has its present version in brackets, and
# is not ours to remove.
would_install() { apt-get install -s --no-install-recommends "$@" 2>/dev/null | awk '/^Inst / && $3 !~ /^\[/ { print $2 }'; }

# A package enables its services even where they may not start; the scripts run their own.
disable_services_of() {
    local unit disabled=()
    # The helper of maintainer scripts, which also works without systemd, runs only for a package.
    local -x DPKG_MAINTSCRIPT_PACKAGE=$1
    for unit in $(dpkg -L "$@" 2>/dev/null | sed -n 's#^\(/usr\)\?/lib/systemd/system/\([^/]*\.\(service\|socket\|timer\)\)$#\2#p' | sort -u); do
        deb-systemd-helper --quiet is-enabled "$unit" 2>/dev/null || continue
        if deb-systemd-helper disable "$unit" >/dev/null 2>&1; then disabled+=("$unit"); fi
    done
    [ ${#disabled[@]} = 0 ] || say "disabled, and not started: ${disabled[*]}; systemctl enable --now starts one"
}

# ensure_packages [PURPOSE...]: those of every purpose, unless some are named.
ensure_packages() {
    local wanted added policy='' ok=yes log
    [ $# -gt 0 ] || set -- "${ALL_PURPOSES[@]}"
    mapfile -t wanted < <(missing_packages "$@" | sort -u)
    if [ ${#wanted[@]} = 0 ]; then
        say "all Debian packages are installed"
        return 0
    fi
    command -v apt-get >/dev/null ||
        die "some programs are missing and this machine has no apt-get to install them with." "Missing packages (Debian's names): ${wanted[*]}"
    log=$(mktemp)
    DEBIAN_FRONTEND=noninteractive apt-get update >"$log" 2>&1 || ok=no
    mapfile -t added < <(would_install "${wanted[@]}")
    say "installing ${#added[@]} Debian packages for: $*"
    printf '%s\n' "${added[@]}" | fmt -w 100 | sed 's/^/        /'
    # The packages contain services (a containerd, a registry) that must not start.
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        policy=/usr/sbin/policy-rc.d
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${wanted[@]}" >>"$log" 2>&1 || ok=no
    [ -z "$policy" ] || rm -f "$policy"
    if [ "$ok" = no ]; then
        tail -n 15 "$log" >&2
        rm -f "$log"
        die "apt-get failed to install: ${wanted[*]}" "Is a Debian mirror reachable? See /etc/apt/sources.list."
    fi
    rm -f "$log"
    record_installed "${added[@]/#/package }"
    disable_services_of "${added[@]}"
    mapfile -t wanted < <(missing_packages "$@" | sort -u)
    [ ${#wanted[@]} = 0 ] || die "still missing after apt-get install: ${wanted[*]}"
    say "installed"
}

# ensure_programs PURPOSE PROGRAM:PACKAGE...: what only one script needs.
ensure_programs() {
    PACKAGES[$1]=${*:2}
    ensure_packages "$1"
}

# Removes what the scripts have installed. Nothing else may go with it.
remove_installed() {
    local packages going other
    [ -s "$INSTALLED" ] || { say "the scripts have installed nothing on this machine" && return 0; }
    if grep -qx toolchain "$INSTALLED" && command -v rustup >/dev/null; then
        say "removing the stable toolchain of rustup"
        rustup toolchain uninstall stable
    fi
    if grep -qx rustup "$INSTALLED" && command -v rustup >/dev/null; then
        say "removing rustup"
        rustup self uninstall -y
    fi
    mapfile -t packages < <(sed -n 's/^package //p' "$INSTALLED" | while read -r name; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" != installed ] || echo "$name"
    done)
    if [ ${#packages[@]} -gt 0 ]; then
        mapfile -t going < <(apt-get purge -s "${packages[@]}" 2>/dev/null | awk '/^(Purg|Remv) / { print $2 }')
        other=$(comm -23 <(printf '%s\n' "${going[@]}" | sort) <(printf '%s\n' "${packages[@]}" | sort) | tr '\n' ' ')
        [ -z "$other" ] || die "these packages need some of those that were installed: $other" "Nothing was removed. Remove with apt-get what you do not need: ${packages[*]}"
        say "removing ${#packages[@]} Debian packages"
        printf '%s\n' "${packages[@]}" | fmt -w 100 | sed 's/^/        /'
        DEBIAN_FRONTEND=noninteractive apt-get purge -y "${packages[@]}" >/dev/null || die "apt-get failed to remove them."
    fi
    [ ! -d "$PROMETHEUS_DIR" ] || rm -rf "$PROMETHEUS_DIR"
    rm -f "$INSTALLED"
    say "removed; what was built is in $TARGET_DIR"
}

rust_version() {
    local out
    out=$(cd "$REPO" && rustc --version 2>/dev/null) || return 1
    out=${out#rustc }
    echo "${out%% *}"
}

rust_is_enough() {
    local have
    have=$(rust_version) || return 1
    command -v cargo >/dev/null || return 1
    [ "$(printf '%s\n%s\n' "$RUST_WANTED" "$have" | sort -V | head -n1)" = "$RUST_WANTED" ]
}

# Debian 13 has rustup as a package; Debian 12 has not, and gets it as rustup.rs describes.
ensure_rustup() {
    command -v rustup >/dev/null && return 0
    if apt-cache policy rustup 2>/dev/null | grep -q 'Candidate: [0-9]'; then
        say "installing Debian's rustup"
        local added
        mapfile -t added < <(would_install rustup)
        if DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends rustup >/dev/null 2>&1; then
            record_installed "${added[@]/#/package }"
        fi
    else
        say "installing rustup from https://sh.rustup.rs into $HOME/.cargo"
        curl -fsS --proto '=https' --max-time 60 https://sh.rustup.rs -o "$1" 2>/dev/null || return 0
        if sh "$1" -y --quiet --no-modify-path --default-toolchain none; then record_installed rustup; fi
        PATH=$HOME/.cargo/bin:$PATH
    fi
}

ensure_rust() {
    if ! rust_is_enough; then
        say "Rust $RUST_WANTED or newer is needed; found: $(rust_version || echo none)"
        local installer
        installer=$(mktemp)
        ensure_rustup "$installer"
        rm -f "$installer"
        if command -v rustup >/dev/null; then
            say "rustup installs the stable toolchain"
            rustup toolchain list 2>/dev/null | grep -q '^stable' || record_installed toolchain
            if rustup toolchain install stable --profile minimal -c clippy -c rustfmt; then rustup default stable; fi
            hash -r
        fi
    fi
    rust_is_enough || die "Rust $RUST_WANTED or newer is missing and could not be installed." \
        "Debian 13:  apt-get install rustup && rustup default stable" \
        "Debian 12:  follow https://rustup.rs (one command), then run this again." \
        "Debian's own rustc package is too old for this project."
    say "Rust $(rust_version)"
}

# --------------------------------------------------------------------------------------------------------- images
# image_archive NAME ROOTFS OUT [KEY=JSON...]: packs a directory as a docker-archive with one layer, the format every
# runtime can import. The pairs are added to the image's run configuration unchanged.
image_archive() {
    local name=$1 rootfs=$2 out=$3 dir layer config id extra=''
    shift 3
    for pair in "$@"; do extra+=",\"${pair%%=*}\":${pair#*=}"; done
    dir=$(mktemp -d "$WORK/image.XXXXXX")
    # Fixed order, owner and times: the same busybox always gives the same image id.
    tar -C "$rootfs" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf "$dir/layer.tar" .
    layer=$(sha256sum "$dir/layer.tar" | cut -d' ' -f1)
    config="{\"architecture\":\"$(image_architecture)\",\"os\":\"linux\",\"created\":\"1970-01-01T00:00:00Z\""
    config+=",\"config\":{\"Env\":[\"PATH=/usr/sbin:/usr/bin:/sbin:/bin\"]$extra}"
    config+=",\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"sha256:$layer\"]}}"
    printf '%s' "$config" >"$dir/config"
    id=$(sha256sum "$dir/config" | cut -d' ' -f1)
    mv "$dir/config" "$dir/$id.json"
    printf '[{"Config":"%s.json","RepoTags":["%s"],"Layers":["layer.tar"]}]' "$id" "$name" >"$dir/manifest.json"
    tar -C "$dir" --owner=0 --group=0 --numeric-owner -cf "$out" manifest.json "$id.json" layer.tar
    rm -rf "$dir"
}

image_architecture() {
    case $(uname -m) in
        x86_64) echo amd64 ;;
        aarch64) echo arm64 ;;
        armv7l) echo arm ;;
        *) uname -m ;;
    esac
}

# busybox_rootfs DIR: a root directory with busybox under the name of each of its programs, and the few files that shells expect.
busybox_rootfs() {
    local dir=$1 applet
    mkdir -p "$dir"/{bin,etc,tmp,var,root,proc,sys,dev,www}
    chmod 1777 "$dir/tmp"
    cp "$(command -v busybox)" "$dir/bin/busybox"
    chmod 755 "$dir/bin/busybox"
    for applet in $("$dir/bin/busybox" --list); do
        [ -e "$dir/bin/$applet" ] || ln -s busybox "$dir/bin/$applet"
    done
    printf 'root:x:0:0:root:/root:/bin/sh\nwww:x:1000:1000:www:/www:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n' >"$dir/etc/passwd"
    printf 'root:x:0:\nwww:x:1000:\nnogroup:x:65534:\n' >"$dir/etc/group"
}

# import_images: builds the two images and imports them into our containerd, in the namespace that CRI uses.
import_images() {
    local root=$WORK/rootfs
    busybox_rootfs "$root"
    image_archive "$BUSYBOX_IMAGE" "$root" "$WORK/busybox.tar" 'Cmd=["/bin/sh"]'
    rm -rf "$root"
    mkdir -p "$root/bin"
    cp "$(command -v busybox)" "$root/bin/busybox"
    image_archive "$PAUSE_IMAGE" "$root" "$WORK/pause.tar" 'Entrypoint=["/bin/busybox","sleep","2147483647"]'
    rm -rf "$root"
    local archive
    for archive in busybox pause; do
        our_ctr images import "$WORK/$archive.tar" >"$WORK/import.log" 2>&1 ||
            die "containerd failed to import the image $archive:" "$(tail -n 3 "$WORK/import.log")"
        rm -f "$WORK/$archive.tar"
    done
    # CRI learns of an import from an event, a moment later.
    wait_for 20 "containerd's CRI to see the images" cri_sees_images || die "CRI does not list the imported images."
}

cri_sees_images() {
    [ "$(our_ctr images ls | grep -c 'localhost/kubelet-rs/.*io.cri-containerd.image=managed')" = 2 ]
}

# ----------------------------------------------------------------------------------------------- our own containerd
WORK='' CONTAINERD_PID='' KUBELET_PID='' CGROUP_ROOT=''

# make_work NAME: the directory below which all files of this run are.
make_work() {
    # /var/tmp is on a disk almost everywhere; /tmp may be a small tmpfs.
    WORK=$(mktemp -d "/var/tmp/kubelet-$1.XXXXXX")
    chmod 755 "$WORK"
    NET_NAME=kubelet-rs-$$
    BRIDGE=krs$$
    CGROUP_ROOT=/kubelet-rs-$$
    CONTAINERD_SOCKET=$WORK/containerd.sock
    HAD_CNI_CACHE=$([ -d /var/lib/cni ] && echo yes || echo no)
    HAD_SHIM_SOCKETS=$([ -d /run/containerd ] && echo yes || echo no)
    HAD_CONTAINER_LOGS=$([ -d /var/log/containers ] && echo yes || echo no)
    IP_FORWARD=$(cat /proc/sys/net/ipv4/ip_forward)
    touch "$WORK/ids"
}

# The cgroup above all pods of this run, in every hierarchy that has a controller.
make_cgroup_root() {
    local tree
    if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
        mkdir -p "/sys/fs/cgroup$CGROUP_ROOT"
        return
    fi
    for tree in /sys/fs/cgroup/*/; do
        if [ ! -L "${tree%/}" ] && [ ! -e "$tree/cgroup.controllers" ]; then mkdir -p "$tree$CGROUP_ROOT"; fi
    done
}

# Kernel settings with the values that the kubelet requires, so that those of the machine stay unchanged.
make_kernel_settings() {
    local setting
    for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
        kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
        mkdir -p "$WORK/proc-sys/$(dirname "$setting")"
        echo "${setting#*=}" >"$WORK/proc-sys/${setting%%=*}"
    done
}

our_ctr() { ctr --address "$CONTAINERD_SOCKET" --namespace k8s.io "$@"; }

# The ids of all containers of this run, by which its cgroups and processes are recognised.
record_ids() {
    [ -S "$CONTAINERD_SOCKET" ] || return 0
    { our_ctr containers ls -q 2>/dev/null || true; } >>"$WORK/ids"
    sort -u -o "$WORK/ids" "$WORK/ids"
}

# A /24 out of 10.0.0.0/8 that this machine has no route to.
free_subnet() {
    local i net
    for i in $(seq 1 50); do
        net=10.$((64 + (RANDOM + i) % 128)).$((RANDOM % 256))
        if [ -z "$(ip -4 route show | grep -F "$net." || true)" ]; then
            echo "$net.0/24"
            return 0
        fi
    done
    die "found no free network in 10.0.0.0/8 for the pods."
}

free_port() {
    local port
    for _ in $(seq 1 100); do
        port=$((20000 + RANDOM % 12000))
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "$port"
            return 0
        fi
    done
    die "found no free TCP port on 127.0.0.1."
}

# Lowering a process's OOM score needs CAP_SYS_RESOURCE (bit 24), which many containers and small machines lack.
may_lower_oom_score() {
    local caps
    caps=$(sed -n 's/^CapEff:\s*//p' /proc/self/status)
    ((0x$caps >> 24 & 1))
}

# From the templates that the tests use too; the installed containerd decides which format it reads.
write_containerd_config() {
    local restrict=true snapshotter=overlayfs format=2 version
    may_lower_oom_score && restrict=false
    # An overlay on top of an overlay (a container on this machine's own overlay root) is refused by the kernel.
    [ "$(stat -f -c %T "$WORK")" = overlayfs ] && snapshotter=native
    version=$(containerd --version | awk '{ sub(/^v/, "", $3); print $3 }')
    [ "${version%%.*}" -ge 2 ] 2>/dev/null && format=3
    mkdir -p "$WORK"/{root,state,cni,ipam}
    sed -e "s#@DIR@#$WORK#g" -e "s#@CNI_BIN@#/usr/lib/cni#" -e "s#@PAUSE_IMAGE@#$PAUSE_IMAGE#" \
        -e "s#@SYSTEMD_CGROUP@#false#" -e "s#@WITHOUT_HUGE_PAGES@#true#" \
        -e "s#@RESTRICT_OOM_SCORE@#$restrict#" -e "s#@SNAPSHOTTER@#$snapshotter#" \
        "$REPO/crates/testing/harness/src/containerd/version-$format.toml" >"$WORK/containerd.toml"
    POD_SUBNET=$(free_subnet)
    cat >"$WORK/cni/10-pods.conflist" <<JSON
{"cniVersion": "0.4.0", "name": "$NET_NAME", "plugins": [
  {"type": "bridge", "bridge": "$BRIDGE", "isGateway": true, "ipMasq": false,
   "ipam": {"type": "host-local", "dataDir": "$WORK/ipam", "ranges": [[{"subnet": "$POD_SUBNET"}]]}}]}
JSON
}

start_containerd() {
    [ -e "$WORK/containerd.toml" ] || write_containerd_config
    # In a session of its own: Ctrl-C is sent to this script only, which stops everything in order.
    setsid containerd --config "$WORK/containerd.toml" >>"$WORK/containerd.log" 2>&1 &
    CONTAINERD_PID=$!
    if ! wait_for 30 "containerd to answer" containerd_answers; then
        tail -n 15 "$WORK/containerd.log" >&2
        die "our containerd did not start; the end of its log is above."
    fi
}

containerd_answers() {
    [ -d "/proc/$CONTAINERD_PID" ] || return 0 # dead: the caller's next call reports it
    our_ctr version >/dev/null 2>&1
}

# ------------------------------------------------------------------------------------------------------- clean up
# end_process PID SECONDS: SIGTERM, then SIGKILL after SECONDS. Only for children of this script.
end_process() {
    local pid=$1 timeout=$2
    [ -n "$pid" ] || return 0
    kill -TERM "$pid" 2>/dev/null || return 0
    if ! wait_for "$timeout" "process $pid to end" process_is_gone "$pid"; then kill -KILL "$pid" 2>/dev/null || true; fi
    wait "$pid" 2>/dev/null || true
}

process_is_gone() {
    [ ! -d "/proc/$1" ] || grep -q '^State:\sZ' "/proc/$1/status" 2>/dev/null
}

# The kubelet, containerd, shims and runc of this run, recognised by WORK on their command line, and every process in a
# cgroup named after one of our containers. A `tail -f` of our logs is not one of them.
our_processes() {
    local proc pid
    for proc in /proc/[0-9]*; do
        pid=${proc#/proc/}
        if [ "$pid" = $$ ] || [ "$pid" = "$BASHPID" ]; then continue; fi
        if tr '\0' ' ' 2>/dev/null <"$proc/cmdline" | grep -qE "^[^ ]*(containerd[^ /]*|kubelet|runc) .*$WORK/"; then
            echo "$pid"
        elif [ -s "$WORK/ids" ] && grep -qFf "$WORK/ids" "$proc/cgroup" 2>/dev/null; then
            echo "$pid"
        fi
    done
}

our_mounts() { awk -v below="$WORK/" 'index($2, below) == 1 { print $2 }' /proc/self/mounts | sort -r; }

our_cgroups() {
    [ -z "$CGROUP_ROOT" ] || find /sys/fs/cgroup -depth -type d -path "*$CGROUP_ROOT*" 2>/dev/null || true
    [ -s "$WORK/ids" ] || return 0
    find /sys/fs/cgroup -depth -type d -name '*[0-9a-f]*' 2>/dev/null | grep -Ff "$WORK/ids" || true
}

our_links() {
    local pid
    ip -o link show 2>/dev/null | awk -F': ' '{print $2}' | cut -d@ -f1 | grep -x "$BRIDGE" || true
    for pid in $(ip -o link show master "$BRIDGE" 2>/dev/null | awk -F': ' '{print $2}' | cut -d@ -f1); do echo "$pid"; done
}

our_files_elsewhere() {
    find /var/lib/cni/results -maxdepth 1 -name "$NET_NAME-*" 2>/dev/null || true
    [ ! -s "$WORK/ids" ] || find /var/lib/cni/results -maxdepth 1 -type f 2>/dev/null | grep -Ff "$WORK/ids" || true
    find /var/log/containers -maxdepth 1 -type l -lname "$WORK/*" 2>/dev/null || true
    if [ -s "$WORK/shims" ]; then
        sort -u "$WORK/shims" | while read -r socket; do [ ! -e "$socket" ] || echo "$socket"; done
    fi
}

# A shim's socket is outside containerd's state directory; its bundle has the path.
record_shim_sockets() {
    find "$WORK/state" -name address -type f -exec sed -s 's#^unix://##; s#$#\n#' {} + 2>/dev/null |
        grep '^/' >>"$WORK/shims" || true
    # Since containerd 2, the path is in the shim's start parameters.
    find "$WORK/state" -name bootstrap.json -type f -exec sed -s 's#.*"address":"unix://\([^"]*\)".*#\1\n#' {} + 2>/dev/null |
        grep '^/' >>"$WORK/shims" || true
}

# Stops the kubelet first, then containerd, then removes what is left with kernel calls: each step removes what the one before left.
remove_everything() {
    local id pid path
    record_ids
    record_shim_sockets
    end_process "$KUBELET_PID" 15
    record_ids
    if [ -S "$CONTAINERD_SOCKET" ] && [ -n "$CONTAINERD_PID" ] && [ -d "/proc/$CONTAINERD_PID" ]; then
        for id in $(our_ctr tasks ls -q 2>/dev/null || true); do
            our_ctr tasks kill --signal SIGKILL "$id" >/dev/null 2>&1 || true
        done
        for id in $(our_ctr containers ls -q 2>/dev/null || true); do
            our_ctr tasks delete --force "$id" >/dev/null 2>&1 || true
            our_ctr containers rm "$id" >/dev/null 2>&1 || true
        done
    fi
    end_process "$CONTAINERD_PID" 15
    for pid in $(our_processes); do kill -KILL "$pid" 2>/dev/null || true; done
    wait_for 10 "the last processes to end" no_process_is_ours || true
    for path in $(our_mounts); do umount "$path" 2>/dev/null || umount -l "$path" 2>/dev/null || true; done
    for path in $(our_links | sort -u); do ip link delete "$path" 2>/dev/null || true; done
    for path in $(our_cgroups); do rmdir "$path" 2>/dev/null || true; done
    for path in $(our_files_elsewhere); do rm -f "$path"; done
    if [ "$(cat /proc/sys/net/ipv4/ip_forward)" != "$IP_FORWARD" ]; then
        echo "$IP_FORWARD" >/proc/sys/net/ipv4/ip_forward
    fi
    remove_empty_directories
}

no_process_is_ours() { [ -z "$(our_processes)" ]; }

# Directories that did not exist before and are empty now.
remove_empty_directories() {
    [ "$HAD_CNI_CACHE" = yes ] || rmdir /var/lib/cni/results /var/lib/cni/cache /var/lib/cni 2>/dev/null || true
    [ "$HAD_SHIM_SOCKETS" = yes ] || rmdir /run/containerd/s /run/containerd 2>/dev/null || true
    [ "$HAD_CONTAINER_LOGS" = yes ] || rmdir /var/log/containers 2>/dev/null || true
    find /sys/fs/cgroup -depth -maxdepth 3 -type d -name k8s.io -exec rmdir {} + 2>/dev/null || true
}

# Prints what is left of this run, one line each; no output means that all is removed. Call it before WORK is removed.
leftovers() {
    local item
    for item in $(our_processes); do echo "process $item: $(tr '\0' ' ' <"/proc/$item/cmdline" 2>/dev/null)"; done
    for item in $(our_mounts); do echo "mount $item"; done
    for item in $(our_links | sort -u); do echo "network interface $item"; done
    for item in $(our_cgroups); do echo "cgroup $item"; done
    for item in $(our_files_elsewhere); do echo "file $item"; done
}

# clean_up: removes everything, checks that it is gone, and reports it. Keeps the logs only when something is left.
clean_up() {
    [ -d "${WORK:-/nowhere}" ] || return 0
    remove_everything
    local left
    left=$(leftovers)
    if [ -n "$left" ]; then
        printf '\nFailed to remove everything. Left behind:\n%s\nThe logs are in %s\n' "$left" "$WORK" >&2
        return 1
    fi
    rm -rf --one-file-system "$WORK"
    if [ -e "$WORK" ]; then
        echo "failed to remove $WORK" >&2
        return 1
    fi
    say "clean: no process, mount, cgroup, network interface or file is left"
}
