//! Wall times of log times. Log time stands still while no node leads, so the difference of the two grows.

use crate::model::{HistoryRecord, LogTime, WallTime};

/// Log times whose wall times are known: those of records, and now.
#[derive(Debug)]
pub(super) struct Walls(Vec<(LogTime, WallTime)>);

impl Walls {
    pub(super) fn new(records: &[HistoryRecord], now: LogTime, wall: WallTime) -> Self {
        let known = records.iter().map(|record| (record.event.at, record.event.wall));
        Self(known.chain([(now, wall)]).collect())
    }

    /// Returns the wall time of the nearest known log time, with the log time between the two. It is exact for the time
    /// of a record.
    pub(super) fn at(&self, time: LogTime) -> WallTime {
        let nearest = self.0.iter().min_by_key(|(at, _)| at.0.abs_diff(time.0));
        let (at, wall) = nearest.copied().unwrap_or_default();
        WallTime(wall.0.saturating_add(time.ms_since(at)).saturating_sub(at.ms_since(time)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An outage of an hour, which log time does not count, moves no time before it.
    #[test]
    fn an_outage_does_not_move_what_was_before() {
        let hour = 3_600_000;
        let walls = Walls(vec![(LogTime(5_000), WallTime(50_000)), (LogTime(9_000), WallTime(54_000 + hour))]);
        let at = |time| walls.at(LogTime(time)).0;
        assert_eq!([at(5_000), at(4_000), at(6_000)], [50_000, 49_000, 51_000]);
        assert_eq!([at(8_000), at(9_000)], [53_000 + hour, 54_000 + hour]);
    }
}
