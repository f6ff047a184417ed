//! One suite of tests that runs against an embedded leader, an embedded follower and a gRPC client of the same cluster.

#[macro_use]
mod backends;
mod alone;
mod backups;
mod call_fields;
mod calls;
mod changes;
mod clusters;
mod compat;
mod explained;
mod faulty;
mod floods;
mod lost_time;
mod other_languages;
mod rights;
#[cfg(feature = "cli")]
mod screens;
mod sets;
mod sources;
mod runtimes;
mod secrets;
mod suite;
mod transfers;
#[path = "../processes/venv.rs"]
mod venv;
mod wire;

use std::sync::OnceLock;

use lockkeeper::node::Node;
use lockkeeper::rpc::{RemoteService, RemoteSettings};
use lockkeeper::service::LockService;
use lockkeeper::testing::Cluster;

use suite::*;

/// Three nodes with logs on disk that all tests of this process share.
struct Shared {
    cluster: Cluster,
    _folder: tempfile::TempDir,
    _runtime: tokio::runtime::Runtime,
}

fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    SHARED.get_or_init(|| {
        std::thread::spawn(|| {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads");
            let folder = tempfile::tempdir().expect("a folder");
            let cluster = runtime.block_on(Cluster::start(3, Some(folder.path()))).expect("a cluster");
            Shared { cluster, _folder: folder, _runtime: runtime }
        })
        .join()
        .expect("started")
    })
}

async fn leader() -> Node {
    shared().cluster.leader().await
}

async fn follower() -> Node {
    shared().cluster.follower().await
}

async fn remote() -> RemoteService {
    shared().cluster.leader().await;
    let service = RemoteService::new(RemoteSettings::new(shared().cluster.endpoints())).expect("endpoints");
    // Connects first, so that a test with short timeouts measures its own calls, as with the other backends.
    service.status().await.expect("a leader");
    service
}

backend_tests! {
    an_exclusive_lock_has_one_holder
    at_least_outlasts_the_hold
    at_most_ends_only_the_hold
    waiters_are_served_in_order
    a_wait_that_times_out_leaves_no_waiter
    a_dropped_acquire_leaves_nothing
    a_dropped_guard_releases_the_lock
    dropping_the_last_handle_closes_the_session
    readers_share_and_do_not_pass_a_writer
    permits_are_counted
    a_lease_belongs_to_its_handle
    a_lease_expires
    a_delayed_refresh_changes_nothing
    a_refused_take_stays_refused
    a_take_that_ends_early_leaves_no_waiter
    a_token_is_checked
    locks_and_sessions_are_listed
    a_watch_resumes_where_it_stopped
    a_watch_of_another_cluster_is_refused
    closing_a_session_wakes_the_next
    a_free_lock_is_awaited
    a_wait_with_a_limit_says_whether_the_name_is_free
    a_wait_lasts_through_a_lock_delay
    a_wait_lasts_through_hand_overs
    the_same_owner_is_refused
    a_session_is_renewed
    work_is_cancelled_before_another_is_granted
    a_retried_request_gets_the_same_answer
    a_long_wait_is_resumed
    a_resumed_wait_sends_no_command
    resumed_permits_are_counted
    a_watch_continues_after_cuts
    a_watch_says_once_that_events_were_missed
    waiting_for_a_free_lock_survives_missed_events
    an_outage_is_reported
    a_broken_stream_is_attached_again
    a_session_without_a_stream_is_attached_once
    an_idle_session_without_a_stream_is_attached
    an_abandoned_release_completes
    a_release_waits_for_an_abandoned_upgrade
    a_handle_opens_one_session
    an_operator_ends_a_session
    the_longest_ttl_is_changed
    a_foreign_release_is_refused
    a_lease_waits_its_turn
    an_upgrade_waits_for_the_other_readers
    an_upgrade_that_ends_early_changes_nothing
    a_downgrade_lets_readers_in
    a_named_owner_enters_again
    an_unfair_request_passes_unfair_waiters_only
    the_lease_of_a_hold_is_renewed
    the_end_of_a_hold_lease_keeps_the_session
    a_value_is_shown_and_changed
    a_lost_hold_is_resumed_once
    a_broken_holder_is_notified
    a_holder_is_asked
    a_hold_is_handed_over
    a_semaphore_keeps_its_limit
    an_election_has_one_leader
    a_set_is_held_whole
    a_set_that_ends_early_leaves_nothing
    a_set_has_its_bounds
    a_set_is_lost_with_its_first_lock
    a_retried_set_gets_the_same_answer
    the_leases_of_a_set_are_renewed
    owners_that_deadlock_are_refused
    a_nested_run_is_refused_what_its_parent_holds
    an_accepted_hold_is_adopted
    a_chain_is_explained
    a_filter_follows_the_valid_tokens
    a_filter_knows_every_shared_holder
    history_is_kept_and_verifies
    a_namespace_at_its_rate_slows_no_other
    n_cac_31_repeated_takes_send_nothing
    n_cac_32_a_waiter_is_next_after_the_running_use
    n_cac_33_an_idle_hold_is_released_when_it_is_recalled
    n_cac_34_a_try_waits_only_briefly
    n_cac_35_uses_never_overlap
    n_cac_36_a_lost_session_loses_its_cached_holds
    n_cac_37_caching_continues_after_an_attach
    n_cac_38_a_broken_hold_is_not_taken_again
}
