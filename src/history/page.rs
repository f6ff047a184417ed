//! Pages of history. Each query looks at a bounded number of records, so that it does not block the machine for long.

use super::read::{Damaged, Records, read};
use super::{History, Segment, link};
use crate::limits;
use crate::model::{HistoryPage, HistoryRecord, LockName, Namespace, Position, page_rows};

impl History {
    /// Returns the records after a position: those of all locks, or of one lock. `floor` is the newest position of the
    /// namespaces whose whole history was dropped, as in [`append`](Self::append).
    pub(crate) fn page(
        &self,
        namespace: &Namespace,
        lock: Option<&LockName>,
        after: Option<Position>,
        rows: u32,
        floor: Position,
    ) -> HistoryPage {
        let rows_max = page_rows(rows);
        let Some(ring) = self.rings.get(namespace) else {
            return HistoryPage { records: Vec::new(), next: None, floor };
        };
        let mut page = HistoryPage { records: Vec::new(), next: None, floor: ring.floor() };
        let from = after.unwrap_or_default().max(page.floor);
        let mut seen = from;
        for segment in ring.segments_after(from).take(limits::HISTORY_SEGMENTS_A_PAGE_MAX) {
            let wanted = Wanted { namespace, lock, after: from, rows_max };
            match wanted.of(segment, &mut page.records) {
                Ok(last) => seen = last.max(seen),
                // This machine wrote or checked every stored record, so this does not happen.
                Err(_) => break,
            }
            if page.records.len() == rows_max {
                break;
            }
        }
        page.next = Some(seen).filter(|seen| *seen < ring.last());
        page
    }
}

struct Wanted<'a> {
    namespace: &'a Namespace,
    lock: Option<&'a LockName>,
    after: Position,
    rows_max: usize,
}

impl Wanted<'_> {
    /// Adds the wanted records of a segment, and returns the newest position that was looked at. Computes hashes only
    /// if a record is wanted.
    fn of(&self, segment: &Segment, found: &mut Vec<HistoryRecord>) -> Result<Position, Damaged> {
        let mut last = segment.after;
        let mut wanted = false;
        for bytes in Records::of(segment) {
            let head = read(bytes?)?;
            last = head.position;
            wanted |= self.wants(head.position, head.lock);
        }
        if !wanted {
            return Ok(last);
        }
        let mut before = segment.begins;
        for bytes in Records::of(segment) {
            let bytes = bytes?;
            let hash = link(self.namespace, before, bytes);
            let head = read(bytes)?;
            if self.wants(head.position, head.lock) {
                found.push(head.record(self.namespace, before, hash)?);
                if found.len() == self.rows_max {
                    return Ok(head.position);
                }
            }
            before = hash;
        }
        Ok(last)
    }

    fn wants(&self, position: Position, lock: &str) -> bool {
        self.after < position && self.lock.is_none_or(|wanted| wanted.as_str() == lock)
    }
}
