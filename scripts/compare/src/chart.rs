//! Bar charts as SVG, readable on light and dark pages, without scripts or fonts.

use std::fmt::Write as _;

use crate::product::Product;
use crate::spread::{Spread, number};

const WIDTH: f64 = 720.0;
/// The left edge of the bars; the names are left of it.
const LEFT: f64 = 110.0;
/// The width for the values, right of the longest bar.
const RIGHT: f64 = 190.0;
const TOP: f64 = 44.0;
const ROW: f64 = 34.0;
const BAR: f64 = 20.0;

/// One bar for each name: its length is the median, and a line spans the least to the greatest value.
pub(crate) fn bars(title: &str, bars: &[(&str, Spread)]) -> String {
    let height = TOP + ROW * bars.len() as f64 + 8.0;
    let greatest = bars.iter().map(|(_, spread)| spread.greatest).fold(f64::MIN_POSITIVE, f64::max);
    let scale = (WIDTH - LEFT - RIGHT) / greatest;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" aria-label=\"{title}\">\n<style>\n\
         text {{ font: 14px system-ui, sans-serif; fill: #1f2328 }}\n.title {{ font-weight: 600 }}\n\
         .own {{ fill: #1f6feb }}\n.other {{ fill: #8c959f }}\n.spread {{ stroke: #1f2328; stroke-width: 1.5 }}\n\
         @media (prefers-color-scheme: dark) {{ text {{ fill: #e6edf3 }} .spread {{ stroke: #e6edf3 }} \
         .own {{ fill: #4493f8 }} .other {{ fill: #6e7681 }} }}\n</style>\n\
         <text class=\"title\" x=\"0\" y=\"20\">{title}</text>\n",
        title = escaped(title),
    );
    for (place, (name, spread)) in bars.iter().enumerate() {
        let y = TOP + ROW * place as f64;
        let (middle, length) = (y + BAR / 2.0, (spread.median * scale).max(1.0));
        let class = if *name == Product::Lockkeeper.name() { "own" } else { "other" };
        let [least, most] = [spread.least, spread.greatest].map(|value| LEFT + value * scale);
        // Writing to memory cannot fail.
        let _ = writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n\
             <rect class=\"{class}\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{BAR}\" rx=\"3\"/>\n\
             <line class=\"spread\" x1=\"{least:.1}\" x2=\"{most:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\">{} ({}–{})</text>",
            LEFT - 10.0,
            middle + 5.0,
            escaped(name),
            most.max(LEFT + length) + 8.0,
            middle + 5.0,
            number(spread.median),
            number(spread.least),
            number(spread.greatest),
        );
    }
    svg + "</svg>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The longest bar fits, and the title is escaped.
    #[test]
    fn bars_are_to_scale() {
        let spread = |median| Spread { median, least: median / 2.0, greatest: median, rounds: 3 };
        let svg = bars("a < b", &[("one", spread(100.0)), ("other", spread(25.0))]);
        assert!(svg.contains("width=\"420.0\"") && svg.contains("width=\"105.0\""), "{svg}");
        assert!(svg.contains("a &lt; b") && !svg.contains("a < b"));
        assert!(svg.contains("prefers-color-scheme: dark"));
    }
}
