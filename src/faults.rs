//! Planted bugs, which prove that the tests detect bugs. Each disables one guarantee in the whole process.
//!
//! Knows: nothing. Builds without debug assertions contain no faults.

macro_rules! table {
    ($( $( #[doc = $doc:literal] )+ $fault:ident $word:literal; )*) => {
        /// A bug that can be planted, at a place where a careless change could introduce it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Fault { $( $( #[doc = $doc] )+ $fault, )* }

        impl Fault {
            /// All planted bugs.
            pub const ALL: [Fault; [$($word),*].len()] = [$(Fault::$fault),*];

            /// The word for this bug in the environment variable [`VARIABLE`].
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $( Fault::$fault => $word, )* }
            }
        }
    };
}

table! {
    /// The newest waiter is served first.
    LifoQueue "lifo-queue";
    /// A restarted node has lost the holders of its checkpoint.
    ForgottenHolders "forgotten-holders";
    /// A restarted node counts tokens from one again, although its checkpoint has a larger counter.
    TokensOfThisProcess "tokens-of-this-process";
    /// A repeated acquire is executed again although the first one still waits or holds.
    RetriesRunAgain "retries-run-again";
    /// A session ends before the deadline that its client received, between two renewals.
    EarlyExpiry "early-expiry";
    /// The state of a node differs from its log, in a part that no client reads.
    OtherState "other-state";
    /// A restarted node starts log time at zero again, because the checkpoint does not have it.
    LogTimeOfThisProcess "log-time-of-this-process";
    /// A node reports that an entry is durable before its disk does.
    AcknowledgedBeforeSync "acknowledged-before-sync";
    /// A node answers a vote request before its vote is durable.
    VoteBeforeSync "vote-before-sync";
    /// Log time counts the whole time of a stalled disk, and continues while no entry can be committed.
    UncappedLogTime "uncapped-log-time";
    /// A renewal soon after another one is treated as a repetition: it is answered but has no effect.
    RenewalDeduplicated "renewal-deduplicated";
    /// A deadline takes effect at its time, not after it.
    ExpiryOneEarly "expiry-one-early";
    /// A session that ends leaves its waiters in their queues.
    DeadWaiterLeft "dead-waiter-left";
    /// A restarted node has forgotten which requests are finished.
    RequestMemoryLost "request-memory-lost";
    /// The log is purged before a snapshot file contains its entries.
    PurgedTooEarly "purged-too-early";
    /// The log is purged up to a snapshot file that was never synced. A disk in memory does not sync the mirror either.
    SnapshotUnsynced "snapshot-unsynced";
    /// The mirror is used as the state although its digest does not match.
    MirrorTrusted "mirror-trusted";
    /// A set of locks is granted as soon as one of them is free.
    SetGrantedInPart "set-granted-in-part";
    /// A reader joins other readers although a writer waits.
    ReaderPassesWriter "reader-passes-writer";
    /// A hold that becomes exclusive keeps the token that it had as a reader.
    UpgradeKeepsToken "upgrade-keeps-token";
    /// A cancel with an unknown request number is not remembered.
    CancelForgotten "cancel-forgotten";
    /// A client counts the validity of a renewed session from the arrival of the answer.
    SessionFromArrival "session-from-arrival";
    /// A client counts the validity of a hold's renewed lease from the arrival of the answer.
    HoldFromArrival "hold-from-arrival";
    /// A client counts the validity of a refreshed token lease from the arrival of the answer.
    LeaseFromArrival "lease-from-arrival";
    /// A client counts the disconnect grace from the arrival of the answer.
    GraceFromArrival "grace-from-arrival";
    /// No wait that closes a cycle is detected as a deadlock.
    DeadlocksUnseen "deadlocks-unseen";
    /// The stamp of an entry that leaves renewals for a later entry is limited by the receipt of the newest of them,
    /// not of the oldest.
    StampOfTheNewest "stamp-of-the-newest";
    /// A leader that answers a probe is treated as gone.
    LiveLeaderGone "live-leader-gone";
    /// A node that alone finds the leader gone requests votes.
    OneObserver "one-observer";
    /// Each node that finds the leader gone requests votes.
    EachStands "each-stands";
    /// An answer from any process at the leader's address counts as that of the leader.
    AnyProcessLeads "any-process-leads";
    /// An exclusive lock is granted although another client holds it.
    TwoHolders "two-holders";
    /// A session that attaches again loses its holds.
    AttachDropsHolds "attach-drops-holds";
    /// A deadline takes effect some seconds after its time.
    LateExpiry "late-expiry";
    /// A session takes a cached hold again although its release was sent.
    ReleasedHoldTaken "released-hold-taken";
    /// A session takes its cached hold again and again although another client waits for it.
    RecallIgnored "recall-ignored";
    /// A leader answers reads without a round to a quorum.
    ReadWithoutQuorum "read-without-quorum";
}

/// The environment variable that names the planted bug.
pub const VARIABLE: &str = "LOCKKEEPER_FAULT";

/// Whether this bug is planted in this process. Without debug assertions none is, and calls of this cost nothing.
#[inline]
pub(crate) fn on(fault: Fault) -> bool {
    cfg!(debug_assertions) && planted() == Some(fault)
}

/// The planted bug. The environment is read only once, so the answer never changes.
fn planted() -> Option<Fault> {
    static PLANTED: std::sync::OnceLock<Option<Fault>> = std::sync::OnceLock::new();
    *PLANTED.get_or_init(|| {
        let word = std::env::var(VARIABLE).ok()?;
        Fault::ALL.into_iter().find(|fault| fault.word() == word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Most runs in which a test may detect a bug.
    const RUNS: u32 = 5;

    /// Each bug has a unique word, and none is planted unless the environment names one.
    #[test]
    fn each_has_its_word_and_none_is_on_by_default() {
        let words: std::collections::BTreeSet<_> = Fault::ALL.into_iter().map(Fault::word).collect();
        assert_eq!(words.len(), Fault::ALL.len());
        assert!(std::env::var(VARIABLE).is_ok() || Fault::ALL.into_iter().all(|fault| !on(fault)));
    }

    /// For each bug within one module, the test of the violated rule detects it. The simulation and the crash test
    /// detect the other bugs.
    #[test]
    fn each_planted_in_one_module_is_caught_there() {
        let caught = [
            (Fault::UncappedLogTime, "node::proposer::log_clock::tests::stalled_commits_stop_it"),
            (Fault::ExpiryOneEarly, "machine::tests::scripts::scripts_end_as_written"),
            (Fault::SetGrantedInPart, "machine::tests::scripts::scripts_end_as_written"),
            (Fault::ReaderPassesWriter, "machine::tests::scripts::scripts_end_as_written"),
            (Fault::UpgradeKeepsToken, "machine::tests::scripts::scripts_end_as_written"),
            (Fault::CancelForgotten, "machine::tests::scripts::scripts_end_as_written"),
            (Fault::DeadlocksUnseen, "machine::tests::scripts::scripts_end_as_written"),
            (Fault::TwoHolders, "machine::tests::scripts::scripts_end_as_written"),
            (Fault::AttachDropsHolds, "machine::tests::scripts::scripts_end_as_written"),
            (Fault::LateExpiry, "machine::tests::scripts::scripts_end_as_written"),
            (Fault::RequestMemoryLost, "machine::tests::records::a_restored_machine_continues_like_the_first"),
            (Fault::RecallIgnored, "client::tests::cached::n_cac_22_a_recalled_hold_is_released"),
            (Fault::ReleasedHoldTaken, "client::tests::cached::n_cac_22_a_recalled_hold_is_released"),
            (Fault::EachStands, "raft::tests::failure_detector::only_the_longest_log_stands"),
            (Fault::LiveLeaderGone, "raft::tests::failure_detector::a_live_leader_stays"),
            (Fault::OneObserver, "raft::tests::failure_detector::one_wrong_observer_deposes_no_leader"),
            (Fault::MirrorTrusted, "storage::mirror::tests::a_wrong_mirror_never_becomes_a_snapshot_file"),
            (Fault::VoteBeforeSync, "raft::tests::votes::a_vote_survives_a_power_cut"),
            (Fault::SnapshotUnsynced, "storage::mirror::tests::power_cut::a_purge_loses_nothing_in_a_power_cut"),
        ];
        for (fault, test) in caught {
            let run = |fault: Option<Fault>| {
                let mut process = std::process::Command::new(std::env::current_exe().expect("this test"));
                // The results of a planted bug must not be stored as the expected results.
                process.args(["--exact", test]).env_remove(VARIABLE).env_remove("UPDATE_GOLDENFILES");
                process.envs(fault.map(|fault| (VARIABLE, fault.word())));
                process.output().expect("started")
            };
            // Some bugs leave the result to chance, so one run may be right in spite of them.
            let detected = (0..RUNS).any(|_| {
                let output = run(Some(fault));
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                assert!(text.contains("running 1 test"), "{test} is missing: {text}");
                !output.status.success()
            });
            assert!(detected, "{fault:?} was not detected by {test} in {RUNS} runs");
            println!("{:24} caught by {test}", fault.word());
        }
    }
}
