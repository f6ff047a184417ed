//! The client against the smallest lock service there is: a machine without a log.

#[path = "suite/faulty.rs"]
mod faulty;
#[path = "suite/in_process.rs"]
mod in_process;
#[path = "suite/service_suite.rs"]
mod service_suite;

use in_process::InProcess;

/// Shortest TTL of a session here: long enough for a busy machine.
const TTL_MS_MIN: u64 = 1_000;

macro_rules! behaviours {
    ($($name:ident)*) => { $(
        /// The behaviour of this name in the suite.
        #[tokio::test]
        async fn $name() {
            service_suite::$name(InProcess::new(TTL_MS_MIN)).await;
        }
    )* };
}

behaviours! {
    an_exclusive_lock_has_one_holder
    waiters_are_served_in_order
    a_wait_that_runs_out_leaves_no_waiter
    a_dropped_acquire_leaves_nothing
    a_dropped_guard_gives_the_lock_back
    dropping_the_last_handle_closes_the_session
    readers_share_and_do_not_pass_a_writer
    permits_are_counted
    a_lease_belongs_to_its_handle
    a_lease_ends_by_itself
    a_take_that_ends_early_leaves_no_waiter
    a_token_is_checked
    locks_and_sessions_can_be_seen
    a_watch_goes_on_where_it_stopped
    closing_a_session_wakes_the_next
    a_free_lock_is_awaited
    the_same_owner_is_refused
    a_session_is_renewed
    work_is_cancelled_before_another_is_granted
    a_retried_request_gets_the_same_answer
    a_long_wait_that_breaks_off_goes_on
    a_watch_goes_on_through_cuts
    an_outage_is_reported
    a_broken_stream_is_attached_again
    a_handle_opens_one_session
    a_foreign_release_is_refused
    a_lease_waits_its_turn
}
