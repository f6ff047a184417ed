//! What was asked for: the same while it waits and while it holds.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::owners::OwnerKey;
use crate::model::{Claim, Extras, Metadata, Mode, Owner, Principal};

/// What was asked for: the same while the request waits and while it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// A session's request, or a take.
    pub claim: Claim,
    /// The line of execution, if named.
    pub owner: Option<Owner>,
    /// How the lock is wanted, or held.
    pub mode: Mode,
    /// Who the cluster says that the caller is.
    pub principal: Principal,
    /// What the caller says of itself.
    pub metadata: Arc<Metadata>,
    /// Tells a repeated request from another one with the same number.
    pub fingerprint: u64,
    /// Choices that few requests make.
    pub extras: Option<Box<Extras>>,
}

impl Request {
    /// Its choices, made or not.
    pub(crate) fn choices(&self) -> &Extras {
        self.extras.as_deref().unwrap_or(Extras::PLAIN)
    }

    /// Its session and owner, where it names both.
    pub(crate) fn owner_key(&self) -> Option<OwnerKey> {
        self.claim.session().zip(self.owner.clone())
    }
}
