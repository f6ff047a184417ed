//! `[metrics]`: which namespaces and classes of locks have their own metrics.

use serde::Deserialize;

use super::place::{Placed, Refused};
use crate::limits::{LOCK_NAME_BYTES_MAX, METRICS_CLASSES_MAX, METRICS_NAMESPACES_MAX};
use crate::model::Namespace;

/// The values of the labels of a node's metrics.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MetricsLabels {
    /// The namespaces with their own metrics; empty for the first ones that the node sees.
    pub namespaces: Vec<Namespace>,
    /// Classes of locks by their names. A lock belongs to the first class that fits.
    pub classes: Vec<LockClass>,
}

/// A class of locks, whose waits and holds are measured together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockClass {
    /// The class's name, the value of the label `class`.
    pub name: String,
    /// How the names of its locks begin.
    pub prefix: String,
}

/// `[metrics]` as written.
#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct DraftMetrics {
    #[serde(default)]
    namespaces: Vec<Placed<String>>,
    #[serde(default)]
    class: Vec<DraftClass>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DraftClass {
    name: Placed<String>,
    prefix: Placed<String>,
}

impl DraftMetrics {
    pub(super) fn check(&self) -> Result<MetricsLabels, Refused> {
        let names = || self.class.iter().map(|class| &class.name);
        at_most("metrics.namespaces", METRICS_NAMESPACES_MAX, self.namespaces.iter())?;
        at_most("metrics.class", METRICS_CLASSES_MAX, names())?;
        let namespaces = self.namespaces.iter().map(|at| label("metrics.namespaces", at)).collect::<Result<_, _>>()?;
        let mut classes: Vec<LockClass> = Vec::new();
        for DraftClass { name, prefix } in &self.class {
            label("the name of a metrics.class", name)?;
            if classes.iter().any(|class| class.name == name.value) {
                let problem = format!("two metrics.class have the name {:?}", name.value);
                return Err(Refused::new(&name.place, problem, "give each another name"));
            }
            if prefix.value.is_empty() || LOCK_NAME_BYTES_MAX < prefix.value.len() {
                let problem = format!("the prefix of a metrics.class has {} bytes", prefix.value.len());
                let fix = format!("write 1 to {LOCK_NAME_BYTES_MAX} bytes; the locks of no class are in `other`");
                return Err(Refused::new(&prefix.place, problem, fix));
            }
            classes.push(LockClass { name: name.value.clone(), prefix: prefix.value.clone() });
        }
        Ok(MetricsLabels { namespaces, classes })
    }
}

/// Refuses the first value beyond the most.
fn at_most<'a>(
    key: &str,
    most: usize,
    mut values: impl ExactSizeIterator<Item = &'a Placed<String>>,
) -> Result<(), Refused> {
    let written = values.len();
    let Some(beyond) = values.nth(most) else { return Ok(()) };
    let problem = format!("{key} has {written} entries, and {most} are the most");
    Err(Refused::new(&beyond.place, problem, "leave some out: they are counted in `other`"))
}

/// Returns the value of a label. All have the rules of a namespace.
fn label(key: &str, at: &Placed<String>) -> Result<Namespace, Refused> {
    let refused = |problem| Refused::new(&at.place, problem, "correct its name");
    if at.value == crate::telemetry::OTHER {
        return Err(refused(format!(
            "{key} is {:?}, which stands for all that have no metrics of their own",
            at.value
        )));
    }
    Namespace::parse(&at.value)
        .map_err(|invalid| refused(format!("{key} must be {}, got {:?}", invalid.bound, at.value)))
}
