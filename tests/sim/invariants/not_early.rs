//! A session does not end before the end that its client computed from acknowledged renewals. (Promise 4.)

use super::Invariant;

pub(super) const THIS: Invariant = Invariant {
    name: "not early",
    sentence: "A session never expires before the end that its client computed from acknowledged renewals.",
    broken: |evidence| {
        let early = evidence.notes.expired.iter().filter_map(|(session, ended)| {
            let sure = evidence.notes.sure_until.get(session)?;
            (ended < sure).then(|| format!("{session} ended at {ended:?}, and its client was sure until {sure:?}"))
        });
        early.collect()
    },
};
