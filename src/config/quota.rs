//! `[quota]`: how many commands per second each namespace may send.

use std::collections::BTreeMap;

use super::draft::Draft;
use super::place::{Placed, Refused};
use crate::limits;
use crate::model::Namespace;

/// Commands per second that a namespace may send. The leader applies the values of its own file, so they should be the
/// same on every node. All other quotas are settings of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rates {
    /// Rate of every namespace that is not listed; `None` for no limit.
    pub a_second: Option<u32>,
    /// Rates of the listed namespaces.
    pub of: BTreeMap<Namespace, u32>,
}

impl Rates {
    /// Returns the rate of a namespace; `None` for no limit.
    #[must_use]
    pub fn of(&self, namespace: &Namespace) -> Option<u32> {
        self.of.get(namespace).copied().or(self.a_second)
    }

    /// Whether no namespace has a limit.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.a_second.is_none() && self.of.is_empty()
    }
}

/// Checks the `[quota]` section of a draft, and returns its rates.
pub(super) fn rates(draft: &Draft) -> Result<Rates, Refused> {
    let mut of = BTreeMap::new();
    for (name, written) in &draft.quota.namespace {
        let setting = &written.commands_a_second;
        let namespace = Namespace::parse(name).map_err(|invalid| {
            let problem = format!("a namespace is {}, got {name:?}", invalid.bound);
            Refused::new(&setting.place, problem, "correct its name")
        })?;
        of.insert(namespace, rate(setting)?);
    }
    Ok(Rates { a_second: draft.quota.commands_a_second.as_ref().map(rate).transpose()?, of })
}

/// Checks the value of one `commands_a_second` setting.
fn rate(setting: &Placed<u64>) -> Result<u32, Refused> {
    let bounded = u32::try_from(setting.value).ok().filter(|rate| (1..=limits::COMMANDS_A_SECOND_MAX).contains(rate));
    bounded.ok_or_else(|| {
        let problem = format!("commands_a_second is {}, not 1 to {}", setting.value, limits::COMMANDS_A_SECOND_MAX);
        Refused::new(&setting.place, problem, "correct it, or remove it for no bound")
    })
}
