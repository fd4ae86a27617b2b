//! A probe and its outcomes in, the results out. A script is `liveness period=5 fail=2: + - - !`: `+` success, `-` failure,
//! `~` warning, `!` error; each attempt ends half a second after it was due.

use expect_test::{Expect, expect};
use model::containers::{ContainerRef, regular_containers};
use model::k8s::{Pod, Probe};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::pods::http_action::{HttpAction, join_host_port};
use crate::pods::probe::outcome::{
    ExecAnswer, GrpcAnswer, HttpAnswer, classify_exec, classify_grpc, classify_http, classify_tcp,
};
use crate::pods::probe::spec::ProbeHandler;

fn with_container<T>(container: Value, read: impl Fn(&ContainerRef<'_>) -> T) -> T {
    let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [container]}})).expect("a pod");
    read(&regular_containers(&pod).next().expect("a container"))
}

fn spec_of(kind: ProbeKind, probe: Value) -> Result<ProbeSpec, String> {
    let probe: Probe = serde_json::from_value(probe).expect("a probe");
    let ports = json!([{"name": "web", "containerPort": 8080}]);
    with_container(json!({"name": "c", "ports": ports}), |c| ProbeSpec::of(&probe, kind, c))
        .map_err(|error| error.to_string())
}

fn spec(text: &str) -> ProbeSpec {
    let mut words = text.split_whitespace();
    let kind = match words.next() {
        Some("liveness") => ProbeKind::Liveness,
        Some("readiness") => ProbeKind::Readiness,
        Some("startup") => ProbeKind::Startup,
        other => panic!("no probe {other:?}"),
    };
    let mut probe = json!({"exec": {"command": ["probe"]}});
    for word in words {
        let (key, value) = word.split_once('=').expect("key=value");
        let field = match key {
            "period" => "periodSeconds",
            "delay" => "initialDelaySeconds",
            "ok" => "successThreshold",
            "fail" => "failureThreshold",
            other => panic!("no field {other}"),
        };
        probe[field] = value.parse::<i32>().expect("a number").into();
    }
    spec_of(kind, probe).expect("a valid probe")
}

fn seconds(at: Option<MonoTime>) -> String {
    at.map_or("hold".to_owned(), |at| format!("{}", at.since_start().as_secs_f64()))
}

fn outcome(mark: &str) -> Outcome {
    match mark {
        "+" => Outcome::Success,
        "-" => Outcome::Failure("no".to_owned()),
        "~" => Outcome::Warning("well".to_owned()),
        "!" => Outcome::Error("broken".to_owned()),
        other => panic!("no outcome {other}"),
    }
}

fn play(script: &str) -> String {
    let (probe, outcomes) = script.split_once(':').expect("probe: outcomes");
    let spec = spec(probe);
    let mut state = ProbeState::begin(&spec, MonoTime::ZERO, Duration::ZERO);
    let mut lines = vec![format!("{:?} first at {}", state.verdict(), seconds(state.next_at()))];
    for mark in outcomes.split_whitespace() {
        let ended = state.next_at().unwrap_or(state.due) + Duration::from_millis(500);
        let decision = state.step(&spec, outcome(mark), ended);
        let verdict = decision.verdict.map(|v| format!(" -> {v:?}")).unwrap_or_default();
        let event =
            decision.event.map(|e| format!(" [{} {}]", e.reason.as_str(), e.message)).unwrap_or_default();
        lines.push(format!("{mark}{verdict}, next {}{event}", seconds(decision.next_at)));
    }
    lines.join("\n")
}

#[track_caller]
fn check(script: &str, expected: Expect) {
    expected.assert_eq(&play(script));
}

#[test]
fn liveness_verdict_fails_at_the_failure_threshold() {
    check(
        "liveness: + - - -",
        expect![[r#"
        Success first at 0
        +, next 10
        -, next 20 [Unhealthy Liveness probe failed: no]
        -, next 30 [Unhealthy Liveness probe failed: no]
        - -> Failure, next hold [Unhealthy Liveness probe failed: no]"#]],
    );
    check(
        "liveness: - - + - - -",
        expect![[r#"
        Success first at 0
        -, next 10 [Unhealthy Liveness probe failed: no]
        -, next 20 [Unhealthy Liveness probe failed: no]
        +, next 30
        -, next 40 [Unhealthy Liveness probe failed: no]
        -, next 50 [Unhealthy Liveness probe failed: no]
        - -> Failure, next hold [Unhealthy Liveness probe failed: no]"#]],
    );
    check(
        "liveness fail=1: - +",
        expect![[r#"
        Success first at 0
        - -> Failure, next hold [Unhealthy Liveness probe failed: no]
        +, next hold"#]],
    );
    check(
        "liveness fail=1: ~ -",
        expect![[r#"
        Success first at 0
        ~, next 10 [ProbeWarning Liveness probe warning: well]
        - -> Failure, next hold [Unhealthy Liveness probe failed: no]"#]],
    );
}

#[test]
fn readiness_verdict_is_failure_until_the_probe_succeeds() {
    check(
        "readiness: - + + -",
        expect![[r#"
        Failure first at 0
        -, next 10 [Unhealthy Readiness probe failed: no]
        + -> Success, next 20
        +, next 30
        -, next 40 [Unhealthy Readiness probe failed: no]"#]],
    );
    check(
        "readiness ok=2 fail=2: + + - + - - +",
        expect![[r#"
        Failure first at 0
        +, next 10
        + -> Success, next 20
        -, next 30 [Unhealthy Readiness probe failed: no]
        +, next 40
        -, next 50 [Unhealthy Readiness probe failed: no]
        - -> Failure, next 60 [Unhealthy Readiness probe failed: no]
        +, next 70"#]],
    );
}

#[test]
fn startup_decides_once() {
    check(
        "startup fail=2: - +",
        expect![[r#"
        Unknown first at 0
        -, next 10 [Unhealthy Startup probe failed: no]
        + -> Success, next hold"#]],
    );
    check(
        "startup fail=2: - - +",
        expect![[r#"
        Unknown first at 0
        -, next 10 [Unhealthy Startup probe failed: no]
        - -> Failure, next hold [Unhealthy Startup probe failed: no]
        +, next hold"#]],
    );
}

#[test]
fn probe_that_cannot_be_executed_is_retried_three_times_without_verdict() {
    check(
        "readiness: ! ! ! +",
        expect![[r#"
        Failure first at 0
        !, next 0.5
        !, next 0.5
        !, next 10 [Unhealthy Readiness probe errored and resulted in unknown state: broken]
        + -> Success, next 20"#]],
    );
    check(
        "readiness: ! ! +",
        expect![[r#"
        Failure first at 0
        !, next 0.5
        !, next 0.5
        + -> Success, next 10"#]],
    );
    check(
        "liveness fail=2: - ! ! ! -",
        expect![[r#"
        Success first at 0
        -, next 10 [Unhealthy Liveness probe failed: no]
        !, next 10.5
        !, next 10.5
        !, next 20 [Unhealthy Liveness probe errored and resulted in unknown state: broken]
        - -> Failure, next hold [Unhealthy Liveness probe failed: no]"#]],
    );
}

#[test]
fn probes_begin_after_their_delay_and_keep_their_period() {
    check(
        "readiness delay=7 period=5: + + +",
        expect![[r#"
        Failure first at 7
        + -> Success, next 12
        +, next 17
        +, next 22"#]],
    );
}

#[test]
fn a_slow_probe_skips_the_periods_it_missed() {
    let spec = spec("readiness period=5");
    let mut state = ProbeState::begin(&spec, MonoTime::ZERO, Duration::ZERO);
    let at = |seconds| MonoTime::from_start(Duration::from_secs(seconds));
    assert_eq!(state.step(&spec, Outcome::Success, at(12)).next_at, Some(at(15)));
    assert_eq!(state.step(&spec, Outcome::Success, at(20)).next_at, Some(at(25)));
}

#[test]
fn random_delay_only_moves_the_first_probe() {
    let spec = spec("readiness delay=2 period=10");
    let state = ProbeState::begin(&spec, MonoTime::ZERO, Duration::from_secs(3));
    assert_eq!(seconds(state.next_at()), "5");
}

#[test]
fn hurried_readiness_probe_runs_immediately_after_the_initial_delay() {
    let spec = spec("readiness delay=30 period=10");
    let at = |seconds| MonoTime::from_start(Duration::from_secs(seconds));
    let mut state = ProbeState::begin(&spec, MonoTime::ZERO, Duration::ZERO);
    state.hurry(&spec, at(25));
    assert_eq!(state.next_at(), Some(at(30)));
    state.step(&spec, Outcome::Failure(String::new()), at(30));
    state.hurry(&spec, at(33));
    assert_eq!(state.next_at(), Some(at(33)));
    assert_eq!(state.step(&spec, Outcome::Success, at(33)).next_at, Some(at(43)));
}

#[test]
fn restarted_kubelet_continues_with_the_previous_verdicts() {
    let begin = |spec: &ProbeSpec| ProbeState::begin(spec, MonoTime::ZERO, Duration::ZERO);
    let readiness = spec("readiness");
    let mut state = begin(&readiness).seeded(ProbeKind::Readiness, Verdict::Success);
    assert_eq!(state.verdict(), Verdict::Success);
    assert_eq!(state.step(&readiness, Outcome::Success, MonoTime::ZERO).verdict, None);
    let startup = begin(&spec("startup")).seeded(ProbeKind::Startup, Verdict::Success);
    assert_eq!(startup.next_at(), None);
}

#[test]
fn startup_probe_runs_first_and_deletion_ends_all_probes_but_readiness() {
    use ProbeKind::{Liveness, Readiness, Startup};
    assert_eq!([gate(Startup, false, false), gate(Startup, true, false)], [Gate::Open, Gate::Closed]);
    assert_eq!([gate(Liveness, false, false), gate(Liveness, true, false)], [Gate::Closed, Gate::Open]);
    assert_eq!([gate(Readiness, false, false), gate(Readiness, true, false)], [Gate::Closed, Gate::Open]);
    assert_eq!([gate(Liveness, true, true), gate(Startup, false, true)], [Gate::Over, Gate::Over]);
    assert_eq!(gate(Readiness, true, true), Gate::Open);
}

#[track_caller]
fn check_outcome(outcome: Outcome, expected: Expect) {
    let text = match outcome {
        Outcome::Success => "success".to_owned(),
        Outcome::Warning(what) => format!("warning: {what}"),
        Outcome::Failure(what) => format!("failure: {what}"),
        Outcome::Error(what) => format!("error: {what}"),
    };
    expected.assert_eq(&text);
}

#[test]
fn exec_probe_succeeds_with_exit_code_zero() {
    let exit = |code, stdout: &'static str, stderr: &'static str| {
        classify_exec(ExecAnswer::Exited { code, stdout: stdout.as_bytes(), stderr: stderr.as_bytes() })
    };
    check_outcome(exit(0, "fine", ""), expect!["success"]);
    check_outcome(exit(1, "out ", "err"), expect!["failure: out err"]);
    check_outcome(exit(137, "", ""), expect!["failure: "]);
    let command = ["sh".to_owned(), "-c".to_owned(), "sleep 9".to_owned()];
    let late = ExecAnswer::TimedOut { command: &command, after: Duration::from_secs(1) };
    check_outcome(
        classify_exec(late),
        expect![[r#"failure: command timed out: "sh -c sleep 9" timed out after 1s"#]],
    );
    check_outcome(
        classify_exec(ExecAnswer::Failed("no such container")),
        expect!["error: no such container"],
    );
}

// Go kubelet: ExpandContainerCommandOnlyStatic.
#[test]
fn exec_probe_commands_are_expanded_from_the_static_environment() {
    let expanded = |words: Value| {
        let env = json!([
            {"name": "PORT", "value": "80"},
            {"name": "HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
            {"name": "TWICE", "value": "a"},
            {"name": "TWICE", "value": "b"},
            {"name": "NESTED", "value": "$(PORT)"},
        ]);
        let probe: Probe = serde_json::from_value(json!({"exec": {"command": words}})).expect("a probe");
        with_container(json!({"name": "c", "env": env}), |c| {
            let handler = ProbeSpec::of(&probe, ProbeKind::Liveness, c).expect("a valid probe").handler;
            let ProbeHandler::Exec { command } = handler else { panic!("not an exec probe: {handler:?}") };
            command.join("|")
        })
    };
    assert_eq!(expanded(json!(["check", ":$(PORT)", "$(TWICE)"])), "check|:80|b");
    assert_eq!(expanded(json!(["$$(PORT)", "$PORT", "$(MISSING)"])), "$(PORT)|$PORT|$(MISSING)");
    assert_eq!(expanded(json!(["[$(HOST)]", "$(NESTED)"])), "[]|$(PORT)");
}

#[test]
fn http_probe_succeeds_with_status_200_to_399() {
    let answer = |status, body: &'static str, redirected_elsewhere| {
        classify_http(HttpAnswer::Answered { status, body: body.as_bytes(), redirected_elsewhere })
    };
    check_outcome(answer(200, "ok", false), expect!["success"]);
    check_outcome(answer(204, "", false), expect!["success"]);
    check_outcome(answer(199, "", false), expect!["failure: HTTP probe failed with statuscode: 199"]);
    check_outcome(
        answer(302, "over there", true),
        expect!["warning: Probe terminated redirects, Response body: over there"],
    );
    check_outcome(answer(399, "", false), expect!["warning: Probe terminated redirects, Response body: "]);
    check_outcome(answer(400, "", false), expect!["failure: HTTP probe failed with statuscode: 400"]);
    check_outcome(answer(503, "busy", false), expect!["failure: HTTP probe failed with statuscode: 503"]);
    let refused = HttpAnswer::Unreachable { url: "http://10.0.0.1:80/", why: "connection refused" };
    check_outcome(
        classify_http(refused),
        expect![[r#"failure: Get "http://10.0.0.1:80/": connection refused"#]],
    );
}

#[test]
fn long_output_is_cut_to_ten_kibibytes() {
    let body = vec![b'x'; 20_000];
    let answer = HttpAnswer::Answered { status: 301, body: &body, redirected_elsewhere: true };
    let Outcome::Warning(text) = classify_http(answer) else { panic!("a warning") };
    assert_eq!(text.matches('x').count(), 10_240);
    let Outcome::Failure(text) = classify_exec(ExecAnswer::Exited { code: 1, stdout: &body, stderr: b"" })
    else {
        panic!("a failure")
    };
    assert_eq!(text.len(), 10_240);
}

#[test]
fn tcp_probe_succeeds_if_the_connection_opens() {
    check_outcome(classify_tcp(Ok(())), expect!["success"]);
    check_outcome(
        classify_tcp(Err("dial tcp 10.0.0.1:80: i/o timeout")),
        expect!["failure: dial tcp 10.0.0.1:80: i/o timeout"],
    );
}

#[test]
fn grpc_probe_succeeds_with_status_serving() {
    let second = Duration::from_secs(1);
    check_outcome(classify_grpc(GrpcAnswer::Serving), expect!["success"]);
    check_outcome(
        classify_grpc(GrpcAnswer::NotServing("NOT_SERVING")),
        expect![[r#"failure: service unhealthy (responded with "NOT_SERVING")"#]],
    );
    check_outcome(
        classify_grpc(GrpcAnswer::Unimplemented("unknown service")),
        expect![
            "failure: error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service"
        ],
    );
    check_outcome(
        classify_grpc(GrpcAnswer::TimedOut(second)),
        expect!["failure: timeout: health rpc did not complete within 1s"],
    );
    let refused = GrpcAnswer::NotConnected { address: "10.0.0.1:80", within: second };
    check_outcome(
        classify_grpc(refused),
        expect![[
            r#"failure: timeout: failed to connect service "10.0.0.1:80" within 1s: context deadline exceeded"#
        ]],
    );
    check_outcome(
        classify_grpc(GrpcAnswer::Failed("reset")),
        expect!["failure: error: health rpc probe failed: reset"],
    );
}

#[test]
fn absent_and_zero_fields_mean_their_defaults() {
    let spec =
        spec_of(ProbeKind::Liveness, json!({"tcpSocket": {"port": 80}, "timeoutSeconds": 0})).expect("valid");
    assert_eq!((spec.timeout, spec.period), (Duration::from_secs(1), Duration::from_secs(10)));
    assert_eq!((spec.success_threshold, spec.failure_threshold), (1, 3));
    assert_eq!((spec.initial_delay, spec.termination_grace), (Duration::ZERO, None));
    let probe = json!({"exec": {}, "terminationGracePeriodSeconds": 5, "initialDelaySeconds": -1});
    let spec = spec_of(ProbeKind::Liveness, probe).expect("valid");
    assert_eq!((spec.initial_delay, spec.termination_grace), (Duration::ZERO, Some(Duration::from_secs(5))));
}

#[test]
fn ports_are_numbers_or_names_of_the_container() {
    let port = |port: Value| {
        let spec = spec_of(ProbeKind::Liveness, json!({"tcpSocket": {"port": port}}))?;
        let ProbeHandler::Tcp { port, .. } = spec.handler else { panic!("not TCP: {spec:?}") };
        Ok(port)
    };
    assert_eq!(port(json!(80)), Ok(80));
    assert_eq!(port(json!("web")), Ok(8080));
    assert_eq!(port(json!("81")), Ok(81));
    assert_eq!(port(json!("nope")), Err("couldn't find port: nope in container c".to_owned()));
    assert_eq!(port(json!(0)), Err("invalid port number: 0".to_owned()));
    assert_eq!(port(json!(70000)), Err("invalid port number: 70000".to_owned()));
    let none = spec_of(ProbeKind::Liveness, json!({}));
    assert_eq!(none, Err("missing probe handler for container c".to_owned()));
}

#[test]
fn grpc_probes_name_their_service() {
    let spec = spec_of(ProbeKind::Liveness, json!({"grpc": {"port": 9, "service": "db"}})).expect("valid");
    assert_eq!(spec.handler, ProbeHandler::Grpc { port: 9, service: "db".to_owned() });
}

fn http(get: Value) -> HttpAction {
    let spec = spec_of(ProbeKind::Readiness, json!({"httpGet": get})).expect("valid");
    let ProbeHandler::HttpGet(http) = spec.handler.clone() else { panic!("not HTTP: {spec:?}") };
    http
}

#[test]
fn urls_go_to_the_pod_unless_they_name_a_host() {
    let url = |get| http(get).url("10.0.0.1");
    assert_eq!(url(json!({"port": 80})), "http://10.0.0.1:80/");
    assert_eq!(url(json!({"port": "web", "path": "/live?x=1"})), "http://10.0.0.1:8080/live?x=1");
    assert_eq!(url(json!({"port": 443, "scheme": "HTTPS", "path": "live"})), "https://10.0.0.1:443/live");
    assert_eq!(url(json!({"port": 80, "host": "other"})), "http://other:80/");
    assert_eq!(http(json!({"port": 80})).url("fd00::1"), "http://[fd00::1]:80/");
    assert_eq!(join_host_port("::1", 1), "[::1]:1");
}

#[test]
fn headers_of_the_user_come_before_ours() {
    let headers = |list: Value| {
        let sent = http(json!({"port": 80, "httpHeaders": list})).headers;
        sent.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(headers(json!([])), "User-Agent: kube-probe/1.36; Accept: */*");
    assert_eq!(
        headers(json!([{"name": "host", "value": "me"}, {"name": "user-agent", "value": "mine"}])),
        "host: me; user-agent: mine; Accept: */*"
    );
    assert_eq!(headers(json!([{"name": "Accept", "value": ""}])), "User-Agent: kube-probe/1.36");
    assert_eq!(
        headers(json!([{"name": "X", "value": "1"}, {"name": "X", "value": "2"}])),
        "X: 1; X: 2; User-Agent: kube-probe/1.36; Accept: */*"
    );
}

proptest! {
    #[test]
    fn a_verdict_changes_only_after_its_threshold_of_equal_outcomes(
        kind in prop_oneof![Just("liveness"), Just("readiness"), Just("startup")],
        (ok, fail) in (1..4_usize, 1..4_usize),
        outcomes in prop::collection::vec(any::<bool>(), 0..40),
    ) {
        let spec = spec(&format!("{kind} ok={ok} fail={fail}"));
        let mut state = ProbeState::begin(&spec, MonoTime::ZERO, Duration::ZERO);
        for (n, is_good) in outcomes.iter().enumerate() {
            let Some(due) = state.next_at() else { break };
            let given = if *is_good { Outcome::Success } else { Outcome::Failure(String::new()) };
            let decision = state.step(&spec, given, due);
            let needed = if *is_good { ok } else { fail };
            let run = outcomes[..=n].iter().rev().take_while(|o| *o == is_good).count();
            if let Some(verdict) = decision.verdict {
                prop_assert!(run >= needed);
                prop_assert_eq!(verdict, if *is_good { Verdict::Success } else { Verdict::Failure });
            }
            if run >= needed {
                prop_assert_eq!(state.verdict(), if *is_good { Verdict::Success } else { Verdict::Failure });
            }
        }
    }

    #[test]
    fn next_probe_is_in_the_future_and_on_a_multiple_of_the_period(
        period in 1..60_u32,
        took in prop::collection::vec(0..200_000_u64, 1..20),
    ) {
        let spec = spec(&format!("readiness period={period}"));
        let mut state = ProbeState::begin(&spec, MonoTime::ZERO, Duration::ZERO);
        for millis in took {
            let now = state.due + Duration::from_millis(millis);
            let next = state.step(&spec, Outcome::Success, now).next_at.expect("readiness is never on hold");
            prop_assert!(next > now && next.saturating_since(now) <= spec.period);
            prop_assert_eq!(next.since_start().as_secs() % u64::from(period), 0);
        }
    }
}

#[test]
fn hook_without_its_container_cannot_resolve_port_names() {
    let action = |port: Value| {
        let get = serde_json::from_value(json!({"port": port, "path": "bye"})).expect("an action");
        HttpAction::of(&get, None, "kube-lifecycle/1.36")
    };
    let known = action(json!("8080")).expect("a number");
    assert_eq!((known.port, known.path.as_str()), (8080, "/bye"));
    assert!(known.headers.contains(&("User-Agent".to_owned(), "kube-lifecycle/1.36".to_owned())));
    assert!(action(json!("web")).is_err());
}
