//! Between protobuf and model types, both ways. What is out of bounds, missing or unknown is refused by its field.

mod acting;
mod answer;
mod cluster;
mod command;
mod document;
mod error;
mod event;
mod explain;
mod extras;
mod history;
mod part;
mod sets;
mod tokens;
#[cfg(test)]
mod tests;

pub(super) use acting::{dry_run, read_dry_run, stream_alter};
pub(super) use answer::{dry_run_answer, dry_run_reply};
pub(super) use command::{
    Sent, acquire_of_one, open_session, stream_acquire, stream_close, stream_open, stream_release,
};
pub(super) use document::{documents, find_documents, find_pings, pings};
pub(super) use error::{
    AsInvalid, decided, error_from_status, error_from_wire, error_to_status, error_to_wire, not_understood,
    reply_to_answer,
};
pub(super) use part::{bytes_of, known, lock_key, namespace, required, rows};
pub(super) use sets::stream_acquire_set;
#[cfg(test)]
pub(super) use tests::hostile;
