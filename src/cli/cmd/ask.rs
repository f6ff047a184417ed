//! `ask`: asks a holder to give up its hold.

use clap::Args;

use crate::cli::args::HoldArgs;
use crate::cli::connect::Client;
use crate::cli::error::{Failure, no_hold};
use crate::cli::output::Output;
use crate::cli::text::called;
use crate::cli::who::metadata;
use crate::model::Reason;
use crate::shapes::Asked;

#[derive(Debug, Args)]
pub(in crate::cli) struct AskOptions {
    #[command(flatten)]
    hold: HoldArgs,
    /// Reason, shown to the holder
    #[arg(value_parser = Reason::parse, value_name = "TEXT", required_unless_present = "why")]
    text: Option<Reason>,
    /// Reason, as `break` takes it [default: TEXT]
    #[arg(long, value_parser = Reason::parse, value_name = "TEXT", conflicts_with = "text")]
    why: Option<Reason>,
}

/// Asks a holder to give up its hold.
pub(in crate::cli) async fn run(client: &Client, options: AskOptions, output: &Output) -> Result<u8, Failure> {
    let AskOptions { hold: HoldArgs { name, token }, text, why } = options;
    let why = text.or(why).ok_or_else(|| Failure::usage("<TEXT>", "an ask needs a reason"))?;
    // The cluster adds only the principal. This adds the name of the asking client, unless the text would be too long.
    let named = format!("{}: {}", called(&metadata("ask")?), why.as_str());
    let why = Reason::parse(&named).unwrap_or(why);
    client.ask(name.as_str(), token, why.as_str()).await.map_err(|error| no_hold(error, token))?;
    let (namespace, lock, token) = (client.settings.namespace.to_string(), name.to_string(), token.to_string());
    output.object_only(&Asked { namespace, lock, token, asked: true })
}
