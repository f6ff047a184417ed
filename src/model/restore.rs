//! How a cluster restored from a backup gets tokens that were never granted before.

use super::{Invalid, WallTime};
use crate::limits::{COUNTER_BITS, DAY_MS, EPOCH_MAX};

/// How a backup becomes the state of a new cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restoring {
    /// When the backup is restored, by the wall clock of the machine that restores it.
    pub wall: WallTime,
    /// The id of the new cluster.
    pub cluster_id: u128,
    /// The lowest epoch to use.
    pub epoch_min: u16,
    /// Whether to grant at once. Clients may then still rely on what was granted after the backup was made.
    pub at_once: bool,
    /// The longest TTL that the cluster had after the backup was made, in milliseconds; 0 if none was set.
    pub ttl_ms_max: u64,
}

/// 2026-01-01, in days since 1970-01-01.
const FIRST_DAY: u64 = 20_454;

impl Restoring {
    /// The new epoch: above the backup's, and at least the number of days since 2026, so that restores of one backup on
    /// different days get different epochs. At most [`EPOCH_MAX`], which no clock reaches before 2115.
    ///
    /// # Errors
    /// Refuses a backup of the largest epoch, because new tokens would not be above the earlier ones.
    pub fn epoch_after(&self, stored: u16) -> Result<u16, Invalid> {
        let days = (self.wall.0 / DAY_MS).saturating_sub(FIRST_DAY);
        let days = u16::try_from(days).unwrap_or(EPOCH_MAX);
        let epoch = stored.saturating_add(1).max(days).max(self.epoch_min).min(EPOCH_MAX);
        if epoch <= stored {
            return Err(Invalid::new("epoch", format!("above {stored}, the epoch of the backup"), epoch));
        }
        Ok(epoch)
    }

    /// The value from which the counters continue: 2^31 for each second of the day, plus a part for the milliseconds.
    /// So the tokens of two restores of one backup on the same day differ, unless a cluster grants more than 2^31 times
    /// a second.
    #[must_use]
    pub fn counter(&self) -> u64 {
        let ms = self.wall.0 % DAY_MS;
        ((ms / 1000) << 31) + ((ms % 1000) << 21)
    }
}

const _: () = assert!((DAY_MS / 1000) << 31 < 1 << COUNTER_BITS, "the counter of a day's last second fits");

#[cfg(test)]
mod tests {
    use super::*;

    fn at(wall: u64) -> Restoring {
        Restoring { wall: WallTime(wall), cluster_id: 7, epoch_min: 0, at_once: false, ttl_ms_max: 0 }
    }

    /// The epoch is the largest of the stored epoch plus one, the days since 2026-01-01, and the requested epoch. The
    /// counter distinguishes two restores on the same day, to the millisecond.
    #[test]
    fn epoch_and_counter_are_new() {
        // 2026-01-02T00:00:01Z
        let second_day = at(1_767_312_001_000);
        assert_eq!((second_day.epoch_after(0), second_day.counter()), (Ok(1), 1 << 31));
        assert_eq!(second_day.epoch_after(7), Ok(8));
        assert_eq!(Restoring { epoch_min: 99, ..second_day }.epoch_after(7), Ok(99));
        assert_eq!((at(0).epoch_after(0), second_day.epoch_after(EPOCH_MAX - 1)), (Ok(1), Ok(EPOCH_MAX)));
        assert!(second_day.counter() < at(second_day.wall.0 + 1).counter());
    }
}
