//! Access control: principals, how they prove themselves, and the rules of their roles, read from one file.
//!
//! Knows: limits, model. Never: sockets, the state of locks, or what a call needs.

mod file;
mod rules;
mod token;

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::model::{Namespace, Principal, WallTime};

pub use file::{AuthError, principal_name};
pub use rules::{ClusterRight, On, Right, Rule};
#[cfg(feature = "cli")]
pub(crate) use token::time;
pub use token::{MalformedToken, TokenHash, new_token};

/// How a caller shows which principal it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// The node itself, or the application that embeds it: may do everything.
    Local,
    /// A caller that shows nothing.
    Anonymous,
    /// A caller that shows a token with this hash.
    Token(TokenHash),
    /// A caller that shows a client's certificate.
    Certificate {
        /// The name in the certificate.
        name: Principal,
        /// SHA-256 of the certificate in hexadecimal digits.
        digest: Arc<str>,
    },
    /// A caller whose principal was proven elsewhere: by another node, or by the application that embeds the node.
    Proven(Principal),
}

/// Why a caller is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// The caller does not prove that it is a known principal.
    Unauthenticated(String),
    /// The principal lacks a right.
    Forbidden(String),
}

/// The principals of a cluster with their rights and tokens. Immutable: a changed file is another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    principals: BTreeMap<Principal, Grants>,
    tokens: BTreeMap<TokenHash, Token>,
    digest: u64,
}

/// What a principal may do, and how it proves itself besides its tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Grants {
    rules: Vec<Rule>,
    cluster: Vec<ClusterRight>,
    roles: Vec<String>,
    certificate: bool,
    commands_a_second: Option<NonZeroU32>,
    renewals_a_second: Option<NonZeroU32>,
}

/// The owner of a token, and the end of the token.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Token {
    principal: Principal,
    expires: WallTime,
}

/// One principal, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrincipalView<'a> {
    /// Name of the principal.
    pub name: &'a Principal,
    /// Names of its roles.
    pub roles: &'a [String],
    /// Whether a certificate with its name counts.
    pub certificate: bool,
    /// Hashes of its tokens, with the time at which each expires.
    pub tokens: Vec<(TokenHash, WallTime)>,
    /// Commands that it may send in a second; `None` for no bound.
    pub commands_a_second: Option<NonZeroU32>,
    /// Renewals that it may send in a second; `None` for no bound.
    pub renewals_a_second: Option<NonZeroU32>,
}

impl Access {
    /// Returns the start of the SHA-256 of the file, by which nodes and operators compare their files.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Returns the principals of `before` that these rules lack, and the ids of its tokens that they lack.
    #[must_use]
    pub fn removed_since(&self, before: &Self) -> (Vec<String>, Vec<String>) {
        let principals = before.principals.keys().filter(|name| !self.principals.contains_key(*name));
        let tokens = before.tokens.keys().filter(|hash| !self.tokens.contains_key(*hash));
        (principals.map(ToString::to_string).collect(), tokens.map(TokenHash::id).collect())
    }

    /// Returns the principal of a caller.
    ///
    /// # Errors
    /// [`Denied::Unauthenticated`] if the caller does not prove that it is a principal of the file.
    pub fn principal(&self, who: &Who, now: WallTime) -> Result<Principal, Denied> {
        let principal = match who {
            Who::Local => return Ok(Principal::local()),
            Who::Token(hash) => {
                let unknown = || Denied::Unauthenticated("the token is not known".to_owned());
                // Not in constant time: the time depends on the hash alone, and a caller who learns the start of a
                // known hash cannot find a token with that hash, because a token has 256 random bits.
                let token = self.tokens.get(hash).ok_or_else(unknown)?;
                if token.expires <= now {
                    let day = token::day(token.expires);
                    return Err(Denied::Unauthenticated(format!("the token {} expired on {day}", hash.id())));
                }
                &token.principal
            }
            Who::Certificate { name, .. } if self.principals.get(name).is_some_and(|grants| grants.certificate) => name,
            Who::Certificate { .. } | Who::Anonymous => &Principal::default(),
            Who::Proven(name) => name,
        };
        if principal.is_local() || self.principals.contains_key(principal) {
            return Ok(principal.clone());
        }
        Err(Denied::Unauthenticated(match who {
            Who::Certificate { name, .. } => format!("the certificate of {:?} counts for no principal", name.as_str()),
            Who::Proven(name) if !name.is_anonymous() => {
                format!("there is no principal {:?} in the file of rules", name.as_str())
            }
            Who::Local | Who::Anonymous | Who::Token(_) | Who::Proven(_) => {
                "no proof of who you are: send a client certificate (--cert, --key) or a token (--auth-token-file)"
                    .to_owned()
            }
        }))
    }

    /// Returns how many commands a principal may send in a second; `None` for no bound.
    #[must_use]
    pub fn commands_a_second(&self, principal: &Principal) -> Option<NonZeroU32> {
        self.principals.get(principal)?.commands_a_second
    }

    /// Returns how many renewals a principal may send in a second; `None` for no bound.
    #[must_use]
    pub fn renewals_a_second(&self, principal: &Principal) -> Option<NonZeroU32> {
        self.principals.get(principal)?.renewals_a_second
    }

    /// Returns when the proof of a caller ends; `None` if it does not end at a certain time.
    #[must_use]
    pub fn ends(&self, who: &Who) -> Option<WallTime> {
        let Who::Token(hash) = who else { return None };
        self.tokens.get(hash).map(|token| token.expires)
    }

    /// Returns the rule that gives a principal this right on names in a namespace, with the name of its role.
    #[must_use]
    pub fn rule(&self, principal: &Principal, right: Right, namespace: &Namespace, on: On<'_>) -> Option<&Rule> {
        self.principals.get(principal)?.rules.iter().find(|rule| rule.gives(right, namespace, on))
    }

    /// Returns the largest right that a principal has on any name, in any namespace.
    #[cfg(feature = "cli")]
    pub(crate) fn largest_right(&self, principal: &Principal) -> Option<Right> {
        self.principals.get(principal)?.rules.iter().map(|rule| rule.right).max()
    }

    /// Whether a principal has this right on names in a namespace.
    #[must_use]
    pub fn has(&self, principal: &Principal, right: Right, namespace: &Namespace, on: On<'_>) -> bool {
        principal.is_local() || self.rule(principal, right, namespace, on).is_some()
    }

    /// Refuses a principal without this right on names in a namespace.
    ///
    /// # Errors
    /// [`Denied::Forbidden`], with a text that contains only what the caller sent.
    pub fn need(&self, principal: &Principal, right: Right, namespace: &Namespace, on: On<'_>) -> Result<(), Denied> {
        if self.has(principal, right, namespace, on) {
            return Ok(());
        }
        let why =
            format!("principal {:?} has no right to {right} {on} in namespace \"{namespace}\"", principal.as_str());
        Err(Denied::Forbidden(why))
    }

    /// Refuses a principal without this right on the cluster.
    ///
    /// # Errors
    /// [`Denied::Forbidden`].
    pub fn need_cluster(&self, principal: &Principal, right: ClusterRight) -> Result<(), Denied> {
        let has = self.principals.get(principal).is_some_and(|grants| grants.cluster.contains(&right));
        if has || principal.is_local() {
            return Ok(());
        }
        Err(Denied::Forbidden(format!("principal {:?} may not {right}", principal.as_str())))
    }

    /// Returns all principals, in the order of their names.
    pub fn principals(&self) -> impl Iterator<Item = PrincipalView<'_>> {
        self.principals.iter().map(|(name, grants)| {
            let own = self.tokens.iter().filter(|(_, token)| token.principal == *name);
            let tokens = own.map(|(hash, token)| (*hash, token.expires)).collect();
            let &Grants { ref roles, certificate, commands_a_second, renewals_a_second, .. } = grants;
            PrincipalView { name, roles, certificate, tokens, commands_a_second, renewals_a_second }
        })
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Denied::Unauthenticated(why) | Denied::Forbidden(why) => f.write_str(why),
        }
    }
}

#[cfg(test)]
mod tests;
