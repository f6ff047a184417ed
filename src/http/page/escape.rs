//! How every text of the page is escaped: as HTML, and with visible escapes for characters that a browser does not
//! show.

use std::fmt::{self, Write};

use askama::filters::{Escaper, Html};

/// The escaper of all templates of the page.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct Plain;

impl Escaper for Plain {
    fn write_escaped_str<W: Write>(&self, to: W, text: &str) -> fmt::Result {
        Html.write_escaped_str(to, &seen(text))
    }
}

/// Whether a character has an effect without being seen: control characters, line ends, marks of direction, characters
/// without width, and fillers. With them two names could look alike, or a name could reverse the text around it.
pub(super) fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{13430}'..='\u{1343f}'
            | '\u{16fe4}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d159}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// Returns a text as the page shows it, before HTML escapes.
pub(super) fn seen(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unseen(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(text: &str) -> String {
        let mut to = String::new();
        Plain.write_escaped_str(&mut to, text).expect("memory");
        to
    }

    /// No text becomes markup, and no character stays unseen. Text in any language stays unchanged.
    #[test]
    fn no_text_acts_or_hides() {
        for (text, shown) in [
            ("zoë 锁 שלום a\\b", "zoë 锁 שלום a\\b"),
            ("<img src=x onerror=alert(1)>", "&#60;img src=x onerror=alert(1)&#62;"),
            ("\"'&", "&#34;&#39;&#38;"),
            ("a\u{202e}gnp.exe", "a\\u{202e}gnp.exe"),
            ("pay\u{200b}roll\u{feff}", "pay\\u{200b}roll\\u{feff}"),
            ("a\u{1bca0}\u{1bca3}b\u{13430}\u{1d159}", "a\\u{1bca0}\\u{1bca3}b\\u{13430}\\u{1d159}"),
            ("one\ntwo\t\u{1b}[2J", "one\\ntwo\\t\\u{1b}[2J"),
            ("\u{2066}<b>\u{2069}", "\\u{2066}&#60;b&#62;\\u{2069}"),
            ("", ""),
        ] {
            assert_eq!(escaped(text), shown);
        }
        assert_eq!(seen("<\u{200b}>"), "<\\u{200b}>");
    }
}
