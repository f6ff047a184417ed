//! `version`: prints the versions of the program, of the protocol and of stored data.

use serde::Serialize;

use crate::cli::error::Failure;
use crate::cli::output::Output;
use crate::codec::FORMAT;
use crate::rpc;

/// The JSON line.
#[derive(Debug, Serialize)]
struct Versions {
    version: &'static str,
    /// The cargo profile of the build.
    profile: &'static str,
    protocol: &'static str,
    protocol_min: u32,
    protocol_max: u32,
    format: u8,
}

/// The name of the protocol, and its lowest and highest version in this program.
const PROTOCOL: (&str, u32, u32) = ("lockkeeper.v1", rpc::PROTOCOL_MIN, rpc::PROTOCOL_MAX);

pub(in crate::cli) fn run(output: &Output) -> Result<u8, Failure> {
    let (protocol, protocol_min, protocol_max) = PROTOCOL;
    let (version, profile) = (env!("CARGO_PKG_VERSION"), env!("LOCKKEEPER_PROFILE"));
    let versions = Versions { version, profile, protocol, protocol_min, protocol_max, format: FORMAT };
    output.document(&versions, || {
        let formats = format!("protocol {protocol}, versions {protocol_min} to {protocol_max}");
        format!("lockkeeper {version}, built with profile {profile}\n{formats}\nformat of stored bytes {FORMAT}")
    })
}
