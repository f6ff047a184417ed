//! `lock`: runs a command while holding a lock or several, or holds them until told otherwise.
//!
//! Knows: the client, processes, signals and the terminal. Never: how the lock service works.

mod acquiring;
mod around;
pub mod child;
mod options;
mod result;
mod shim;
pub mod signals;
mod terminal;

use std::convert::Infallible;
use std::ffi::OsString;
use std::time::Duration;

use rustix::process::Signal;

pub use options::LockOptions;
pub use shim::{ShimOptions, become_command};

use self::acquiring::{Asking, Held, NotHeld, acquire, close, kill_after, next_ending};
use self::around::Surroundings;
use self::child::{Hold, Orders, Report};
use self::result::RunResult;
use self::signals::Signals;
use super::YES;
use super::connect::{CLUSTER_VARIABLE, connect};
use super::failure::Failure;
use super::options::Common;
use super::output::Output;
use super::shapes::{Holding, milliseconds};
use crate::client::SetGuard;
use crate::clock::{Clock, SystemClock};
use crate::model::{LockName, Mode};
use crate::service::{LockService, Word};

/// Name of the hidden command that is the shim.
pub const SHIM_COMMAND: &str = "__child";

impl Hold for SetGuard {
    fn valid_for(&self) -> Duration {
        SetGuard::valid_for(self)
    }

    async fn lost(&self) {
        SetGuard::lost(self).await;
    }
}

/// Runs it to its exit code, and writes the result where that was asked for.
pub(super) async fn lock(options: LockOptions, common: &Common, output: &Output) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let mut result = RunResult::default();
    let outcome = hold_and_run(&options, common, output, &mut signals, &mut result).await;
    result.code = outcome.as_ref().map_or_else(Failure::exit, |code| *code);
    if let Some(path) = &options.result
        && let Err(error) = result.write(path)
    {
        // A run that went well is told apart from one whose result nobody can read; any other exit code stands.
        let unwritten = Failure::new(Word::Internal, format!("{}: {error}", path.display()));
        if outcome == Ok(YES) {
            return Err(unwritten);
        }
        output.failure(&unwritten);
    }
    outcome
}

/// The same for the leader under a name: one holds it, and alone, and there is something to do.
pub(super) async fn elect(options: LockOptions, common: &Common, output: &Output) -> Result<u8, Failure> {
    if options.names.len() != 1 {
        return Err(Failure::usage("elect takes one name: who leads, leads under it"));
    }
    if options.mode() != Mode::Exclusive {
        return Err(Failure::usage("there is one leader: -s and --permits make no sense here"));
    }
    if options.command().is_none() {
        return Err(Failure::usage("elect runs a command while it leads: name one after --, or with -c"));
    }
    lock(options, common, output).await
}

/// Tells whoever watches that others ask for a lock. What to do about it is up to them.
async fn hear_of_requests(guard: &SetGuard, output: &Output) -> Infallible {
    loop {
        let (name, asked) = guard.asked().await;
        let request = format!("{} asks for {name}: {}", asked.by, asked.why.as_str());
        tracing::info!("{request}");
        output.remark(&request);
    }
}

async fn hold_and_run(
    options: &LockOptions,
    common: &Common,
    output: &Output,
    signals: &mut Signals,
    result: &mut RunResult,
) -> Result<u8, Failure> {
    let names = options.names.as_slice();
    if options.unfair && names.len() != 1 {
        return Err(Failure::usage("--unfair is for one lock: a set waits its turn for each of them"));
    }
    let client = connect(common)?;
    let owner = options.owner.as_ref().map_or_else(random_owner, ToString::to_string);
    let parent = Surroundings::of_this_process().parent(&common.endpoints)?;
    let asking = Asking { names, owner: &owner, parent, options, timeout: common.timeout };
    let held = match acquire(&client, &asking, signals, output).await {
        Ok(held) => held,
        Err(NotHeld::Withdrawn(signal)) => {
            result.signal = u8::try_from(signal.as_raw()).ok();
            return Ok(by_signal(signal));
        }
        Err(NotHeld::Failed(mut failure)) => {
            if failure.word == Word::NotAcquired {
                failure.exit = options.conflict_exit_code;
            }
            return Err(failure);
        }
    };
    result.acquired = true;
    let tokens = tokens(names, &held.guard);
    result.token = Some(tokens.as_slice()).filter(|tokens| tokens.len() == 1).map(|tokens| tokens.concat());
    result.tokens = names.iter().map(ToString::to_string).zip(tokens).collect();
    let work = async {
        match options.command() {
            Some(command) => run_command(command, &asking, common, &held, signals, result).await,
            None => hold(names, &held, signals, output, result).await,
        }
    };
    let outcome = tokio::select! {
        outcome = work => outcome,
        never = hear_of_requests(&held.guard, output) => match never {},
    };
    close(held.session, common.timeout).await;
    outcome
}

async fn run_command<S: LockService>(
    command: Vec<OsString>,
    asking: &Asking<'_>,
    common: &Common,
    held: &Held<S>,
    signals: &mut Signals,
    result: &mut RunResult,
) -> Result<u8, Failure> {
    let options = asking.options;
    let orders = Orders {
        command,
        environment: environment(asking, held, common),
        on_lost: options.on_lost,
        kill_after: kill_after(options, held.session.ttl()),
        shim: child::own_shim(),
    };
    let Report { ended, lost } = child::run(&orders, &held.guard, signals).await?;
    result.child_ended(ended);
    result.lost = lost;
    if lost && options.on_lost != child::OnLost::Ignore {
        return Err(held.guard.lost().await.into());
    }
    Ok(ended.code())
}

/// The tokens of these locks, in their order.
fn tokens(names: &[LockName], guard: &SetGuard) -> Vec<String> {
    names.iter().filter_map(|name| guard.token(name.as_str())).map(|token| token.to_string()).collect()
}

/// What the command is told. The words for a single lock are taken away from the command of a set: it might have inherited
/// them from a run around this one.
fn environment<S: LockService>(
    asking: &Asking<'_>,
    held: &Held<S>,
    common: &Common,
) -> Vec<(String, Option<OsString>)> {
    let names: Vec<String> = asking.names.iter().map(ToString::to_string).collect();
    let tokens = tokens(asking.names, &held.guard);
    let of_one = |all: &[String]| Some(all).filter(|all| all.len() == 1).map(|all| all.concat());
    let variables = [
        ("LOCKKEEPER_LOCK", of_one(&names)),
        ("LOCKKEEPER_TOKEN", of_one(&tokens)),
        ("LOCKKEEPER_LOCKS", Some(names.join("\n"))),
        ("LOCKKEEPER_TOKENS", Some(tokens.join("\n"))),
        ("LOCKKEEPER_NAMESPACE", Some(common.namespace.to_string())),
        ("LOCKKEEPER_SESSION", Some(held.guard.session().to_string())),
        ("LOCKKEEPER_OWNER", Some(asking.owner.to_owned())),
        ("LOCKKEEPER_ENDPOINTS", Some(common.endpoints.join(","))),
    ];
    // Inherited where it comes from the environment.
    let cluster = common.cluster.clone().map(|cluster| (CLUSTER_VARIABLE, Some(cluster)));
    variables.into_iter().chain(cluster).map(|(name, value)| (name.to_owned(), value.map(Into::into))).collect()
}

/// Without a command: prints the grant, a line each lock, and holds until standard input closes, a signal comes or a lock is
/// lost, which is another line.
async fn hold<S: LockService>(
    names: &[LockName],
    held: &Held<S>,
    signals: &mut Signals,
    output: &Output,
    result: &mut RunResult,
) -> Result<u8, Failure> {
    let Held { session, guard } = held;
    let holding = |event, name: &LockName, token: String| Holding {
        event,
        namespace: session.namespace().to_string(),
        lock: name.to_string(),
        token,
        session: guard.session().to_string(),
        remaining_ms: milliseconds(guard.valid_for()),
    };
    for (name, token) in names.iter().zip(tokens(names, guard)) {
        output.answer(&holding("held", name, token.clone()), || format!("held {name} {token}"))?;
    }
    tokio::select! {
        lost = guard.lost() => {
            result.lost = true;
            let gone = holding("lost", &lost.lock, lost.token.to_string());
            output.answer(&gone, || format!("lost {} {}", lost.lock, lost.token))?;
            Err(lost.into())
        }
        signal = next_ending(signals) => {
            result.signal = u8::try_from(signal.as_raw()).ok();
            Ok(YES)
        }
        closed = tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink())) => {
            closed.map_err(|error| Failure::new(Word::Internal, error.to_string()))??;
            Ok(YES)
        }
    }
}

fn by_signal(signal: Signal) -> u8 {
    u8::try_from(signal.as_raw()).unwrap_or(0).saturating_add(128)
}

/// It tells runs apart that one session may have, and is short enough to be read.
fn random_owner() -> String {
    format!("run-{:08x}", SystemClock::new().random_u128() as u32)
}
