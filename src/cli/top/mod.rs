//! `top`: the nodes and the locks, as they change.

mod cells;
mod frame;
mod reader;
mod screen;
mod interactive;
mod view;

use std::time::Duration;

use clap::Args;
use tokio::time::sleep;

use self::frame::{Chosen, Size, frame};
use self::interactive::Interactive;
use self::reader::Reader;
use self::screen::Screen;
use super::args::{Common, duration};
use super::connect::{Client, scraper};
use super::error::{Failure, YES};
use super::output::Output;
use crate::limits;

/// The size of the one frame that is printed if there is no terminal.
const PRINTED: Size = Size { columns: 120, lines: 50 };

#[derive(Debug, Args)]
pub(super) struct TopOptions {
    /// Only locks whose names have this prefix
    #[arg(default_value = "")]
    prefix: String,
    /// Time between two frames
    #[arg(short, long, default_value = "1s", value_parser = delay, value_name = "DURATION")]
    delay: Duration,
}

fn delay(text: &str) -> Result<Duration, String> {
    let (delay, shortest) = (duration(text)?, Duration::from_millis(limits::TOP_DELAY_MS_MIN));
    if delay < shortest {
        return Err(format!(
            "at least {}: each frame reads the metrics of all nodes",
            humantime::format_duration(shortest)
        ));
    }
    Ok(delay)
}

/// Shows frames until the user ends it. Without a terminal, and with `--json`, it prints one frame after the delay.
pub(super) async fn run(client: &Client, common: &Common, options: TopOptions, output: &Output) -> Result<u8, Failure> {
    let mut reader = Reader::new(client, scraper(common)?);
    let chosen = Chosen { prefix: options.prefix, ..Chosen::default() };
    let screen = if output.json { None } else { Screen::open()? };
    if let Some(screen) = screen {
        return Interactive::new(client, reader, screen, chosen).run(options.delay).await;
    }
    reader.read(&chosen.prefix, 0).await?;
    // Rates are of the time between two reads.
    sleep(options.delay).await;
    let mut view = reader.read(&chosen.prefix, PRINTED.lines).await?;
    chosen.order.sort(&mut view.locks);
    if output.json {
        output.object(&view)?;
        return Ok(YES);
    }
    for line in frame(&view, &chosen, PRINTED) {
        output.line(line.trim_end())?;
    }
    Ok(YES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A delay that would read the nodes without a pause is refused, with the bound.
    #[test]
    fn frames_have_a_shortest_delay() {
        assert_eq!(delay("100ms"), Ok(Duration::from_millis(100)));
        for short in ["0s", "99ms"] {
            assert!(delay(short).unwrap_err().starts_with("at least 100ms"), "{short}");
        }
    }
}
