# Everything that a contributor types. `just` lists it; each recipe also works as the command below it.

[private]
default:
    @just --list --unsorted

# install what building and running needs (root, once)
setup:
    scripts/setup

# build the kubelet and run three pods on a private containerd (root)
demo *arguments:
    scripts/demo {{arguments}}

# format, lints, rules, unit tests of what changed; under two minutes
check *arguments:
    scripts/check {{arguments}}

# everything that CI runs (root)
test *arguments:
    scripts/test {{arguments}}

# unit tests of one crate, by name: just unit kubelet-core eviction
unit crate *filter:
    cargo test -p {{crate}} {{filter}}

# end-to-end tests with real containers, by name (root): just end-to-end probes::
end-to-end *filter:
    cargo build --workspace --bins
    cargo test -p kubelet --test it {{filter}}

# the rules of the code base
rules:
    cargo test -p xtask

# accept new golden output; review the difference like code
accept crate *filter:
    UPDATE_EXPECT=1 cargo test -p {{crate}} {{filter}}

# tests that need a runtime, on newer runtimes (root)
runtimes *arguments:
    scripts/runtimes {{arguments}}

# end-to-end tests in a Debian guest with systemd and cgroup v2 (root)
vm *arguments:
    scripts/vm {{arguments}}

# compare with recordings of the Go kubelet (root)
compare:
    scripts/compare

# start time, memory, processor time (root)
bench *arguments:
    scripts/bench {{arguments}}

# many pods under random changes, kills and outages (root)
soak *arguments:
    scripts/soak {{arguments}}

# simulated nodes with other seeds than those of the tests
simulate *arguments:
    scripts/simulate {{arguments}}

# parsers on random input
fuzz *arguments:
    scripts/fuzz {{arguments}}

# the operator's book as a site, with its links checked
book:
    scripts/book

# build the documentation of the crates; warnings are errors
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps

# Debian package, archive with a static program, OCI image, SPDX list and licences
package *arguments:
    scripts/package {{arguments}}

# the packages of every architecture with checksums, from a clean checkout (root)
release *arguments:
    scripts/release {{arguments}}

# write the manual pages and completion scripts of the kubelet and its commands
man directory:
    cargo run --locked -p cli --example man -- {{directory}}
