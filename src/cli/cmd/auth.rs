//! `auth`: makes a file of rules, adds and removes tokens, and says what a principal may do.

use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::auth::{Access, AuthError, On, PrincipalView, Right, TokenHash, new_token, principal_name, time};
use crate::cli::connect::Client;
use crate::cli::error::{Failure, NO, YES};
use crate::cli::files::{PRIVATE, create, failed, locked, replace};
use crate::cli::output::Output;
use crate::clock::{Clock, SystemClock};
use crate::limits::{DAY_MS, TOKEN_DAYS, TOKEN_DAYS_MAX};
use crate::model::{LockName, Namespace, Principal, WallTime};
use crate::service::{ErrorCode, LockService};

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum AuthCommand {
    #[command(flatten)]
    File(FileCommand),
    /// Print the principal as which a node knows this client
    Whoami,
}

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum FileCommand {
    /// Make a file of rules with one principal that may do everything
    Init {
        /// Path of the new file
        file: PathBuf,
        /// Name of the principal that may do everything
        #[arg(long, value_parser = principal_name, value_name = "NAME")]
        admin: Principal,
    },
    /// Add a token of a principal to a file, and print it: no node can show it again
    Token(TokenOptions),
    /// Remove a token from a file
    Revoke {
        /// Path of the file
        file: PathBuf,
        /// Id of the token, as `auth check` shows it
        id: String,
    },
    /// Check a file, and list its principals or ask what one may do; exit code 1 if it may not
    Check {
        /// Path of the file
        file: PathBuf,
        /// Ask whether a principal has a right on a name, and which rule gives it [default: none]
        #[arg(long, num_args = 3, value_names = ["PRINCIPAL", "RIGHT", "NAMESPACE/NAME"])]
        can: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(in crate::cli) struct TokenOptions {
    /// Path of the file
    file: PathBuf,
    /// Name of the principal
    #[arg(value_parser = principal_name)]
    principal: Principal,
    /// Days until the token expires
    #[arg(long = "expires", value_parser = clap::value_parser!(u64).range(1..=TOKEN_DAYS_MAX), default_value_t = TOKEN_DAYS, value_name = "DAYS")]
    days: u64,
    /// Write the token to this new file instead of standard output [default: none]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The JSON line of a new token.
#[derive(Serialize)]
struct TokenLine<'a> {
    principal: &'a str,
    id: String,
    expires: String,
    /// The secret, unless it was written to a file.
    token: Option<&'a str>,
}

/// The JSON line of a principal.
#[derive(Serialize)]
struct PrincipalLine<'a> {
    principal: &'a str,
    roles: &'a [String],
    certificate: bool,
    tokens: Vec<ListedToken>,
    /// Bounds of what the principal may send; `null` for none.
    commands_a_second: Option<NonZeroU32>,
    renewals_a_second: Option<NonZeroU32>,
}

impl<'a> PrincipalLine<'a> {
    fn of(view: &PrincipalView<'a>) -> Self {
        let &PrincipalView { name, roles, certificate, commands_a_second, renewals_a_second, .. } = view;
        let tokens = tokens(view);
        Self { principal: name.as_str(), roles, certificate, tokens, commands_a_second, renewals_a_second }
    }
}

#[derive(Serialize)]
struct ListedToken {
    id: String,
    expires: String,
}

/// The JSON line about a right.
#[derive(Serialize)]
struct RightLine {
    may: bool,
    /// The rule that gives the right.
    rule: Option<String>,
}

/// Asks a node for the principal of this client.
pub(in crate::cli) async fn whoami(client: &Client, output: &Output) -> Result<u8, Failure> {
    let principal = client.service().whoami().await?;
    output.answer(&serde_json::json!({ "principal": principal.as_str() }), || principal.to_string())
}

/// Runs a command about a file of rules, without a node.
pub(in crate::cli) fn run(command: &FileCommand, output: &Output) -> Result<u8, Failure> {
    match command {
        FileCommand::Init { file, admin } => init(file, admin, output),
        FileCommand::Token(options) => token(options, output),
        FileCommand::Revoke { file, id } => revoke(file, id, output),
        FileCommand::Check { file, can } if can.is_empty() => list(file, output),
        FileCommand::Check { file, can } => answer_can(file, can, output),
    }
}

fn init(file: &Path, admin: &Principal, output: &Output) -> Result<u8, Failure> {
    let text = format!(
        "# Principals and their rights: see the manual's page on security.\nversion = 1\n\n[[role]]\nname = \"admin\"\n\
         rules = [{{ namespace = \"*\", right = \"admin\" }}]\ncluster = [\"metrics\", \"backup\", \"operate\"]\n\n\
         [[principal]]\nname = \"{admin}\"\nroles = [\"admin\"]\ncertificate = true\n"
    );
    let access = checked(file, &text)?;
    create(file, &text, PRIVATE).map_err(failed("<FILE>", "make", file))?;
    if output.json {
        access.principals().try_for_each(|view| output.object(&PrincipalLine::of(&view)))?;
    }
    Ok(YES)
}

fn token(options: &TokenOptions, output: &Output) -> Result<u8, Failure> {
    let TokenOptions { file, principal, days, out } = options;
    let clock = SystemClock::new();
    let secret = new_token([clock.random_u128(), clock.random_u128()]);
    let hash = TokenHash::of(&secret).map_err(|error| Failure::new(ErrorCode::Invalid, error.to_string()))?;
    let end = WallTime(clock.wall().0.saturating_add(days * DAY_MS));
    let _locked = locked(file).map_err(failed("<FILE>", "lock", file))?;
    let mut text = text_of(file)?;
    let access = parse_any_expiry(file, &text)?;
    check_token_principal(file, principal, &access)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let expires = time(end);
    text += &format!("\n[[token]]\nprincipal = \"{principal}\"\nsha256 = \"{hash}\"\nexpires = \"{expires}\"\n");
    checked(file, &text)?;
    if let Some(out) = out {
        // Writes the secret before the file has its hash: if this fails, no token has to be revoked.
        create(out, &format!("{secret}\n"), PRIVATE).map_err(failed("--out", "make", out))?;
    }
    replace("<FILE>", file, &text, PRIVATE)?;
    let shown = out.is_none().then_some(secret.as_str());
    let printed = if output.json {
        output.object(&TokenLine { principal: principal.as_str(), id: hash.id(), expires, token: shown })
    } else {
        shown.map_or(Ok(()), |secret| output.line(secret))
    };
    printed.map_err(|failure| if shown.is_some() { unshown(&hash, file, failure) } else { failure })?;
    output.remark(&format!("token {} of {principal}, until {}", hash.id(), time(end)));
    Ok(YES)
}

/// The failure of a token whose secret could not be printed. It is not silent even if standard output was closed,
/// because the secret is lost.
fn unshown(hash: &TokenHash, file: &Path, failure: Failure) -> Failure {
    let (id, file) = (hash.id(), file.display());
    let why = failure.detail;
    let fix = format!("remove the token with `lockkeeper auth revoke {file} {id}`");
    let detail = format!("the secret of token {id} was not shown: {why}; {fix}");
    Failure { detail, silent: false, names_next_step: true, ..failure }
}

fn revoke(file: &Path, id: &str, output: &Output) -> Result<u8, Failure> {
    let _locked = locked(file).map_err(failed("<FILE>", "lock", file))?;
    let text = text_of(file)?;
    let access = parse_any_expiry(file, &text)?;
    let known = || access.principals().flat_map(|principal| principal.tokens).map(|(hash, _)| hash);
    let mut named = known().filter(|hash| hash.to_string().starts_with(id));
    // A whole id names a token, and so does a longer part of its hash.
    let (Some(hash), None) = (named.next().filter(|_| TokenHash::ID_CHARS <= id.len()), named.next()) else {
        let ids = known().map(|hash| hash.id()).collect::<Vec<_>>().join(", ");
        let name = file.display();
        return Err(Failure::usage("<ID>", format!("{name} has no token {id}; there are: {ids}")));
    };
    let text = without(&text, &hash.to_string());
    let left = parse_any_expiry(file, &text)?;
    if left.principals().flat_map(|principal| principal.tokens).any(|(other, _)| other == hash) {
        let name = file.display();
        let detail = format!("{name}: the token {id} is not in a section [[token]] alone; remove it by hand");
        return Err(Failure::usage("<ID>", detail));
    }
    replace("<FILE>", file, &text, PRIVATE)?;
    output.object_only(&serde_json::json!({ "id": hash.id(), "revoked": true }))
}

/// Returns the text without the settings of the token with this hash. Comments stay.
fn without(text: &str, hash: &str) -> String {
    let mut blocks: Vec<Vec<&str>> = vec![Vec::new()];
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with('[') {
            blocks.push(Vec::new());
        }
        if let Some(block) = blocks.last_mut() {
            block.push(line);
        }
    }
    let is_setting = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    for block in &mut blocks {
        let is_token = block.first().is_some_and(|line| line.trim_start().starts_with("[[token]]"));
        if is_token && block.iter().filter(|line| is_setting(line)).any(|line| line.contains(hash)) {
            block.retain(|line| !is_setting(line));
        }
    }
    blocks.concat().concat()
}

fn list(file: &Path, output: &Output) -> Result<u8, Failure> {
    let access = Access::from_file(file, SystemClock::new().wall())?;
    let row = |view: PrincipalView<'_>| {
        let certificate = if view.certificate { "yes" } else { "no" };
        let token = |token: ListedToken| format!("{} until {}", token.id, &token.expires[..10]);
        let tokens = tokens(&view).into_iter().map(token).collect::<Vec<_>>().join(", ");
        vec![view.name.to_string(), view.roles.join(","), certificate.to_owned(), bounds(&view), tokens]
    };
    let objects = access.principals().map(|view| PrincipalLine::of(&view));
    let heading = ["PRINCIPAL", "ROLES", "CERTIFICATE", "A SECOND", "TOKENS"];
    output.list(objects, &heading, access.principals().map(row))
}

fn tokens(view: &PrincipalView<'_>) -> Vec<ListedToken> {
    view.tokens.iter().map(|(hash, end)| ListedToken { id: hash.id(), expires: time(*end) }).collect()
}

/// Returns what a principal may send in a second, as text.
fn bounds(view: &PrincipalView<'_>) -> String {
    let bounds = [(view.commands_a_second, "commands"), (view.renewals_a_second, "renewals")];
    let stated = bounds.iter().filter_map(|(bound, unit)| bound.map(|bound| format!("{bound} {unit}")));
    stated.collect::<Vec<_>>().join(", ")
}

/// Answers whether a principal has a right on a name.
fn answer_can(file: &Path, question: &[String], output: &Output) -> Result<u8, Failure> {
    let access = Access::from_file(file, SystemClock::new().wall())?;
    let [name, right, key] = question else {
        return Err(Failure::usage("--can", "--can needs PRINCIPAL RIGHT NAMESPACE/NAME"));
    };
    let principal = access.principals().find(|view| view.name.as_str() == name).map(|view| view.name);
    let absent = || {
        let names = access.principals().map(|view| view.name.to_string()).collect::<Vec<_>>().join(", ");
        Failure::usage("--can", format!("{} has no principal {name:?}; there are: {names}", file.display()))
    };
    let principal = principal.ok_or_else(absent)?;
    let right = match right.as_str() {
        "read" => Right::Read,
        "lock" => Right::Lock,
        "admin" => Right::Admin,
        _ => return Err(Failure::usage("--can", format!("there is no right {right:?}; use read, lock or admin"))),
    };
    let (namespace, lock) = key.split_once('/').unwrap_or((key, ""));
    let wrong = |invalid| Failure::from(invalid).of_field("--can");
    let namespace = Namespace::parse(namespace).map_err(wrong)?;
    if !lock.is_empty() {
        LockName::parse(lock).map_err(wrong)?;
    }
    // Without a name the question is about all names.
    let on = if lock.is_empty() { On::All } else { On::Name(lock) };
    let rule = access.rule(principal, right, &namespace, on).map(ToString::to_string);
    let text = rule.clone().unwrap_or_else(|| {
        access.need(principal, right, &namespace, on).err().map(|denied| denied.to_string()).unwrap_or_default()
    });
    let may = rule.is_some();
    Failure::unless_closed(output.answer(&RightLine { may, rule }, || text))?;
    Ok(if may { YES } else { NO })
}

/// Refuses a principal that the file does not list, and the anonymous one: neither can have a token.
fn check_token_principal(file: &Path, principal: &Principal, access: &Access) -> Result<(), Failure> {
    let owners = access.principals().filter(|view| !view.name.is_anonymous());
    let owners = owners.map(|view| view.name.as_str()).collect::<Vec<_>>();
    if owners.contains(&principal.as_str()) {
        return Ok(());
    }
    let known = owners.join(", ");
    let fix = format!("name one of {known}, or add a [[principal]] of this name");
    let detail = format!("{} has no principal {:?} that can have a token; {fix}", file.display(), principal.as_str());
    Err(Failure::usage("<PRINCIPAL>", detail))
}

fn text_of(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file).map_err(failed("<FILE>", "read", file))
}

/// Parses rules without the limit on how late a token expires, because the command may be the one that removes such a
/// token. The limit is relative to the current time, so the largest time turns it off.
fn parse_any_expiry(file: &Path, text: &str) -> Result<Access, Failure> {
    Ok(Access::from_toml(&file.display().to_string(), text, WallTime(u64::MAX))?)
}

/// Checks a text before it is written, so that no command leaves a file that nodes refuse.
fn checked(file: &Path, text: &str) -> Result<Access, Failure> {
    Ok(Access::from_toml(&file.display().to_string(), text, SystemClock::new().wall())?)
}

impl From<AuthError> for Failure {
    fn from(error: AuthError) -> Self {
        Self::usage("<FILE>", error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::shapes::tests::value;

    fn output() -> Output {
        Output::new(false)
    }

    /// Makes a file with the principal `ops` and a token of it. Returns the file and the secret.
    fn made(folder: &Path) -> (PathBuf, String) {
        let (file, out) = (folder.join("auth.toml"), folder.join("ops.token"));
        let admin = principal_name("ops").expect("a name");
        run(&FileCommand::Init { file: file.clone(), admin: admin.clone() }, &output()).expect("made");
        let options = TokenOptions { file: file.clone(), principal: admin, days: 7, out: Some(out.clone()) };
        run(&FileCommand::Token(options), &output()).expect("added");
        let secret = fs::read_to_string(out).expect("the secret");
        (file, secret.trim().to_owned())
    }

    /// A new file has one principal that may do everything. A token is added with its hash alone, and removed by its
    /// id; comments stay.
    #[test]
    fn tokens_are_added_and_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, secret) = made(folder.path());
        let text = fs::read_to_string(&file).expect("the file");
        let hash = TokenHash::of(&secret).expect("a token");
        assert!(text.contains(&hash.to_string()) && !text.contains(&secret), "{text}");
        let commented = format!("{text}# for the pipeline\n");
        fs::write(&file, commented).expect("written");
        let revoked = |id: String| run(&FileCommand::Revoke { file: file.clone(), id }, &output());
        for wrong in ["", "0", "000000000000", &hash.id()[..11]] {
            let refused = revoked(wrong.to_owned()).expect_err(wrong);
            assert!(refused.detail.contains(&hash.id()), "{}", refused.detail);
        }
        revoked(hash.id()).expect("removed");
        let text = fs::read_to_string(&file).expect("the file");
        assert!(!text.contains(&hash.to_string()) && text.contains("# for the pipeline"), "{text}");
        assert!(revoked(hash.id()).is_err());
        let again = FileCommand::Init { file, admin: principal_name("ops").expect("a name") };
        assert!(run(&again, &output()).is_err(), "it would replace a file");
    }

    /// A token of an unknown principal is refused with the names of the principals, before the file or the token's file
    /// changes.
    #[test]
    fn a_token_needs_a_principal_of_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, _) = made(folder.path());
        let before = fs::read_to_string(&file).expect("the file");
        for name in ["nightly", "anonymous"] {
            let (principal, out) = (principal_name(name).expect("a name"), folder.path().join("never"));
            let options = TokenOptions { file: file.clone(), principal, days: 7, out: Some(out.clone()) };
            let refused = run(&FileCommand::Token(options), &output()).expect_err(name);
            let fix = "name one of ops, or add a [[principal]] of this name";
            let detail = format!("{} has no principal {name:?} that can have a token; {fix}", file.display());
            assert_eq!((refused.next_step(), refused.detail, out.exists()), (None, detail, false));
        }
        assert_eq!(fs::read_to_string(&file).expect("the file"), before);
    }

    /// Tokens that are added and removed at the same time are all added and removed.
    #[test]
    fn changes_at_the_same_time_are_all_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, secret) = made(folder.path());
        let first = TokenHash::of(&secret).expect("a token").id();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let out = Some(folder.path().join(format!("{number}.token")));
                let principal = principal_name("ops").expect("a name");
                let options = TokenOptions { file: file.clone(), principal, days: 7, out };
                scope.spawn(move || run(&FileCommand::Token(options), &output()).expect("added"));
            }
            let revoke = FileCommand::Revoke { file: file.clone(), id: first.clone() };
            scope.spawn(move || run(&revoke, &output()).expect("removed"));
        });
        let access = Access::from_file(&file, SystemClock::new().wall()).expect("good rules");
        let left = access.principals().flat_map(|view| tokens(&view)).map(|token| token.id).collect::<Vec<_>>();
        assert_eq!((left.len(), left.contains(&first)), (8, false), "{left:?}");
    }

    /// The answer says whether a principal may, by exit code and rule. A question about another one is an error.
    #[test]
    fn a_right_can_be_asked_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, _) = made(folder.path());
        let mut text = fs::read_to_string(&file).expect("the file");
        text += "[[principal]]\nname = \"ci\"\nroles = []\n";
        fs::write(&file, text).expect("written");
        let ask = |can: [&str; 3]| {
            let can = can.map(str::to_owned).to_vec();
            run(&FileCommand::Check { file: file.clone(), can }, &output())
        };
        assert_eq!(ask(["ops", "admin", "prod/a"]), Ok(YES));
        assert_eq!((ask(["ci", "read", "prod/a"]), ask(["ops", "lock", "prod"])), (Ok(NO), Ok(YES)));
        for wrong in [["x", "read", "prod/a"], ["ops", "write", "prod/a"], ["ops", "read", "Prod/a"]] {
            assert_eq!(ask(wrong).expect_err("refused").exit(), 64, "{wrong:?}");
        }
        assert_eq!(run(&FileCommand::Check { file, can: Vec::new() }, &output()), Ok(YES));
    }

    /// The lines of JSON have the fields that the manual lists.
    #[test]
    fn auth_lines_have_every_field() {
        let token = TokenLine { principal: "ci", id: "0a".into(), expires: "x".into(), token: Some("lkt_") };
        let fields = json!({"principal": "ci", "id": "0a", "expires": "x", "token": "lkt_"});
        assert_eq!(value(&token), fields);
        let tokens = vec![ListedToken { id: "0a".into(), expires: "x".into() }];
        let roles = &["r".to_owned()];
        let (commands_a_second, renewals_a_second) = (NonZeroU32::new(7), None);
        let principal = "ci";
        let listed =
            PrincipalLine { principal, roles, certificate: false, tokens, commands_a_second, renewals_a_second };
        let tokens = json!([{"id": "0a", "expires": "x"}]);
        let fields = json!({"principal": "ci", "roles": ["r"], "certificate": false, "tokens": tokens,
            "commands_a_second": 7, "renewals_a_second": null});
        assert_eq!(value(&listed), fields);
        assert_eq!(value(&RightLine { may: true, rule: Some("r".into()) }), json!({"may": true, "rule": "r"}));
    }
}
