//! Notifications about applied entries: streams of events, events of one session and its holds, and calls that wait for
//! a claim.

mod claim_waiters;
mod hub;
mod session_events;

pub(super) use claim_waiters::ClaimWaiters;
pub(super) use hub::Hub;
