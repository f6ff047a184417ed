//! Requests for a lock. A request is the same record while it waits and while it holds.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::owners::OwnerKey;
use crate::model::{Claim, Extras, Metadata, Mode, Owner, Principal};

/// A request for one lock. It does not change between the wait and the hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The session's request, or the take.
    pub claim: Claim,
    /// The line of execution, if the request named one.
    pub owner: Option<Owner>,
    /// How the lock is to be held, or is held.
    pub mode: Mode,
    /// The caller's identity, as the cluster checked it.
    pub principal: Principal,
    /// What the caller states about itself.
    pub metadata: Arc<Metadata>,
    /// Distinguishes a repetition of the request from another request with the same number.
    pub fingerprint: u64,
    /// Choices that few requests make.
    pub extras: Option<Box<Extras>>,
}

impl Request {
    /// The choices of the request. The defaults if it makes none.
    pub(crate) fn choices(&self) -> &Extras {
        self.extras.as_deref().unwrap_or(Extras::PLAIN)
    }

    /// The session and owner of the request, if it has both.
    pub(crate) fn owner_key(&self) -> Option<OwnerKey> {
        self.claim.session().zip(self.owner.clone())
    }
}
