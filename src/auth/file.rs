//! The file of rules: reads it, and refuses what is contradictory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZeroU32;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use serde::Deserialize;
use sha2::{Digest, Sha256};
use toml::Spanned;

use super::rules::{ClusterRight, Right, Rule};
use super::token::{self, TokenHash};
use super::{Access, Grants, Token};
use crate::limits;
use crate::model::{Namespace, Principal, WallTime};

/// Bits of a file's mode that let users other than its owner write it.
const WRITTEN_BY_OTHERS: u32 = 0o022;
/// The only version of the file.
const VERSION: u32 = 1;

/// Why a file of rules cannot be used. The text names the file, the line, the problem and the fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AuthError(String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: Spanned<u32>,
    #[serde(default)]
    role: Vec<FileRole>,
    #[serde(default)]
    principal: Vec<FilePrincipal>,
    #[serde(default)]
    token: Vec<FileToken>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRole {
    name: Spanned<String>,
    #[serde(default)]
    rules: Vec<FileRule>,
    #[serde(default)]
    cluster: Vec<ClusterRight>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRule {
    namespace: Spanned<String>,
    #[serde(default)]
    prefix: String,
    right: Right,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FilePrincipal {
    name: Spanned<String>,
    roles: Vec<Spanned<String>>,
    #[serde(default)]
    certificate: bool,
    commands_a_second: Option<Spanned<u64>>,
    renewals_a_second: Option<Spanned<u64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileToken {
    principal: Spanned<String>,
    sha256: Spanned<String>,
    expires: Spanned<String>,
}

/// The file's name and text, for the places of errors.
struct Source<'a> {
    name: &'a str,
    text: &'a str,
}

impl Source<'_> {
    fn refuse<T>(&self, at: &Spanned<T>, problem: &str, fix: &str) -> AuthError {
        self.refuse_at(at.span().start, problem, fix)
    }

    fn refuse_at(&self, byte: usize, problem: &str, fix: &str) -> AuthError {
        let line = 1 + self.text.bytes().take(byte).filter(|byte| *byte == b'\n').count();
        AuthError(format!("{}:{line}: {problem}; {fix}", self.name))
    }

    fn namespace(&self, text: &Spanned<String>) -> Result<Option<Namespace>, AuthError> {
        if text.get_ref() == "*" {
            return Ok(None);
        }
        let refused = |_| self.refuse(text, "this is no namespace", "write its name, or \"*\" for all");
        Namespace::parse(text.get_ref()).map(Some).map_err(refused)
    }
}

impl Access {
    /// Reads a file of rules. Refuses a file that users other than its owner can write, and a token that lasts longer
    /// than the longest one made `now`.
    ///
    /// # Errors
    /// The file cannot be used. The error names the file, the line, the problem and the fix.
    pub fn from_file(path: &Path, now: WallTime) -> Result<Self, AuthError> {
        let name = path.display().to_string();
        let unread = |error| AuthError(format!("{name} cannot be read: {error}; check the path"));
        let metadata = fs::metadata(path).map_err(unread)?;
        if metadata.permissions().mode() & WRITTEN_BY_OTHERS != 0 {
            let problem = "can be written by other users than its owner";
            return Err(AuthError(format!("{name} {problem}; run chmod go-w {name}")));
        }
        if limits::AUTH_FILE_BYTES_MAX < metadata.len() {
            let most = limits::AUTH_FILE_BYTES_MAX;
            return Err(AuthError(format!("{name} has more than {most} bytes; remove expired tokens")));
        }
        Self::from_toml(&name, &fs::read_to_string(path).map_err(unread)?, now)
    }

    /// Reads a text of rules, whose name in errors is `name`.
    ///
    /// # Errors
    /// See [`from_file`](Self::from_file).
    pub fn from_toml(name: &str, text: &str, now: WallTime) -> Result<Self, AuthError> {
        let source = Source { name, text };
        let file: File = toml::from_str(text).map_err(|error| {
            let problem = error.message().trim().replace('\n', " ");
            let fix = "write it as the manual's page on security does";
            source.refuse_at(error.span().map_or(0, |span| span.start), &problem, fix)
        })?;
        if *file.version.get_ref() != VERSION {
            return Err(source.refuse(&file.version, "this version of the file is not known", "write version = 1"));
        }
        let roles = roles(&source, &file.role)?;
        let mut principals = BTreeMap::new();
        for principal in file.principal {
            let (name, grants) = granted(&source, &principal, &roles)?;
            if principals.insert(name, grants).is_some() {
                return Err(source.refuse(&principal.name, "this principal is named twice", "remove one"));
            }
        }
        let mut tokens = BTreeMap::new();
        for token in file.token {
            let (hash, owned) = owned(&source, &token, &principals, now)?;
            if tokens.insert(hash, owned).is_some() {
                return Err(source.refuse(&token.sha256, "this token is named twice", "remove one"));
            }
        }
        let digest = Sha256::digest(text).iter().take(8).fold(0, |start, byte| start << 8 | u64::from(*byte));
        Ok(Self { principals, tokens, digest })
    }
}

fn roles<'a>(source: &Source<'_>, roles: &'a [FileRole]) -> Result<BTreeMap<&'a str, Grants>, AuthError> {
    let mut known = BTreeMap::new();
    for FileRole { name, rules, cluster } in roles {
        let rule = |rule: &FileRule| {
            let namespace = source.namespace(&rule.namespace)?;
            Ok(Rule { role: name.get_ref().clone(), namespace, prefix: rule.prefix.clone(), right: rule.right })
        };
        let rules = rules.iter().map(rule).collect::<Result<Vec<_>, AuthError>>()?;
        let grants = Grants { rules, cluster: cluster.clone(), ..Grants::default() };
        if known.insert(name.get_ref().as_str(), grants).is_some() {
            return Err(source.refuse(name, "this role is named twice", "remove one"));
        }
    }
    Ok(known)
}

/// Returns a principal with all that its roles give.
fn granted(
    source: &Source<'_>,
    principal: &FilePrincipal,
    roles: &BTreeMap<&str, Grants>,
) -> Result<(Principal, Grants), AuthError> {
    let FilePrincipal { name, roles: named, certificate, commands_a_second, renewals_a_second } = principal;
    let refused = |why: String| source.refuse(name, &why, "choose another name");
    let principal = principal_name(name.get_ref()).map_err(refused)?;
    if principal.is_anonymous() && *certificate {
        return Err(source.refuse(name, "\"anonymous\" has no certificate", "remove certificate = true"));
    }
    let commands_a_second = rate(source, "commands_a_second", commands_a_second.as_ref())?;
    let renewals_a_second = rate(source, "renewals_a_second", renewals_a_second.as_ref())?;
    let certificate = *certificate;
    let mut grants = Grants { certificate, commands_a_second, renewals_a_second, ..Grants::default() };
    for role in named.iter().collect::<BTreeSet<_>>() {
        let unknown = || {
            let problem = format!("there is no role {:?}", role.get_ref());
            source.refuse(role, &problem, "add a [[role]], or name another one")
        };
        let Grants { rules, cluster, .. } = roles.get(role.get_ref().as_str()).ok_or_else(unknown)?;
        grants.rules.extend(rules.iter().cloned());
        grants.cluster.extend(cluster);
        grants.roles.push(role.get_ref().clone());
    }
    Ok((principal, grants))
}

/// Returns a rate within its bounds; `None` if the file has none.
fn rate(source: &Source<'_>, key: &str, written: Option<&Spanned<u64>>) -> Result<Option<NonZeroU32>, AuthError> {
    let Some(at) = written else { return Ok(None) };
    let most = limits::COMMANDS_A_SECOND_MAX;
    let bounded = u32::try_from(*at.get_ref()).ok().filter(|rate| *rate <= most).and_then(NonZeroU32::new);
    bounded.map(Some).ok_or_else(|| {
        let problem = format!("{key} is {}, not 1 to {most}", at.get_ref());
        source.refuse(at, &problem, "correct it, or remove it for no bound")
    })
}

fn owned(
    source: &Source<'_>,
    token: &FileToken,
    principals: &BTreeMap<Principal, Grants>,
    now: WallTime,
) -> Result<(TokenHash, Token), AuthError> {
    let FileToken { principal, sha256, expires } = token;
    let owner = principals.keys().find(|known| known.as_str() == principal.get_ref() && !known.is_anonymous());
    let Some(owner) = owner else {
        let problem = format!("the token is of {:?}, which is no principal", principal.get_ref());
        return Err(source.refuse(principal, &problem, "add a [[principal]] of this name, or remove the token"));
    };
    let fix = "make a token with `lockkeeper auth token`";
    let Some(hash) = TokenHash::parse(sha256.get_ref()) else {
        return Err(source.refuse(sha256, "sha256 is not 64 hexadecimal digits", fix));
    };
    let time = humantime::parse_rfc3339(expires.get_ref()).ok();
    let since = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let Some(millis) = since.and_then(|since| u64::try_from(since.as_millis()).ok()) else {
        return Err(source.refuse(expires, "expires is not a time like 2027-11-24T00:00:00Z", fix));
    };
    // One day more, because the machine that made the token may have another time.
    let latest = WallTime(now.0.saturating_add((limits::TOKEN_DAYS_MAX + 1) * limits::DAY_MS));
    if latest < WallTime(millis) {
        let (most, today) = (limits::TOKEN_DAYS_MAX, token::day(now));
        let fix = "write an earlier time, or revoke the token with `lockkeeper auth revoke`";
        return Err(source.refuse(expires, &format!("expires is more than {most} days after today, {today}"), fix));
    }
    Ok((hash, Token { principal: owner.clone(), expires: WallTime(millis) }))
}

/// Returns the principal with this name.
///
/// # Errors
/// The text is not the name of a principal that a file may define.
pub fn principal_name(text: &str) -> Result<Principal, String> {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    let most = limits::PRINCIPAL_NAME_BYTES_MAX;
    let bad = format!("a principal's name is 1 to {most} bytes of a-z 0-9 - _ .");
    if most < text.len() || !text.bytes().all(legal) {
        return Err(bad);
    }
    let principal = Principal::parse(text).map_err(|_| bad)?;
    if principal.is_local() || text.strip_prefix("node-").is_some_and(|id| id.parse::<u64>().is_ok()) {
        return Err(format!("{text:?} is a reserved name"));
    }
    Ok(principal)
}
