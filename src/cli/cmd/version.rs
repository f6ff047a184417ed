//! `version`: the versions of the program, of the protocol and of stored data.

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

/// Prints the versions of the program, of the protocol and of stored data.
pub(in crate::cli) fn run(output: &Output) -> Result<u8, Failure> {
    let versions = Versions {
        version: env!("CARGO_PKG_VERSION"),
        profile: env!("LOCKKEEPER_PROFILE"),
        protocol: "lockkeeper.v1",
        protocol_min: rpc::PROTOCOL_MIN,
        protocol_max: rpc::PROTOCOL_MAX,
        format: FORMAT,
    };
    output.document(&versions, || {
        let Versions { version, profile, protocol, protocol_min, protocol_max, format } = &versions;
        let formats = format!("protocol {protocol}, versions {protocol_min} to {protocol_max}");
        format!("lockkeeper {version}, built with profile {profile}\n{formats}\nformat of stored bytes {format}")
    })
}
