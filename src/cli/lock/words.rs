//! Finds the start of the command on a command line such as `lock nightly -w 10s echo -n`: the second word, or the word
//! after `--`. The options after it belong to the command.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

use super::options::COMMAND;

/// The option for a name that cannot be given as a word.
const NAME_OPTION: &str = "--name";

/// Puts `--` before the command. The line stays unchanged if it has no command, or names another subcommand of this
/// program.
///
/// # Errors
/// An error if nothing follows `--`.
pub(in crate::cli) fn add_dashes(program: &Command, arguments: &mut Vec<OsString>) -> Result<(), clap::Error> {
    let Some((first, command)) = running_command(program, arguments) else { return Ok(()) };
    let mut at = first + 1;
    if let Some(name) = next_word(command, arguments, at)
        && !arguments[at..name].iter().any(is_name_option)
    {
        at = name + 1;
    }
    if let Some(word) = next_word(command, arguments, at) {
        arguments.insert(word, "--".into());
        return Ok(());
    }
    if arguments.iter().position(|argument| argument == "--") == Some(arguments.len() - 1) {
        let mut error = command.clone().error(ErrorKind::MissingRequiredArgument, "there is no command after --");
        error.insert(ContextKind::InvalidArg, ContextValue::String(COMMAND.to_owned()));
        return Err(error);
    }
    Ok(())
}

/// Returns the place of the word `lock` or `elect`, and the options of that command.
fn running_command<'a>(program: &'a Command, arguments: &[OsString]) -> Option<(usize, &'a Command)> {
    let first = next_word(program, arguments, 1)?;
    let name = ["lock", "elect"].into_iter().find(|name| arguments[first] == *name)?;
    Some((first, program.find_subcommand(name)?))
}

fn is_name_option(argument: &OsString) -> bool {
    argument.to_str().is_some_and(|text| text == NAME_OPTION || text.starts_with(&format!("{NAME_OPTION}=")))
}

/// Returns the index of the next argument, from `at` on, that is neither an option nor the value of one. Returns `None`
/// if `--` comes first.
fn next_word(command: &Command, arguments: &[OsString], mut at: usize) -> Option<usize> {
    while let Some(argument) = arguments.get(at) {
        let text = argument.to_string_lossy();
        if text == "--" {
            return None;
        }
        if !text.starts_with('-') || text == "-" {
            return Some(at);
        }
        at += if takes_next(command, &text) { 2 } else { 1 };
    }
    None
}

/// Whether the argument after this option is its value.
fn takes_next(command: &Command, option: &str) -> bool {
    let takes_value = |wanted: &dyn Fn(&Arg) -> bool| {
        command.get_arguments().any(|argument| wanted(argument) && argument.get_action().takes_values())
    };
    if let Some(long) = option.strip_prefix("--") {
        return !long.contains('=') && takes_value(&|argument| argument.get_long() == Some(long));
    }
    // Of combined letters, the first one with a value takes the rest of them, or the next argument if there is no rest.
    let mut letters = option[1..].chars();
    while let Some(letter) = letters.next() {
        if takes_value(&|argument| argument.get_short() == Some(letter)) {
            return letters.as_str().is_empty();
        }
    }
    false
}

/// Returns the file of `--result` on a command line of `lock` or `elect` whose command follows `--`, for one that
/// cannot be parsed.
pub(in crate::cli) fn result_file(program: &Command, arguments: &[OsString]) -> Option<PathBuf> {
    let (first, _) = running_command(program, arguments)?;
    let mut words = arguments[first..].iter().take_while(|argument| *argument != "--");
    while let Some(word) = words.next() {
        if word == "--result" {
            return words.next().map(PathBuf::from);
        }
        if let Some(file) = word.to_str().and_then(|word| word.strip_prefix("--result=")) {
            return Some(file.into());
        }
    }
    None
}

/// Whether `--json` appears before the command, so that errors are JSON. Its letter may be one of several.
pub(in crate::cli) fn ask_for_json(program: &Command, arguments: &[OsString]) -> bool {
    let (mut command, mut at) = (program, 1);
    while let Some(word) = next_word(command, arguments, at)
        && let Some(nested) = command.find_subcommand(&arguments[word])
    {
        (command, at) = (nested, word + 1);
    }
    let has_letter = |option: &str| {
        let letters = option.strip_prefix('-').filter(|letters| !letters.starts_with('-')).unwrap_or_default();
        // The letters after one with a value are its value.
        let is_flag = |letter: &char| !takes_next(command, &format!("-{letter}"));
        letters.chars().take_while(is_flag).any(|letter| letter == 'j')
    };
    let mut own = arguments.iter().take_while(|argument| *argument != "--");
    own.any(|argument| argument == "--json" || argument.to_str().is_some_and(has_letter))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::options::Options;

    fn divided(line: &str) -> Result<String, String> {
        let mut program = Options::command();
        program.build();
        let mut words = std::iter::once("lockkeeper").chain(line.split(' ')).map(OsString::from).collect();
        add_dashes(&program, &mut words).map_err(|error| error.to_string())?;
        Ok(words[1..].iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" "))
    }

    /// The first word is the lock, and the second begins the command. All words after it belong to the command, even if
    /// they look like options.
    #[test]
    fn the_second_word_begins_the_command() {
        for (written, meant) in [
            ("lock nightly echo -n --json", "lock nightly -- echo -n --json"),
            ("lock -w 10s nightly -n echo", "lock -w 10s nightly -n -- echo"),
            ("lock nightly -w 10s -E9 --owner me echo lock", "lock nightly -w 10s -E9 --owner me -- echo lock"),
            ("lock nightly -w10s --ttl=3s echo -- x", "lock nightly -w10s --ttl=3s -- echo -- x"),
            ("lock nightly --and weekly -xn echo", "lock nightly --and weekly -xn -- echo"),
            ("lock nightly -xw 3s echo", "lock nightly -xw 3s -- echo"),
            ("--endpoints a:1 --json lock nightly echo -v", "--endpoints a:1 --json lock nightly -- echo -v"),
            ("elect boss --value n1 serve --json", "elect boss --value n1 -- serve --json"),
            ("lock --name=-x echo -n", "lock --name=-x -- echo -n"),
            ("lock --name -x echo -n", "lock --name -x -- echo -n"),
        ] {
            assert_eq!(divided(written).as_deref(), Ok(meant));
        }
    }

    /// A line that already has `--`, has no command, or names another subcommand of this program stays unchanged.
    #[test]
    fn other_lines_stay_as_they_are() {
        for line in [
            "lock nightly -- echo -n",
            "lock nightly -- -x",
            "lock --name=-x -- echo",
            "lock nightly",
            "lock --hold nightly --and weekly",
            "lock nightly -c true",
            "lock -c true nightly",
            "lock",
            "ls a",
            "check lock 7",
            "--json",
        ] {
            assert_eq!(divided(line).as_deref(), Ok(line));
        }
    }

    /// A line that ends with `--` lacks its command, perhaps because a variable for it was empty. This is an error.
    #[test]
    fn dashes_without_a_command_are_an_error() {
        for line in ["lock nightly --", "lock nightly -w 1s --", "elect boss --value x --"] {
            assert!(divided(line).unwrap_err().contains("no command"), "{line}");
        }
        assert_eq!(divided("lock nightly -- --").as_deref(), Ok("lock nightly -- --"));
    }

    /// The command's own `--json` has no effect on this program's errors.
    #[test]
    fn only_own_options_ask_for_json() {
        let mut program = Options::command();
        program.build();
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let asks = |line: &str| ask_for_json(&program, &words(&format!("lockkeeper {line}")));
        assert!(asks("lock a --json -- true"));
        assert!(!asks("lock a -- true --json"));
        for line in ["-jv status -t 10", "status -jt 10", "lock a -vj -w 10 -- true"] {
            assert!(asks(line), "{line}");
        }
        // The letters after -N and -w are their values.
        for line in ["-Nj status", "lock a -wj -- true", "lock a -v -- -j"] {
            assert!(!asks(line), "{line}");
        }
    }
}
