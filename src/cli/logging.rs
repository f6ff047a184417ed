//! The log on standard error: off by default, and for a node at the level of its config.

use std::env::{VarError, var};
use std::sync::OnceLock;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, reload};

use crate::cli::error::Failure;
use crate::cli::output::may_colour;

const VARIABLE: &str = "LOCKKEEPER_LOG";

/// What sets the level of a config. It is absent if the command line or the environment has set one, which takes
/// precedence.
static LEVEL: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

fn by_verbosity(verbose: u8) -> Targets {
    let targets = Targets::new();
    match verbose {
        0 => targets,
        1 => targets.with_target("lockkeeper", LevelFilter::INFO),
        2 => targets.with_target("lockkeeper", LevelFilter::DEBUG),
        _ => targets.with_default(LevelFilter::DEBUG),
    }
}

/// Returns the levels in the text of the variable.
fn levels(text: &str) -> Result<Targets, Failure> {
    // A lone word that is no level would be a target, and silence all others.
    let known = |part: &str| part.contains('=') || part.parse::<LevelFilter>().is_ok();
    let parsed = text.split(',').all(known).then(|| text.parse().ok()).flatten();
    let accepted = "off, error, warn, info, debug, trace, or pairs such as lockkeeper=info,openraft=warn";
    let detail = || format!("{VARIABLE} is {text:?}; set it to one of {accepted}, or unset it");
    parsed.ok_or_else(|| Failure::usage(VARIABLE, detail()))
}

/// Starts to log, at the level of `-v` or of `LOCKKEEPER_LOG`, which is a level or `TARGET=LEVEL` pairs with commas. An
/// empty variable counts as unset.
///
/// # Errors
/// The variable has another value.
pub(super) fn start(verbose: u8) -> Result<(), Failure> {
    let wanted = match var(VARIABLE) {
        Ok(text) if !text.is_empty() => Some(levels(&text)?),
        Ok(_) | Err(VarError::NotPresent) => None,
        Err(VarError::NotUnicode(text)) => Some(levels(&text.to_string_lossy())?),
    };
    let is_fixed = wanted.is_some() || 0 < verbose;
    let (filter, handle) = reload::Layer::new(wanted.unwrap_or_else(|| by_verbosity(verbose)));
    let ansi = may_colour(std::env::var_os("NO_COLOR")) && std::io::IsTerminal::is_terminal(&std::io::stderr());
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(ansi);
    // This and the next call fail only if another subscriber is already set, which then receives the log.
    let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
    if !is_fixed {
        let _ = LEVEL.set(handle);
    }
    Ok(())
}

/// Sets the level of a config, unless the command line or the environment has set one.
pub(super) fn set_level(level: &str) {
    let Some(handle) = LEVEL.get() else { return };
    // The level was checked when the config was read.
    let level = level.parse().unwrap_or(LevelFilter::INFO);
    // The handle exists until the process ends.
    let _ = handle.reload(Targets::new().with_target("lockkeeper", level));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A level, or pairs of a target and a level, are accepted. Any other text is refused, and the error names the
    /// variable and what it may be.
    #[test]
    fn a_text_without_levels_is_refused() {
        for text in ["info", "OFF", "lockkeeper=debug", "warn,lockkeeper=trace"] {
            assert_eq!(levels(text), Ok(text.parse().expect("levels")));
        }
        for text in ["inof", "lockkeeper=inof", "lockkeeper", "info;warn"] {
            let refused = levels(text).expect_err(text);
            assert!(refused.detail.contains(VARIABLE) && refused.detail.contains("debug"), "{refused:?}");
            assert_eq!(refused.exit(), 64);
        }
    }
}
