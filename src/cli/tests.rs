//! Tests of the command line: what it accepts, and what it refuses before any request is sent.

use super::*;

fn parsed(arguments: &[&str]) -> Result<Options, clap::Error> {
    options::parse(["lockkeeper"].iter().chain(arguments).map(std::ffi::OsString::from))
}

/// The definition of the options is consistent: no name is used twice, and every reference exists.
#[test]
fn the_options_are_consistent() {
    options::command().debug_assert();
}

/// Common options are accepted before and after the command, and have the documented defaults.
#[test]
fn common_options_stand_anywhere() {
    for arguments in [&["--json", "--namespace", "ci", "status"][..], &["status", "--namespace", "ci", "--json"]] {
        let common = parsed(arguments).unwrap().common;
        assert!(common.json);
        assert_eq!(common.namespace.as_str(), "ci");
        assert_eq!(common.timeout, std::time::Duration::from_secs(5));
    }
    let common = parsed(&["--endpoints", "a:1,b:2", "status"]).unwrap().common;
    assert_eq!((common.endpoints_given, common.endpoints), (true, vec!["a:1".to_owned(), "b:2".to_owned()]));
    let short = parsed(&["status", "-j", "-e", "a:1", "-N", "ci", "-t", "1s"]).unwrap().common;
    assert_eq!((short.json, short.endpoints, short.namespace.as_str()), (true, vec!["a:1".to_owned()], "ci"));
    assert!(short.endpoints_given, "also after the command");
    assert_eq!(short.timeout, std::time::Duration::from_secs(1));
}

/// `--cluster` takes the id of a cluster, before and after the command, and refuses anything else. In `restore` the
/// option of that name is the name of the backup's cluster.
#[test]
fn the_cluster_to_believe_is_named_by_its_id() {
    let id = "0a".repeat(16);
    for arguments in [["--cluster", &id, "status"], ["status", "--cluster", &id]] {
        let common = parsed(&arguments).unwrap().common;
        assert_eq!(connect::cluster(&common), Ok(Some(u128::from_str_radix(&id, 16).unwrap())));
    }
    let refused = connect::cluster(&parsed(&["--cluster", "harbour", "status"]).unwrap().common).expect_err("a name");
    assert_eq!(refused.exit(), USAGE);
    let restore = parsed(&["restore", "file", "--data", "new", "--cluster", "harbour"]).unwrap();
    let Command::Restore(options) = restore.command else { panic!("another command") };
    assert_eq!(options.cluster.as_deref(), Some("harbour"));
}

/// The error for a bare number proposes a unit, and the exit code is 64.
#[test]
fn a_bare_number_is_refused_with_a_proposal() {
    let error = parsed(&["acquire", "nightly", "--for", "10"]).expect_err("10 of what?");
    assert!(error.to_string().contains("did you mean 10s?"), "{error}");
    assert_eq!(print_error_or_help(&error, false), ExitCode::from(64));
}

/// A usage error names the option or value that is wrong.
#[test]
fn a_usage_error_names_its_option() {
    for (wrong, option) in [
        (&["acquire", "nightly", "--for", "10"][..], Some("--for")),
        (&["acquire", "nightly", "--for=10"], Some("--for")),
        (&["status", "--colour"], Some("--colour")),
        (&["acquire", "nightly", "--for", "-5s"], Some("--for")),
        (&["lock", "a", "-w", "-1s", "--", "true"], Some("--wait")),
        (&["check", "nightly"], Some("<TOKEN>")),
        (&["explain"], Some("<NAME>")),
        (&["audit", "verify"], Some("<FILES>")),
        (&["sessoins"], None),
    ] {
        assert_eq!(wrong_option(&parsed(wrong).expect_err("wrong")).as_deref(), option, "{wrong:?}");
    }
    let negative = what_is_wrong(&parsed(&["lock", "a", "-w", "-1s", "--", "true"]).expect_err("no time"));
    assert!(negative.contains("write it like") && !negative.contains("-- -1"), "{negative}");
}

/// An argument that may be left out has the same name in errors as one that is needed.
#[test]
fn an_optional_value_is_named_like_a_needed_one() {
    let error = parsed(&["wait", ""]).expect_err("no name");
    assert_eq!(wrong_option(&error).as_deref(), Some("<NAME>"));
    let error = parsed(&["history", ""]).expect_err("no name");
    assert_eq!(wrong_option(&error).as_deref(), Some("<NAME>"));
}

/// A variable that is set and empty is the value of its option. The error names the variable, and what to do.
#[test]
fn an_empty_variable_is_named() {
    let error = || parsed(&["--ca", "", "status"]).expect_err("no file");
    let variable = |name: &str, value: &str| [(name.into(), value.into())].into_iter();
    let text = what_is_wrong(&with_tip(error(), &[], variable("LOCKKEEPER_CA", "")));
    assert!(text.ends_with("; tip: unset LOCKKEEPER_CA, or give it a value: it is empty"), "{text}");
    for other in [variable("LOCKKEEPER_CA", "ca.pem"), variable("CA", "")] {
        assert_eq!(what_is_wrong(&with_tip(error(), &[], other)), what_is_wrong(&error()));
    }
}

/// The error about a wrong value names the variable that gave it, but not if the value is on the line.
#[test]
fn the_variable_of_a_wrong_value_is_named() {
    let text = |arguments: &[&str], name: &str| {
        let error = parsed(&["--timeout", "10", "status"]).expect_err("10 of what?");
        let arguments: Vec<_> = arguments.iter().map(OsString::from).collect();
        what_is_wrong(&with_tip(error, &arguments, [(name.into(), "10".into())].into_iter()))
    };
    assert!(text(&["lockkeeper", "status"], "LOCKKEEPER_TIMEOUT").ends_with("; tip: it comes from LOCKKEEPER_TIMEOUT"));
    for line in [&["lockkeeper", "status", "-t10"][..], &["lockkeeper", "--timeout=10"], &["lockkeeper", "-t", "10"]] {
        assert!(!text(line, "LOCKKEEPER_TIMEOUT").contains("it comes from"), "{line:?}");
    }
    assert!(!text(&["lockkeeper", "status"], "LOCKKEEPER_NODE").contains("it comes from"));
}

/// Invalid names, handles, tokens and positions are refused with the bound, before any request is sent.
#[test]
fn values_are_checked_before_anything_is_sent() {
    let long = "x".repeat(256);
    for wrong in [
        &["wait", ""][..],
        &["wait", &long],
        &["release", "a", ""],
        &["check", "a", "0"],
        &["check", "a", "-1"],
        &["watch", "--from", "12"],
        &["--namespace", "", "ls"],
        &["--timeout", "0s", "ls"],
        &["acquire", "a", "--for", "1s", "-n", "-w", "1s"],
        &["ls", "--held", "--waiting"],
        &["ls", "--overdue", "--waiting"],
        &["dev", "--port-base", "65530"],
        &["bench", "--clients", "0"],
        &["break", "a", "1"],
        &["break", "a", "1", "--why", ""],
        &["break", "a", "--why", "x"],
        &["ask", "a", "1"],
        &["ask", "a", "1", "please", "--why", "please"],
        &["handover", "a", "1"],
        &["handover", "a", "1", "--to", "0"],
        &["semaphore", "a"],
        &["semaphore", "a", "--limit", "0"],
        &["semaphore", "a", "--limit", "2", "--remove"],
        &["elect", "a", "--", "true"],
        &["lock", "a", "--delay", "2m"],
        &["lock", "a", "--at-least", "25h"],
        &["lock", "a", "--at-least", "0s"],
        &["lock", "a", "--at-most", "25h"],
        &["lock", "a", "--at-most", "0s"],
        &["acquire", "a", "--for", "1s", "--at-most", "1s"],
        &["bench", "--workload", "nothing"],
        &["bench", "--rate", "0"],
        &["bench", "--in-flight", "201"],
        &["bench", "--warm-up", "1"],
    ] {
        assert!(parsed(wrong).is_err(), "{wrong:?}");
    }
}

/// `elect` needs a command. Without one it is refused before any request is sent.
#[test]
fn an_election_needs_a_command_and_an_office() {
    let failure = run(parsed(&["elect", "a", "--value", "me"]).unwrap(), &Output::new(false)).expect_err("refused");
    assert_eq!(failure.exit(), USAGE);
    let Command::Elect(_) = parsed(&["elect", "a", "--value", "me", "-w", "1s", "--", "true"]).unwrap().command else {
        panic!("another command");
    };
}

/// The command of `lock` may have any words. Its own `--json` has no effect on the output of this program.
#[test]
fn what_stands_behind_the_command_is_the_commands() {
    let line = |line: &str| parse(["lockkeeper"].into_iter().chain(line.split(' ')).map(OsString::from).collect());
    let (options, in_json) = line("lock nightly -w 1s echo --json -n");
    assert!(!options.unwrap().common.json && !in_json);
    let (options, in_json) = line("lock nightly --json -w 1 echo");
    assert!(options.is_err() && in_json);
    let (options, in_json) = line("lock nightly --json --");
    assert!(options.unwrap_err().to_string().contains("no command") && in_json);
}

/// A token is named by its file, never itself. A certificate needs its key.
#[test]
fn proofs_are_files() {
    let common = parsed(&["status", "--auth-token-file", "file"]).unwrap().common;
    assert_eq!(common.auth_token_file, Some("file".into()));
    assert!(parsed(&["--auth-token", "lkt_", "status"]).is_err());
    for (option, file) in [("--cert", "a.pem"), ("--key", "a.key")] {
        let common = parsed(&["--ca", "ca.pem", option, file, "status"]).unwrap().common;
        let refused = connect::connect(&common).map(drop).expect_err("half of a pair");
        assert_eq!(refused.exit(), USAGE);
        assert_eq!(refused.more.invalid.map(|invalid| invalid.field).as_deref(), Some(option));
    }
    assert!(parsed(&["--ca", "ca.pem", "--cert", "a.pem", "--key", "a.key", "status"]).is_ok());
}

/// A usage error is one line that says what is wrong, even if the command does not exist.
#[test]
fn usage_errors_are_one_line() {
    for (wrong, expected) in [
        (&["acquire", "a", "--for", "10"][..], "did you mean 10s?"),
        (&["sessoins"], "unrecognized subcommand 'sessoins'"),
        (&["status", "--colour"], "unexpected argument '--colour'"),
        (&["check", "a"], "required arguments were not provided: <TOKEN>"),
        (&[], "a command is missing"),
        (&["member"], "a command is missing"),
    ] {
        let message = what_is_wrong(&parsed(wrong).expect_err("wrong"));
        assert!(message.contains(expected) && !message.contains('\n') && !message.contains("Usage:"), "{message}");
        assert!(!message.starts_with("error"), "{message}");
    }
}

fn visible(command: &clap::Command, path: &str, found: &mut Vec<(String, clap::Command)>) {
    for nested in command.get_subcommands().filter(|nested| !nested.is_hide_set()) {
        let path = format!("{path} {}", nested.get_name());
        visible(nested, &path, found);
        found.push((path, nested.clone()));
    }
}

/// The help of every option with a value names the value, its unit and its default.
#[test]
fn every_help_has_units_and_defaults() {
    let mut commands = Vec::new();
    visible(&options::command(), "", &mut commands);
    assert!(30 < commands.len(), "{} commands", commands.len());
    for (path, command) in &mut commands {
        let help = command.render_long_help().to_string();
        assert!(help.contains("--endpoints") && !help.contains("--endpoints <"), "common options in one line:{path}");
        for option in command.get_arguments().filter(|option| !option.is_hide_set()) {
            if !option.get_action().takes_values() {
                continue;
            }
            let name = option.get_id().as_str();
            let about = option.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(2 < about.split_whitespace().count() || option.is_positional(), "{path} {name}: {about:?}");
            let value = option.get_value_names().unwrap_or_default().join(" ");
            assert!(1 < value.len(), "{path} {name}: what is {value:?}?");
            let named = ["size", "time", "duration", "wait", "timeout", "ttl", "gap", "warm_up", "older_than", "retry"];
            if named.contains(&name) {
                assert_eq!(value, "DURATION", "{path} {name}");
            }
            let defaults = !option.get_default_values().is_empty() || about.contains("[default:");
            assert!(defaults || option.is_required_set() || option.is_positional(), "{path} {name} has no default");
        }
    }
}

/// The reason of an ask stands behind the token, or in the option that `break` has.
#[test]
fn an_ask_gives_its_reason_like_a_break() {
    for line in [&["ask", "a", "1", "please"][..], &["ask", "a", "1", "--why", "please"]] {
        assert!(parsed(line).is_ok(), "{line:?}");
    }
}

/// An error about an unknown command proposes only commands that users type.
#[test]
fn internal_commands_are_not_proposed() {
    let proposed = |word: &str| {
        let (options, _) = parse(["lockkeeper", word].map(OsString::from).to_vec());
        options.expect_err("unknown").to_string()
    };
    for word in ["__chil", "_", "guardian"] {
        assert!(!proposed(word).contains("__child") && !proposed(word).contains("__guardian"), "{}", proposed(word));
        assert!(!proposed(word).contains("\n\n\n"), "{:?}", proposed(word));
    }
    assert!(proposed("acquir").contains("'acquire'"), "{}", proposed("acquir"));
}

/// A line without a command gets the help of what it names, also if an option or a variable is set. Neither the help
/// nor the error names an internal command.
#[test]
fn a_missing_command_gets_the_help() {
    for (line, usage) in [(&["--json"][..], "Usage: lockkeeper "), (&["member", "--json"], "Usage: lockkeeper member ")]
    {
        let error = parsed(line).expect_err("no command");
        assert_eq!(error.kind(), ErrorKind::MissingSubcommand, "{line:?}");
        let help = help_of(&error).to_string();
        assert!(help.contains(usage) && !help.contains("__"), "{help}");
        assert!(!what_is_wrong(&error).contains("__"), "{}", what_is_wrong(&error));
    }
}

/// Completions offer every command except the hidden ones.
#[test]
fn completions_offer_what_users_type() {
    for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish] {
        let script = cmd::completions::script(shell, &options::command());
        assert!(!script.contains(lock::SHIM_COMMAND), "{shell}");
        assert!(script.contains("handover") && script.contains("endpoints"), "{shell}");
    }
}

/// Help and versions are printed to standard output, with exit code 0.
#[test]
fn asking_for_help_is_no_error() {
    let help = parsed(&["--help"]).expect_err("help is not a command");
    assert_eq!(print_error_or_help(&help, false), ExitCode::SUCCESS);
}
