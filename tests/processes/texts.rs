//! What the commands print: errors as objects, and names with characters that could affect a terminal.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;

use crate::cluster::Cluster;
use crate::lock_command::{code, lockkeeper, object, output, signal};

/// A `lockkeeper` command whose endpoint does not answer.
fn alone(arguments: &[&str]) -> Command {
    lockkeeper("127.0.0.1:1", arguments)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn errors(output: &Output) -> serde_json::Value {
    let error = object(&output.stderr);
    let fields = "error exit detail advice leader cycle pause_ms resume holder field bound";
    for field in fields.split(' ') {
        assert!(error.get(field).is_some(), "{field}: {error}");
    }
    assert_eq!(error["exit"].as_i64(), output.status.code().map(i64::from), "{error}");
    assert!(output.stdout.is_empty(), "an error prints nothing on standard output");
    error
}

/// With `--json` every error about the command line is one object on standard error, and names the option or the value
/// that is wrong.
#[test]
fn every_usage_error_names_its_field() {
    for (wrong, field) in [
        (&["--json"][..], "<COMMAND>"),
        (&["--json", "sessoins"], "<COMMAND>"),
        (&["--json", "status", "--colour"], "--colour"),
        (&["-jv", "status", "-t", "10"], "--timeout"),
        (&["acquire", "a", "--for", "10", "--json"], "--for"),
        (&["acquire", "a", "--for", "-5s", "--json"], "--for"),
        (&["check", "a", "--json"], "<TOKEN>"),
        (&["explain", "--json"], "<NAME>"),
        (&["lock", "a", "--json", "--"], "<CMD>"),
        (&["lock", "a", "--json"], "<CMD>"),
        (&["lock", "a", "--result", "/nonexistent/x", "--json", "--", "true"], "--result"),
        (&["member", "--json"], "<COMMAND>"),
        (&["features", "5", "--json"], "<COMMAND>"),
        (&["wait", "", "--json"], "<NAME>"),
        (&["status", "--cluster", "dev", "--json"], "--cluster"),
        (&["verify", "/nonexistent", "--json"], "<FILE>"),
        (&["audit", "verify", "/nonexistent", "--json"], "<FILES>"),
        (&["auth", "check", "/nonexistent", "--json"], "<FILE>"),
        (&["certs", "/nonexistent", "--json"], "<DIR>"),
        (&["config", "check", "/nonexistent", "--json"], "<FILE>"),
        (&["serve", "--config", "/nonexistent", "--json"], "--config"),
        (&["drill", "--report", "/nonexistent/x", "--json"], "--report"),
        (&["restore", "/nonexistent", "--data", "/nonexistent/data", "--json"], "<FILE>"),
        (&["bench", "--clients", "1", "--connections", "2", "--json"], "--connections"),
    ] {
        let error = errors(&alone(wrong).output().unwrap());
        assert_eq!((&error["error"], &error["exit"]), (&"invalid".into(), &64.into()), "{wrong:?}");
        assert_eq!(error["field"], field, "{wrong:?}: {error}");
        assert!(
            error["detail"]
                .as_str()
                .is_some_and(|detail| !detail.contains("see --help") || wrong.len() == 1 || wrong[0] == "member")
        );
    }
    let colour = errors(&alone(&["--json", "status", "--colour"]).output().unwrap());
    assert_eq!(colour["bound"], serde_json::Value::Null);
}

/// With `--json` every error is one object on standard error with the same fields, whether it concerns a file, the
/// environment or the cluster.
#[test]
fn every_error_is_an_object_under_json() {
    let folder = tempfile::tempdir().expect("a folder");
    let no_certificate = folder.path().join("ca.pem");
    std::fs::write(&no_certificate, "not a certificate").expect("written");
    let unfit = errors(&alone(&["status", "--json", "--ca", no_certificate.to_str().unwrap()]).output().unwrap());
    assert_eq!((&unfit["exit"], &unfit["field"]), (&64.into(), &"--ca".into()), "{unfit}");
    assert!(unfit["detail"].as_str().unwrap().contains("give a certificate in PEM"), "{unfit}");
    let no_endpoint = alone(&["status", "--json"]).env("LOCKKEEPER_ENDPOINTS", "").output().unwrap();
    let no_endpoint = errors(&no_endpoint);
    assert_eq!(no_endpoint["field"], "--endpoints");
    assert!(no_endpoint["detail"].as_str().unwrap().ends_with("; it comes from LOCKKEEPER_ENDPOINTS"), "{no_endpoint}");
    let no_token = alone(&["status", "--json"]).env("LOCKKEEPER_AUTH_TOKEN_FILE", "/nonexistent").output().unwrap();
    assert!(errors(&no_token)["detail"].as_str().unwrap().contains("/nonexistent cannot be read"));
    let without_authority = alone(&["status", "--json", "--cert", "a.pem", "--key", "a.key"]).output().unwrap();
    assert!(errors(&without_authority)["detail"].as_str().unwrap().contains("give --ca"));
    let no_file = alone(&["status", "--json", "--ca", "/nonexistent"]).output().unwrap();
    assert!(errors(&no_file)["detail"].as_str().unwrap().starts_with("--ca: /nonexistent cannot be read: "));
    assert_eq!(no_file.status.code(), Some(64));
    let unreachable = alone(&["status", "--json", "--timeout", "100ms"]).output().unwrap();
    assert_eq!(errors(&unreachable)["error"], "unreachable");
    let members = errors(&alone(&["member", "ls", "--json", "--timeout", "1s"]).output().unwrap());
    assert_eq!(members["error"], "unreachable");
    assert!(members["detail"].as_str().unwrap().contains("127.0.0.1:1"), "{members}");
    // The cluster and not the lock ended these waits.
    for waits in [
        &["lock", "-w", "2s", "--json", "a", "--", "true"][..],
        &["wait", "-w", "300ms", "--json", "a"],
        &["acquire", "-w", "2s", "--json", "a", "--for", "3s"],
    ] {
        let ended = errors(&alone(waits).output().unwrap());
        assert_eq!((&ended["error"], &ended["exit"]), (&"unreachable".into(), &69.into()), "{ended}");
        assert!(ended["detail"].as_str().unwrap().contains("127.0.0.1:1"), "{ended}");
    }
    // Without `--json`, a complete message has no hint to `--help`.
    let plainly = alone(&["verify", "/nonexistent"]).output().unwrap();
    assert_eq!((plainly.status.code(), text(&plainly.stderr).contains("--help")), (Some(64), false));
}

/// If a port is in use, `dev` ends before its first node starts: it creates no directory, and names the address and the
/// option for other ports.
#[test]
fn dev_starts_nothing_if_a_port_is_in_use() {
    let folder = tempfile::tempdir().expect("a folder");
    let taken = TcpListener::bind(("127.0.0.1", 0)).expect("free");
    let base = taken.local_addr().expect("an address").port() - 2;
    let data = folder.path().join("data");
    let arguments = ["dev", "--nodes", "2", "--port-base", &base.to_string(), "--dir", data.to_str().unwrap()];
    let refused = alone(&arguments).output().unwrap();
    assert_eq!(refused.status.code(), Some(64), "{}", text(&refused.stderr));
    for part in ["cannot listen on", "give another --port-base"] {
        assert!(text(&refused.stderr).contains(part), "{}", text(&refused.stderr));
    }
    assert!(refused.stdout.is_empty() && !data.exists(), "{}", text(&refused.stdout));
    drop(taken);
}

/// What `dev --tls` prints can be pasted into a shell, also if the name of its directory has a blank and a quote: curl
/// takes the lock, and the variables name the files.
#[test]
fn the_lines_of_dev_can_be_pasted() {
    if Command::new("curl").arg("--version").output().is_err() {
        assert!(std::env::var_os("LOCKKEEPER_SKIP_NOTHING").is_none(), "there is no curl");
        eprintln!("SKIPPED: there is no curl");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    // Below the ports that the system gives to others, and next to those of the next test.
    let base = 20_033 + 64 * u16::try_from(std::process::id() % 190).expect("small");
    let data = folder.path().join("it's mine");
    let arguments = ["dev", "--tls", "--nodes", "1", "--port-base", &base.to_string(), "--dir", data.to_str().unwrap()];
    let mut dev = alone(&arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(dev.stdout.take().unwrap()).lines().map_while(Result::ok);
    let printed: Vec<_> = lines.by_ref().take_while(|line| !line.contains(" leads (term ")).collect();
    let after = |name: &str| printed.iter().find_map(|line| line.strip_prefix(name)).unwrap_or("false");
    let script = format!("{}; {} && test -r \"$LOCKKEEPER_KEY\"", after("  tls "), after("  or "));
    let pasted = Command::new("sh").args(["-c", &script]).output().unwrap();
    signal(&dev, Signal::TERM);
    dev.wait().unwrap();
    let granted = text(&pasted.stdout).contains("\"state\":\"granted\"");
    assert!(pasted.status.success() && granted, "{printed:#?}: {}{}", text(&pasted.stdout), text(&pasted.stderr));
}

/// `dev` refuses a directory that it cannot use or that another process uses, and one of a cluster with other nodes,
/// ports or another timing, with the exit code of a wrong command line. It advises what to give instead, not to replace
/// a node.
#[test]
fn dev_refuses_a_directory_that_is_not_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    // Below the ports that the system gives to others.
    let base = 20_000 + 64 * u16::try_from(std::process::id() % 190).expect("small");
    let (data, file) = (folder.path().join("data"), folder.path().join("file"));
    std::fs::write(&file, "").expect("written");
    let dev = |dir: &Path, base: u16, nodes: &str| {
        alone(&["dev", "--nodes", nodes, "--port-base", &base.to_string(), "--dir", dir.to_str().unwrap()])
    };
    let mut first = dev(&data, base, "1").arg("--json").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(first.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| object(line.as_bytes())["leader"] == 1), "it did not start");
    let in_use = dev(&data, base + 30, "1").output().unwrap();
    assert_eq!(in_use.status.code(), Some(64), "{}", text(&in_use.stderr));
    let process = format!("(process {}) uses it", first.id());
    assert!(text(&in_use.stderr).contains(&process), "{}", text(&in_use.stderr));
    signal(&first, Signal::TERM);
    first.wait().unwrap();
    let other_timing = dev(&data, base, "1").args(["--profile", "fast"]).output().unwrap();
    assert_eq!(other_timing.status.code(), Some(64), "{}", text(&other_timing.stderr));
    let fix = "--profile of `dev`, to the cluster's, which is the profile lan";
    assert!(text(&other_timing.stderr).contains(fix), "{}", text(&other_timing.stderr));
    let below = file.join("data");
    for (dir, base, nodes, why) in [
        (&data, base + 30, "1", "--port-base"),
        (&data, base, "2", "--nodes"),
        (&file, base, "1", "it is no directory"),
        (&below, base, "1", "choose a directory"),
    ] {
        let refused = dev(dir, base, nodes).output().unwrap();
        let printed = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(64), "{printed}");
        assert!(printed.contains(why) && !printed.contains("member add"), "{printed}");
    }
}

/// Metadata of a client is shown on one line with escapes, so that it cannot move a terminal's cursor. JSON contains
/// the original text.
fn names_are_shown_with_escapes(endpoints: &str) {
    let why = "\u{202e}evil\nline\ttwo";
    assert_eq!(code(endpoints, &["acquire", "tx/esc", "--for", "1m", "--why", why]), Some(0));
    let shown = output(endpoints, &["show", "tx/esc"]);
    let shown = text(&shown.stdout);
    assert!(shown.contains("\\u{202e}evil\\nline\\ttwo"), "{shown}");
    assert_eq!(shown.lines().count(), 3, "the lock, a heading and one holder: {shown}");
    let json = object(&output(endpoints, &["show", "tx/esc", "--json"]).stdout);
    assert_eq!(json["holders"][0]["why"], why);
    let who = json["holders"][0]["who"].as_str().unwrap();
    assert!(who.contains("lockkeeper") && who.contains(json["holders"][0]["host"].as_str().unwrap()), "{who}");
    for arguments in [&["ls", "tx/esc"][..], &["explain", "tx/esc"], &["history", "tx/esc"]] {
        let printed = text(&output(endpoints, arguments).stdout);
        assert!(!printed.contains(['\u{202e}', '\t']), "{arguments:?}: {printed}");
    }
}

/// A token above every grant is reported as unknown, not as stale. A token whose hold has ended is stale, and the
/// holder's token is valid.
fn tokens_above_every_grant_are_unknown(endpoints: &str) {
    let taken = object(&output(endpoints, &["acquire", "tx/check", "--for", "1m", "--json"]).stdout);
    let (token, handle) = (taken["token"].as_str().unwrap(), taken["handle"].as_str().unwrap());
    let state = |token: &str| {
        let checked = output(endpoints, &["check", "tx/check", token, "--json"]);
        (checked.status.code(), object(&checked.stdout)["state"].as_str().unwrap().to_owned())
    };
    let above = (token.parse::<u64>().unwrap() + 1_000).to_string();
    assert_eq!([state(token), state(&above)], [(Some(0), "valid".into()), (Some(1), "unknown_epoch".into())]);
    assert!(text(&output(endpoints, &["check", "tx/check", &above]).stdout).starts_with("unknown"));
    assert_eq!(code(endpoints, &["release", "tx/check", handle]), Some(0));
    assert_eq!(state(token), (Some(1), "stale".into()));
}

/// With `--json` a success prints an object, even if the command prints nothing without it.
async fn successes_are_objects(cluster: &Cluster) {
    let follower = cluster.a_follower().await;
    let moved = cluster.command(&["transfer", &follower.to_string(), "--json"]).output().unwrap();
    assert_eq!(object(&moved.stdout)["leader"], follower, "{}", text(&moved.stderr));
    let config = cluster.folder().join("n1.toml");
    let checked = cluster.command(&["config", "check", config.to_str().unwrap(), "--json"]).output().unwrap();
    let checked = object(&checked.stdout);
    assert_eq!((&checked["node"], &checked["members"]), (&1.into(), &3.into()), "{checked}");
}

/// A position that the log has not reached is refused, because the events up to it would be missed.
fn positions_above_the_log_are_refused(endpoints: &str) {
    for command in ["history", "watch"] {
        let error = errors(&output(endpoints, &[command, "--from", "99999999.0", "--json"]));
        assert_eq!((&error["error"], &error["field"]), (&"invalid".into(), &"--from".into()), "{error}");
        assert!(error["bound"].as_str().unwrap().ends_with(", the newest entry"), "{error}");
    }
    assert_eq!(code(endpoints, &["history", "--from", "0.0"]), Some(0));
}

/// The error about a duration that the cluster refuses names the option, and what to give.
fn refused_durations_name_their_option(endpoints: &str) {
    for (line, field, part) in [
        (&["acquire", "tx/no", "--for", "0s", "--json"][..], "--for", "--for must be 1ms to "),
        (&["lock", "tx/no", "--ttl", "1ms", "--json", "--", "true"], "--ttl", "--ttl must be "),
        (
            &["lock", "tx/no", "--ttl", "10s", "--kill-after", "9s", "--json", "--", "true"],
            "--kill-after",
            "; give at most 5s, or a longer --ttl",
        ),
    ] {
        let error = errors(&output(endpoints, line));
        assert_eq!((&error["exit"], &error["field"]), (&64.into(), &field.into()), "{error}");
        assert!(error["detail"].as_str().unwrap().contains(part), "{error}");
    }
}

/// The largest TTL is listed and changed by its name, and an error about its limit names the setting.
fn settings_are_listed_and_changed(endpoints: &str) {
    let listed = object(&output(endpoints, &["settings", "--json"]).stdout);
    assert_eq!((&listed["name"], &listed["value_ms"]), (&"ttl_max".into(), &600_000.into()), "{listed}");
    let long = ["acquire", "tx/long", "--for", "2h", "--json"];
    let refused = object(&output(endpoints, &long).stderr);
    let detail = refused["detail"].as_str().unwrap();
    assert!(refused["exit"] == 64 && detail.contains("1ms to 10m") && detail.contains("setting ttl_max"), "{refused}");
    let changed = output(endpoints, &["settings", "ttl_max", "2h"]);
    assert_eq!(text(&changed.stdout), "ttl_max 2h\n", "{}", text(&changed.stderr));
    assert_eq!(output(endpoints, &long).status.code(), Some(0));
    assert_eq!(text(&output(endpoints, &["settings", "ttl_max"]).stdout), "ttl_max 2h\n");
    let beyond = object(&output(endpoints, &["settings", "ttl_max", "25h", "--json"]).stderr);
    assert!(beyond["detail"].as_str().unwrap().starts_with("ttl_max must be 1s to 24h, got 25h"), "{beyond}");
    assert_eq!(code(endpoints, &["settings", "ttl_min"]), Some(64), "no such setting");
}

/// Runs the functions above against one cluster.
#[tokio::test]
async fn texts_and_objects_of_a_cluster() {
    let cluster = Cluster::start().await;
    let endpoints = cluster.endpoints().join(",");
    let tests = move || {
        names_are_shown_with_escapes(&endpoints);
        tokens_above_every_grant_are_unknown(&endpoints);
        positions_above_the_log_are_refused(&endpoints);
        refused_durations_name_their_option(&endpoints);
        settings_are_listed_and_changed(&endpoints);
    };
    tokio::task::spawn_blocking(tests).await.expect("the tests pass");
    successes_are_objects(&cluster).await;
}
