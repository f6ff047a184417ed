//! Between protobuf and model types, both ways. What is out of bounds, missing or unknown is refused by its field.

#[macro_use]
mod table;

mod calls;
mod documents;
mod error;
mod event;
mod outcome;
mod parts;
mod queries;
mod refusal;
mod requests;
mod scalars;
mod views;
#[cfg(test)]
mod tests;

pub(super) use calls::{Asked, uuid_text};
pub(super) use error::{
    AsInvalid, decided, error_from_status, error_from_wire, error_to_status, error_to_wire, hold_ended, not_understood,
    reply_to_answer,
};
pub(super) use queries::{Question, subscription};
pub(super) use requests::{
    acquire_of_one, open_session, stream_acquire, stream_acquire_set, stream_alter, stream_close, stream_release,
};
pub(super) use scalars::{lock_key, namespace, required};
pub(super) use table::Wire;
#[cfg(test)]
pub(super) use tests::hostile;
