//! Tests of the file of rules, of tokens, and of rights.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::limits;

const GOOD: &str = r#"version = 1
[[role]]
name = "deploy"
rules = [{ namespace = "prod", prefix = "deploy/", right = "lock" }, { namespace = "prod", right = "read" }]
cluster = ["metrics"]
[[role]]
name = "all"
rules = [{ namespace = "*", right = "admin" }]
[[principal]]
name = "ci"
roles = ["deploy"]
certificate = true
[[principal]]
name = "ops"
roles = ["all", "deploy"]
[[principal]]
name = "idle"
roles = []
"#;

/// The first moment of 2026.
const NOW: WallTime = WallTime(1_767_225_600_000);

fn access(text: &str) -> Access {
    Access::from_toml("auth.toml", text, NOW).expect("a good file")
}

fn principal(name: &str) -> Principal {
    Principal::parse(name).expect("legal")
}

fn namespace(name: &str) -> Namespace {
    Namespace::parse(name).expect("legal")
}

/// A token has the form that scanners look for, its checksum detects each wrong digit, and its hash is its id.
#[test]
fn a_token_has_a_checksum() {
    let tokens = [[0, 0], [u128::MAX, u128::MAX], [1, 2]].map(new_token);
    assert_eq!(tokens[0], format!("lkt_{}{}", "0".repeat(43), &tokens[0][47..]));
    for token in &tokens {
        assert_eq!(token.len(), 53);
        let hash = TokenHash::of(token).expect("a token");
        assert_eq!(TokenHash::parse(&hash.to_string()), Some(hash));
        assert_eq!((hash.id().len(), hash.to_string().starts_with(&hash.id())), (12, true));
        for at in 0..token.len() {
            let mut wrong = token.clone().into_bytes();
            wrong[at] = if wrong[at] == b'x' { b'y' } else { b'x' };
            let wrong = String::from_utf8(wrong).expect("a text");
            assert_eq!(TokenHash::of(&wrong), Err(MalformedToken), "{at}");
        }
    }
    assert!(tokens[0] != tokens[2] && tokens[1] != tokens[2]);
    for bad in ["", "lkt_", &tokens[0][..52], &tokens[0].replace("lkt", "lkx"), "lkt_ä"] {
        assert_eq!(TokenHash::of(bad), Err(MalformedToken), "{bad}");
    }
}

/// Rights contain each other and only add up. A right on all names needs a rule without a prefix.
#[test]
fn rules_give_rights_by_prefix() {
    let access = access(GOOD);
    let (prod, test) = (namespace("prod"), namespace("test"));
    let may = |name: &str, right, namespace, on| access.has(&principal(name), right, namespace, on);
    assert!(may("ci", Right::Lock, &prod, On::Name("deploy/a")) && may("ci", Right::Read, &prod, On::Name("x")));
    assert!(may("ci", Right::Lock, &prod, On::Prefix("deploy/")) && may("ci", Right::Lock, &prod, On::Any));
    assert!(may("ci", Right::Read, &prod, On::All) && may("ops", Right::Admin, &test, On::All));
    for (right, on) in [
        (Right::Admin, On::Name("deploy/a")),
        (Right::Lock, On::Name("deploy")),
        (Right::Lock, On::Prefix("deploy")),
        (Right::Lock, On::All),
    ] {
        assert!(!may("ci", right, &prod, on), "{right:?} {on}");
    }
    assert!(!may("ci", Right::Read, &test, On::Any) && !may("idle", Right::Read, &prod, On::Any));
    assert!(!may("unknown", Right::Read, &prod, On::Any) && !may("anonymous", Right::Read, &prod, On::Any));
    assert!(may("local", Right::Admin, &prod, On::All));
    let rule = access.rule(&principal("ops"), Right::Admin, &test, On::All).expect("a rule");
    assert_eq!(rule.to_string(), "role \"all\" may administer all names in every namespace");
    assert_eq!(access.need_cluster(&principal("ops"), ClusterRight::Metrics), Ok(()));
    let refused = access.need_cluster(&principal("ops"), ClusterRight::Operate).expect_err("refused").to_string();
    assert_eq!(refused, "principal \"ops\" may not operate the cluster");
    let refused = access.need(&principal("idle"), Right::Lock, &prod, On::Name("deploy/a")).expect_err("refused");
    assert_eq!(refused.to_string(), "principal \"idle\" has no right to lock \"deploy/a\" in namespace \"prod\"");
}

/// A caller is the principal that it proves. What does not count is refused, and never replaced by less.
#[test]
fn callers_prove_their_principal() {
    let token = new_token([1, 2]);
    let hash = TokenHash::of(&token).expect("a token");
    let entry = format!("[[token]]\nprincipal = \"ops\"\nsha256 = \"{hash}\"\nexpires = \"1970-01-02T00:00:00Z\"\n");
    let rules = access(&format!("{GOOD}{entry}"));
    let who = |who: Who, now: u64| rules.principal(&who, WallTime(now)).map(|found| found.to_string());
    let refused = |caller: Who, now: u64| who(caller, now).expect_err("refused").to_string();
    assert_eq!(who(Who::Token(hash), 86_399_999).as_deref(), Ok("ops"));
    let expired = format!("the token {} expired on 1970-01-02", hash.id());
    assert_eq!(refused(Who::Token(hash), 86_400_000), expired);
    let other = TokenHash::of(&new_token([1, 3])).expect("a token");
    assert_eq!(refused(Who::Token(other), 0), "the token is not known");
    let certificate = |name| Who::Certificate { name: principal(name), digest: "9f".into() };
    assert_eq!(who(certificate("ci"), 0).as_deref(), Ok("ci"));
    assert!(refused(certificate("ops"), 0).contains("the certificate of \"ops\" counts for no principal"));
    assert_eq!(who(Who::Proven(principal("ops")), 0).as_deref(), Ok("ops"));
    assert!(refused(Who::Proven(principal("gone")), 0).contains("no principal \"gone\""));
    assert_eq!([Who::Local, Who::Proven(Principal::local())].map(|local| who(local, 0).unwrap()), ["local", "local"]);
    assert!(refused(Who::Anonymous, 0).starts_with("no proof of who you are: send a client certificate"));
    let named = access(&format!("{GOOD}[[principal]]\nname = \"anonymous\"\nroles = [\"deploy\"]\n"));
    for bare in [Who::Anonymous, certificate("ops")] {
        assert_eq!(named.principal(&bare, WallTime(0)), Ok(Principal::default()));
    }
    assert_ne!(named.digest(), rules.digest());
}

/// Each mistake is refused with its line, what is wrong, and a fix.
#[test]
fn mistakes_are_refused_with_their_line() {
    let hash = "0".repeat(64);
    let token = |principal: &str, sha256: &str, expires: &str| {
        format!("[[token]]\nprincipal = \"{principal}\"\nsha256 = \"{sha256}\"\nexpires = \"{expires}\"\n")
    };
    let time = "2027-11-24T00:00:00Z";
    for (more, line, problem) in [
        ("[[role]]\nname = \"all\"\n", 20, "this role is named twice"),
        ("[[role]]\nname = \"x\"\nrules = [{ namespace = \"No\", right = \"read\" }]\n", 21, "this is no namespace"),
        ("[[role]]\nname = \"x\"\nrules = [{ namespace = \"*\", right = \"write\" }]\n", 21, "unknown variant `write`"),
        ("[[role]]\nname = \"x\"\ncluster = [\"all\"]\n", 21, "unknown variant `all`"),
        ("[[principal]]\nname = \"ci\"\nroles = []\n", 20, "this principal is named twice"),
        ("[[principal]]\nname = \"x\"\nroles = [\"y\"]\n", 21, "there is no role \"y\""),
        ("[[principal]]\nname = \"X\"\nroles = []\n", 20, "a principal's name is 1 to 64 bytes"),
        ("[[principal]]\nname = \"local\"\nroles = []\n", 20, "\"local\" is a reserved name"),
        ("[[principal]]\nname = \"node-7\"\nroles = []\n", 20, "\"node-7\" is a reserved name"),
        ("[[principal]]\nname = \"anonymous\"\nroles = []\ncertificate = true", 20, "has no certificate"),
        ("[[principal]]\nname = \"x\"\nroles = []\nright = 1\n", 22, "unknown field `right`"),
        (
            "[[principal]]\nname = \"x\"\nroles = []\ncommands_a_second = 0\n",
            22,
            "commands_a_second is 0, not 1 to 1000000",
        ),
        (
            "[[principal]]\nname = \"x\"\nroles = []\nrenewals_a_second = 1000001\n",
            22,
            "renewals_a_second is 1000001, not",
        ),
        (&token("x", &hash, time), 20, "the token is of \"x\", which is no principal"),
        (&token("ci", "12", time), 21, "sha256 is not 64 hexadecimal digits"),
        (&token("ci", &hash, "tomorrow"), 22, "expires is not a time"),
        (
            &token("ci", &hash, "2999-01-01T00:00:00Z"),
            22,
            "expires is more than 3650 days after today, 2026-01-01; write an earlier time, or revoke the token with \
             `lockkeeper auth revoke`",
        ),
        (&(token("ci", &hash, time) + &token("ops", &hash, time)), 25, "this token is named twice"),
    ] {
        let refused = Access::from_toml("auth.toml", &format!("{GOOD}{more}"), NOW).expect_err(more).to_string();
        assert!(refused.starts_with(&format!("auth.toml:{line}: ")), "{refused}");
        assert!(refused.contains(problem) && refused.contains("; "), "{refused}");
    }
    let newer = Access::from_toml("auth.toml", "version = 2\n", NOW).expect_err("newer").to_string();
    assert_eq!(newer, "auth.toml:1: this version of the file is not known; write version = 1");
}

/// A token that was made for the longest time is good also on a machine whose clock is behind by less than a day.
#[test]
fn the_longest_token_is_good_on_every_machine() {
    let latest = |days: u64, ms: u64| {
        let expires = token::time(WallTime(NOW.0 + days * limits::DAY_MS + ms));
        let hash = "0".repeat(64);
        let entry = format!("[[token]]\nprincipal = \"ci\"\nsha256 = \"{hash}\"\nexpires = \"{expires}\"\n");
        Access::from_toml("auth.toml", &format!("{GOOD}{entry}"), NOW)
    };
    assert!(latest(limits::TOKEN_DAYS_MAX + 1, 0).is_ok());
    assert!(latest(limits::TOKEN_DAYS_MAX + 1, 1_000).is_err());
}

/// Other rules name the principals and tokens that they no longer have.
#[test]
fn removed_principals_and_tokens_are_named() {
    let hash = TokenHash::of(&new_token([1, 2])).expect("a token");
    let entry = format!("[[token]]\nprincipal = \"ops\"\nsha256 = \"{hash}\"\nexpires = \"2027-11-24T00:00:00Z\"\n");
    let (before, after) = (access(&format!("{GOOD}{entry}")), access(&GOOD.replace("\"idle\"", "\"new\"")));
    assert_eq!(after.removed_since(&before), (vec!["idle".to_owned()], vec![hash.id()]));
    assert_eq!(before.removed_since(&before), (vec![], vec![]));
}

/// A file that other users can write is refused: each of them could take every right.
#[test]
fn a_file_that_other_users_can_write_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("auth.toml");
    fs::write(&path, GOOD).expect("written");
    let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
    let name = path.display();
    for open in [0o666, 0o620, 0o602] {
        mode(open);
        let refused = Access::from_file(&path, NOW).expect_err("refused").to_string();
        assert_eq!(refused, format!("{name} can be written by other users than its owner; run chmod go-w {name}"));
    }
    for closed in [0o600, 0o644] {
        mode(closed);
        assert_eq!(Access::from_file(&path, NOW), Ok(access(GOOD)));
    }
}
