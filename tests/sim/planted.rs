//! Planted bugs. If one is not detected, the simulation misses bugs of its kind. Bugs inside one module are detected by
//! that module's own tests; the table of them is in `faults.rs`.

use lockkeeper::faults::Fault;

use crate::invariants::coverage;
use crate::processes::run;

/// Each bug, the scenario that looks for it, and the seeds that are tried one after the other.
const PLANTED: &[(Fault, &str, std::ops::Range<u64>)] = &[
    (Fault::LifoQueue, "mixed", 1..4),
    (Fault::ForgottenHolders, "mixed", 1..6),
    (Fault::TokensOfThisProcess, "mixed", 1..6),
    (Fault::RetriesRunAgain, "mixed", 22..32),
    (Fault::EarlyExpiry, "mixed", 1..6),
    (Fault::LogTimeOfThisProcess, "mixed", 42..72),
    (Fault::AcknowledgedBeforeSync, "power_cut_of_all", 1..4),
    (Fault::SnapshotUnsynced, "power_cut_after_a_purge", 1..4),
    (Fault::RenewalDeduplicated, "mass_expiry", 1..3),
    (Fault::DeadWaiterLeft, "mass_expiry", 1..4),
    (Fault::PurgedTooEarly, "mixed", 1..4),
    (Fault::SessionFromArrival, "late_answers", 1..4),
    (Fault::HoldFromArrival, "late_answers", 1..4),
    (Fault::LeaseFromArrival, "late_answers", 1..4),
    (Fault::GraceFromArrival, "late_answers_with_grace", 1..4),
    (Fault::LiveLeaderGone, "wrong_observer", 1..3),
    (Fault::OneObserver, "wrong_observer", 1..3),
    (Fault::AnyProcessLeads, "restarted_leader", 1..6),
    (Fault::ReleasedHoldTaken, "recalled", 1..4),
    (Fault::RecallIgnored, "recalled", 1..4),
    (Fault::StampOfTheNewest, "renewals_left_behind", 1..4),
    (Fault::ReadWithoutQuorum, "cut_off_leader", 1..4),
];

/// Every planted bug is detected by an invariant, which the printed table names.
#[test]
fn every_planted_bug_is_caught() {
    let search = |scenario: &str, seeds: std::ops::Range<u64>, fault: Fault| {
        seeds.into_iter().find_map(|seed| {
            let ran = run(scenario, seed, Some(fault.word()));
            let by: Vec<&str> =
                ran.broken_invariants().iter().map(String::as_str).filter(|name| *name != coverage::NAME).collect();
            (!by.is_empty()).then(|| (seed, by.join(", ")))
        })
    };
    let searches: Vec<_> = PLANTED
        .iter()
        .map(|(fault, scenario, seeds)| {
            (fault, scenario, std::thread::spawn(move || search(scenario, seeds.clone(), *fault)))
        })
        .collect();
    let mut unseen = Vec::new();
    println!("{:24} {:18} {:>4}  caught by", "bug", "scenario", "seed");
    for (fault, scenario, search) in searches {
        match search.join().expect("a search") {
            Some((seed, by)) => println!("{:24} {scenario:18} {seed:>4}  {by}", fault.word()),
            None => unseen.push(fault.word()),
        }
    }
    assert!(unseen.is_empty(), "not caught: {unseen:?}");
}

/// Every bug is in the table above, in the table of its module, or in the test of digests.
#[test]
fn every_planted_bug_is_looked_for() {
    let elsewhere = [include_str!("../../src/faults.rs"), include_str!("../processes/digests.rs")].concat();
    let looked_for = |fault: &Fault| {
        let word = format!("Fault::{fault:?}");
        PLANTED.iter().any(|(planted, ..)| planted == fault)
            || [format!("({word}, \""), format!(", {word});")].iter().any(|text| elsewhere.contains(text))
    };
    let forgotten: Vec<_> = Fault::ALL.into_iter().filter(|fault| !looked_for(fault)).collect();
    assert!(forgotten.is_empty(), "nothing looks for {forgotten:?}");
}
