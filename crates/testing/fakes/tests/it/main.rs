//! What the kubelet relies on in its two large ports: the same cases over fakes and over real implementations.
//!
//! One contract for a cluster, over the fake API and over the adapter with a real API server. One contract for runtimes, of which
//! there are three: the fake, the adapter over a fake server, and the adapter over a real containerd. Where the fake differs from
//! a real runtime, that is a bug of the fake. And one for CSI drivers: the fake, and a real one that mounts.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "all of this is test code, but clippy knows only functions that carry #[test]"
)]

/// Creates a test of every case of the contract, in a world that `$run` creates and removes.
macro_rules! contract {
    ($(#[$test:meta])* $run:path) => {
        contract!(@ cases [$(#[$test])*] $run,
            runtime_reports_version_and_readiness,
            a_sandbox_is_run_stopped_and_removed,
            stop_and_remove_sandbox_are_idempotent,
            every_sandbox_has_an_address_of_its_own,
            a_sandbox_on_the_nodes_network_has_no_address,
            pod_and_record_of_a_container_come_back_unchanged,
            container_is_created_then_runs,
            the_exit_code_of_a_container_is_reported,
            an_ended_pod_is_listed_with_its_containers,
            container_that_handles_sigterm_stops_within_its_grace_period,
            container_that_ignores_sigterm_is_killed_at_the_end_of_its_grace_period,
            zero_grace_period_kills_a_container_at_once,
            stop_and_remove_container_are_idempotent,
            removing_a_running_container_kills_it,
            stopping_a_sandbox_kills_its_containers,
            removing_a_sandbox_removes_its_containers,
            exec_sync_returns_output_and_exit_code,
            exec_sync_times_out,
            exec_sync_in_an_exited_container_is_an_error,
            missing_sandboxes_and_containers_are_not_found,
            lists_can_be_filtered_by_pod,
            later_attempts_exist_next_to_the_first,
            taken_name_is_an_already_exists_error,
            an_image_is_found_by_name_and_by_id,
            a_container_of_a_missing_image_is_refused,
            missing_program_is_an_error_that_names_it,
            image_of_an_unreachable_registry_is_not_pulled,
            container_log_has_every_line_and_is_reopened_on_request,
            the_resources_of_a_running_container_can_be_changed,
            events_are_offered_or_unimplemented,
        );
        contract!(@ streams_and_stats [$(#[$test])*] $run,
            exec_attach_and_port_forward_each_have_a_url,
            invalid_stream_requests_are_rejected,
            streams_of_exited_or_missing_containers_are_rejected,
            stats_of_a_running_container,
            sandbox_stats_include_its_containers,
            image_filesystem_info_is_reported,
            pod_resource_update_is_accepted_or_unimplemented,
            checkpoint_is_written_or_unimplemented,
            pod_sandbox_metrics_are_offered_or_unimplemented,
            cgroup_driver_is_reported_or_unimplemented,
        );
    };
    (@ $module:ident $attributes:tt $run:path, $($case:ident),* $(,)?) => {
        $( contract!(@@ $module $attributes $run, $case); )*
    };
    (@@ $module:ident [$($attribute:tt)*] $run:path, $case:ident) => {
        $($attribute)*
        async fn $case() {
            $run(|world| Box::pin(async move { crate::$module::$case(&world).await })).await;
        }
    };
}

mod cases;
mod cluster_cases;
mod cluster_fake;
mod cluster_real;
mod cri_adapter;
mod csi_cases;
mod csi_contract;
mod csi_driver;
mod fake;
mod fake_behaviour;
mod fake_csi;
mod list_streaming;
mod malformed_entries;
mod real;
mod recorded;
mod runtime_proxy;
mod streams_and_stats;
mod world;
