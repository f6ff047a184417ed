//! `lock`: runs a command while it holds one or more locks, or only holds them.
//!
//! Knows: the client, processes, signals and the terminal. Never: how the lock service works internally.

mod acquire;
pub mod child;
mod guardian;
mod held;
mod link;
mod options;
mod orders;
mod processes;
mod result;
mod shim;
pub mod signals;
mod terminal;
mod words;

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::Duration;

pub use guardian::{GUARDIAN_COMMAND, GuardianOptions, guard};
pub use options::{ELECT_USAGE, ElectOptions, LOCK_USAGE, LockOptions};
pub(super) use processes::own_program;
pub use shim::{SHIM_COMMAND, ShimOptions, become_command};
pub(super) use words::{add_dashes, ask_for_json, result_file};

use self::acquire::{Asking, Held, NotHeld, acquire, close, kill_after};
use self::child::{OnLost, Orders, Report};
use self::guardian::own_guardian;
use self::held::{Notified, hold, tokens};
use self::options::{Order, ReleaseWhen};
use self::result::RunResult;
use self::signals::Signals;
use super::args::Common;
use super::connect::{CLUSTER_VARIABLE, connect};
use super::error::{Failure, USAGE};
use super::files::Outcome;
use super::output::Output;
use super::who::metadata;
use crate::clock::{Clock, SystemClock};
use crate::limits;
use crate::model::{Owner, Parent, SessionId};
use crate::service::{ErrorCode, LockService};

/// Runs a command under locks, or only holds them. Returns the exit code.
pub(super) async fn lock(options: LockOptions, common: &Common, output: &Output) -> Result<u8, Failure> {
    let file = options.run.result.clone();
    run(options.order(io::stdin().is_terminal()), file.as_deref(), common, output).await
}

/// Runs a command while it leads under a name. Returns the exit code.
pub(super) async fn elect(options: ElectOptions, common: &Common, output: &Output) -> Result<u8, Failure> {
    let file = options.run.result.clone();
    run(options.order(), file.as_deref(), common, output).await
}

/// Runs the order, and writes the result file if requested, also if the order is refused: the file never has the result
/// of an earlier run. If it cannot be written, the run fails, because its caller relies on the file.
async fn run(
    order: Result<Order, Failure>,
    file: Option<&Path>,
    common: &Common,
    output: &Output,
) -> Result<u8, Failure> {
    let file = file.map(|path| {
        let unmade = |error| format!("--result {}: {error}; check the path", path.display());
        Outcome::open(path).map_err(|error| Failure::usage("--result", unmade(error)))
    });
    let file = file.transpose()?;
    let mut result = RunResult::default();
    let outcome = match order {
        Ok(order) => hold_and_run(&order, common, output, &mut result).await,
        Err(refused) => Err(refused),
    };
    Output::finish_notices();
    result.code = outcome.as_ref().map_or_else(Failure::exit, |code| *code);
    let Some(Err(error)) = file.map(|file| result.write(file)) else { return outcome };
    let unwritten =
        Failure::stopped(format!("the result with the exit code {} could not be written: {error}", result.code));
    if outcome.is_ok() {
        return Err(unwritten);
    }
    output.failure_in_time(&unwritten);
    outcome
}

/// Writes the result of a command line that cannot be parsed. Without the file only its exit code remains.
pub(super) fn write_usage_error(file: &Path) {
    let result = RunResult { code: USAGE, ..RunResult::default() };
    drop(Outcome::open(file).and_then(|file| result.write(file)));
}

async fn hold_and_run(order: &Order, common: &Common, output: &Output, result: &mut RunResult) -> Result<u8, Failure> {
    let signals = &mut Signals::listen()?;
    let client = connect(common)?.metadata(metadata(&order.program())?);
    let owner = order.run.owner.as_ref().map_or_else(random_owner, ToString::to_string);
    let parent = enclosing_run(|name| std::env::var(name).ok(), &common.endpoints)?;
    let asking = Asking { order, owner: &owner, parent };
    let held = match acquire(&client, &asking, signals, output).await {
        Ok(held) => held,
        Err(NotHeld::Withdrawn(signal)) => {
            result.signal = u8::try_from(signal.as_raw()).ok();
            return Ok(signals::exit_code(signal));
        }
        Err(NotHeld::Failed(mut failure)) => {
            if failure.code == ErrorCode::NotAcquired {
                failure.exit = order.run.conflict_exit_code;
            }
            return Err(failure);
        }
    };
    result.acquired = true;
    let tokens = tokens(&order.names, &held.guard);
    result.token = only(&tokens);
    result.tokens = order.names.iter().map(ToString::to_string).zip(tokens).collect();
    let notified = Notified { guard: &held.guard, namespace: &common.namespace, output };
    let outcome = match &order.command {
        Some(command) => run_command(command, &asking, common, &held, &notified, signals, result).await,
        None => hold(&order.names, &notified, signals, result).await,
    };
    close(held.session, signals).await;
    outcome
}

async fn run_command<S: LockService>(
    command: &[OsString],
    asking: &Asking<'_>,
    common: &Common,
    held: &Held<S>,
    notified: &Notified<'_>,
    signals: &mut Signals,
    result: &mut RunResult,
) -> Result<u8, Failure> {
    let options = &asking.order.run;
    let orders = Orders {
        command: command.to_vec(),
        environment: environment(asking, held, common),
        on_lost: options.on_lost,
        kill_after: kill_after(options, held.session.ttl()),
        stop_after: options.stop_after,
        on_ask: options.on_ask,
        whole_group: options.release_when == ReleaseWhen::Group,
        guardian: own_guardian(common.json),
    };
    let run = child::run(&orders, notified, signals).await;
    let Some(Report { ended, lost }) = run.map_err(|error| Failure::stopped(error.to_string()))? else {
        result.lost = true;
        return Err(loss(held).await);
    };
    result.child_ended(ended);
    result.lost = lost;
    if lost && options.on_lost != OnLost::Ignore {
        return Err(loss(held).await);
    }
    Ok(ended.code())
}

/// Returns the error of a hold whose command was ended, or not started, for its loss. The hold of a command that was
/// ended is still valid for a moment, so a renewal may have been answered meanwhile, and then there is no loss to wait
/// for.
async fn loss<S: LockService>(held: &Held<S>) -> Failure {
    let longest = held.guard.valid_for() + Duration::from_millis(limits::CLOCK_LOOK_MS_MAX);
    match tokio::time::timeout(longest, held.guard.lost()).await {
        Ok(lost) => lost.into(),
        Err(_) => {
            let why = "the hold was about to end, so the command was ended; a renewal was answered after that";
            Failure::new(ErrorCode::Lost, why)
        }
    }
}

/// Returns the environment of the command. For a set, the variables of a single lock are removed, because the command
/// might inherit them from an enclosing run.
fn environment<S: LockService>(
    asking: &Asking<'_>,
    held: &Held<S>,
    common: &Common,
) -> Vec<(String, Option<OsString>)> {
    let names: Vec<String> = asking.order.names.iter().map(ToString::to_string).collect();
    let tokens = tokens(&asking.order.names, &held.guard);
    let variables = [
        ("LOCKKEEPER_LOCK", only(&names)),
        ("LOCKKEEPER_TOKEN", only(&tokens)),
        ("LOCKKEEPER_LOCKS", Some(names.join("\n"))),
        ("LOCKKEEPER_TOKENS", Some(tokens.join("\n"))),
        ("LOCKKEEPER_NAMESPACE", Some(common.namespace.to_string())),
        ("LOCKKEEPER_SESSION", Some(held.guard.session().to_string())),
        ("LOCKKEEPER_OWNER", Some(asking.owner.to_owned())),
        ("LOCKKEEPER_ENDPOINTS", Some(common.endpoints.join(","))),
    ];
    // The command inherits the cluster if it comes from the environment.
    let cluster = common.cluster.clone().map(|cluster| (CLUSTER_VARIABLE, Some(cluster)));
    variables.into_iter().chain(cluster).map(|(name, value)| (name.to_owned(), value.map(Into::into))).collect()
}

/// Returns the enclosing run, which waits for this one to end, from the variables that a run sets for its command. If
/// the two have no endpoint in common, the outer run counts as a run of another cluster and is ignored.
fn enclosing_run(
    variable: impl Fn(&'static str) -> Option<String>,
    endpoints: &[String],
) -> Result<Option<Parent>, Failure> {
    let given = |name| variable(name).filter(|text| !text.is_empty());
    let (Some(session), Some(owner)) = (given("LOCKKEEPER_SESSION"), given("LOCKKEEPER_OWNER")) else {
        return Ok(None);
    };
    let same = |theirs: String| theirs.split(',').any(|one| endpoints.iter().any(|own| own == one));
    if !given("LOCKKEEPER_ENDPOINTS").is_none_or(same) {
        return Ok(None);
    }
    let wrong = |name, error| Failure::usage(name, format!("{name} in the environment: {error}; unset it"));
    let session: SessionId = session.parse().map_err(|error| wrong("LOCKKEEPER_SESSION", error))?;
    let owner = Owner::parse(&owner).map_err(|error| wrong("LOCKKEEPER_OWNER", error))?;
    Ok(Some(Parent { session, owner }))
}

/// Returns the text of a single lock; `None` for a set.
fn only(texts: &[String]) -> Option<String> {
    if let [one] = texts { Some(one.clone()) } else { None }
}

/// Returns a random owner name. It is short, and distinguishes runs.
fn random_owner() -> String {
    format!("run-{:08x}", SystemClock::new().random_u128() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A nested run names the outer one, unless the outer one uses another cluster. Invalid variables are a usage
    /// error.
    #[test]
    fn a_nested_run_names_the_outer_one() {
        let around = |session: &str, endpoints: &str| {
            let variable = |name| match name {
                "LOCKKEEPER_SESSION" => Some(session.to_owned()),
                "LOCKKEEPER_OWNER" => Some("job".to_owned()),
                _ => Some("a:1,b:2".to_owned()),
            };
            enclosing_run(variable, &[endpoints.to_owned()])
        };
        let outer = around("7", "b:2").unwrap().unwrap();
        assert_eq!((outer.session.to_string().as_str(), outer.owner.as_str()), ("7", "job"));
        assert_eq!(around("7", "c:3"), Ok(None));
        assert_eq!(around("", "b:2"), Ok(None));
        let wrong = around("x", "b:2").unwrap_err();
        assert_eq!(wrong.exit(), 64);
        assert!(wrong.detail.ends_with("; unset it"), "{}", wrong.detail);
    }
}
