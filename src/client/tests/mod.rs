//! The client against a service that a test directs, in simulated time: nothing waits, and every count is exact.

mod fake;
mod following;
mod hold_events;
mod holds;
mod keeping;
mod requests;
mod validity;
