//! One program for all fuzz targets; `FUZZ_TARGET` names the one to run. Each target is defined next to the code that it
//! tests, in the `fuzzing` module of its crate.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let targets = [
        kubelet_core::fuzzing::TARGETS,
        sources_core::fuzzing::TARGETS,
        stats_core::fuzzing::TARGETS,
        logs_core::fuzzing::TARGETS,
        images_core::fuzzing::TARGETS,
        resources_core::fuzzing::TARGETS,
        server::fuzzing::TARGETS,
        cluster::fuzzing::TARGETS,
        host::fuzzing::TARGETS,
        plugins::fuzzing::TARGETS,
    ];
    let found = targets.into_iter().flatten().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("FUZZ_TARGET={name:?} is no target")).1
});

fuzz_target!(|data: &[u8]| TARGET(data));
