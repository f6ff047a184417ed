//! A fake service, and a node that serves it, for the tests of both sides.

pub(super) mod fake;
