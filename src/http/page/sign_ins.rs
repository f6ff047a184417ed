//! Sign-ins of browsers: which cookie stands for which token, and the secrets that protect forms.
//!
//! The cookie of a browser is a random secret of this node, not the token. The node remembers only the cookie's hash.

use std::collections::BTreeMap;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::auth::TokenHash;
use crate::clock::{Clock, Instant};
use crate::limits;
use crate::mutex::Mutex;

/// The sign-ins of one node, by the hashes of their cookies.
#[derive(Debug, Default)]
pub(super) struct SignIns(Mutex<BTreeMap<[u8; 32], SignIn>>);

/// One browser that has signed in.
#[derive(Debug, Clone)]
pub(super) struct SignIn {
    /// The token with which it signed in.
    pub(super) token: TokenHash,
    since: Instant,
    form_key: u128,
}

impl SignIn {
    /// Whether this sign-in is new enough to act on the locks of others.
    pub(super) fn may_act(&self, now: Instant) -> bool {
        now.since(self.since) < Duration::from_millis(limits::SIGN_IN_ACTS_MS_MAX)
    }

    /// Returns the secret of a form. It is bound to this sign-in, and to everything that the form is about.
    pub(super) fn form_secret(&self, about: &[impl AsRef<str>]) -> String {
        let mut hash = Sha256::new_with_prefix(self.form_key.to_be_bytes());
        for text in about {
            let text: &str = text.as_ref();
            hash.update(text.len().to_be_bytes());
            hash.update(text);
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether `sent` is the secret of the form that is about `about`. Compares hashes, so that the duration of the
    /// comparison reveals nothing about the secret.
    pub(super) fn proves(&self, about: &[impl AsRef<str>], sent: &str) -> bool {
        Sha256::digest(sent) == Sha256::digest(self.form_secret(about))
    }
}

impl SignIns {
    /// Remembers a sign-in, and returns its cookie. If this token has the maximum of sign-ins, its oldest one ends.
    /// Otherwise, if the node has the maximum, the oldest of all ends.
    pub(super) fn open(&self, token: TokenHash, clock: &dyn Clock) -> String {
        let cookie = format!("{:032x}{:032x}", clock.random_u128(), clock.random_u128());
        let sign_in = SignIn { token, since: clock.now(), form_key: clock.random_u128() };
        let mut open = self.0.lock();
        let own = open.values().filter(|sign_in| sign_in.token == token).count();
        let token_is_full = limits::SIGN_INS_OF_A_TOKEN_MAX <= own;
        if token_is_full || limits::SIGN_INS_MAX <= open.len() {
            let candidates = open.iter().filter(|(_, sign_in)| !token_is_full || sign_in.token == token);
            let oldest = candidates.min_by_key(|(_, sign_in)| sign_in.since).map(|(cookie, _)| *cookie);
            oldest.map(|cookie| open.remove(&cookie));
        }
        open.insert(Sha256::digest(&cookie).into(), sign_in);
        cookie
    }

    /// Returns the sign-in of a cookie, unless it has ended.
    pub(super) fn find(&self, cookie: &str, now: Instant) -> Option<SignIn> {
        let lives = |sign_in: &SignIn| now.since(sign_in.since) < Duration::from_millis(limits::SIGN_IN_MS_MAX);
        let mut open = self.0.lock();
        open.retain(|_, sign_in| lives(sign_in));
        open.get(&<[u8; 32]>::from(Sha256::digest(cookie))).cloned()
    }

    /// Ends the sign-in of a cookie.
    pub(super) fn close(&self, cookie: &str) {
        self.0.lock().remove(&<[u8; 32]>::from(Sha256::digest(cookie)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::new_token;
    use crate::clock::ManualClock;

    fn token() -> TokenHash {
        TokenHash::of(&new_token([1, 2])).expect("a token")
    }

    fn later(clock: &ManualClock, ms: u64) {
        clock.advance(Duration::from_millis(ms));
    }

    /// A cookie stands for its token until the sign-in ends. Only a new sign-in may act.
    #[test]
    fn a_sign_in_ends() {
        let (sign_ins, clock) = (SignIns::default(), ManualClock::new(1));
        let cookie = sign_ins.open(token(), &clock);
        assert_eq!(sign_ins.find(&cookie, clock.now()).map(|found| found.token), Some(token()));
        assert!(sign_ins.find("another", clock.now()).is_none());
        later(&clock, limits::SIGN_IN_ACTS_MS_MAX - 1);
        assert!(sign_ins.find(&cookie, clock.now()).is_some_and(|found| found.may_act(clock.now())));
        later(&clock, 1);
        assert!(sign_ins.find(&cookie, clock.now()).is_some_and(|found| !found.may_act(clock.now())));
        later(&clock, limits::SIGN_IN_MS_MAX);
        assert!(sign_ins.find(&cookie, clock.now()).is_none());
        let other = sign_ins.open(token(), &clock);
        sign_ins.close(&other);
        assert!(sign_ins.find(&other, clock.now()).is_none());
    }

    /// The secret of a form fits only its sign-in, act, lock and grant. The same characters, divided into other parts,
    /// have another secret.
    #[test]
    fn a_form_is_bound_to_what_it_is_about() {
        let (sign_ins, clock) = (SignIns::default(), ManualClock::new(1));
        let [own, another] = [(); 2].map(|()| {
            let cookie = sign_ins.open(token(), &clock);
            sign_ins.find(&cookie, clock.now()).expect("open")
        });
        let about = ["break", "default", "nightly", "31"];
        let secret = own.form_secret(&about);
        assert!(own.proves(&about, &secret));
        assert!(!another.proves(&about, &secret) && !own.proves(&about, "") && !own.proves(&about, &secret[1..]));
        for others in [
            ["ask", "default", "nightly", "31"],
            ["break", "default", "nightly", "32"],
            ["break", "defaultn", "ightly", "31"],
        ] {
            assert!(!own.proves(&others, &secret), "{others:?}");
        }
    }

    /// The oldest sign-in ends when there are too many.
    #[test]
    fn sign_ins_are_limited() {
        let (sign_ins, clock) = (SignIns::default(), ManualClock::new(1));
        let open = |number: usize| {
            later(&clock, 1);
            sign_ins.open(TokenHash::of(&new_token([1, number as u128])).expect("a token"), &clock)
        };
        let (first, second) = (open(0), open(1));
        (0..limits::SIGN_INS_MAX - 1).for_each(|number| drop(open(2 + number)));
        assert!(sign_ins.find(&first, clock.now()).is_none());
        assert!(sign_ins.find(&second, clock.now()).is_some());
    }

    /// A token that signs in again and again ends its own oldest sign-ins, and no other one.
    #[test]
    fn one_token_signs_out_no_other() {
        let (sign_ins, clock) = (SignIns::default(), ManualClock::new(1));
        let other = sign_ins.open(TokenHash::of(&new_token([3, 4])).expect("a token"), &clock);
        let open = |_| {
            later(&clock, 1);
            sign_ins.open(token(), &clock)
        };
        let cookies: Vec<_> = (0..2 * limits::SIGN_INS_MAX).map(open).collect();
        let newest_first = cookies.iter().rev().map(|cookie| sign_ins.find(cookie, clock.now()).is_some());
        let expected = (0..cookies.len()).map(|newer| newer < limits::SIGN_INS_OF_A_TOKEN_MAX);
        assert!(newest_first.eq(expected));
        assert!(sign_ins.find(&other, clock.now()).is_some());
    }
}
