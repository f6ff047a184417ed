//! Checks before the log: values out of bounds, and commands that only nodes may submit.

use crate::limits;
use crate::model::{
    Access, Acquire, Alter, Alteration, Command, DocumentCommand, Invalid, LeaseRequestId, ListFilter, Manage,
    Managing, Metadata, Mode, Patience, Query, Release, RequestId, TakeLease, WhichPings,
};
use crate::service::{Call, Scope, ServiceError};

/// Refuses a call with a value out of bounds. The error names the field, the bound and the value.
pub(super) fn check(call: &Call) -> Result<(), ServiceError> {
    if let Command::Acquire(Acquire { request, .. })
    | Command::Release(Release { request, .. })
    | Command::Alter(Alter { request, .. }) = &call.command
    {
        own_request(*request)?;
    }
    match &call.command {
        Command::OpenSession(open) => metadata(&open.metadata)?,
        Command::Acquire(acquire) => {
            acquire.checked()?;
            metadata(&acquire.metadata)?;
            acquire.locks.values().try_for_each(|access| permits(*access))?;
            wait(acquire.patience)?;
        }
        Command::TakeLease(TakeLease { take, access, patience, metadata: texts, .. }) => {
            lease_request(*take)?;
            metadata(texts)?;
            permits(*access)?;
            wait(*patience)?;
            if *patience == Patience::Session {
                return Err(Invalid::new("wait", "a duration: no session bounds this wait", "none").into());
            }
        }
        Command::CancelTake { take, .. } => lease_request(*take)?,
        Command::DropLease { .. }
        | Command::Attach(_)
        | Command::Disconnected { .. }
        | Command::CloseSession { .. }
        | Command::EndSession(_)
        | Command::ChangeSetting(_)
        | Command::Cancel { .. }
        | Command::Release(_)
        | Command::Alter(Alter {
            what: Alteration::Downgrade { .. } | Alteration::Resume { .. } | Alteration::SetValue { .. },
            ..
        }) => {}
        Command::Alter(Alter { what: Alteration::Upgrade { patience, .. }, .. }) => wait(*patience)?,
        Command::Alter(Alter { what: Alteration::ReturnPermits { count, .. }, .. }) => {
            permits(Access::permits(*count, None))?;
        }
        Command::Manage(Manage { what: Managing::SetLimit { limit }, .. }) => {
            permits(Access::permits(1, *limit))?;
        }
        Command::Manage(_) => {}
        Command::Document(DocumentCommand::Grab(grab)) => {
            metadata(&grab.metadata)?;
            grab.checked()?;
        }
        Command::Document(_) => {}
        Command::Tick
        | Command::LeaderlessGap { .. }
        | Command::Configure { .. }
        | Command::Announce(_)
        | Command::RaiseFeatures(_) => {
            return Err(Invalid::new("command", "one that callers may submit", "one that only nodes make").into());
        }
    }
    Ok(())
}

/// Refuses a query whose texts are out of bounds.
pub(super) fn query(query: &Query) -> Result<(), ServiceError> {
    match query {
        Query::List(ListFilter { prefix, .. }) => text("prefix", prefix, limits::LOCK_NAME_BYTES_MAX),
        Query::Pings { which: WhichPings::Of(process) | WhichPings::After(Some(process)), .. } => {
            text("process", process, limits::METADATA_BYTES_MAX)
        }
        Query::Pings { which: WhichPings::After(None), .. }
        | Query::Check { .. }
        | Query::Inspect { .. }
        | Query::Holders { .. }
        | Query::Sessions { .. }
        | Query::Claim { .. }
        | Query::Totals
        | Query::Explain(_)
        | Query::History { .. }
        | Query::Tokens { .. }
        | Query::Documents { .. }
        | Query::WouldBreak { .. } => Ok(()),
    }
}

/// Refuses a subscription whose texts are out of bounds.
pub(super) fn scope(scope: &Scope) -> Result<(), ServiceError> {
    match scope {
        Scope::Namespace { prefix, .. } => text("prefix", prefix, limits::LOCK_NAME_BYTES_MAX),
        Scope::Session(_) | Scope::SessionEnd(_) | Scope::Holds(_) => Ok(()),
    }
}

fn text(field: &str, text: &str, bytes_max: usize) -> Result<(), ServiceError> {
    if text.len() <= bytes_max {
        return Ok(());
    }
    Err(Invalid::new(field, format!("at most {bytes_max} bytes"), format!("{} bytes", text.len())).into())
}

/// Whether only a node may submit the command, for itself. Such a command is never forwarded.
pub(super) fn is_internal(command: &Command) -> bool {
    matches!(
        command,
        Command::Tick
            | Command::LeaderlessGap { .. }
            | Command::Configure { .. }
            | Command::Announce(_)
            | Command::RaiseFeatures(_)
    )
}

fn metadata(metadata: &Metadata) -> Result<(), ServiceError> {
    Ok(metadata.clone().checked().map(|_| ())?)
}

/// Refuses a number of the cluster's own requests, because the answer to such a request is not remembered. A cancel may
/// name one: it is the number of a hold that was handed over to the session.
fn own_request(RequestId { number, .. }: RequestId) -> Result<(), ServiceError> {
    if number < limits::OWN_REQUESTS_MIN {
        return Ok(());
    }
    let bound = format!("below {}: the cluster numbers its own requests from there on", limits::OWN_REQUESTS_MIN);
    Err(Invalid::new("request", bound, number).into())
}

fn lease_request(take: LeaseRequestId) -> Result<(), ServiceError> {
    if !take.is_reserved() {
        return Ok(());
    }
    let bound = format!("below {:032x}: the ids from there on are reserved", limits::LEASE_REQUESTS_RESERVED_FROM);
    Err(Invalid::new("take", bound, format!("{:032x}", take.0)).into())
}

/// Checks permits and limit. A lock has neither.
fn permits(Access { mode, limit }: Access) -> Result<(), ServiceError> {
    let Mode::Permits(count) = mode else {
        return limit
            .map_or(Ok(()), |limit| Err(Invalid::new("limit", "none where no permits are asked for", limit).into()));
    };
    for (field, value) in [("permits", Some(count)), ("limit", limit)] {
        if let Some(value) = value.filter(|value| !(1..=limits::PERMITS_MAX).contains(value)) {
            return Err(Invalid::new(field, format!("1 to {}", limits::PERMITS_MAX), value).into());
        }
    }
    Ok(())
}

fn wait(patience: Patience) -> Result<(), ServiceError> {
    match patience {
        Patience::For { ms } if limits::PATIENCE_MS_MAX < ms => {
            Err(Invalid::new("wait", format!("at most {} ms, a week", limits::PATIENCE_MS_MAX), ms).into())
        }
        Patience::For { .. } | Patience::Try | Patience::Session => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        DocumentId, Extras, Fairness, FencingToken, Grab, Handle, Instance, ListShow, LockKey, LockName, LockValue,
        Namespace, OnDeadlock, OpenSession, Owner, Parent, SessionId,
    };

    /// The prefix of a list or a subscription, and a process, are refused beyond their bounds, with the field and the
    /// bound.
    #[test]
    fn long_texts_of_queries_are_refused() {
        let list = |bytes: usize| {
            super::query(&Query::List(ListFilter {
                namespace: Namespace::default(),
                prefix: "x".repeat(bytes),
                show: ListShow::All,
                older_than_ms: 0,
                after: None,
                rows: 0,
            }))
        };
        let watch = |bytes: usize| {
            super::scope(&Scope::Namespace { namespace: Namespace::default(), prefix: "x".repeat(bytes) })
        };
        let ping = |bytes: usize| {
            let which = WhichPings::Of("x".repeat(bytes).into());
            super::query(&Query::Pings { namespace: Namespace::default(), which, rows: 0 })
        };
        let refused = |refused: Result<(), ServiceError>, field: &str, most: usize| {
            let text = refused.expect_err("too long").to_string();
            assert!(text.contains(field) && text.contains(&most.to_string()), "{text}");
        };
        let (name, process) = (limits::LOCK_NAME_BYTES_MAX, limits::METADATA_BYTES_MAX);
        assert_eq!([list(name), watch(name), ping(process)], [Ok(()), Ok(()), Ok(())]);
        refused(list(name + 1), "prefix", name);
        refused(watch(name + 1), "prefix", name);
        refused(ping(process + 1), "process", process);
    }

    fn acquire(access: Access) -> Acquire {
        Acquire {
            request: RequestId { session: SessionId::new(0, 1), number: 1 },
            answered_below: 0,
            locks: (LockName::parse("dam").expect("legal"), access).into(),
            owner: None,
            patience: Patience::Try,
            metadata: Metadata::default(),
            lease_ms: None,
            extras: None,
        }
    }

    fn asks(access: Access) -> Result<(), ServiceError> {
        check(&Call::new(Command::Acquire(acquire(access))))
    }

    /// N-CAC-01: A cached hold is one exclusive lock, taken fairly, without owner, parent, lease, value, delay,
    /// at_least and at_most. The error names the option that conflicts, and no option is refused without `cached`.
    #[test]
    fn n_cac_01_a_conflict_with_cached_is_refused_by_its_field() {
        let owner = || Owner::parse("job").expect("legal");
        let parent = Some(Parent { session: SessionId::new(0, 2), owner: owner() });
        let value = Some(LockValue::parse("n1").expect("legal"));
        let chosen = |extras| Acquire { extras: Some(Box::new(extras)), ..acquire(Mode::Exclusive.into()) };
        let none = Extras::default;
        let mut set = acquire(Mode::Exclusive.into());
        set.locks.insert(LockName::parse("sea").expect("legal"), Mode::Exclusive.into());
        let conflicts = [
            ("locks", set),
            ("mode", acquire(Mode::Shared.into())),
            ("mode", acquire(Access::permits(1, 3))),
            ("owner", Acquire { owner: Some(owner()), ..acquire(Mode::Exclusive.into()) }),
            ("parent", chosen(Extras { parent, ..none() })),
            ("lease", Acquire { lease_ms: Some(5), ..acquire(Mode::Exclusive.into()) }),
            ("value", chosen(Extras { value, ..none() })),
            ("delay", chosen(Extras { delay_ms: 5, ..none() })),
            ("at_least", chosen(Extras { at_least_ms: Some(5), ..none() })),
            ("at_most", chosen(Extras { at_most_ms: Some(5), ..none() })),
            ("unfair", chosen(Extras { fairness: Fairness::Barging, ..none() })),
        ];
        for (field, mut acquire) in conflicts {
            let asked = |acquire: &Acquire| check(&Call::new(Command::Acquire(acquire.clone())));
            assert_eq!(asked(&acquire), Ok(()), "{field} alone");
            acquire.extras.get_or_insert_default().cached = true;
            let Err(ServiceError::Invalid(invalid)) = asked(&acquire) else { panic!("{field} is accepted") };
            assert_eq!((invalid.field.as_str(), acquire.is_cached()), (field, false), "{invalid}");
            assert!(invalid.bound.contains("cached"), "{invalid}");
        }
        let cached = chosen(Extras { cached: true, deadlock: OnDeadlock::Wait, ..none() });
        assert_eq!((check(&Call::new(Command::Acquire(cached.clone()))), cached.is_cached()), (Ok(()), true));
    }

    /// A limit needs permits, and both have bounds.
    #[test]
    fn permits_and_limits_are_refused_beyond_their_bounds() {
        let field = |access| match asks(access) {
            Err(ServiceError::Invalid(invalid)) => invalid.field,
            other => panic!("{other:?}"),
        };
        assert!(asks(Mode::Exclusive.into()).is_ok());
        assert!(asks(Access::permits(1, limits::PERMITS_MAX)).is_ok());
        assert_eq!(field(Access { mode: Mode::Exclusive, limit: Some(3) }), "limit");
        assert_eq!(field(Access { mode: Mode::Shared, limit: Some(3) }), "limit");
        assert_eq!(field(Access::permits(1, 0)), "limit");
        assert_eq!(field(Access::permits(0, 3)), "permits");
        assert_eq!(field(Access::permits(limits::PERMITS_MAX + 1, None)), "permits");
    }

    /// Metadata has bounds in every command that carries it.
    #[test]
    fn metadata_is_refused_beyond_its_bounds() {
        let lock = LockKey { namespace: Namespace::default(), name: LockName::parse("dam").expect("legal") };
        let (handle, patience) = (Handle::from_random(1), Patience::Try);
        let long = Metadata { why: "x".repeat(limits::METADATA_BYTES_MAX + 1).into(), ..Metadata::default() };
        let beep = Metadata { who: "\u{7}".into(), ..Metadata::default() };
        for (metadata, field) in [(long, "why"), (beep, "who")] {
            let open = OpenSession {
                namespace: Namespace::default(),
                handle: handle.clone(),
                instance: Instance(1),
                ttl_ms: 10_000,
                disconnect_grace_ms: None,
                metadata: metadata.clone(),
                accepts_hand_over: false,
            };
            let acquire = Acquire {
                request: RequestId { session: SessionId::new(0, 1), number: 1 },
                answered_below: 0,
                locks: (lock.name.clone(), Mode::Exclusive.into()).into(),
                owner: None,
                patience,
                metadata: metadata.clone(),
                lease_ms: None,
                extras: None,
            };
            let take = TakeLease {
                lock: lock.clone(),
                take: LeaseRequestId(1),
                handle: handle.clone(),
                access: Mode::Exclusive.into(),
                lease_ms: 1_000,
                patience,
                metadata: metadata.clone(),
                claim_ms: None,
            };
            let grab =
                Grab { lock: lock.clone(), ts: DocumentId([1; 12]), metadata, term: None, prepare: false, seen: None };
            for command in [
                Command::OpenSession(open),
                Command::Acquire(acquire),
                Command::TakeLease(take),
                Command::Document(DocumentCommand::Grab(grab)),
            ] {
                let Err(ServiceError::Invalid(invalid)) = check(&Call::new(command)) else {
                    panic!("{field} is accepted")
                };
                assert_eq!(invalid.field, field);
            }
        }
    }

    /// A wait has a bound, for an acquire, an upgrade and a lease alike.
    #[test]
    fn waits_are_refused_beyond_their_bound() {
        let lock = LockKey { namespace: Namespace::default(), name: LockName::parse("dam").expect("legal") };
        let field = |command| match check(&Call::new(command)) {
            Ok(()) => None,
            Err(ServiceError::Invalid(invalid)) => Some(invalid.field),
            Err(other) => panic!("{other:?}"),
        };
        for (ms, refused) in [(limits::PATIENCE_MS_MAX, None), (limits::PATIENCE_MS_MAX + 1, Some("wait".to_owned()))] {
            let patience = Patience::For { ms };
            let request = RequestId { session: SessionId::new(0, 1), number: 1 };
            let upgrade = Alteration::Upgrade { token: FencingToken::new(0, 1), patience };
            let (name, access, metadata) = (lock.name.clone(), Mode::Exclusive.into(), Metadata::default());
            let (answered_below, owner, lease_ms, extras) = (0, None, None, None);
            let (take, handle) = (LeaseRequestId(1), Handle::from_random(1));
            for command in [
                Command::Alter(Alter { request, answered_below, name: name.clone(), what: upgrade }),
                Command::TakeLease(TakeLease {
                    lock: lock.clone(),
                    take,
                    handle,
                    access,
                    lease_ms: 1_000,
                    patience,
                    metadata: metadata.clone(),
                    claim_ms: None,
                }),
                Command::Acquire(Acquire {
                    request,
                    answered_below,
                    locks: (name, access).into(),
                    owner,
                    patience,
                    metadata,
                    lease_ms,
                    extras,
                }),
            ] {
                assert_eq!(field(command), refused, "{ms} ms");
            }
        }
    }

    /// The numbers of the cluster's own requests are refused in every command that the cluster remembers by its number.
    /// A cancel may have such a number.
    #[test]
    fn numbers_of_the_clusters_own_requests_are_refused() {
        let calls = |number| {
            let (request, name) = (RequestId { session: SessionId::new(0, 1), number }, LockName::parse("dam"));
            let (name, token, answered_below) = (name.expect("legal"), FencingToken::new(0, 1), 0);
            let what = Alteration::Downgrade { token };
            let commands = [
                Command::Acquire(Acquire { request, ..acquire(Mode::Exclusive.into()) }),
                Command::Release(Release { request, answered_below, name: name.clone(), token, acquire: 0 }),
                Command::Alter(Alter { request, answered_below, name, what }),
            ];
            (commands.map(Call::new), Call::new(Command::Cancel { request }))
        };
        let last = limits::OWN_REQUESTS_MIN - 1;
        for number in [last, last + 1, u64::MAX] {
            let (numbered, cancel) = calls(number);
            for call in &numbered {
                let field = match check(call) {
                    Ok(()) => None,
                    Err(ServiceError::Invalid(invalid)) => Some(invalid.field),
                    Err(other) => panic!("{other:?}"),
                };
                assert_eq!(field.as_deref(), (last < number).then_some("request"), "{call:?}");
            }
            assert_eq!(check(&cancel), Ok(()));
        }
    }

    /// Lease request ids whose top 32 bits are all ones are refused before the log, in a take and in its withdrawal;
    /// the error names the field and the bound. The id before them is accepted, and no random id is reserved.
    #[test]
    fn reserved_lease_requests_are_refused() {
        let first = limits::LEASE_REQUESTS_RESERVED_FROM;
        assert_eq!(first, 0xffff_ffff << 96);
        let calls = |take| {
            let take = LeaseRequestId(take);
            let lock = LockKey { namespace: Namespace::default(), name: LockName::parse("dam").expect("legal") };
            let (handle, patience) = (Handle::from_random(1), Patience::Try);
            let asks = TakeLease {
                lock: lock.clone(),
                take,
                handle: handle.clone(),
                access: Mode::Exclusive.into(),
                lease_ms: 1_000,
                patience,
                metadata: Metadata::default(),
                claim_ms: None,
            };
            [Command::TakeLease(asks), Command::CancelTake { lock, take, handle }].map(Call::new)
        };
        for refused in [first, u128::MAX].into_iter().flat_map(calls) {
            let Err(ServiceError::Invalid(invalid)) = check(&refused) else { panic!("{refused:?} is accepted") };
            assert_eq!(invalid.field, "take");
            assert!(invalid.bound.contains("ffffffff000000000000000000000000"), "{invalid}");
        }
        for call in [0, first - 1].into_iter().flat_map(calls) {
            assert_eq!(check(&call), Ok(()));
        }
        for random in [0, first - 1, first, u128::MAX] {
            assert!(!LeaseRequestId::from_random(random).is_reserved(), "{random:x}");
        }
        assert_eq!(LeaseRequestId::from_random(first - 1), LeaseRequestId(first - 1));
    }
}
