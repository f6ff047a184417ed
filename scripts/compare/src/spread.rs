//! Median, least and greatest value of the rounds.

use serde::Serialize;

/// Median, least and greatest value of the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) greatest: f64,
    pub(crate) rounds: usize,
}

impl Spread {
    /// The spread of these values, or `None` without any.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<_> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_unstable_by(f64::total_cmp);
        let (least, greatest) = (*values.first()?, *values.last()?);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { median: f64::midpoint(low, high), least, greatest, rounds: values.len() })
    }

    pub(crate) fn shown(&self) -> String {
        format!("{} ({}–{})", number(self.median), number(self.least), number(self.greatest))
    }
}

/// Formats a value with three significant digits.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        size if 100.0 <= size => format!("{value:.0}"),
        size if 10.0 <= size => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The median of an even number of rounds lies between two values, and no values have no spread.
    #[test]
    fn a_spread_covers_the_rounds() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]).expect("four");
        assert_eq!((spread.median, spread.least, spread.greatest, spread.rounds), (2.5, 1.0, 4.0, 4));
        assert_eq!(Spread::of([f64::INFINITY]), None);
        assert_eq!([1234.5, 12.34, 1.234].map(number), ["1234", "12.3", "1.23"]);
    }
}
