//! `lock`: runs a command while holding a lock, or holds it until told otherwise.
//!
//! Knows: the client, processes, signals and the terminal. Never: how the lock service works.

mod acquiring;
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

use self::acquiring::{Held, NotHeld, acquire, close, kill_after, next_ending};
use self::child::{Hold, Orders, Report};
use self::result::RunResult;
use self::signals::Signals;
use super::YES;
use super::connect::connect;
use super::failure::Failure;
use super::options::Common;
use super::output::Output;
use super::shapes::{Holding, milliseconds};
use crate::client::LockGuard;
use crate::clock::{Clock, SystemClock};
use crate::model::{LockName, Mode};
use crate::service::{LockService, Word};

/// Name of the hidden command that is the shim.
pub const SHIM_COMMAND: &str = "__child";

impl Hold for LockGuard {
    fn valid_for(&self) -> Duration {
        LockGuard::valid_for(self)
    }

    async fn lost(&self) {
        LockGuard::lost(self).await;
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
    if options.mode() != Mode::Exclusive {
        return Err(Failure::usage("there is one leader: -s and --permits make no sense here"));
    }
    if options.command().is_none() {
        return Err(Failure::usage("elect runs a command while it leads: name one after --, or with -c"));
    }
    lock(options, common, output).await
}

/// Tells whoever watches that others ask for the lock. What to do about it is up to them.
async fn hear_of_requests(guard: &LockGuard, output: &Output) -> Infallible {
    loop {
        let asked = guard.asked().await;
        let request = format!("{} asks for {}: {}", asked.by, guard.name(), asked.why.as_str());
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
    let [name] = options.names.as_slice() else {
        return Err(Failure::usage("several locks at once are not offered by this version: name one"));
    };
    let client = connect(common)?;
    let owner = options.owner.as_ref().map_or_else(random_owner, ToString::to_string);
    let held = match acquire(&client, name, &owner, options, signals, output, common.timeout).await {
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
    result.token = Some(held.guard.token().to_string());
    let work = async {
        match options.command() {
            Some(command) => run_command(command, options, common, &owner, &held, signals, result).await,
            None => hold(&held, signals, output, result).await,
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
    options: &LockOptions,
    common: &Common,
    owner: &str,
    held: &Held<S>,
    signals: &mut Signals,
    result: &mut RunResult,
) -> Result<u8, Failure> {
    let orders = Orders {
        command,
        environment: environment(held.guard.name(), held, common, owner),
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

fn environment<S: LockService>(
    name: &LockName,
    held: &Held<S>,
    common: &Common,
    owner: &str,
) -> Vec<(String, OsString)> {
    let token = held.guard.token().to_string();
    let variables = [
        ("LOCKKEEPER_LOCK", name.to_string()),
        ("LOCKKEEPER_TOKEN", token.clone()),
        ("LOCKKEEPER_LOCKS", name.to_string()),
        ("LOCKKEEPER_TOKENS", token),
        ("LOCKKEEPER_NAMESPACE", common.namespace.to_string()),
        ("LOCKKEEPER_SESSION", held.guard.session().to_string()),
        ("LOCKKEEPER_OWNER", owner.to_owned()),
        ("LOCKKEEPER_ENDPOINTS", common.endpoints.join(",")),
    ];
    variables.map(|(name, value)| (name.to_owned(), value.into())).to_vec()
}

/// Without a command: prints the grant, and holds until standard input closes, a signal comes or the lock is lost.
async fn hold<S: LockService>(
    held: &Held<S>,
    signals: &mut Signals,
    output: &Output,
    result: &mut RunResult,
) -> Result<u8, Failure> {
    let Held { session, guard } = held;
    let holding = |event| Holding {
        event,
        namespace: session.namespace().to_string(),
        lock: guard.name().to_string(),
        token: guard.token().to_string(),
        session: guard.session().to_string(),
        remaining_ms: milliseconds(guard.valid_for()),
    };
    output.answer(&holding("held"), || format!("held {} {}", guard.name(), guard.token()))?;
    tokio::select! {
        lost = guard.lost() => {
            result.lost = true;
            output.answer(&holding("lost"), || format!("lost {} {}", guard.name(), guard.token()))?;
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

fn random_owner() -> String {
    format!("{:032x}", SystemClock::new().random_u128())
}
