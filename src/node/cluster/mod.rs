//! The cluster as one node sees it: its members and their announcements, transfers of leadership, the feature level,
//! and the comparison of state digests.

pub(in crate::node) mod announcements;
pub(in crate::node) mod consistency;
mod feature_level;
mod members;
mod status;
mod transfer;
