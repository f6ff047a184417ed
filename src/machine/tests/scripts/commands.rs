//! Parses the words of a script as commands, renewals and queries.

use super::*;

impl Script {
    pub(super) fn command(
        &mut self,
        word: &str,
        who: Option<&str>,
        args: &mut ArgumentConsumer<'_>,
    ) -> Result<Command> {
        Ok(match word {
            "open" => self.open(who, args)?,
            "attach" => {
                let (session, handle) = self.session(who)?;
                let handle = args.take_key("handle").map_or(Ok(handle), Handle::parse)?;
                let own = self.watched.machine.namespace_of(session).cloned().unwrap_or_default();
                let namespace = args.take_key("ns").map_or(Ok(own), Namespace::parse)?;
                Command::Attach(Attach { namespace, session, handle, attempt: required(args, "attempt")?.parse()? })
            }
            "disconnected" => {
                let attachment = Attachment(required(args, "attachment")?.parse()?);
                Command::Disconnected { session: self.session(who)?.0, attachment }
            }
            "close" => Command::CloseSession { session: self.session(who)?.0, end: SessionClose::Done },
            "lost" => Command::CloseSession { session: self.session(who)?.0, end: SessionClose::Lost },
            "ttl-max" => Command::ChangeSetting(Setting::TtlMax(duration(args.next_pos().ok_or("how long?")?)?)),
            "end" => {
                let namespace = Namespace::parse(args.take_key("namespace").unwrap_or("default"))?;
                let why = Reason::parse(args.take_key("why").unwrap_or("stuck"))?;
                Command::EndSession(EndSession { namespace, session: self.session(args.next_pos())?.0, why })
            }
            "acquire" => {
                let request = self.request(who, args)?;
                let answered_below = args.take_key("below").map_or(Ok(0), str::parse)?;
                let owner = args.take_key("owner").map(Owner::parse).transpose()?;
                let name = LockName::parse(args.next_pos().ok_or("acquire what?")?)?;
                let (extras, lease_ms) = (self.extras(args)?, args.take_key("lease").map(duration).transpose()?);
                let (metadata, patience, locks) = (metadata(args), patience(args)?, (name, access(args)?).into());
                Command::Acquire(Acquire {
                    request,
                    answered_below,
                    locks,
                    owner,
                    patience,
                    metadata,
                    lease_ms,
                    extras,
                })
            }
            word if script_documents::is_change(word) => script_documents::change(word, who, args)?,
            "limit" | "unlimit" | "break" | "ask" | "handover" => self.manage(word, args)?,
            "downgrade" | "upgrade" | "resume" | "value" | "return" => self.alter(word, who, args)?,
            "acquire-set" => self.acquire_set(who, args)?,
            "cancel" => Command::Cancel { request: self.request(who, args)? },
            "release" => {
                let request = self.request(who, args)?;
                let answered_below = args.take_key("below").map_or(Ok(0), str::parse)?;
                let lock = key(args)?;
                let known = self.tokens.get(&(request.session, lock.clone())).copied();
                let token = args.take_key("token").map(str::parse).transpose()?.or(known).ok_or("which token?")?;
                let acquire = args.take_key("of").map_or(Ok(0), str::parse)?;
                Command::Release(Release { request, answered_below, name: lock.name, token, acquire })
            }
            "take" => {
                let ((take, handle), lock) = (self.take(who, args)?, key(args)?);
                let lease_ms = duration(required(args, "lease")?)?;
                let (metadata, patience, access) = (metadata(args), patience(args)?, access(args)?);
                let claim_ms = args.take_key("claim").map(duration).transpose()?;
                Command::TakeLease(TakeLease { lock, take, handle, access, lease_ms, patience, metadata, claim_ms })
            }
            "cancel-take" => {
                let ((take, handle), lock) = (self.take(who, args)?, key(args)?);
                Command::CancelTake { lock, take, handle }
            }
            "drop" => Command::DropLease { handle: self.take(who, args)?.1, lock: key(args)? },
            "tick" => Command::Tick,
            "gap" => Command::LeaderlessGap { gap_ms: duration(args.next_pos().ok_or("how long?")?)? },
            "configure" => {
                let (ttl_ms_min, ttl_ms_max) = (duration(required(args, "min")?)?, duration(required(args, "max")?)?);
                let settings = ClusterSettings { timing_ms: [100, 500, 1000], ttl_ms_min, ttl_ms_max };
                Command::Configure { settings, cluster_id: 1 }
            }
            "announce" => Command::Announce(Announcement {
                node: required(args, "node")?.parse()?,
                disk: required(args, "disk")?.parse()?,
                features: args.take_key("features").map_or(Ok(1), str::parse)?,
                version: "0.1.0".into(),
                http: args.take_key("http").map(str::to_owned),
                rules: None,
            }),
            "raise" => {
                let voters =
                    required(args, "voters")?.split(',').map(str::parse).collect::<std::result::Result<_, _>>()?;
                Command::RaiseFeatures(RaiseFeatures { to: required(args, "to")?.parse()?, voters })
            }
            other => return Err(format!("what is {other}?").into()),
        })
    }

    /// Predicts the id of the session: the next one, unless the handle is known.
    pub(super) fn open(&mut self, who: Option<&str>, args: &mut ArgumentConsumer<'_>) -> Result<Command> {
        let who = who.ok_or("who opens?")?;
        let handle = Handle::parse(args.take_key("handle").unwrap_or(&format!("handle-of-{who}")))?;
        let known = self.sessions.values().any(|(_, known)| *known == handle);
        let waiting = self.together.iter().flatten();
        let opens =
            waiting.filter(|instruction| matches!(instruction, Instruction::Command(_, _, c) if matches!(**c, Command::OpenSession(_))));
        let id = SessionId::new(0, self.watched.machine.state.globals.sessions + opens.count() as u64 + 1);
        if !known {
            self.sessions.insert(who.to_owned(), (id, handle.clone()));
            self.names.sessions.insert(id, who.to_owned());
        }
        Ok(Command::OpenSession(OpenSession {
            namespace: namespace(args)?,
            handle,
            instance: Instance(args.take_key("instance").map_or(Ok(1), str::parse)?),
            ttl_ms: args.take_key("ttl").map_or(Ok(10_000), duration)?,
            disconnect_grace_ms: args.take_key("grace").map(duration).transpose()?,
            metadata: metadata(args),
            accepts_hand_over: flag(args, "accepts"),
        }))
    }

    pub(super) fn alter(&mut self, word: &str, who: Option<&str>, args: &mut ArgumentConsumer<'_>) -> Result<Command> {
        let request = self.request(who, args)?;
        let lock = key(args)?;
        let known = self.tokens.get(&(request.session, lock.clone())).copied();
        let token = args.take_key("token").map(str::parse).transpose()?.or(known).ok_or("which token?")?;
        let what = match word {
            "downgrade" => Alteration::Downgrade { token },
            "upgrade" => Alteration::Upgrade { token, patience: patience(args)? },
            "value" => {
                let value = args.next_pos().map(LockValue::parse).transpose()?;
                Alteration::SetValue { token, value }
            }
            "return" => Alteration::ReturnPermits {
                token,
                count: args.take_key("permits").ok_or("how many permits?")?.parse()?,
            },
            _ => {
                let lost = self.session(args.take_key("lost"))?.1;
                let lease_ms = args.take_key("lease").map(duration).transpose()?;
                Alteration::Resume { token, handle: lost, lease_ms }
            }
        };
        Ok(Command::Alter(Alter { request, answered_below: 0, name: lock.name, what }))
    }

    pub(super) fn acquire_set(&mut self, who: Option<&str>, args: &mut ArgumentConsumer<'_>) -> Result<Command> {
        let request = self.request(who, args)?;
        let owner = args.take_key("owner").map(Owner::parse).transpose()?;
        let (extras, metadata, patience) = (self.extras(args)?, metadata(args), patience(args)?);
        let lease_ms = args.take_key("lease").map(duration).transpose()?;
        let access = |how: &str| match how.parse() {
            Ok(count) => Access::permits(count, 4),
            Err(_) if how == "shared" => Mode::Shared.into(),
            Err(_) => Mode::Exclusive.into(),
        };
        let mut locks = SmallMap::new();
        while let Some(name) = args.next_pos() {
            locks.insert(LockName::parse(name)?, Mode::Exclusive.into());
        }
        while let Some((name, how)) = args.next_key() {
            locks.insert(LockName::parse(name)?, access(how));
        }
        let answered_below = 0;
        Ok(Command::Acquire(Acquire { request, answered_below, locks, owner, patience, metadata, lease_ms, extras }))
    }

    pub(super) fn manage(&mut self, word: &str, args: &mut ArgumentConsumer<'_>) -> Result<Command> {
        let lock = key(args)?;
        let token = args.take_key("token").map(str::parse).transpose()?;
        let why = Reason::parse(args.take_key("why").unwrap_or("stuck"))?;
        let what = match word {
            "limit" => Managing::SetLimit { limit: args.next_pos().ok_or("which limit?")?.parse()? },
            "unlimit" => Managing::RemoveLimit,
            "break" => Managing::BreakHold { token: token.ok_or("which token?")?, why },
            "ask" => Managing::Ask { token: token.ok_or("which token?")?, why },
            _ => Managing::HandOver { token: token.ok_or("which token?")?, to: self.session(args.take_key("to"))?.0 },
        };
        Ok(Command::Manage(Manage { lock, what }))
    }

    pub(super) fn extras(&self, args: &mut ArgumentConsumer<'_>) -> Result<Option<Box<Extras>>> {
        let reentry = match args.take_key("reentry") {
            None => Reentry::Refuse,
            Some("count") => Reentry::Count,
            Some("wait") => Reentry::Wait,
            Some(other) => return Err(format!("reentry={other}?").into()),
        };
        let parent = args.take_key("parent").map(|text| -> Result<Parent> {
            let (session, owner) = text.split_once('/').ok_or("parent=session/owner")?;
            Ok(Parent { session: self.session(Some(session))?.0, owner: Owner::parse(owner)? })
        });
        let extras = Extras {
            reentry,
            fairness: if flag(args, "unfair") { Fairness::Barging } else { Fairness::Fair },
            delay_ms: args.take_key("delay").map_or(Ok(0), duration)?,
            value: args.take_key("value").map(LockValue::parse).transpose()?,
            parent: parent.transpose()?,
            deadlock: if flag(args, "cycles") { OnDeadlock::Wait } else { OnDeadlock::Refuse },
            at_least_ms: args.take_key("least").map(duration).transpose()?,
            at_most_ms: args.take_key("most").map(duration).transpose()?,
            cached: flag(args, "cached"),
        };
        Ok((extras != Extras::default()).then(|| Box::new(extras)))
    }

    pub(super) fn renewal(
        &mut self,
        word: &str,
        who: Option<&str>,
        args: &mut ArgumentConsumer<'_>,
    ) -> Result<Renewal> {
        let target = match word {
            "renew" => RenewalTarget::Session(self.session(who)?.0),
            _ if self.sessions.contains_key(who.unwrap_or_default()) => {
                let (session, lock) = (self.session(who)?.0, key(args)?);
                let known = self.tokens.get(&(session, lock.clone())).copied();
                let token = args.take_key("token").map(str::parse).transpose()?.or(known).ok_or("which token?")?;
                RenewalTarget::Hold { lock, session, token, lease_ms: duration(required(args, "lease")?)? }
            }
            _ => {
                let ((_, handle), lock) = (self.take(who, args)?, key(args)?);
                RenewalTarget::Lease { lock, handle, lease_ms: duration(required(args, "lease")?)? }
            }
        };
        let attempt = args.take_key("attempt").map_or(Ok(1), str::parse)?;
        let receipt = LogTime(args.take_key("receipt").map_or(Ok(self.stamp), duration)?);
        Ok(Renewal { target, attempt, receipt })
    }

    pub(super) fn query(&mut self, word: &str, who: Option<&str>, args: &mut ArgumentConsumer<'_>) -> Result<Query> {
        let rows = args.take_key("rows").map_or(Ok(100), str::parse)?;
        Ok(match word {
            "inspect" => Query::Inspect { lock: key(args)? },
            "would-break" => Query::WouldBreak { lock: key(args)?, token: required(args, "token")?.parse()? },
            "check" => {
                let lock = key(args)?;
                Query::Check { lock, token: required(args, "token")?.parse()? }
            }
            "list" => Query::List(ListFilter {
                namespace: namespace(args)?,
                prefix: args.take_key("prefix").unwrap_or_default().to_owned(),
                older_than_ms: args.take_key("older").map_or(Ok(0), duration)?,
                after: args.take_key("after").map(LockName::parse).transpose()?,
                show: match args.next_pos() {
                    None => ListShow::All,
                    Some("held") => ListShow::Held,
                    Some("waiting") => ListShow::Waiting,
                    Some("overdue") => ListShow::Overdue,
                    Some(other) => return Err(format!("list {other}?").into()),
                },
                rows,
            }),
            "sessions" => {
                let after =
                    args.take_key("after").map(|name| self.session(Some(name))).transpose()?.map(|found| found.0);
                Query::Sessions { namespace: namespace(args)?, after, rows }
            }
            "claim" if self.sessions.contains_key(who.unwrap_or_default()) => {
                Query::Claim { lock: None, claim: Claim::Request(self.request(who, args)?) }
            }
            "claim" => {
                let ((take, _), lock) = (self.take(who, args)?, key(args)?);
                Query::Claim { lock: Some(lock), claim: Claim::Lease(take) }
            }
            "explain" => Query::Explain(match args.next_pos() {
                Some(name) => About::Lock(LockKey { namespace: namespace(args)?, name: LockName::parse(name)? }),
                None if args.take_key("all").is_some() => About::Session(self.session(who)?.0),
                None => About::Request(self.request(who, args)?),
            }),
            _ => Query::Totals,
        })
    }
}
