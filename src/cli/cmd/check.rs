//! `check`: whether a token is the current one.

use clap::Args;

use crate::cli::connect::Client;
use crate::cli::error::{Failure, NO, YES};
use crate::cli::output::Output;
use crate::model::{FencingToken, LockName, TokenState};
use crate::shapes::{Checked, state_word};

#[derive(Debug, Args)]
pub(in crate::cli) struct CheckOptions {
    /// Name of the lock
    #[arg(value_parser = LockName::parse)]
    name: LockName,
    /// Fencing token to check
    token: FencingToken,
}

/// Checks whether a token is the current one. The answer is a word and the exit code. A token that this cluster has not
/// granted, even if it is of a later epoch, is unknown and not stale.
pub(in crate::cli) async fn run(client: &Client, options: CheckOptions, output: &Output) -> Result<u8, Failure> {
    let checked = client.check(options.name.as_str(), options.token).await?;
    let valid = checked.state == TokenState::Valid;
    let state = state_word(checked.state);
    let text = match checked.state {
        TokenState::Valid | TokenState::Stale => state,
        TokenState::UnknownEpoch => "unknown: this cluster has not granted it",
    };
    let answer = Checked { state, valid, lowest_valid: checked.lowest_valid.to_string() };
    Failure::unless_closed(output.answer(&answer, || text.to_owned()))?;
    Ok(if valid { YES } else { NO })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::shapes::tests::value;

    /// The output of a check has the fields that the manual lists.
    #[test]
    fn a_check_has_every_field() {
        let checked = Checked { state: state_word(TokenState::UnknownEpoch), valid: false, lowest_valid: "2".into() };
        assert_eq!(value(&checked), json!({"state": "unknown_epoch", "valid": false, "lowest_valid": "2"}));
    }
}
