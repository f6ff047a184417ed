//! The enclosing run: when a command under `lock` uses `lock` itself, the outer run waits for the inner one.

use crate::cli::error::Failure;
use crate::model::{Owner, Parent, SessionId};

/// The variables that a run sets for its command.
#[derive(Debug, Default, Clone)]
pub(super) struct ParentRun {
    pub(super) session: Option<String>,
    pub(super) owner: Option<String>,
    pub(super) endpoints: Option<String>,
}

impl ParentRun {
    /// Reads the variables from the environment.
    pub(super) fn of_this_process() -> Self {
        let given = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        Self {
            session: given("LOCKKEEPER_SESSION"),
            owner: given("LOCKKEEPER_OWNER"),
            endpoints: given("LOCKKEEPER_ENDPOINTS"),
        }
    }

    /// Returns the run that waits for this one, if there is one. If the two have no endpoint in common, the outer run
    /// counts as a run of another cluster and is ignored.
    pub(super) fn parent(&self, endpoints: &[String]) -> Result<Option<Parent>, Failure> {
        let (Some(session), Some(owner)) = (&self.session, &self.owner) else { return Ok(None) };
        let same = |theirs: &String| theirs.split(',').any(|one| endpoints.iter().any(|own| own == one));
        if !self.endpoints.as_ref().is_none_or(same) {
            return Ok(None);
        }
        let wrong = |name, error| Failure::usage(name, format!("{name} in the environment: {error}; unset it"));
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

    /// A nested run names the outer one, unless the outer one uses another cluster. Invalid variables are a usage
    /// error.
    #[test]
    fn a_nested_run_names_the_outer_one() {
        let around = ParentRun { session: given("7"), owner: given("job"), endpoints: given("a:1,b:2") };
        let parent = around.parent(&["b:2".to_owned()]).unwrap().unwrap();
        assert_eq!((parent.session.to_string().as_str(), parent.owner.as_str()), ("7", "job"));
        assert_eq!(around.parent(&["c:3".to_owned()]), Ok(None));
        assert_eq!(ParentRun { session: None, ..around.clone() }.parent(&["b:2".to_owned()]), Ok(None));
        let wrong = ParentRun { session: given("x"), ..around }.parent(&["b:2".to_owned()]).unwrap_err();
        assert_eq!(wrong.exit(), 64);
        assert!(wrong.detail.ends_with("; unset it"), "{}", wrong.detail);
    }
}
