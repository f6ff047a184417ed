//! What happens, told on standard error: off unless asked for, and for a node at the level of its config.

use std::sync::OnceLock;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, reload};

static LEVEL: OnceLock<Level> = OnceLock::new();

struct Level {
    handle: reload::Handle<EnvFilter, Registry>,
    /// Asked for on the command line or in the environment, and so stronger than a config.
    fixed: bool,
}

/// Starts telling, at the level of `-v` or of `LOCKKEEPER_LOG`.
pub(super) fn start(verbose: u8) {
    let level = match verbose {
        0 => "off",
        1 => "lockkeeper=info",
        2 => "lockkeeper=debug",
        _ => "debug",
    };
    let wanted = EnvFilter::try_from_env("LOCKKEEPER_LOG");
    let fixed = wanted.is_ok() || 0 < verbose;
    let (filter, handle) = reload::Layer::new(wanted.unwrap_or_else(|_| EnvFilter::new(level)));
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let ansi = colour && std::io::IsTerminal::is_terminal(&std::io::stderr());
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(ansi);
    // Both fail only where somebody else has set a subscriber, who then gets what is told.
    let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
    let _ = LEVEL.set(Level { handle, fixed });
}

/// Follows a node's config, unless the command line or the environment asked for something else.
pub(super) fn set_level(level: &str) {
    let Some(known) = LEVEL.get().filter(|known| !known.fixed) else { return };
    // A level was checked when the config was read; the handle lives as long as the process.
    let _ = known.handle.reload(EnvFilter::new(format!("lockkeeper={level}")));
}
