# shellcheck shell=bash
# Packages of other Debian releases: unpacked into directories below CACHE, which the script that reads this file names, and never
# installed. Needs scripts/lib.sh.

KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

own_release() { (. /etc/os-release && echo "${VERSION_CODENAME:-}"); }

our_apt() {
    local tool=$1
    shift
    APT_CONFIG=$CACHE/apt/apt.conf "$tool" "$@"
}

# A private apt configuration with its own list of releases; the machine's stays unchanged.
make_apt() {
    local site release
    site=$(mirror_of Debian)
    [ -r "$KEYRING" ] || die "$KEYRING is missing." "Try: apt-get install debian-archive-keyring"
    mkdir -p "$CACHE"/apt/{lists/partial,cache/archives/partial}
    : >"$CACHE/apt/status"
    cat >"$CACHE/apt/apt.conf" <<CONF
Dir::Etc::SourceList "$CACHE/apt/sources.list";
Dir::Etc::SourceParts "-";
Dir::Etc::Preferences "-";
Dir::Etc::PreferencesParts "-";
Dir::State::Lists "$CACHE/apt/lists";
Dir::State::Status "$CACHE/apt/status";
Dir::Cache "$CACHE/apt/cache";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::CNF::DefaultEnabled "false";
CONF
    for release in "$@"; do echo "deb [signed-by=$KEYRING] $site $release main"; done >"$CACHE/apt/sources.list"
    our_apt apt-get -qq update >"$CACHE/apt/update.log" 2>&1 || {
        tail -n 10 "$CACHE/apt/update.log" >&2
        die "failed to download the package lists."
    }
}

# unpack RELEASE DIR PACKAGE...: those of the packages that the release has.
unpack() {
    local release=$1 dir=$2 package debs
    shift 2
    debs=$dir.debs
    rm -rf "$dir" "$debs"
    mkdir -p "$dir" "$debs"
    # One by one only if the release does not have all of them, because apt reads its lists for seconds each time.
    (cd "$debs" && our_apt apt-get -qq download "${@/%//$release}" >/dev/null 2>&1) || for package in "$@"; do
        (cd "$debs" && our_apt apt-get -qq download "$package/$release" >/dev/null 2>&1) || true
    done
    for package in "$debs"/*.deb; do
        [ ! -e "$package" ] || dpkg-deb -x "$package" "$dir"
    done
    rm -rf "$debs"
}
