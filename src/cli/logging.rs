//! The log on standard error: off by default, and for a node at the level of its config.

use std::sync::OnceLock;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, reload};

static LEVEL: OnceLock<Level> = OnceLock::new();

struct Level {
    handle: reload::Handle<Targets, Registry>,
    /// Whether the level was set on the command line or in the environment, which take precedence over a config.
    fixed: bool,
}

fn by_verbosity(verbose: u8) -> Targets {
    let targets = Targets::new();
    match verbose {
        0 => targets,
        1 => targets.with_target("lockkeeper", LevelFilter::INFO),
        2 => targets.with_target("lockkeeper", LevelFilter::DEBUG),
        _ => targets.with_default(LevelFilter::DEBUG),
    }
}

/// Starts to log, at the level of `-v` or of `LOCKKEEPER_LOG`, which is a level or `TARGET=LEVEL` pairs with commas.
pub(super) fn start(verbose: u8) {
    let wanted = std::env::var("LOCKKEEPER_LOG").ok().and_then(|text| text.parse().ok());
    let fixed = wanted.is_some() || 0 < verbose;
    let (filter, handle) = reload::Layer::new(wanted.unwrap_or_else(|| by_verbosity(verbose)));
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let ansi = colour && std::io::IsTerminal::is_terminal(&std::io::stderr());
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(ansi);
    // Both fail only if another subscriber is already set, which then receives the log.
    let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
    let _ = LEVEL.set(Level { handle, fixed });
}

/// Sets the level of a config, unless the command line or the environment has set one.
pub(super) fn set_level(level: &str) {
    let Some(known) = LEVEL.get().filter(|known| !known.fixed) else { return };
    // The level was checked when the config was read.
    let level = level.parse().unwrap_or(LevelFilter::INFO);
    // The handle exists until the process ends.
    let _ = known.handle.reload(Targets::new().with_target("lockkeeper", level));
}
