//! The cluster as one of its nodes sees it: its members and what they say of themselves, who leads next, the feature level, and
//! whether all states are equal.

pub(in crate::node) mod announcements;
pub(in crate::node) mod consistency;
mod feature_level;
mod members;
mod status;
mod transfer;
