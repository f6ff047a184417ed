//! Where a value was written: the file and the line, or the environment variable.

use toml::Spanned;

/// A value and the place where it was written.
#[derive(Debug, Clone)]
pub(super) struct Placed<T> {
    pub(super) value: T,
    pub(super) place: String,
}

/// A file and its text.
pub(super) struct Source<'a> {
    pub(super) name: &'a str,
    pub(super) text: &'a str,
}

impl Source<'_> {
    pub(super) fn at<T>(&self, spanned: Spanned<T>) -> Placed<T> {
        let place = self.place(spanned.span().start);
        Placed { value: spanned.into_inner(), place }
    }

    pub(super) fn place(&self, byte: usize) -> String {
        format!("{}:{}", self.name, line_of(self.text, byte))
    }
}

/// Returns the line of a place in a text.
pub(super) fn line_of(text: &str, byte: usize) -> usize {
    1 + text.bytes().take(byte).filter(|byte| *byte == b'\n').count()
}
