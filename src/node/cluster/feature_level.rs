//! The cluster's feature level: which commands it allows, which builds may run, and how it is raised.

use crate::limits;
use crate::model::{Command, Invalid, Outcome, RaiseFeatures, Refusal};
use crate::node::Node;
use crate::node::core::Core;
use crate::service::{Call, ServiceError};

/// Refuses a command that needs a higher level: a voter with an older build would stop at such an entry.
fn admitted(needed: u32, active: u32) -> Result<(), Refusal> {
    if active < needed { Err(Refusal::FeatureLevel { needed, active }) } else { Ok(()) }
}

/// Returns why a build that supports up to `supported` must not run in a cluster of level `active`.
fn too_old(supported: u32, active: u32, node: u64) -> Option<String> {
    (supported < active).then(|| {
        format!(
            "this cluster runs at feature level {active}, and node {node}'s build supports {supported} at most: install \
             the newer build"
        )
    })
}

impl Core {
    /// Checks that this command may be proposed. The level only rises, so a command that is allowed now stays allowed.
    pub(in crate::node) fn admits(&self, command: &Command) -> Result<(), Refusal> {
        let needed = command.feature();
        // Commands of the lowest level need no read of the machine, which would wait for the entry that is being
        // applied.
        if needed <= limits::FEATURE_LEVEL_MIN {
            return Ok(());
        }
        admitted(needed, self.consensus.machine(|machine| machine.feature_level()))
    }

    /// Returns why this build must not run: a build older than the cluster's level cannot apply all entries of the log.
    pub(in crate::node) fn build_too_old(&self) -> Option<String> {
        too_old(limits::FEATURE_LEVEL, self.consensus.machine(|machine| machine.feature_level()), self.id)
    }
}

impl Node {
    /// Raises the level by an entry that names the voters; the machine refuses a level that one of them does not
    /// support.
    pub(in crate::node) async fn raise_features_here(&self, to: u32) -> Result<(), ServiceError> {
        let active = self.core.consensus.machine(|machine| machine.feature_level());
        if to < active {
            return Err(Invalid::new("features", format!("at least {active}: a level is never lowered"), to).into());
        }
        let voters = self.core.voters();
        let reply = self.submit_here(Call::new(Command::RaiseFeatures(RaiseFeatures { to, voters }))).await?;
        if let Outcome::Refused(refusal) = reply.outcome { Err(refusal.into()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command that needs more than the cluster's level is refused with both levels; any other command is allowed.
    #[test]
    fn commands_above_the_level_are_refused() {
        assert_eq!(admitted(2, 1), Err(Refusal::FeatureLevel { needed: 2, active: 1 }));
        assert_eq!((admitted(1, 1), admitted(1, 2)), (Ok(()), Ok(())));
    }

    /// A build that is older than its cluster's level must be replaced; every other build may run.
    #[test]
    fn an_older_build_may_not_run() {
        let why = too_old(1, 2, 3).expect("too old");
        assert!(why.contains("level 2") && why.contains("node 3's build supports 1"), "{why}");
        assert_eq!((too_old(2, 2, 3), too_old(3, 2, 3)), (None, None));
    }
}
