//! Where a value was written: in the file, or in an environment variable.

use std::fmt;

use serde::{Deserialize, Deserializer};
use toml::Spanned;

/// Why settings were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}; {fix}")]
pub struct ConfigError {
    /// The file with the line of the error, if there is one, or the environment variable.
    pub place: String,
    /// What is wrong.
    pub problem: String,
    /// What the operator should do about it.
    pub fix: String,
}

/// A value and the place where it was written.
#[derive(Debug, Clone)]
pub(super) struct Placed<T> {
    pub(super) value: T,
    pub(super) place: Place,
}

#[derive(Debug, Clone)]
pub(super) enum Place {
    /// In no line of the file.
    File,
    /// At this byte of the file.
    Byte(usize),
    /// In the environment variable with this name.
    Variable(String),
}

/// The reason that settings are refused, before it names the file and the line.
#[derive(Debug)]
pub(super) struct Refused {
    place: Place,
    problem: String,
    fix: String,
}

/// A file and its text.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) name: &'a str,
    pub(super) text: &'a str,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Placed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::deserialize(deserializer)?;
        let place = Place::Byte(spanned.span().start);
        Ok(Self { value: spanned.into_inner(), place })
    }
}

impl Refused {
    pub(super) fn new(place: &Place, problem: impl fmt::Display, fix: impl fmt::Display) -> Self {
        Self { place: place.clone(), problem: problem.to_string(), fix: fix.to_string() }
    }
}

impl Source<'_> {
    /// Returns the text for a place, with the line.
    pub(super) fn shown(&self, place: &Place) -> String {
        let Self { name, text } = self;
        match place {
            Place::File => (*name).to_owned(),
            Place::Byte(byte) => {
                let line = 1 + text.bytes().take(*byte).filter(|byte| *byte == b'\n').count();
                format!("{name}:{line}")
            }
            Place::Variable(variable) => format!("environment variable {variable}"),
        }
    }

    /// Returns the error for settings of this file.
    pub(super) fn error(&self, Refused { place, problem, fix }: Refused) -> ConfigError {
        ConfigError { place: self.shown(&place), problem, fix }
    }
}
