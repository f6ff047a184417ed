//! Tests of the client against a service that the test controls, in simulated time: they do not wait, and all counts
//! are exact.

mod cached;
mod cached_model;
mod doubt;
mod fake;
mod following;
mod giving_back;
mod hold_events;
mod holds;
mod keeping;
mod reentry;
mod requests;
#[cfg(feature = "cli")]
mod takeover;
mod time;
mod validity;
