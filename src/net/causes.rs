//! The causes of an error: tonic's own text says only "transport error".

use std::error::Error;
use std::iter::successors;

/// Returns the error and its causes, the innermost one last.
pub(crate) fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    successors(Some(error), |&error| error.source())
}

/// Returns the text of the error and of each cause.
pub(crate) fn with_causes(error: &(dyn Error + 'static)) -> String {
    causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
