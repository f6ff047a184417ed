//! The honest experiment, to watch: `cargo run --example paused_holder`. It starts a cluster of its own, and takes some
//! fifteen seconds.

#![allow(clippy::print_stdout, reason = "it is there to be read")]

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
            return Err("this is not what was promised".into());
        }
    }
    Ok(())
}
