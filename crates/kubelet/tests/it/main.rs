//! End-to-end tests of the built binary on a real containerd, or on a fake runtime where a real one does not show its requests.
//! Tests use it from outside: they write manifests and check what the runtime, the files and the HTTP endpoints show. Every test
//! has a runtime, a kubelet and a directory of its own.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test that cannot continue must fail with the reason"
)]

mod go_node;
mod node;
mod processes;

mod book;
mod certificates;
mod cgroups;
mod change_over;
mod cluster;
mod commands;
mod configuration_commands;
mod disk_errors;
mod exclusive_cpus;
mod fault_points;
mod faults;
mod flex_volumes;
mod guest;
mod hanging_volumes;
mod hostile_pods;
mod images;
mod kubelet_kills;
mod lifecycle;
mod log_answers;
mod logs;
mod manifests;
mod node_endpoints;
mod operate;
mod plugins;
mod pod_resources;
mod pods_api;
mod power_cut;
mod probes;
mod process;
mod reasons;
mod recorded_runtime;
mod resources;
mod restarts;
mod runtime_faults;
mod runtimes;
mod security;
mod server;
mod service;
mod settings;
mod single_node;
mod stalled_log;
mod stats;
mod streaming;
mod trace_export;
mod transcripts;
mod ui;
mod unkillable;
mod user_namespace;
mod volumes;
mod why;
mod why_at_once;
mod why_restart;
mod why_running;
