//! Runs each scenario in a separate process and checks the results.

use std::collections::BTreeSet;
use std::process::{Command, Output, Stdio};
use std::sync::{Condvar, Mutex};

use crate::injected;
use crate::invariants;
use crate::scenarios;
use crate::settle;
use crate::world::World;

/// The variable with the seed of a run, set for the process of the run.
const SEED: &str = "LOCKKEEPER_SEED";
/// The variable with the scenario of a run.
const SCENARIO: &str = "LOCKKEEPER_SCENARIO";
/// The variable with a range of seeds for the scenarios, such as `100..200`.
const SEEDS: &str = "LOCKKEEPER_SEEDS";
/// The variable with the number of repetitions of a seed.
const REPEATS: &str = "LOCKKEEPER_REPEATS";
/// Number of concurrent runs.
const AT_ONCE: usize = 2;

/// Number of runs of the mixed scenario in which every kind of fault takes effect at least once.
const SEEDS_THAT_COVER: usize = 6;

/// The number of runs in progress.
static RUNNING: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// The result of one run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) digest: Option<String>,
    /// Names of the invariants that were broken, or how the process ended if it named none.
    broken: Vec<String>,
    text: String,
    again: String,
}

impl Ran {
    fn of(again: String, output: &Output) -> Self {
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let after = |line: &str, word: &str| Some(line.strip_prefix(word)?.to_owned());
        let digest = text.lines().find_map(|line| after(line, "RUN digest=")).map(|rest| rest[..16].to_owned());
        let broken = text.lines().filter_map(|line| Some(after(line, "BROKEN ")?.split(": ").next()?.to_owned()));
        let mut broken: Vec<_> = broken.collect();
        if broken.is_empty() && !output.status.success() {
            broken.push(format!("the process ended with {}", output.status));
        }
        Self { digest, broken, text, again }
    }

    /// How often a kind of fault was injected, and how often it took effect.
    fn faults(&self, kind: injected::Kind) -> (usize, usize) {
        let words = self.text.lines().find_map(|line| line.strip_prefix("FAULTS ")).unwrap_or_default();
        let counts = words.split(' ').find_map(|word| word.strip_prefix(kind)?.strip_prefix('='));
        let counts = counts.and_then(|counts| counts.split_once('/'));
        counts
            .map_or((0, 0), |(tried, effective)| (tried.parse().expect("a count"), effective.parse().expect("a count")))
    }

    /// Asserts that the run ended, and that no invariant was broken.
    pub(crate) fn must_be_sound(&self) {
        assert!(self.broken.is_empty(), "{}\nagain: {}", self.text, self.again);
        assert!(self.digest.is_some(), "the process printed no result:\n{}\nagain: {}", self.text, self.again);
    }

    /// The names of the invariants that were broken. Asserts that the process did not end in another way, because a
    /// process that dies proves nothing about them.
    pub(crate) fn broken_invariants(&self) -> &[String] {
        let known = |name: &String| invariants::ALL.iter().any(|invariant| invariant.name == name.as_str());
        assert!(self.broken.iter().all(known), "{}\nagain: {}", self.text, self.again);
        &self.broken
    }
}

/// Runs a scenario in a separate process, with a planted bug or without.
pub(crate) fn run(scenario: &str, seed: u64, fault: Option<&str>) -> Ran {
    let (count, freed) = &RUNNING;
    *freed.wait_while(count.lock().unwrap(), |count| AT_ONCE <= *count).unwrap() += 1;
    let mut process = Command::new(std::env::current_exe().expect("a path"));
    process.args(["--exact", "processes::one_run", "--nocapture"]).stdin(Stdio::null());
    process.env(SEED, seed.to_string()).env(SCENARIO, scenario).env_remove(lockkeeper::faults::VARIABLE);
    let mut again = format!("{SEED}={seed} {SCENARIO}={scenario}");
    if let Some(fault) = fault {
        process.env(lockkeeper::faults::VARIABLE, fault);
        again = format!("{again} {}={fault}", lockkeeper::faults::VARIABLE);
    }
    let output = process.output().expect("a process");
    *count.lock().unwrap() -= 1;
    freed.notify_one();
    Ran::of(format!("{again} cargo test --test sim processes::one_run -- --exact --nocapture"), &output)
}

/// Runs a scenario with all these seeds, a limited number at a time. The results are in the order of the seeds.
pub(crate) fn run_all(scenario: &'static str, seeds: impl IntoIterator<Item = u64>) -> Vec<Ran> {
    let runs: Vec<_> = seeds.into_iter().map(|seed| std::thread::spawn(move || run(scenario, seed, None))).collect();
    runs.into_iter().map(|run| run.join().expect("a run")).collect()
}

/// The seeds in the environment, if any.
fn named_seeds() -> Option<std::ops::Range<u64>> {
    let text = std::env::var(SEEDS).ok()?;
    let (from, to) = text.split_once("..").expect("a range of seeds, as 100..200");
    Some(from.parse().expect("a seed")..to.parse().expect("a seed"))
}

/// Executes one run if the environment has a seed and a scenario. Otherwise it does nothing.
#[test]
fn one_run() {
    let Some(seed) = std::env::var(SEED).ok().and_then(|text| text.parse().ok()) else { return };
    let name = std::env::var(SCENARIO).unwrap_or_else(|_| "mixed".to_owned());
    let (_, run) = scenarios::ALL.iter().find(|(known, _)| *known == name).expect("a scenario with that name");
    settle::catch_panics();
    settle::watch_over_time();
    let mut world = World::new(seed);
    run(&mut world);
    settle::end(&mut world);
}

/// Returns the message with which this panics.
fn panic_of<T>(check: impl FnOnce() -> T + std::panic::UnwindSafe) -> String {
    let Err(panic) = std::panic::catch_unwind(check) else { return "no panic".to_owned() };
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

/// A process that ends without an error and without a result ran no scenario. One that dies without the name of an
/// invariant detects no planted bug.
#[test]
fn a_run_without_a_result_is_neither_sound_nor_a_detection() {
    let output = Command::new("true").output().expect("a process");
    let silent = panic_of(|| Ran::of(String::new(), &output).must_be_sound());
    assert!(silent.contains("the process printed no result"), "{silent}");
    let status = std::os::unix::process::ExitStatusExt::from_raw(101 << 8);
    let output = Output { status, stdout: b"thread panicked".to_vec(), stderr: Vec::new() };
    let dead = panic_of(|| Ran::of("a death".to_owned(), &output).broken_invariants().len());
    assert!(dead.contains("again: a death"), "{dead}");
}

/// The mixed scenario keeps every promise, with any seed.
#[test]
fn mixed() {
    // The runs of these seeds have enough crashes. Other seeds would do as well.
    let ran = run_all("mixed", named_seeds().unwrap_or(10..16));
    ran.iter().for_each(Ran::must_be_sound);
    // A fault may have no effect in a single run. All runs together must have effects of every kind.
    for kind in injected::ALL {
        let (tried, effective) =
            ran.iter().map(|ran| ran.faults(kind)).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        println!("{kind:20} injected {tried:>3} times, {effective:>3} of them took effect");
        assert!(
            0 < effective || ran.len() < SEEDS_THAT_COVER,
            "{kind}: injected {tried} times in all runs without effect"
        );
    }
}

/// Runs with the same seed are identical. The environment may set other seeds, and how often each one runs.
#[test]
fn the_same_seed_is_the_same_run() {
    let times = std::env::var(REPEATS).map_or(2, |times| times.parse().expect("a count"));
    for seed in named_seeds().unwrap_or(1..3) {
        let ran = run_all("mixed", std::iter::repeat_n(seed, times));
        let ways: BTreeSet<_> = ran.iter().map(|ran| ran.digest.as_ref().expect("the run completed")).collect();
        println!("seed {seed}: {times} runs took {} ways", ways.len());
        assert_eq!(ways.len(), 1, "{}", ran[0].again);
    }
}

/// Every directed scenario passes, with one seed or with those in the environment.
#[test]
fn directed() {
    let seeds = named_seeds().unwrap_or(1..2);
    let directed = scenarios::ALL.iter().map(|(name, _)| *name).filter(|name| *name != "mixed");
    let runs = directed.flat_map(|name| seeds.clone().map(move |seed| (name, seed)));
    let runs: Vec<_> = runs.map(|(name, seed)| std::thread::spawn(move || run(name, seed, None))).collect();
    let ran: Vec<Ran> = runs.into_iter().map(|run| run.join().expect("a run")).collect();
    ran.iter().for_each(Ran::must_be_sound);
}
