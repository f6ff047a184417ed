//! What happened, for its subscribers: streams of events, the end of a session and what others do to its holds, and calls that
//! wait for a claim.

mod claim_waiters;
mod hub;
mod session_events;

pub(super) use claim_waiters::ClaimWaiters;
pub(super) use hub::Hub;
