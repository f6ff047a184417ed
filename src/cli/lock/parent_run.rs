//! The run around this one: where a command under `lock` asks for a lock itself, that run waits for it to finish.

use crate::cli::error::Failure;
use crate::model::{Owner, Parent, SessionId};

/// What the command of a run finds in its environment about that run.
#[derive(Debug, Default, Clone)]
pub(super) struct Surroundings {
    pub(super) session: Option<String>,
    pub(super) owner: Option<String>,
    pub(super) endpoints: Option<String>,
}

impl Surroundings {
    /// As the environment has them.
    pub(super) fn of_this_process() -> Self {
        let given = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        Self {
            session: given("LOCKKEEPER_SESSION"),
            owner: given("LOCKKEEPER_OWNER"),
            endpoints: given("LOCKKEEPER_ENDPOINTS"),
        }
    }

    /// The run that waits for this one, if there is one. Sessions of another cluster mean nothing to this one: where no endpoint is
    /// the same, it is taken for another.
    pub(super) fn parent(&self, endpoints: &[String]) -> Result<Option<Parent>, Failure> {
        let (Some(session), Some(owner)) = (&self.session, &self.owner) else { return Ok(None) };
        let same = |theirs: &String| theirs.split(',').any(|one| endpoints.iter().any(|own| own == one));
        if !self.endpoints.as_ref().is_none_or(same) {
            return Ok(None);
        }
        let wrong = |name, error| Failure::usage(format!("{name} in the environment: {error}"));
        let session: SessionId = session.parse().map_err(|error| wrong("LOCKKEEPER_SESSION", error))?;
        let owner = Owner::parse(owner).map_err(|error| wrong("LOCKKEEPER_OWNER", error))?;
        Ok(Some(Parent { session, owner }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    /// A run within a run names it, unless it asks another cluster; nonsense in the environment is a usage error.
    #[test]
    fn a_nested_run_knows_who_waits_for_it() {
        let around = Surroundings { session: given("7"), owner: given("job"), endpoints: given("a:1,b:2") };
        let parent = around.parent(&["b:2".to_owned()]).unwrap().unwrap();
        assert_eq!((parent.session.to_string().as_str(), parent.owner.as_str()), ("7", "job"));
        assert_eq!(around.parent(&["c:3".to_owned()]), Ok(None));
        assert_eq!(Surroundings { session: None, ..around.clone() }.parent(&["b:2".to_owned()]), Ok(None));
        let wrong = Surroundings { session: given("x"), ..around }.parent(&["b:2".to_owned()]).unwrap_err();
        assert_eq!(wrong.exit(), 64);
    }
}
