//! The manual. Each page covers one subject.
//!
//! Knows: nothing. Never: code.

#[doc = include_str!("manual/index.md")]
pub mod index {}

#[doc = include_str!("manual/quickstart.md")]
pub mod quickstart {}

#[doc = include_str!("manual/concepts.md")]
pub mod concepts {}

#[doc = include_str!("manual/lock.md")]
pub mod lock {}

#[doc = include_str!("manual/config.md")]
pub mod config {}

#[doc = include_str!("manual/security.md")]
pub mod security {}

#[doc = include_str!("manual/embed.md")]
pub mod embed {}

#[doc = include_str!("manual/http.md")]
pub mod http {}

#[doc = include_str!("manual/python.md")]
pub mod python {}

#[doc = include_str!("manual/page.md")]
pub mod page {}

#[doc = include_str!("manual/other-languages.md")]
pub mod other_languages {}

#[doc = include_str!("manual/operations.md")]
pub mod operations {}

#[doc = include_str!("manual/packages.md")]
pub mod packages {}

#[doc = include_str!("manual/failures.md")]
pub mod failures {}

#[doc = include_str!("manual/monitoring.md")]
pub mod monitoring {}

#[doc = include_str!("manual/limits.md")]
pub mod limits {}

#[doc = include_str!("manual/errors.md")]
pub mod errors {}

#[doc = include_str!("manual/time.md")]
pub mod time {}

#[doc = include_str!("manual/tokens.md")]
pub mod tokens {}

#[doc = include_str!("manual/history.md")]
pub mod history {}

#[doc = include_str!("manual/systems.md")]
pub mod systems {}

#[doc = include_str!("manual/comparison.md")]
pub mod comparison {}

#[doc = include_str!("manual/measuring.md")]
pub mod measuring {}

#[doc = include_str!("manual/architecture.md")]
pub mod architecture {}

#[doc = include_str!("manual/formats.md")]
pub mod formats {}

#[doc = include_str!("manual/testing.md")]
pub mod testing {}

#[doc = include_str!("manual/changes.md")]
pub mod changes {}

/// The README. Its Rust program is compiled with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub mod readme {}
