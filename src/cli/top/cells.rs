//! Texts in the cells of a terminal: a character of Chinese or Japanese takes two, a mark on another one none.

use unicode_width::UnicodeWidthChar;

/// Returns the cells that a text takes.
pub(super) fn width(text: &str) -> usize {
    text.chars().map(cells).sum()
}

fn cells(char: char) -> usize {
    char.width().unwrap_or_default()
}

/// Returns the text without what exceeds the columns.
pub(super) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut shown = first(text, columns.saturating_sub(1)).to_owned();
    if 0 < columns {
        shown.push('…');
    }
    shown
}

/// Returns the text, with blanks up to this width.
pub(super) fn padded(text: &str, columns: usize) -> String {
    let blanks = columns.saturating_sub(width(text));
    format!("{text}{:blanks$}", "")
}

/// Returns the text in lines that are at most this wide.
pub(super) fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let (mut lines, mut rest) = (Vec::new(), text);
    loop {
        let line = first(rest, columns);
        // A character that is wider than the terminal still takes a line.
        let end = if line.is_empty() { rest.chars().next().map_or(0, char::len_utf8) } else { line.len() };
        lines.push(rest[..end].to_owned());
        rest = &rest[end..];
        if rest.is_empty() {
            return lines;
        }
    }
}

/// Returns the line in which a text is typed. If both do not fit, the prompt is cut at half of the columns, and the
/// text loses its beginning.
pub(super) fn typed(prompt: &str, text: &str, columns: usize) -> String {
    let text = format!("{text}_");
    if width(prompt) + width(&text) <= columns {
        return format!("{prompt}{text}");
    }
    let prompt = cut(prompt, columns / 2);
    let free = columns - width(&prompt);
    let is_over = |at: &usize| width(&text[*at..]) <= free;
    let from = text.char_indices().map(|(at, _)| at).find(is_over).unwrap_or(text.len());
    format!("{prompt}{}", &text[from..])
}

/// The characters from the beginning that fit into these columns.
fn first(text: &str, columns: usize) -> &str {
    let mut used = 0;
    let end = text.char_indices().find(|(_, char)| {
        used += cells(*char);
        columns < used
    });
    end.map_or(text, |(at, _)| &text[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wide characters count twice and marks not at all, where a text is cut, padded and wrapped.
    #[test]
    fn cells_are_counted() {
        assert_eq!([width("锁ab"), width("e\u{301}"), width("")], [4, 1, 0]);
        assert_eq!([cut("锁锁锁", 6), cut("锁锁锁", 5), cut("锁锁锁", 4)], ["锁锁锁", "锁锁…", "锁…"]);
        assert_eq!([cut("ab", 1), cut("ab", 0)], ["…", ""]);
        assert_eq!([padded("锁", 4), padded("锁锁", 3)], ["锁  ", "锁锁"]);
        assert_eq!(wrapped("锁a锁", 3), ["锁a", "锁"]);
    }

    /// A long line continues below, and an empty one stays a line.
    #[test]
    fn long_lines_are_wrapped() {
        assert_eq!(wrapped("abcdé", 2), ["ab", "cd", "é"]);
        assert_eq!([wrapped("", 2), wrapped("ab", 0)], [vec![String::new()], vec!["a".to_owned(), "b".to_owned()]]);
    }

    /// What was typed last stays visible.
    #[test]
    fn the_end_of_a_typed_text_is_shown() {
        assert_eq!(typed("prefix: ", "night", 80), "prefix: night_");
        assert_eq!(typed("ask the holder: ", "please finish", 16), "ask the… finish_");
        assert_eq!(typed("ask the holder: ", "锁锁锁锁", 8), "ask…锁_");
    }
}
