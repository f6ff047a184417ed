//! A text that may be longer than the terminal, shown in parts.

use super::cells::{cut, wrapped};
use super::frame::Size;

/// A text, and the line from which it is shown.
pub(super) struct Reading {
    lines: Vec<String>,
    first: usize,
    /// The largest `first`, by the last part.
    last: usize,
}

impl Reading {
    pub(super) fn new(lines: Vec<String>) -> Self {
        Self { lines, first: 0, last: 0 }
    }

    /// Moves by lines, at most to an end. Returns false if the text fits, so that no part follows.
    pub(super) fn step(&mut self, by: isize) -> bool {
        self.first = self.first.saturating_add_signed(by).min(self.last);
        self.last != 0
    }

    /// Returns the lines that fit, and below them the keys and how many lines follow.
    pub(super) fn part(&mut self, size: Size) -> Vec<String> {
        let all: Vec<_> = self.lines.iter().flat_map(|line| wrapped(line, size.columns)).collect();
        let most = size.lines.saturating_sub(1);
        self.last = all.len().saturating_sub(most);
        self.first = self.first.min(self.last);
        let below = all.len().saturating_sub(self.first + most);
        let keys = match (self.first, below) {
            (0, 0) => "any key: back".to_owned(),
            (_, 0) => "up: before this  any other key: back".to_owned(),
            (_, 1) => "… 1 more line: down  any other key: back".to_owned(),
            (_, below) => format!("… {below} more lines: down  any other key: back"),
        };
        all.into_iter().skip(self.first).take(most).chain([cut(&keys, size.columns)]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text that fits is shown whole. Of a longer one the last line counts what follows, and keys reach its end.
    #[test]
    fn what_does_not_fit_is_reached() {
        let size = Size { columns: 60, lines: 4 };
        let mut short = Reading::new(vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(short.part(size), ["a", "b", "any key: back"]);
        assert!(!short.step(1));
        let mut long = Reading::new((1..=6).map(|number| number.to_string()).collect());
        assert_eq!(long.part(size), ["1", "2", "3", "… 3 more lines: down  any other key: back"]);
        assert!(long.step(-1) && long.step(2));
        assert_eq!(long.part(size), ["3", "4", "5", "… 1 more line: down  any other key: back"]);
        assert!(long.step(9));
        assert_eq!(long.part(size), ["4", "5", "6", "up: before this  any other key: back"]);
        assert!(long.step(-1));
        assert_eq!(long.part(size)[0], "3", "a step beyond the end does not count");
    }
}
