//! What the kubelet relies on of its two large ports, the same cases over what is fake and what is real.
//!
//! One contract for a cluster, over the fake API and over the adapter with a real API server.
//! One contract for runtimes, three of them: the fake, the adapter over a fake server, and the adapter over a real containerd. What
//! the fake does that a real runtime does not is a bug of the fake.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "all of this is test code, but clippy knows only functions that carry #[test]"
)]

/// Makes a test of every case of the contract, in a world that `$world` sets up and takes down.
macro_rules! contract {
    ($(#[$test:meta])* $run:path) => {
        contract!(@ cases [$(#[$test])*] $run,
            a_runtime_says_who_it_is_and_that_it_is_ready,
            a_sandbox_is_run_stopped_and_removed,
            stopping_and_removing_a_sandbox_twice_is_no_error,
            every_sandbox_has_an_address_of_its_own,
            a_sandbox_on_the_nodes_network_has_no_address,
            labels_and_annotations_come_back_byte_for_byte,
            a_container_is_created_then_runs,
            the_exit_code_of_a_container_is_reported,
            a_container_that_obeys_sigterm_stops_before_its_grace_is_over,
            a_container_that_ignores_sigterm_is_killed_when_its_grace_is_over,
            without_grace_a_container_is_killed_at_once,
            stopping_and_removing_a_container_twice_is_no_error,
            removing_a_running_container_kills_it,
            stopping_a_sandbox_kills_its_containers,
            removing_a_sandbox_removes_its_containers,
            a_command_in_a_container_answers_with_output_and_exit_code,
            a_command_that_takes_too_long_times_out,
            a_command_in_a_container_that_ended_is_an_error,
            what_is_not_there_is_reported_as_not_found,
            listings_can_be_limited_to_one_pod,
            further_attempts_stand_beside_the_first,
            a_name_that_is_taken_is_reported_as_existing,
            an_image_is_found_by_name_and_by_id,
            a_container_of_a_missing_image_is_refused,
            a_log_has_every_line_and_moves_to_a_new_file_when_told,
            the_resources_of_a_running_container_can_be_changed,
            hints_are_offered_or_declined_plainly,
        );
        contract!(@ streams_and_stats [$(#[$test])*] $run,
            a_stream_into_a_running_container_has_a_url_of_its_own,
            streams_that_make_no_sense_are_refused,
            nothing_streams_from_what_has_ended_or_never_was,
            a_running_container_is_measured,
            a_sandbox_is_measured_with_what_is_in_it,
            the_filesystem_of_images_is_known,
            the_resources_of_a_pod_are_taken_or_declined_plainly,
            a_checkpoint_is_made_or_declined_plainly,
            metrics_of_pods_are_offered_or_declined_plainly,
            the_cgroup_driver_is_said_or_declined_plainly,
        );
    };
    (@ $room:ident $attributes:tt $run:path, $($case:ident),* $(,)?) => {
        $( contract!(@@ $room $attributes $run, $case); )*
    };
    (@@ $room:ident [$($attribute:tt)*] $run:path, $case:ident) => {
        $($attribute)*
        async fn $case() {
            $run(|world| Box::pin(async move { crate::$room::$case(&world).await })).await;
        }
    };
}

mod cases;
mod cluster_cases;
mod cluster_fake;
mod cluster_real;
mod fake;
mod fake_behaviour;
mod over_the_wire;
mod real;
mod streams_and_stats;
mod world;
