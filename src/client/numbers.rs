//! Request numbers of one session: drawn growing, remembered until they are answered.

use std::collections::BTreeSet;

/// Which numbers were drawn and are not answered yet.
///
/// - Every number is drawn once, beginning with 1.
/// - Below [`answered_below`](Self::answered_below) nothing is outstanding, so nothing there is ever repeated.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    drawn: u64,
    outstanding: BTreeSet<u64>,
}

impl Numbers {
    /// The next number; it is outstanding until [`finish`](Self::finish).
    pub(super) fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.outstanding.insert(self.drawn);
        self.drawn
    }

    /// Its final answer is here (a place in the queue is not final): it will not be repeated.
    pub(super) fn finish(&mut self, number: u64) {
        self.outstanding.remove(&number);
    }

    /// What the cluster may forget.
    pub(super) fn answered_below(&self) -> u64 {
        self.outstanding.first().copied().unwrap_or(self.drawn + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bound stays at the oldest outstanding number, whatever later ones do, and never covers a number that is
    /// still to be drawn.
    #[test]
    fn the_oldest_outstanding_number_holds_the_bound() {
        let mut numbers = Numbers::default();
        assert_eq!(numbers.answered_below(), 1);
        let drawn = [numbers.draw(), numbers.draw(), numbers.draw()];
        assert_eq!(drawn, [1, 2, 3]);
        numbers.finish(2);
        assert_eq!(numbers.answered_below(), 1);
        numbers.finish(1);
        assert_eq!(numbers.answered_below(), 3);
        numbers.finish(3);
        numbers.finish(3);
        assert_eq!(numbers.answered_below(), 4);
        assert_eq!(numbers.draw(), 4);
        assert_eq!(numbers.answered_below(), 4);
    }
}
