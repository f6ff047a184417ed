//! Converts between protobuf and model types. A value that is out of bounds, missing or unknown is refused by its
//! field.

#[macro_use]
mod table;

mod commands;
mod error;
mod event;
mod outcome;
mod parts;
mod queries;
mod views;
#[cfg(test)]
mod tests;

pub(super) use commands::{call, command, proven};
pub(super) use error::{AsInvalid, error_from_wire, error_to_wire, hold_ended, not_understood, wait_over};
pub(super) use parts::namespace;
pub(super) use queries::Question;
pub(super) use table::{Wire, required};
#[cfg(test)]
pub(super) use tests::hostile;
