//! The values of the Go kubelet's own tables (`kuberuntime_manager_test.go`, 1.36): what it does in each case. Where it
//! kills and starts in one step, ours kills first and starts once it has seen the end, so such a case has two lines.

use expect_test::expect;

use super::check;
use crate::pods::fixture::{case, show};

const MAIN: &str = "main:foo1 main:foo2 main:foo3";
const INIT: &str = "init:init1 init:init2 init:init3 main:foo1";
const SIDECARS: &str = "sidecar:s1 sidecar:s2(liveness,startup) sidecar:s3(liveness,startup) main:foo1";

#[test]
fn compute_pod_actions_table() {
    let of = |policy: &str, observed: &str| format!("{policy} {MAIN} | {observed}");
    check(&of("Always", "sandbox foo1=running foo2=running foo3=running"), expect!["settled"]);
    check(&of("Always", ""), expect!["create sandbox 0 NoSandbox"]);
    check(
        &of("Always", "sandbox foo1=exited(0) foo2=exited(111) foo3=running"),
        expect!["start Regular foo1#1 Exited 0 Always; start Regular foo2#1 Exited 111 Always"],
    );
    check(
        &of("OnFailure", "sandbox foo1=exited(0) foo2=exited(111) foo3=running"),
        expect!["start Regular foo2#1 Exited 111 OnFailure"],
    );
    check(
        &of("OnFailure", "sandbox foo1=exited(0) foo2=created foo3=running"),
        expect!["start Regular foo2#1 CreatedNotStarted"],
    );
    check(&of("Never", "sandbox foo1=exited(0) foo2=exited(111) foo3=running"), expect!["settled"]);
    check(
        &of("Never", "sandbox foo1=running foo2=unknown foo3=running"),
        expect!["kill foo2-0 UnknownState"],
    );
    check(
        &of("Never", "sandbox foo1=running foo2=exited(137) foo3=running killed:foo2=UnknownState"),
        expect!["start Regular foo2#1 Unknown"],
    );
    check(
        &of("Never", "sandbox foo1=running foo2=created foo3=running"),
        expect!["start Regular foo2#1 CreatedNotStarted"],
    );
    check(
        &of("Always", "sandbox foo1=running foo2=running(old) foo3=running"),
        expect!["kill foo2-0 SpecChanged"],
    );
    check(
        &of("Always", "sandbox foo1=running foo2=running foo3=running foo2!liveness"),
        expect!["kill foo2-0 LivenessFailed"],
    );
    check(
        &of("Always", "sandbox foo1=running foo2=running foo3=running foo2!startup"),
        expect!["kill foo2-0 StartupFailed"],
    );
}

#[test]
fn compute_pod_actions_table_without_a_ready_sandbox() {
    let of = |policy: &str, observed: &str| format!("{policy} {MAIN} | {observed}");
    check(
        &of("Always", "sandbox=dead foo1=running foo2=running foo3=running"),
        expect![
            "kill foo1-0 SandboxReplaced; kill foo2-0 SandboxReplaced; kill foo3-0 SandboxReplaced; stop sb0; create sandbox 1 NewestNotReady"
        ],
    );
    check(
        &of("OnFailure", "sandbox=dead foo1=running foo2=exited(0) foo3=running"),
        expect![
            "kill foo1-0 SandboxReplaced; kill foo3-0 SandboxReplaced; stop sb0; create sandbox 1 NewestNotReady"
        ],
    );
    check(
        &of("OnFailure", "sandbox sandbox=dead foo1=exited(137,sb0) foo2=exited(0,sb0) foo3=exited(137,sb0)"),
        expect!["start Regular foo1#1 NewSandbox; start Regular foo3#1 NewSandbox"],
    );
    check(
        &of("Always", "sandbox=noip foo1=running foo2=running foo3=running"),
        expect![
            "kill foo1-0 SandboxReplaced; kill foo2-0 SandboxReplaced; kill foo3-0 SandboxReplaced; stop sb0; create sandbox 1 NoPodIp"
        ],
    );
    check(&of("Never", "sandbox=dead foo1=exited(0) foo2=exited(0) foo3=exited(0)"), expect!["settled"]);
    check(&of("OnFailure", "sandbox=dead foo1=exited(0) foo2=exited(0) foo3=exited(0)"), expect!["settled"]);
    check(&of("Never", "sandbox=dead"), expect!["stop sb0; create sandbox 1 NewestNotReady"]);
}

#[test]
fn compute_pod_actions_with_init_containers_table() {
    let of = |policy: &str, observed: &str| format!("{policy} {INIT} | {observed}");
    let done = "init1=exited(0) init2=exited(0)";
    check(
        &of("Always", &format!("sandbox {done} init3=exited(0)")),
        expect!["start Regular foo1#0 NeverStarted"],
    );
    check(&of("Always", "sandbox"), expect!["start Init init1#0 NeverStarted"]);
    check(&of("Always", &format!("sandbox {done} init3=running")), expect!["settled"]);
    check(
        &of("Always", &format!("sandbox=dead {done} init3=exited(0)")),
        expect!["stop sb0; create sandbox 1 NewestNotReady"],
    );
    for policy in ["Always", "OnFailure"] {
        check(&of(policy, &format!("sandbox {done} init3=unknown")), expect!["kill init3-0 UnknownState"]);
        check(
            &of(policy, &format!("sandbox {done} init3=exited(137) killed:init3=UnknownState")),
            expect!["start Init init3#1 Unknown"],
        );
    }
    check(
        &of("Always", &format!("sandbox {done} init3=exited(137)")),
        expect!["start Init init3#1 Exited 137 Always"],
    );
    check(
        &of("OnFailure", &format!("sandbox {done} init3=exited(137)")),
        expect!["start Init init3#1 Exited 137 OnFailure"],
    );
    check(
        &of("Never", &format!("sandbox {done} init3=exited(137)")),
        expect!["teardown InitFailed; stop sb0"],
    );
    check(
        &of("Never", &format!("sandbox {done} init3=exited(137) killed:init3=UnknownState")),
        expect!["teardown InitFailed; stop sb0"],
    );
    check(&of("Never", &format!("sandbox=dead {done} init3=exited(0)")), expect!["settled"]);
    check(&of("Never", "sandbox=dead"), expect!["stop sb0; create sandbox 1 NewestNotReady"]);
    check(
        &of("OnFailure", &format!("sandbox=dead {done} init3=exited(137)")),
        expect!["stop sb0; create sandbox 1 NewestNotReady"],
    );
    check(&of("Always", "sandbox init3=running"), expect!["settled"]);
    check(
        &of("Always", &format!("sandbox {done} init3=created")),
        expect!["start Init init3#1 CreatedNotStarted"],
    );
}

#[test]
fn compute_pod_actions_with_restartable_init_containers_table() {
    let of = |policy: &str, observed: &str| format!("{policy} {SIDECARS} | {observed}");
    let two = "s1=running s2=running s2+startup";
    let all = "s1=running s2=running s2+startup s3=running s3+startup";
    check(&of("Always", &format!("sandbox {all}")), expect!["start Regular foo1#0 NeverStarted"]);
    check(&of("Always", "sandbox"), expect!["start Sidecar s1#0 NeverStarted"]);
    check(
        &of("Always", &format!("sandbox {two} s3=created")),
        expect!["start Sidecar s3#1 CreatedNotStarted"],
    );
    check(&of("Always", "sandbox s1=running"), expect!["start Sidecar s2#0 NeverStarted"]);
    check(&of("Always", &format!("sandbox {two}")), expect!["start Sidecar s3#0 NeverStarted"]);
    check(&of("Always", "sandbox s1=running s2=running"), expect!["settled"]);
    check(
        &of("Always", &format!("sandbox {all} s3!liveness")),
        expect!["kill s3-0 LivenessFailed; start Regular foo1#0 NeverStarted"],
    );
    check(&of("Always", &format!("sandbox {two} s3=running s3!startup")), expect!["kill s3-0 StartupFailed"]);
    check(
        &of("Always", &format!("sandbox {two} s3=running(old) s3+startup")),
        expect!["kill s3-0 SpecChanged; start Regular foo1#0 NeverStarted"],
    );
    check(
        &of("Always", "sandbox s1=exited(0) s2=running s2+startup s3=exited(0)"),
        expect!["start Sidecar s1#1 Exited 0 Always; start Sidecar s3#1 Exited 0 Always"],
    );
    check(
        &of("Always", "sandbox s1=exited(0) s2=running s2+startup s3=running s3+startup"),
        expect!["start Sidecar s1#1 Exited 0 Always; start Regular foo1#0 NeverStarted"],
    );
    check(
        &of("Always", "sandbox s3=running s3+startup"),
        expect![
            "start Sidecar s1#0 NeverStarted; start Sidecar s2#0 NeverStarted; start Regular foo1#0 NeverStarted"
        ],
    );
}

#[test]
fn compute_pod_actions_with_restartable_init_containers_table_by_policy() {
    let of = |policy: &str, observed: &str| format!("{policy} {SIDECARS} | {observed}");
    let two = "s1=running s2=running s2+startup";
    check(&of("Never", "sandbox=dead"), expect!["stop sb0; create sandbox 1 NewestNotReady"]);
    // Differs for Never, where the original has no new sandbox (docs/decisions/0088).
    for policy in ["Never", "OnFailure", "Always"] {
        check(
            &of(policy, &format!("sandbox=dead {two} s3=exited(137)")),
            expect![
                "kill s2-0 SandboxReplaced; kill s1-0 SandboxReplaced; stop sb0; create sandbox 1 NewestNotReady"
            ],
        );
    }
    check(
        &of("Never", &format!("sandbox {two} s3=exited(137)")),
        expect!["start Sidecar s3#1 Exited 137 Always"],
    );
    check(&of("Never", &format!("sandbox {two} s3=unknown")), expect!["kill s3-0 UnknownState"]);
    check(
        &of("Never", &format!("sandbox {two} s3=exited(137) foo1=running")),
        expect!["start Sidecar s3#1 Exited 137 Always"],
    );
    check(
        &of("Never", &format!("sandbox {two} s3=running s3+startup foo1=exited(0)")),
        expect![
            "teardown Completed; kill s3-0 PodFinished; kill s2-0 PodFinished; kill s1-0 PodFinished; stop sb0"
        ],
    );
}

#[test]
fn compute_pod_actions_with_ephemeral_containers_table() {
    let of = |policy: &str, debug: &str, observed: &str| {
        check_named(policy, &format!("{policy} init:init1 {MAIN} debug:debug {debug}"), observed)
    };
    let base = "foo1=running foo2=running foo3=running init1=exited(0)";
    let steady = format!("sandbox {base} debug=running");
    of("Always", "", &steady).eq("settled");
    of("Always", "", &format!("sandbox {base}")).eq("start Ephemeral debug#0 NeverStarted");
    of("Always", "debug:debug2", &steady).eq("start Ephemeral debug2#0 NeverStarted");
    of("Always", "", &format!("sandbox {base} debug=exited(0)")).eq("settled");
    of("Always", "", "sandbox foo1=running foo2=running foo3=running init1=running")
        .eq("start Ephemeral debug#0 NeverStarted");
    of("OnFailure", "", "sandbox=dead init1=exited(137)").eq("stop sb0; create sandbox 1 NewestNotReady");
    of("Always", "", &format!("sandbox=dead {base} debug=running"))
        .eq("kill foo1-0 SandboxReplaced; kill foo2-0 SandboxReplaced; kill foo3-0 SandboxReplaced; \
         kill debug-0 SandboxReplaced; stop sb0; create sandbox 1 NewestNotReady");
    of("Never", "", "sandbox foo1=exited(0) foo2=exited(0) foo3=exited(0) init1=exited(0) debug=running")
        .eq("teardown Completed; kill debug-0 PodFinished; stop sb0");
    of("Never", "", &format!("sandbox {base} debug=unknown")).eq("settled");
}

#[test]
fn compute_pod_actions_with_container_restart_policies_table() {
    let rest = "foo3=running";
    let of = |policy: &str, own: [&str; 2], observed: &str| {
        let line = format!("{policy} main:foo1{} main:foo2{} main:foo3", own[0], own[1]);
        check_named(policy, &line, observed)
    };
    let always = ["(Always)", "(Always)"];
    of("Never", always, &format!("sandbox foo1=exited(0) foo2=exited(111) {rest}"))
        .eq("start Regular foo1#1 Exited 0 Always; start Regular foo2#1 Exited 111 Always");
    let on_failure = ["(OnFailure)", "(OnFailure)"];
    of("Never", on_failure, &format!("sandbox foo1=exited(0) foo2=exited(111) {rest}"))
        .eq("start Regular foo2#1 Exited 111 OnFailure");
    of("Never", on_failure, &format!("sandbox foo1=exited(0) foo2=created {rest}"))
        .eq("start Regular foo2#1 CreatedNotStarted");
    of("Always", ["(Never)", "(Never)"], &format!("sandbox foo1=exited(0) foo2=exited(111) {rest}"))
        .eq("settled");
    let one = ["", "(OnFailure)"];
    of("Always", one, &format!("sandbox=dead foo1=running foo2=exited(0) {rest}")).eq(
        "kill foo1-0 SandboxReplaced; kill foo3-0 SandboxReplaced; stop sb0; create sandbox 1 NewestNotReady",
    );
    of("Always", one, "sandbox sandbox=dead foo1=exited(137,sb0) foo2=exited(0,sb0) foo3=exited(137,sb0)")
        .eq("start Regular foo1#1 NewSandbox; start Regular foo3#1 NewSandbox");
}

/// What the Go kubelet marks with a condition begins here with the exit that the rule matches.
#[test]
fn compute_pod_actions_for_restart_all_containers_table() {
    let rule = "in1=RestartAll";
    let all = "kill foo1-0 RestartAllContainers grace 0s";
    let plan = |line: &str, observed: &str| check_named("", line, observed);
    let inits = format!("Always init:init1 sidecar:init2 init:init3(Never,{rule}) main:foo1");
    plan(&inits, "sandbox init3=exited(1) init2=running init1=exited(0)").eq(
        "kill init2-0 RestartAllContainers grace 0s; remove init1-0 RestartAllContainers; \
         remove init2-0 RestartAllContainers; remove init3-0 RestartAllSource; init1 restarts with all; \
         init2 restarts with all; init3 restarts with all; foo1 restarts with all",
    );
    let sidecars = format!("Always sidecar:s1 sidecar:s2 sidecar:s3({rule}) main:foo1");
    plan(&sidecars, "sandbox foo1=running s1=running s2=running s3=exited(1)").eq(&format!(
        "{all}; kill s1-0 RestartAllContainers grace 0s; kill s2-0 RestartAllContainers grace 0s; \
         remove foo1-0 RestartAllContainers; remove s1-0 RestartAllContainers; remove s2-0 RestartAllContainers; \
         remove s3-0 RestartAllSource; s1 restarts with all; s2 restarts with all; s3 restarts with all; \
         foo1 restarts with all"
    ));
    let regular = format!("Always sidecar:s1 main:foo1 main:foo2 main:foo3(Never,{rule})");
    plan(&regular, "sandbox foo1=running foo2=running foo3=exited(1) s1=running").eq(&format!(
        "{all}; kill foo2-0 RestartAllContainers grace 0s; kill s1-0 RestartAllContainers grace 0s; \
         remove foo1-0 RestartAllContainers; remove foo2-0 RestartAllContainers; remove s1-0 RestartAllContainers; \
         remove foo3-0 RestartAllSource; s1 restarts with all; foo1 restarts with all; foo2 restarts with all; \
         foo3 restarts with all"
    ));
    let past = format!("Always main:foo1 main:foo2 main:foo3(Always,{rule})");
    plan(
        &past,
        "sandbox foo1=running(#1) foo2=running(#1) foo3=exited(1,#1) foo1=exited(99) foo2=exited(99) foo3=exited(99)",
    )
    .eq("kill foo1-1 RestartAllContainers grace 0s; kill foo2-1 RestartAllContainers grace 0s; \
         remove foo1-1 RestartAllContainers; remove foo1-0 RestartAllContainers; remove foo2-1 RestartAllContainers; \
         remove foo2-0 RestartAllContainers; remove foo3-0 RestartAllSource; remove foo3-1 RestartAllSource; \
         foo1 restarts with all; foo2 restarts with all; foo3 restarts with all");
    plan(INIT, "sandbox").eq("start Init init1#0 NeverStarted");
    plan(MAIN, "sandbox").eq(
        "start Regular foo1#0 NeverStarted; start Regular foo2#0 NeverStarted; start Regular foo3#0 NeverStarted",
    );
}

/// `container/helpers_test.go`, TestShouldContainerBeRestarted: containers without history, alive, succeeded, failed, unknown.
#[test]
fn should_container_be_restarted_table() {
    let observed =
        "sandbox alive=running(#1) succeed=exited(0) failed=exited(1,#1) alive=exited(2) failed=exited(3)";
    for (policy, restarted) in [
        ("Never", ""),
        ("OnFailure", "; start Regular failed#2 Exited 1 OnFailure"),
        ("Always", "; start Regular succeed#1 Exited 0 Always; start Regular failed#2 Exited 1 Always"),
    ] {
        check_named(policy, &format!("{policy} main:none main:alive main:succeed main:failed"), observed)
            .eq(&format!("start Regular none#0 NeverStarted{restarted}"));
    }
}

struct Planned {
    name: String,
    plan: String,
}

impl Planned {
    #[track_caller]
    fn eq(&self, expected: &str) {
        assert_eq!(self.plan, expected, "{}", self.name);
    }
}

fn check_named(name: &str, spec: &str, observed: &str) -> Planned {
    let line = format!("{spec} | {observed}");
    let case = case(&line);
    Planned { name: format!("{name} {line}"), plan: show(&case.plan(), case.now) }
}
