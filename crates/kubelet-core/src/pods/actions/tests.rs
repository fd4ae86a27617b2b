//! Golden tables: one line of world in, the plan out. See [`super::super::fixture`] for how to read a line.

mod invariants;
mod resize;
mod upstream;

use std::time::Duration;

use expect_test::{Expect, expect};
use model::Now;

use crate::pods::fixture::{case, show};

#[track_caller]
fn check(line: &str, expected: Expect) {
    let case = case(line);
    expected.assert_eq(&show(&case.plan(), case.now));
}

#[test]
fn sandbox_is_created_if_none_is_usable() {
    check("main:a |", expect!["create sandbox 0 NoSandbox"]);
    check("Never main:a |", expect!["create sandbox 0 NoSandbox"]);
    check("OnFailure main:a |", expect!["create sandbox 0 NoSandbox"]);
    check("init:i1 main:a |", expect!["create sandbox 0 NoSandbox"]);
    check("main:a | sandbox=dead", expect!["stop sb0; create sandbox 1 NewestNotReady"]);
    check(
        "main:a | sandbox=dead sandbox=dead",
        expect!["stop sb1; stop sb0; create sandbox 2 NewestNotReady"],
    );
    check("main:a | sandbox sandbox", expect!["stop sb1; stop sb0; create sandbox 2 MoreThanOneReady"]);
    check("main:a | sandbox=noip", expect!["stop sb0; create sandbox 1 NoPodIp"]);
    check("main:a | sandbox=host", expect!["stop sb0; create sandbox 1 NetworkNamespaceChanged"]);
    check("hostNetwork main:a | sandbox=host", expect!["start Regular a#0 NeverStarted"]);
    check("hostNetwork main:a | sandbox=noip", expect!["stop sb0; create sandbox 1 NetworkNamespaceChanged"]);
    check("hostNetwork main:a | sandbox", expect!["stop sb0; create sandbox 1 NetworkNamespaceChanged"]);
    check("main:a | sandbox sandbox=dead", expect!["start Regular a#0 NeverStarted"]);
    check("main:a | sandbox=dead sandbox", expect!["stop sb1; stop sb0; create sandbox 2 NewestNotReady"]);
    check(
        "main:a main:b sidecar:s1 | sandbox=dead a=running b=exited(0) s1=running",
        expect![
            "kill a-0 SandboxReplaced; kill s1-0 SandboxReplaced; stop sb0; create sandbox 1 NewestNotReady"
        ],
    );
    check(
        "main:a sidecar:s1 sidecar:s2 | sandbox sandbox s1=running a=running(sb0) s2=unknown",
        expect![
            "kill a-0 SandboxReplaced; kill s2-0 SandboxReplaced; kill s1-0 SandboxReplaced; stop sb1; stop sb0; create sandbox 2 MoreThanOneReady"
        ],
    );
    check("main:a | sandbox=dead a=created", expect!["stop sb0; create sandbox 1 NewestNotReady"]);
    check("Never main:a | sandbox=dead a=created", expect!["stop sb0; create sandbox 1 NewestNotReady"]);
    check(
        "Never main:a main:b | sandbox=dead b=created a=created",
        expect!["stop sb0; create sandbox 1 NewestNotReady"],
    );
    check(
        "Never sidecar:s1 main:a | sandbox=dead a=created s1=exited(0)",
        expect!["stop sb0; create sandbox 1 NewestNotReady"],
    );
    check(
        "Never sidecar:s1 main:a | sandbox=dead s1=running",
        expect!["kill s1-0 SandboxReplaced; stop sb0; create sandbox 1 NewestNotReady"],
    );
    check("Never sidecar:s1 main:a | sandbox=dead a=exited(0) s1=exited(0)", expect!["settled"]);
    check("Never init:i1 main:a | sandbox=dead a=created i1=exited(0)", expect!["settled"]);
    check("Never main:a main:b | sandbox=dead a=created b=exited(0)", expect!["settled"]);
    check("Never main:a main:b | sandbox=dead b=exited(0)", expect!["settled"]);
    check(
        "main:a | sandbox=dead a=running x=running",
        expect![
            "kill a-0 SandboxReplaced; kill x-0 SandboxReplaced; stop sb0; create sandbox 1 NewestNotReady"
        ],
    );
}

#[test]
fn pod_with_a_missing_cgroup_is_recreated_and_changed_cgroup_settings_are_repaired() {
    check(
        "main:a sidecar:s1 | sandbox a=running s1=running cgroup=missing",
        expect!["kill a-0 SandboxReplaced; kill s1-0 SandboxReplaced; stop sb0; create sandbox 1 CgroupGone"],
    );
    // What had begun outside does not go on there, not even the chain of init containers.
    check(
        "init:i1 main:a | sandbox i1=running cgroup=missing",
        expect!["kill i1-0 SandboxReplaced; stop sb0; create sandbox 1 CgroupGone"],
    );
    check("main:a | sandbox cgroup=missing", expect!["stop sb0; create sandbox 1 CgroupGone"]);
    // The cgroup is made with the sandbox; and whoever is over needs neither.
    check("main:a | cgroup=missing", expect!["create sandbox 0 NoSandbox"]);
    check("main:a | sandbox=dead cgroup=missing", expect!["stop sb0; create sandbox 1 NewestNotReady"]);
    check(
        "Never main:a | sandbox a=running cgroup=missing",
        expect!["teardown SandboxLost; kill a-0 PodFinished; stop sb0"],
    );
    check("OnFailure main:a | sandbox=dead a=exited(0) cgroup=missing", expect!["settled"]);
    check(
        "Never init:i1 main:a | sandbox i1=exited(0) cgroup=missing",
        expect!["teardown SandboxLost; stop sb0"],
    );
    check(
        "init:i1 main:a | sandbox i1=exited(0) cgroup=missing",
        expect!["stop sb0; create sandbox 1 CgroupGone"],
    );

    check("main:a | sandbox a=running cgroup=changed", expect!["repair cgroup"]);
    check("init:i1 main:a | sandbox i1=running cgroup=changed", expect!["repair cgroup"]);
    check("main:a | sandbox cgroup=changed", expect!["start Regular a#0 NeverStarted"]);
    check("Never main:a | sandbox=dead a=exited(0) cgroup=changed", expect!["settled"]);
    check(
        "main:a | sandbox a=exited(1,5s) backoff:a=10s cgroup=changed",
        expect!["repair cgroup; a waits 5s more of 10s; wake in 5s"],
    );
}

#[test]
fn finished_pod_gets_no_new_sandbox() {
    check("Never main:a | sandbox=dead", expect!["stop sb0; create sandbox 1 NewestNotReady"]);
    check("Never main:a | sandbox=dead a=exited(0)", expect!["settled"]);
    check("Never main:a | sandbox=dead a=exited(1)", expect!["settled"]);
    check("Never main:a | sandbox=dead a=running", expect!["teardown SandboxLost; kill a-0 PodFinished"]);
    check("Never main:a main:b | sandbox=dead a=exited(1)", expect!["settled"]);
    check("Never init:i1 main:a | sandbox=dead i1=exited(0)", expect!["settled"]);
    check("Never init:i1 main:a | sandbox=dead i1=exited(1)", expect!["settled"]);
    check("Never main:a | sandbox sandbox a=exited(0)", expect!["teardown Completed; stop sb1; stop sb0"]);
    check("OnFailure main:a | sandbox=dead a=exited(0)", expect!["settled"]);
    check(
        "OnFailure main:a | sandbox=dead a=exited(1)",
        expect!["stop sb0; create sandbox 1 NewestNotReady"],
    );
    check("OnFailure main:a main:b | sandbox=dead a=exited(0) b=exited(0)", expect!["settled"]);
    check(
        "OnFailure main:a main:b | sandbox=dead a=exited(0) b=exited(2)",
        expect!["stop sb0; create sandbox 1 NewestNotReady"],
    );
    check(
        "OnFailure init:i1 main:a | sandbox=dead i1=exited(0)",
        expect!["stop sb0; create sandbox 1 NewestNotReady"],
    );
    check("Always main:a | sandbox=dead a=exited(0)", expect!["stop sb0; create sandbox 1 NewestNotReady"]);
    check("Always init:i1(Never) main:a | sandbox=dead i1=exited(1)", expect!["settled"]);
    check(
        "Always init:i1(Never) main:a | sandbox=dead i1=exited(0)",
        expect!["stop sb0; create sandbox 1 NewestNotReady"],
    );
    check(
        "Never main:a(Always) | sandbox=dead a=exited(0)",
        expect!["stop sb0; create sandbox 1 NewestNotReady"],
    );
    check(
        "Never main:a(Always) main:b | sandbox=dead b=exited(0)",
        expect!["stop sb0; create sandbox 1 NewestNotReady"],
    );
    check(
        "Never main:a(Never,in42=Restart) | sandbox=dead a=exited(42)",
        expect!["stop sb0; create sandbox 1 NewestNotReady"],
    );
    check(
        "Never sidecar:s1 main:a | sandbox=dead s1=running a=exited(0)",
        expect!["teardown Completed; kill s1-0 PodFinished"],
    );
    check("Never main:a | a=exited(0)", expect!["settled"]);
    check(
        "OnFailure main:a | sandbox=dead a=exited(0) killed:a=SandboxReplaced",
        expect!["stop sb0; create sandbox 1 NewestNotReady"],
    );
    check("Never main:a | sandbox=dead a=exited(137) killed:a=SandboxReplaced", expect!["settled"]);
}

#[test]
fn the_init_chain_runs_in_order() {
    check("init:i1 init:i2 main:a | sandbox", expect!["start Init i1#0 NeverStarted"]);
    check("init:i1 init:i2 main:a | sandbox i1=created", expect!["start Init i1#1 CreatedNotStarted"]);
    check("init:i1 init:i2 main:a | sandbox i1=running", expect!["settled"]);
    check("init:i1 init:i2 main:a | sandbox i1=exited(0)", expect!["start Init i2#0 NeverStarted"]);
    check("init:i1 init:i2 main:a | sandbox i2=running i1=exited(0)", expect!["settled"]);
    check(
        "init:i1 init:i2 main:a | sandbox i2=exited(0) i1=exited(0)",
        expect!["start Regular a#0 NeverStarted"],
    );
    check("init:i1 init:i2 main:a | sandbox i2=exited(0)", expect!["start Regular a#0 NeverStarted"]);
    check("init:i1 init:i2 main:a | sandbox i2=running", expect!["settled"]);
    check("init:i1 init:i2 init:i3 main:a | sandbox i2=exited(0)", expect!["start Init i3#0 NeverStarted"]);
    check(
        "init:i1 init:i2 main:a main:b | sandbox i2=exited(0)",
        expect!["start Regular a#0 NeverStarted; start Regular b#0 NeverStarted"],
    );
}

#[test]
fn a_failed_init_container_restarts_by_policy() {
    check("Always init:i1 main:a | sandbox i1=exited(1)", expect!["start Init i1#1 Exited 1 Always"]);
    check("OnFailure init:i1 main:a | sandbox i1=exited(1)", expect!["start Init i1#1 Exited 1 OnFailure"]);
    check("Never init:i1 main:a | sandbox i1=exited(1)", expect!["teardown InitFailed; stop sb0"]);
    check("Never init:i1 main:a | sandbox=dead i1=exited(1)", expect!["settled"]);
    check("Never init:i1 main:a | sandbox i1=exited(0,OOMKilled)", expect!["teardown InitFailed; stop sb0"]);
    check(
        "OnFailure init:i1 main:a | sandbox i1=exited(0,OOMKilled)",
        expect!["start Init i1#1 Exited 0 OnFailure"],
    );
    check(
        "Always init:i1 main:a | sandbox i1=exited(0,OOMKilled)",
        expect!["start Init i1#1 Exited 0 Always"],
    );
    check("Never init:i1 main:a | sandbox i1=exited(0)", expect!["start Regular a#0 NeverStarted"]);
    check(
        "Never sidecar:s1 init:i1 main:a debug:e | sandbox e=running i1=exited(3) s1=running",
        expect!["teardown InitFailed; kill e-0 PodFinished; kill s1-0 PodFinished; stop sb0"],
    );
    check("Never init:i1 main:a | sandbox i1=created", expect!["start Init i1#1 CreatedNotStarted"]);
    check("Never init:i1 main:a | sandbox i1=unknown", expect!["kill i1-0 UnknownState"]);
    check("Always init:i1 main:a | sandbox i1=unknown", expect!["kill i1-0 UnknownState"]);
    check(
        "Always init:i1 main:a | sandbox i1=exited(137) killed:i1=UnknownState",
        expect!["start Init i1#1 Unknown"],
    );
    check(
        "Never init:i1 main:a | sandbox i1=exited(137) killed:i1=UnknownState",
        expect!["teardown InitFailed; stop sb0"],
    );
    check("Always init:i1(Never) main:a | sandbox i1=exited(1)", expect!["teardown InitFailed; stop sb0"]);
    check(
        "Never init:i1(OnFailure) main:a | sandbox i1=exited(1)",
        expect!["start Init i1#1 Exited 1 OnFailure"],
    );
    check(
        "Never init:i1(Never,in42=Restart) main:a | sandbox i1=exited(42)",
        expect!["start Init i1#1 RestartRule 42"],
    );
    check(
        "Never init:i1(Never,in42=Restart) main:a | sandbox i1=exited(41)",
        expect!["teardown InitFailed; stop sb0"],
    );
    check("Always init:i1 main:a | sandbox i1=exited(0,old)", expect!["start Regular a#0 NeverStarted"]);
    check("Always init:i1 main:a | sandbox i1=running(old)", expect!["settled"]);
    check(
        "Always init:i1 main:a | sandbox i1=exited(1,5s,#1) backoff:i1=10s",
        expect!["settled; i1 waits 5s more of 10s; wake in 5s"],
    );
    check(
        "Always init:i1 main:a | sandbox i1=exited(1,10s,#1) backoff:i1=10s",
        expect!["start Init i1#2 Exited 1 Always"],
    );
}

#[test]
fn later_containers_prove_that_the_init_chain_is_done() {
    check("init:i1 main:a | sandbox a=running", expect!["settled"]);
    check("init:i1 main:a | sandbox a=exited(1)", expect!["start Regular a#1 Exited 1 Always"]);
    check(
        "init:i1 main:a main:b | sandbox a=created",
        expect!["start Regular a#1 CreatedNotStarted; start Regular b#0 NeverStarted"],
    );
    check("init:i1 main:a | sandbox a=unknown", expect!["kill a-0 UnknownState"]);
    check("init:i1 sidecar:s1 main:a | sandbox a=running", expect!["start Sidecar s1#0 NeverStarted"]);
    check("init:i1 main:a | sandbox a=running i1=exited(1)", expect!["settled"]);
    check("Never init:i1 main:a | sandbox a=running i1=exited(1)", expect!["settled"]);
    check("init:i1 main:a | sandbox a=running i1=created", expect!["settled"]);
}

#[test]
fn new_sandbox_restarts_the_init_chain() {
    check(
        "init:i1 main:a | sandbox sandbox=dead a=exited(1,sb0) i1=exited(0,sb0)",
        expect!["start Init i1#1 NewSandbox"],
    );
    check("init:i1 main:a | sandbox sandbox=dead i1=exited(0,sb0,#3)", expect!["start Init i1#4 NewSandbox"]);
    check(
        "init:i1 init:i2 main:a | sandbox sandbox=dead i1=exited(0,#1) i2=exited(0,sb0) i1=exited(0,sb0)",
        expect!["remove i1-0 OldInitInstance; start Init i2#1 NewSandbox"],
    );
    check(
        "init:i1 init:i2 main:a | sandbox sandbox=dead i2=running(#1) i1=exited(0,#1) i2=exited(0,sb0)",
        expect!["remove i2-0 OldInitInstance"],
    );
    check(
        "init:i1 main:a | sandbox sandbox=dead i1=exited(0,#1) a=exited(0,sb0,#4)",
        expect!["start Regular a#5 NewSandbox"],
    );
    check(
        "OnFailure init:i1 main:a main:b | sandbox sandbox=dead i1=exited(0,#1) a=exited(0,sb0) b=exited(1,sb0)",
        expect!["start Regular b#1 NewSandbox"],
    );
    check("OnFailure main:a | sandbox sandbox=dead a=exited(0,sb0)", expect!["teardown Completed; stop sb1"]);
    check(
        "OnFailure main:a | sandbox sandbox=dead a=exited(0,sb0) killed:a=SandboxReplaced",
        expect!["start Regular a#1 NewSandbox"],
    );
    check("main:a | sandbox sandbox=dead a=running(sb0)", expect!["kill a-0 SandboxReplaced"]);
    check("main:a | sandbox sandbox=dead a=unknown(sb0)", expect!["kill a-0 SandboxReplaced"]);
    check("main:a | sandbox sandbox=dead a=created(sb0)", expect!["start Regular a#1 NewSandbox"]);
    check("main:a | sandbox sandbox=dead a=running(#1) a=running(sb0)", expect!["kill a-0 SandboxReplaced"]);
    check(
        "sidecar:s1 main:a | sandbox sandbox=dead s1=exited(137,sb0) a=exited(137,sb0)",
        expect!["start Sidecar s1#1 NewSandbox"],
    );
    check(
        "sidecar:s1 main:a | sandbox sandbox=dead s1=running(sb0) a=exited(137,sb0)",
        expect!["kill s1-0 SandboxReplaced"],
    );
    check(
        "sidecar:s1 main:a | sandbox sandbox=dead s1=running(#1) s1=exited(137,sb0) a=exited(137,sb0)",
        expect!["remove s1-0 OldInitInstance; start Regular a#1 NewSandbox"],
    );
    check(
        "debug:e main:a | sandbox sandbox=dead e=exited(0,sb0) a=exited(137,sb0)",
        expect!["start Regular a#1 NewSandbox"],
    );
    check(
        "main:a | sandbox sandbox=dead a=exited(137,5s,sb0) backoff:a=40s",
        expect!["settled; a waits 35s more of 40s; wake in 35s"],
    );
}

#[test]
fn sidecars_start_in_the_order_of_the_spec() {
    check("sidecar:s1 sidecar:s2 main:a | sandbox", expect!["start Sidecar s1#0 NeverStarted"]);
    check(
        "sidecar:s1 sidecar:s2 main:a | sandbox s1=created",
        expect!["start Sidecar s1#1 CreatedNotStarted"],
    );
    check("sidecar:s1 sidecar:s2 main:a | sandbox s1=running", expect!["start Sidecar s2#0 NeverStarted"]);
    check(
        "sidecar:s1 sidecar:s2 main:a | sandbox s2=running s1=running",
        expect!["start Regular a#0 NeverStarted"],
    );
    check("sidecar:s1(startup) main:a | sandbox s1=running", expect!["settled"]);
    check(
        "sidecar:s1(startup) main:a | sandbox s1=running s1+startup",
        expect!["start Regular a#0 NeverStarted"],
    );
    check(
        "sidecar:s1(startup=7s) main:a | sandbox s1=running s1!startup",
        expect!["kill s1-0 StartupFailed grace 7s"],
    );
    check(
        "sidecar:s1(startup) main:a | sandbox s1=exited(137) s1!startup",
        expect!["start Sidecar s1#1 Killed StartupFailed"],
    );
    check("sidecar:s1 init:i1 main:a | sandbox s1=running", expect!["start Init i1#0 NeverStarted"]);
    check("sidecar:s1(startup) init:i1 main:a | sandbox s1=running", expect!["settled"]);
    check(
        "sidecar:s1 init:i1 main:a | sandbox i1=running s1=exited(1)",
        expect!["start Sidecar s1#1 Exited 1 Always"],
    );
    check(
        "sidecar:s1 init:i1 main:a | sandbox i1=exited(0) s1=exited(1)",
        expect!["start Sidecar s1#1 Exited 1 Always; start Regular a#0 NeverStarted"],
    );
    check("sidecar:s1 init:i1 main:a | sandbox i1=running", expect!["start Sidecar s1#0 NeverStarted"]);
    check("sidecar:s1 init:i1 main:a | sandbox s1=exited(0)", expect!["start Sidecar s1#1 Exited 0 Always"]);
    check("sidecar:s1 main:a | sandbox s1=unknown", expect!["kill s1-0 UnknownState"]);
    check(
        "sidecar:s1 main:a | sandbox s1=exited(137) killed:s1=UnknownState",
        expect!["start Sidecar s1#1 Unknown"],
    );
    check(
        "sidecar:s1(liveness) sidecar:s2 main:a | sandbox s1=running s1!liveness",
        expect!["kill s1-0 LivenessFailed; start Sidecar s2#0 NeverStarted"],
    );
    check("init:i1 sidecar:s1 main:a | sandbox i1=exited(0)", expect!["start Sidecar s1#0 NeverStarted"]);
    check(
        "init:i1 sidecar:s1 main:a | sandbox s1=running(old) i1=exited(0)",
        expect!["kill s1-0 SpecChanged; start Regular a#0 NeverStarted"],
    );
    check("Never sidecar:s1 main:a | sandbox s1=exited(1)", expect!["start Sidecar s1#1 Exited 1 Always"]);
}

#[test]
fn sidecars_keep_running_with_the_regular_containers() {
    check(
        "sidecar:s1 main:a | sandbox a=running s1=exited(0)",
        expect!["start Sidecar s1#1 Exited 0 Always"],
    );
    check(
        "OnFailure sidecar:s1 main:a | sandbox a=running s1=exited(0)",
        expect!["start Sidecar s1#1 Exited 0 Always"],
    );
    check(
        "Never sidecar:s1 main:a | sandbox a=running s1=exited(1,#2)",
        expect!["start Sidecar s1#3 Exited 1 Always"],
    );
    check(
        "sidecar:s1 main:a | sandbox a=running s1=exited(1,5s,#2) backoff:s1=20s",
        expect!["settled; s1 waits 15s more of 20s; wake in 15s"],
    );
    check(
        "sidecar:s1(liveness=3s) main:a | sandbox a=running s1=running s1!liveness",
        expect!["kill s1-0 LivenessFailed grace 3s"],
    );
    check(
        "sidecar:s1(startup) main:a | sandbox a=running s1=running s1!startup",
        expect!["kill s1-0 StartupFailed"],
    );
    check("sidecar:s1 main:a | sandbox a=running s1=running(old)", expect!["kill s1-0 SpecChanged"]);
    check(
        "Never sidecar:s1 main:a | sandbox a=running s1=exited(0,old)",
        expect!["start Sidecar s1#1 Exited 0 Always"],
    );
    check("sidecar:s1 main:a | sandbox a=running s1=unknown", expect!["kill s1-0 UnknownState"]);
    check(
        "sidecar:s1 main:a | sandbox a=running s1=created",
        expect!["start Sidecar s1#1 CreatedNotStarted"],
    );
    check(
        "sidecar:s1 sidecar:s2 main:a | sandbox a=running s2=exited(1) s1=exited(1)",
        expect!["start Sidecar s1#1 Exited 1 Always; start Sidecar s2#1 Exited 1 Always"],
    );
    check(
        "sidecar:s1 main:a | sandbox a=exited(1,5s) s1=running backoff:a=10s",
        expect!["settled; a waits 5s more of 10s; wake in 5s"],
    );
}

#[test]
fn regular_containers_start_in_parallel() {
    check(
        "main:a main:b main:c | sandbox",
        expect![
            "start Regular a#0 NeverStarted; start Regular b#0 NeverStarted; start Regular c#0 NeverStarted"
        ],
    );
    check(
        "main:a main:b main:c | sandbox b=running",
        expect!["start Regular a#0 NeverStarted; start Regular c#0 NeverStarted"],
    );
    check("main:a main:b | sandbox a=running b=running", expect!["settled"]);
    check("main:a | sandbox a=created", expect!["start Regular a#1 CreatedNotStarted"]);
    check("Never main:a | sandbox a=created(#2)", expect!["start Regular a#3 CreatedNotStarted"]);
    check("Never main:a main:b | sandbox a=exited(0)", expect!["start Regular b#0 NeverStarted"]);
    check("main:a | sandbox logs:a=4", expect!["start Regular a#5 NeverStarted"]);
    check("main:a | sandbox a=exited(1,#2) logs:a=7", expect!["start Regular a#3 Exited 1 Always"]);
    check("main:a | sandbox a=exited(1,#4294967295)", expect!["start Regular a#4294967295 Exited 1 Always"]);
}

#[test]
fn exited_container_restarts_by_restart_policy() {
    check("Always main:a | sandbox a=exited(0)", expect!["start Regular a#1 Exited 0 Always"]);
    check("Always main:a | sandbox a=exited(1)", expect!["start Regular a#1 Exited 1 Always"]);
    check("OnFailure main:a | sandbox a=exited(0)", expect!["teardown Completed; stop sb0"]);
    check("OnFailure main:a | sandbox a=exited(1)", expect!["start Regular a#1 Exited 1 OnFailure"]);
    check("Never main:a | sandbox a=exited(0)", expect!["teardown Completed; stop sb0"]);
    check("Never main:a | sandbox a=exited(1)", expect!["teardown Completed; stop sb0"]);
    check(
        "OnFailure main:a main:b | sandbox a=exited(0) b=exited(1)",
        expect!["start Regular b#1 Exited 1 OnFailure"],
    );
    check("OnFailure main:a main:b | sandbox a=exited(0) b=running", expect!["settled"]);
    check("Never main:a main:b | sandbox a=exited(1) b=running", expect!["settled"]);
    check("Always main:a | sandbox a=exited(0,OOMKilled)", expect!["start Regular a#1 Exited 0 Always"]);
    check(
        "OnFailure main:a | sandbox a=exited(137,OOMKilled)",
        expect!["start Regular a#1 Exited 137 OnFailure"],
    );
    check("main:a | sandbox a=exited(1,#1) a=exited(1)", expect!["start Regular a#2 Exited 1 Always"]);
}

#[test]
fn container_restart_policy_overrides_that_of_the_pod() {
    check("Never main:a(Always) | sandbox a=exited(0)", expect!["start Regular a#1 Exited 0 Always"]);
    check("Never main:a(OnFailure) | sandbox a=exited(0)", expect!["teardown Completed; stop sb0"]);
    check("Never main:a(OnFailure) | sandbox a=exited(1)", expect!["start Regular a#1 Exited 1 OnFailure"]);
    check("Always main:a(Never) | sandbox a=exited(1)", expect!["teardown Completed; stop sb0"]);
    check(
        "Always main:a(OnFailure) main:b | sandbox a=exited(0) b=exited(0)",
        expect!["start Regular b#1 Exited 0 Always"],
    );
    check(
        "Never main:a(Always) main:b | sandbox a=exited(1) b=exited(1)",
        expect!["start Regular a#1 Exited 1 Always"],
    );
    check("Never main:a(Always) | sandbox a=exited(0) norules", expect!["teardown Completed; stop sb0"]);
    check("Always main:a(Never) | sandbox a=exited(0) norules", expect!["start Regular a#1 Exited 0 Always"]);
}

#[test]
fn first_matching_restart_policy_rule_applies() {
    check(
        "Never main:a(Never,in42=Restart) | sandbox a=exited(42)",
        expect!["start Regular a#1 RestartRule 42"],
    );
    check("Never main:a(Never,in42=Restart) | sandbox a=exited(1)", expect!["teardown Completed; stop sb0"]);
    check(
        "Never main:a(Never,in1/2/3=Restart) | sandbox a=exited(3)",
        expect!["start Regular a#1 RestartRule 3"],
    );
    check(
        "Never main:a(Never,notin0=Restart) | sandbox a=exited(1)",
        expect!["start Regular a#1 RestartRule 1"],
    );
    check(
        "Never main:a(Never,notin0=Restart) | sandbox a=exited(0)",
        expect!["teardown Completed; stop sb0"],
    );
    check(
        "Always main:a(Always,in42=Explode) | sandbox a=exited(42)",
        expect!["start Regular a#1 Exited 42 Always"],
    );
    check("Never main:a(Never,in42=Explode) | sandbox a=exited(42)", expect!["teardown Completed; stop sb0"]);
    check(
        "OnFailure main:a(OnFailure,in0=Restart) | sandbox a=exited(0)",
        expect!["start Regular a#1 RestartRule 0"],
    );
    check(
        "Never main:a(Never,in42=Restart) | sandbox a=exited(42) norules",
        expect!["teardown Completed; stop sb0"],
    );
    check(
        "Never main:a(Never,in42=Restart) | sandbox a=exited(42,5s) backoff:a=20s",
        expect!["settled; a waits 15s more of 20s; wake in 15s"],
    );
    check(
        "Never main:a(Never,in1=Restart,notin0=RestartAll) | sandbox a=exited(1)",
        expect!["start Regular a#1 RestartRule 1"],
    );
    check(
        "Never main:a(Never,in1=Restart,notin0=RestartAll) | sandbox a=exited(2)",
        expect!["remove a-0 RestartAllSource; a restarts with all"],
    );
}

#[test]
fn restart_all_containers_rule_restarts_the_pod_in_place() {
    check(
        "Never main:a(Never,in42=RestartAll) main:b | sandbox a=exited(42) b=running",
        expect![
            "kill b-0 RestartAllContainers grace 0s; remove b-0 RestartAllContainers; remove a-0 RestartAllSource; a restarts with all; b restarts with all"
        ],
    );
    check(
        "Never init:i1 sidecar:s1 main:a(Never,in42=RestartAll) main:b | sandbox b=exited(0) a=exited(42) s1=running i1=exited(0)",
        expect![
            "kill s1-0 RestartAllContainers grace 0s; remove b-0 RestartAllContainers; remove i1-0 RestartAllContainers; remove s1-0 RestartAllContainers; remove a-0 RestartAllSource; i1 restarts with all; s1 restarts with all; a restarts with all; b restarts with all"
        ],
    );
    check(
        "Never init:i1 main:a(Never,in42=RestartAll) main:b | sandbox b=exited(137) a=exited(42) i1=exited(0)",
        expect![
            "remove b-0 RestartAllContainers; remove i1-0 RestartAllContainers; remove a-0 RestartAllSource; i1 restarts with all; a restarts with all; b restarts with all"
        ],
    );
    check(
        "Never init:i1 main:a(Never,in42=RestartAll) main:b | sandbox a=exited(42)",
        expect![
            "remove a-0 RestartAllSource; i1 restarts with all; a restarts with all; b restarts with all"
        ],
    );
    check(
        "Never init:i1 main:a(Never,in42=RestartAll) main:b | sandbox logs:i1=0 logs:a=0",
        expect!["start Init i1#1 NeverStarted"],
    );
    check(
        "Never main:a(Never,in42=RestartAll) main:b | sandbox a=exited(42,#1) a=exited(42) b=running",
        expect![
            "kill b-0 RestartAllContainers grace 0s; remove b-0 RestartAllContainers; remove a-0 RestartAllSource; remove a-1 RestartAllSource; a restarts with all; b restarts with all"
        ],
    );
    check(
        "Never main:a(Never,in42=RestartAll) main:b(Never,in42=RestartAll) main:c | sandbox a=exited(42) b=exited(42) c=running",
        expect![
            "kill c-0 RestartAllContainers grace 0s; remove c-0 RestartAllContainers; remove b-0 RestartAllSource; remove a-0 RestartAllSource; a restarts with all; b restarts with all; c restarts with all"
        ],
    );
    check(
        "Never init:i1(Never,in42=RestartAll) main:a | sandbox i1=exited(42)",
        expect!["remove i1-0 RestartAllSource; i1 restarts with all; a restarts with all"],
    );
    check(
        "Never sidecar:s1(in42=RestartAll) main:a | sandbox a=running s1=exited(42)",
        expect![
            "kill a-0 RestartAllContainers grace 0s; remove a-0 RestartAllContainers; remove s1-0 RestartAllSource; s1 restarts with all; a restarts with all"
        ],
    );
    check(
        "Never main:a(Never,in42=RestartAll) main:b | sandbox a=exited(42,4s) b=running backoff:a=10s",
        expect!["settled; a waits 6s more of 10s; wake in 6s"],
    );
    check(
        "Never main:a(Never,in42=RestartAll) main:b | sandbox a=exited(42,10s) b=running backoff:a=10s",
        expect![
            "kill b-0 RestartAllContainers grace 0s; remove b-0 RestartAllContainers; remove a-0 RestartAllSource; a restarts with all; b restarts with all"
        ],
    );
    check(
        "Never main:a(Never,in42=RestartAll) main:b | sandbox a=exited(42) b=running norestartall",
        expect!["settled"],
    );
    check(
        "Never main:a(Never,in42=RestartAll) main:b | sandbox a=exited(42) b=running norules",
        expect!["settled"],
    );
    check(
        "Never main:a(Never,in42=RestartAll) main:b debug:e | sandbox a=exited(42) b=unknown e=running",
        expect![
            "kill b-0 RestartAllContainers grace 0s; remove b-0 RestartAllContainers; remove a-0 RestartAllSource; a restarts with all; b restarts with all"
        ],
    );
    check(
        "Never main:a(Never,in42=RestartAll) main:b | sandbox=dead a=exited(42) b=running",
        expect!["kill b-0 SandboxReplaced; stop sb0; create sandbox 1 NewestNotReady"],
    );
    check(
        "Never main:a(Never,in42=RestartAll) main:b | sandbox sandbox=dead a=exited(42,sb0) b=exited(137,sb0)",
        expect!["start Regular a#1 NewSandbox"],
    );
}

#[test]
fn changed_container_hash_restarts_under_any_policy() {
    check("Always main:a | sandbox a=running(old)", expect!["kill a-0 SpecChanged"]);
    check("Never main:a | sandbox a=running(old)", expect!["kill a-0 SpecChanged"]);
    check("Never main:a main:b | sandbox a=running(old) b=running", expect!["kill a-0 SpecChanged"]);
    // Only the change of a running container counts.
    check("Never main:a | sandbox a=exited(137,old)", expect!["teardown Completed; stop sb0"]);
    check("Never main:a | sandbox a=exited(0,old)", expect!["teardown Completed; stop sb0"]);
    check("OnFailure main:a | sandbox a=exited(0,old)", expect!["teardown Completed; stop sb0"]);
    check("OnFailure main:a | sandbox a=exited(1,old)", expect!["start Regular a#1 Exited 1 OnFailure"]);
    check("main:a | sandbox a=running(nohash)", expect!["settled"]);
    check("Never main:a | sandbox a=exited(0,nohash)", expect!["teardown Completed; stop sb0"]);
    check(
        "Never main:a | sandbox a=exited(0) killed:a=SpecChanged",
        expect!["start Regular a#1 Killed SpecChanged"],
    );
    check("main:a(image=v2) | sandbox a=exited(1,5s,old)", expect!["start Regular a#1 Exited 1 Always"]);
    check("main:a(cpu=1) | sandbox a=running", expect!["settled"]);
}

#[test]
fn failed_probe_restarts_the_container_unless_policy_is_never() {
    check("main:a(liveness) | sandbox a=running a!liveness", expect!["kill a-0 LivenessFailed"]);
    check("main:a(liveness=5s) | sandbox a=running a!liveness", expect!["kill a-0 LivenessFailed grace 5s"]);
    check("main:a(liveness=5s) | sandbox a=running a+liveness", expect!["settled"]);
    check("main:a(startup=6s) | sandbox a=running a!startup", expect!["kill a-0 StartupFailed grace 6s"]);
    check(
        "main:a(startup=6s,liveness=5s) | sandbox a=running a!startup a!liveness",
        expect!["kill a-0 LivenessFailed grace 5s"],
    );
    check(
        "Never main:a(liveness=5s) main:b | sandbox a=running b=running a!liveness",
        expect!["kill a-0 LivenessFailed grace 5s"],
    );
    // Recording startup-fails.json: nothing is left to run, so the whole pod is stopped.
    check(
        "Never main:a(startup=5s) | sandbox a=running a!startup",
        expect!["teardown Completed; kill a-0 PodFinished; stop sb0"],
    );
    check(
        "Always main:a(Never,liveness=5s) | sandbox a=running a!liveness",
        expect!["teardown Completed; kill a-0 PodFinished; stop sb0"],
    );
    check(
        "Never main:a(OnFailure,liveness=5s) | sandbox a=running a!liveness",
        expect!["kill a-0 LivenessFailed grace 5s"],
    );
    check(
        "Never main:a(liveness) | sandbox a=exited(137) a!liveness",
        expect!["teardown Completed; stop sb0"],
    );
    check(
        "OnFailure main:a(liveness) | sandbox a=exited(0) a!liveness",
        expect!["start Regular a#1 Killed LivenessFailed"],
    );
    check(
        "OnFailure main:a(startup) | sandbox a=exited(0) a!startup",
        expect!["start Regular a#1 Killed StartupFailed"],
    );
    check(
        "OnFailure main:a(liveness) | sandbox a=exited(0) killed:a=LivenessFailed",
        expect!["start Regular a#1 Killed LivenessFailed"],
    );
    check(
        "OnFailure main:a(startup) | sandbox a=exited(0) killed:a=StartupFailed",
        expect!["start Regular a#1 Killed StartupFailed"],
    );
    check(
        "Always main:a(liveness) | sandbox a=exited(137,5s,#2) a!liveness backoff:a=20s",
        expect!["settled; a waits 15s more of 20s; wake in 15s"],
    );
    check(
        "Always main:a(Never,liveness) | sandbox a=exited(137) a!liveness",
        expect!["teardown Completed; stop sb0"],
    );
    check(
        "Never main:a(OnFailure,liveness) | sandbox a=exited(0) a!liveness",
        expect!["start Regular a#1 Killed LivenessFailed"],
    );
    check(
        "Never main:a(Never,in137=Restart,liveness) | sandbox a=exited(137) a!liveness",
        expect!["start Regular a#1 RestartRule 137"],
    );
    check("main:a(startup) | sandbox a=running", expect!["settled"]);
    check(
        "OnFailure main:a | sandbox a=exited(0) killed:a=PostStartHookFailed",
        expect!["teardown Completed; stop sb0"],
    );
    check(
        "Always main:a | sandbox a=exited(143) killed:a=PostStartHookFailed",
        expect!["start Regular a#1 Exited 143 Always"],
    );
}

#[test]
fn containers_in_unknown_states_are_killed() {
    check("main:a | sandbox a=unknown", expect!["kill a-0 UnknownState"]);
    check("Never main:a | sandbox a=unknown", expect!["kill a-0 UnknownState"]);
    check("Never main:a | sandbox a=exited(137) killed:a=UnknownState", expect!["start Regular a#1 Unknown"]);
    check(
        "main:a main:b | sandbox a=unknown b=exited(1)",
        expect!["kill a-0 UnknownState; start Regular b#1 Exited 1 Always"],
    );
}

#[test]
fn containers_missing_in_the_spec_are_killed() {
    check("init:i1 init:i2 main:a | sandbox i2=running i1=unknown", expect!["kill i1-0 UnknownState"]);
    check("init:i1 main:a | sandbox a=running i1=unknown", expect!["kill i1-0 UnknownState"]);
    check("main:a debug:e | sandbox a=running e=unknown", expect!["settled"]);
    check("main:a debug:e | sandbox a=running e=exited(137) killed:e=UnknownState", expect!["settled"]);
    check("main:a | sandbox a=running x=running", expect!["kill x-0 NotInSpec"]);
    check("main:a | sandbox a=running x=unknown", expect!["kill x-0 NotInSpec"]);
    check("main:a | sandbox a=running x=exited(0)", expect!["settled"]);
    check("main:a | sandbox a=running x=created", expect!["settled"]);
    check("main:a | sandbox a=running(#1) a=running", expect!["kill a-0 Superseded"]);
    check("main:a | sandbox a=exited(1,#1) a=running", expect!["kill a-0 Superseded"]);
    check("main:a | sandbox a=created(#1) a=running", expect!["kill a-0 Superseded"]);
    check(
        "Never main:a | sandbox a=exited(0) x=running",
        expect!["teardown Completed; kill x-0 PodFinished; stop sb0"],
    );
    check("init:i1 main:a | sandbox i1=running x=running", expect!["kill x-0 NotInSpec"]);
}

#[test]
fn ephemeral_containers_start_once() {
    check("main:a debug:e | sandbox a=running", expect!["start Ephemeral e#0 NeverStarted"]);
    check("init:i1 main:a debug:e | sandbox i1=running", expect!["start Ephemeral e#0 NeverStarted"]);
    check(
        "init:i1 main:a debug:e | sandbox",
        expect!["start Ephemeral e#0 NeverStarted; start Init i1#0 NeverStarted"],
    );
    check("main:a debug:e | sandbox a=running e=running", expect!["settled"]);
    check("main:a debug:e | sandbox a=running e=exited(1)", expect!["settled"]);
    check("main:a debug:e | sandbox a=running e=created", expect!["settled"]);
    check(
        "main:a debug:e debug:f | sandbox a=running e=exited(0)",
        expect!["start Ephemeral f#0 NeverStarted"],
    );
    check(
        "Never main:a debug:e | sandbox a=exited(0) e=running",
        expect!["teardown Completed; kill e-0 PodFinished; stop sb0"],
    );
    check("Never main:a debug:e | sandbox a=exited(0)", expect!["teardown Completed; stop sb0"]);
    check("main:a debug:e |", expect!["create sandbox 0 NoSandbox"]);
}

/// The container ended a second before the clock was set back by an hour; its back-off was noted so many seconds ago.
#[track_caller]
fn check_set_back(line: &str, noted: u64, expected: Expect) {
    let mut case = case(line);
    case.now = Now {
        wall: case.now.wall - Duration::from_secs(3600),
        mono: case.now.mono + Duration::from_secs(noted),
    };
    expected.assert_eq(&show(&case.plan(), case.now));
}

#[test]
fn crash_loop_does_not_wait_for_a_clock_that_was_set_back() {
    let line = "main:a | sandbox a=exited(1,1s,#1) backoff:a=40s";
    check_set_back(line, 15, expect!["settled; a waits 25s more of 40s; wake in 25s"]);
    check_set_back(line, 40, expect!["start Regular a#2 Exited 1 Always"]);
    check_set_back("main:a | sandbox a=exited(1,1s)", 15, expect!["start Regular a#1 Exited 1 Always"]);
}

#[test]
fn crash_loop_waits_for_its_back_off() {
    check("main:a | sandbox a=exited(1,5s)", expect!["start Regular a#1 Exited 1 Always"]);
    check(
        "main:a | sandbox a=exited(1,5s,#1) backoff:a=10s",
        expect!["settled; a waits 5s more of 10s; wake in 5s"],
    );
    check(
        "main:a | sandbox a=exited(1,9s,#1) backoff:a=10s",
        expect!["settled; a waits 1s more of 10s; wake in 1s"],
    );
    check("main:a | sandbox a=exited(1,10s,#1) backoff:a=10s", expect!["start Regular a#2 Exited 1 Always"]);
    check(
        "main:a | sandbox a=exited(1,5s,#9) backoff:a=300s",
        expect!["settled; a waits 295s more of 300s; wake in 295s"],
    );
    check(
        "main:a main:b | sandbox a=exited(1,5s) b=exited(1,30s) backoff:a=20s backoff:b=40s",
        expect!["settled; a waits 15s more of 20s; b waits 10s more of 40s; wake in 10s"],
    );
    check(
        "main:a main:b | sandbox a=exited(1,5s) b=exited(1) backoff:a=20s",
        expect!["start Regular b#1 Exited 1 Always; a waits 15s more of 20s; wake in 15s"],
    );
    check(
        "main:a | sandbox a=created(#2) a=exited(1,5s,#1) backoff:a=20s",
        expect!["settled; a waits 15s more of 20s; wake in 15s"],
    );
    check("main:a | sandbox a=running(#2) a=exited(1,5s,#1) backoff:a=20s", expect!["settled"]);
    check(
        "sidecar:s1 main:a | sandbox s1=exited(1,5s) backoff:s1=10s",
        expect!["settled; s1 waits 5s more of 10s; wake in 5s"],
    );
    check("OnFailure main:a | sandbox a=exited(0,5s) backoff:a=10s", expect!["teardown Completed; stop sb0"]);
}

#[test]
fn a_finished_pod_is_torn_down() {
    check("Never main:a main:b | sandbox a=exited(0) b=exited(1)", expect!["teardown Completed; stop sb0"]);
    check(
        "Never sidecar:s1 sidecar:s2 main:a | sandbox a=exited(0) s2=running s1=running",
        expect!["teardown Completed; kill s2-0 PodFinished; kill s1-0 PodFinished; stop sb0"],
    );
    check(
        "Never sidecar:s1 sidecar:s2 main:a debug:e | sandbox e=running a=exited(0) s2=unknown s1=running",
        expect![
            "teardown Completed; kill e-0 PodFinished; kill s2-0 PodFinished; kill s1-0 PodFinished; stop sb0"
        ],
    );
    check(
        "Never sidecar:s1 main:a | sandbox a=exited(0) s1=exited(1)",
        expect!["teardown Completed; stop sb0"],
    );
    check("Never sidecar:s1 main:a | sandbox=dead a=exited(0) s1=exited(143)", expect!["settled"]);
    check(
        "OnFailure sidecar:s1 main:a | sandbox a=exited(1) s1=running",
        expect!["start Regular a#1 Exited 1 OnFailure"],
    );
    check("OnFailure init:i1 main:a | sandbox a=exited(0)", expect!["teardown Completed; stop sb0"]);
    check("Never main:a | sandbox=dead sandbox=dead a=exited(0)", expect!["settled"]);
}

#[test]
fn old_init_instances_are_removed() {
    check(
        "init:i1 main:a | sandbox i1=exited(0,#2) i1=exited(1,#1) i1=exited(1)",
        expect!["remove i1-1 OldInitInstance; remove i1-0 OldInitInstance; start Regular a#0 NeverStarted"],
    );
    check(
        "init:i1 main:a | sandbox i1=running(#2) i1=exited(1,#1) i1=exited(1)",
        expect!["remove i1-0 OldInitInstance"],
    );
    check(
        "init:i1 main:a | sandbox i1=exited(1,5s,#1) i1=exited(1,60s) backoff:i1=20s",
        expect!["remove i1-0 OldInitInstance; i1 waits 15s more of 20s; wake in 15s"],
    );
    check(
        "init:i1 main:a | sandbox i1=running(#2) i1=created(#1) i1=exited(1)",
        expect!["remove i1-1 OldInitInstance"],
    );
    check(
        "init:i1 main:a | sandbox a=running i1=exited(0,#1) i1=exited(1)",
        expect!["remove i1-0 OldInitInstance"],
    );
    check(
        "sidecar:s1 main:a | sandbox a=running s1=running(#2) s1=exited(1,#1) s1=exited(1)",
        expect!["remove s1-0 OldInitInstance"],
    );
    check("main:a | sandbox a=running(#2) a=exited(1,#1) a=exited(1)", expect!["settled"]);
    check(
        "init:i1 main:a | sandbox sandbox=dead i1=running(#1) i1=exited(0,sb0)",
        expect!["remove i1-0 OldInitInstance"],
    );
}

#[test]
fn step_repeats_a_failed_one_with_the_same_or_more_starts() {
    let repeats = |line: &str, failed: &str| case(line).plan().step.repeats(&case(failed).plan().step);
    assert!(repeats("main:a | sandbox", "main:a | sandbox"));
    assert!(repeats("main:a main:b | sandbox b=running", "main:a main:b | sandbox"), "b has started");
    assert!(!repeats("main:a main:b | sandbox", "main:a main:b | sandbox b=running"), "b is to start, too");
    assert!(!repeats("main:a | sandbox a=exited(1)", "main:a | sandbox"), "the next instance");
    assert!(!repeats("main:a | sandbox a=created", "main:a | sandbox"), "the create got through");
    assert!(repeats("main:a | sandbox=dead", "main:a |"), "whatever number the sandbox has");
    assert!(!repeats("main:a | sandbox", "main:a |"));
}
