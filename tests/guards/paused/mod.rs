//! An experiment: what happens if a holder is paused for longer than its lease.
//!
//! Two real processes do the same work under one lock. The first is paused while it works, until the second has the
//! lock and works, and then continues. Three variants are tested: a resource that accepts every action, a resource that
//! compares tokens, and a resource that accepts every action from holders whose work runs in `LockGuard::run`, where
//! the first holder is not stopped but partitioned from the cluster.

mod cable;
mod drawing;
mod holder;
mod resource;
mod worker;

use std::io;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use cable::Cable;
use holder::Holder;
use lockkeeper::testing::Cluster;
use resource::{Action, Guard, Resource};
use rustix::process::Signal;
pub(crate) use worker::{VARIABLE, work};

/// A variant of the experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// The resource accepts every action.
    Unprotected,
    /// The resource compares tokens.
    Checked,
    /// The work runs in `LockGuard::run`.
    Run,
}

impl Way {
    pub(crate) const ALL: [Way; 3] = [Way::Unprotected, Way::Checked, Way::Run];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Way::Unprotected => "unprotected",
            Way::Checked => "checked",
            Way::Run => "run",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Way::Unprotected => "The resource takes every action; the first holder is stopped for a while.",
            Way::Checked => "The resource compares tokens; the first holder is stopped for a while.",
            Way::Run => "The work runs by guard.run; the first holder is partitioned from the cluster.",
        }
    }
}

/// The result of the experiment.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) way: Way,
    /// In the order in which the resource accepted them.
    pub(crate) actions: Vec<Action>,
    /// The tokens of the first and of the second holder.
    pub(crate) tokens: [u64; 2],
}

impl Seen {
    /// The number of actions of the first holder after the first action of the second.
    pub(crate) fn overlapping(&self) -> usize {
        let later = self.actions.iter().skip_while(|action| action.token != self.tokens[1]);
        later.filter(|action| action.token == self.tokens[0]).count()
    }

    /// A drawing of the result.
    pub(crate) fn drawn(&self) -> String {
        let verdict = match self.overlapping() {
            0 => "no action of the first holder after the second began".to_owned(),
            overlapping => format!("{overlapping} actions of the first holder after the second began"),
        };
        format!("{}\n{}  {verdict}\n", self.way.title(), drawing::timeline(&self.actions, self.tokens))
    }
}

/// Runs the experiment. `program` creates the command of a holder process, which must call [`work`].
pub(crate) async fn experiment(way: Way, program: impl Fn() -> Command) -> io::Result<Seen> {
    let cluster = Cluster::start(3, None).await.map_err(io::Error::other)?;
    // The first holder reaches the cluster only over its cable to the leader.
    let leader = usize::try_from(cluster.leader().await.id()).map_err(io::Error::other)?;
    let cable = Cable::to(cluster.endpoints()[leader - 1].clone()).await?;
    let resource = Arc::new(Resource::new(if way == Way::Checked { Guard::Tokens } else { Guard::Open }));
    let holder = |endpoints: &str| Holder::start(program(), &format!("{} {endpoints}", way.word()), resource.clone());
    let mut first = holder(&cable.endpoint)?;
    let token_first = first.token().await?;
    until(|| 15 <= resource.taken().len()).await?;
    match way {
        Way::Unprotected | Way::Checked => first.signal(Signal::STOP)?,
        Way::Run => cable.cut(),
    }
    let mut second = holder(&cluster.endpoints()[leader - 1])?;
    let token_second = second.token().await?;
    until(|| 20 <= resource.taken().iter().filter(|action| action.token == token_second).count()).await?;
    let seen = || Seen { way, actions: resource.taken(), tokens: [token_first, token_second] };
    match way {
        // The paused holder acts before it can detect the end of its lease. No lock service can prevent that.
        Way::Unprotected => {
            first.signal(Signal::CONT)?;
            until(|| 5 <= seen().overlapping()).await?;
        }
        Way::Checked => {
            first.signal(Signal::CONT)?;
            expect(&first.last_words().await?, "refused")?;
        }
        Way::Run => expect(&first.last_words().await?, "cancelled")?,
    }
    let seen = seen();
    drop((first, second));
    cluster.close().await;
    Ok(seen)
}

fn expect(words: &str, wanted: &str) -> io::Result<()> {
    if words.contains(wanted) {
        Ok(())
    } else {
        Err(io::Error::other(format!("the holder printed {words:?} without {wanted:?}")))
    }
}

async fn until(done: impl Fn() -> bool) -> io::Result<()> {
    for _ in 0..6_000 {
        if done() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err(io::Error::other("nothing happened for a minute"))
}
