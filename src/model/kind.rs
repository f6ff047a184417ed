//! The kinds of locks, and which modes exclude each other.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Mode;

/// The kind of a name in use. New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// A lock, with exclusive and shared holds.
    Lock,
    /// A semaphore with a limit.
    Semaphore,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Lock => "lock",
            Kind::Semaphore => "semaphore",
        })
    }
}

impl Mode {
    /// The kind of lock that this mode needs.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self {
            Mode::Exclusive | Mode::Shared => Kind::Lock,
            Mode::Permits(_) => Kind::Semaphore,
        }
    }

    /// The number of permits that the mode takes. 0 for a lock.
    #[must_use]
    pub fn permits(self) -> u64 {
        match self {
            Mode::Exclusive | Mode::Shared => 0,
            Mode::Permits(count) => u64::from(count),
        }
    }

    /// Whether two holds in these modes exclude each other, or use permits of the same limit.
    #[must_use]
    pub fn conflicts_with(self, other: Self) -> bool {
        self != Mode::Shared || other != Mode::Shared
    }

    /// Whether a hold in this mode allows everything that the other mode allows, so that its owner may acquire it again
    /// in that mode.
    #[must_use]
    pub fn covers(self, asked: Self) -> bool {
        match (self, asked) {
            (Mode::Exclusive, Mode::Exclusive | Mode::Shared) | (Mode::Shared, Mode::Shared) => true,
            (Mode::Permits(held), Mode::Permits(asked)) => 0 < asked && asked <= held,
            (Mode::Exclusive | Mode::Shared | Mode::Permits(_), _) => false,
        }
    }
}
