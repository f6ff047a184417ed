//! The manual, a page a subject.
//!
//! Knows: nothing. Never: code.

#[doc = include_str!("manual/time.md")]
pub mod time {}

#[doc = include_str!("manual/lock.md")]
pub mod lock {}

#[doc = include_str!("manual/errors.md")]
pub mod errors {}

#[doc = include_str!("manual/cluster.md")]
pub mod cluster {}

#[doc = include_str!("manual/systems.md")]
pub mod systems {}

#[doc = include_str!("manual/history.md")]
pub mod history {}

#[doc = include_str!("manual/tokens.md")]
pub mod tokens {}

#[doc = include_str!("manual/other-languages.md")]
pub mod other_languages {}

#[doc = include_str!("manual/formats.md")]
pub mod formats {}

#[doc = include_str!("manual/proof.md")]
pub mod proof {}

#[doc = include_str!("manual/measuring.md")]
pub mod measuring {}
