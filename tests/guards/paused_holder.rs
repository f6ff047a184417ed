//! The experiment with a paused holder, to watch: `cargo run --example paused_holder`. It starts its own cluster and
//! takes about fifteen seconds.

#![allow(clippy::print_stdout, reason = "the output is the result")]

mod paused;

use std::process::Command;

use paused::{VARIABLE, Way};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Ok(what) = std::env::var(VARIABLE) {
        return paused::work(&what).await;
    }
    let program = std::env::current_exe()?;
    for way in Way::ALL {
        let seen = paused::experiment(way, || Command::new(&program)).await?;
        println!("{}", seen.drawn());
        if (seen.overlapping() != 0) != (way == Way::Unprotected) {
            return Err("the result contradicts the promise".into());
        }
    }
    Ok(())
}
