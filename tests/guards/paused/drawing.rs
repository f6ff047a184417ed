//! Draws the actions of the holders over time, as two bars.

use super::Action;

const CELLS: usize = 60;

/// Draws one line for each holder, with a full cell for a time in which it acted and an empty one otherwise.
pub(super) fn timeline(actions: &[Action], tokens: [u64; 2]) -> String {
    let begin = actions.iter().map(|action| action.at_ms).min().unwrap_or_default();
    let end = actions.iter().map(|action| action.at_ms).max().unwrap_or_default();
    let cell_ms = ((end - begin) / CELLS as u64 + 1).max(20);
    let mut drawn = String::new();
    for token in tokens {
        let mut cells = [false; CELLS + 1];
        for action in actions.iter().filter(|action| action.token == token) {
            let cell = usize::try_from((action.at_ms - begin) / cell_ms).unwrap_or(CELLS);
            cells[cell.min(CELLS)] = true;
        }
        let bar: String = cells.iter().map(|acted| if *acted { '█' } else { '·' }).collect();
        drawn.push_str(&format!("  token {token:<3} {bar}\n"));
    }
    drawn.push_str(&format!("  one cell is {cell_ms} ms\n"));
    drawn
}
