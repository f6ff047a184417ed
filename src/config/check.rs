//! Checks the settings: every value, and every relation between two of them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use super::draft::{Draft, DraftMember};
use super::place::{Place, Placed, Refused, Source};
use super::{Config, Listen, Member, Profile, Timing};
use crate::limits;
use crate::model::{Invalid, Namespace, parse_cluster_id};

type Checked<T> = Result<T, Refused>;

/// Returns the checked settings, or the first error.
pub(super) fn check(draft: Draft, source: Source<'_>) -> Checked<Config> {
    let members = members(&draft, source)?;
    let node = required("node", "node = 1", draft.node.clone())?;
    let Some(member) = members.get(&node.value) else {
        let ids = members.keys().map(u64::to_string).collect::<Vec<_>>().join(", ");
        let problem = format!("node {} is not among the members ({ids})", node.value);
        return Err(Refused::new(&node.place, problem, "set node to one of them, or add its [[member]] on every node"));
    };
    let listen = listen(&draft, member)?;
    let tls = super::tls::check(&draft, &listen, source)?;
    let auth = super::tls::auth_file(&draft, &listen, &tls)?;
    Ok(Config {
        cluster: cluster(&draft)?,
        peers_id: peers_id(&draft)?,
        node: node.value,
        data: data(&draft)?,
        listen,
        timing: timing(&draft)?,
        log_level: log_level(&draft)?,
        rates: super::quota::rates(&draft)?,
        limits: draft.limits.check()?,
        metrics: draft.metrics.check()?,
        tls,
        http_hosts: http_hosts(&draft)?,
        auth,
        audit: draft.audit.as_ref().map(|audit| PathBuf::from(&audit.file.value)),
        members,
    })
}

/// Returns the checked name of the cluster and its members.
pub(super) fn founders(draft: &Draft, source: Source<'_>) -> Checked<(String, BTreeMap<u64, Member>)> {
    Ok((cluster(draft)?, members(draft, source)?))
}

fn required<T>(key: &str, example: &str, value: Option<Placed<T>>) -> Checked<Placed<T>> {
    value
        .ok_or_else(|| Refused::new(&Place::File, format!("{key} is missing"), format!("add a line such as {example}")))
}

fn cluster(draft: &Draft) -> Checked<String> {
    let cluster = required("cluster", "cluster = \"harbour\"", draft.cluster.clone())?;
    // A cluster's name has the rules of a namespace, because paths, logs and metrics contain it.
    match Namespace::parse(&cluster.value) {
        Ok(_) => Ok(cluster.value),
        Err(invalid) => {
            let problem = format!("cluster must be {}, got {:?}", invalid.bound, cluster.value);
            Err(Refused::new(&cluster.place, problem, "choose another name, the same on every node"))
        }
    }
}

fn peers_id(draft: &Draft) -> Checked<Option<u128>> {
    let Some(at) = &draft.peers_id else { return Ok(None) };
    let refused = |invalid: Invalid| {
        let problem = format!("peers_id must be {}, got {:?}", invalid.bound, at.value);
        Refused::new(&at.place, problem, "take it from `lockkeeper member add` or `lockkeeper restore`")
    };
    parse_cluster_id(&at.value).map(Some).map_err(refused)
}

fn log_level(draft: &Draft) -> Checked<String> {
    let Some(level) = draft.log.level.clone() else { return Ok("info".to_owned()) };
    if ["off", "error", "warn", "info", "debug", "trace"].contains(&level.value.as_str()) {
        return Ok(level.value);
    }
    let problem = format!("there is no log level {:?}", level.value);
    Err(Refused::new(&level.place, problem, "use off, error, warn, info, debug or trace"))
}

fn http_hosts(draft: &Draft) -> Checked<Vec<String>> {
    let host = |at: &Placed<String>| {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if !at.value.is_empty() && at.value.bytes().all(legal) {
            return Ok(at.value.clone());
        }
        let problem = format!("http.hosts has {:?}, which is no host name", at.value);
        Err(Refused::new(&at.place, problem, "write it without a scheme and without a port"))
    };
    draft.http.hosts.iter().map(host).collect()
}

fn data(draft: &Draft) -> Checked<PathBuf> {
    let data = required("data", "data = \"data/n1\"", draft.data.clone())?;
    if data.value.is_empty() {
        return Err(Refused::new(&data.place, "data is empty", "name a directory for this node alone"));
    }
    Ok(PathBuf::from(data.value))
}

fn members(draft: &Draft, source: Source<'_>) -> Checked<BTreeMap<u64, Member>> {
    if draft.member.is_empty() {
        let fix = "add a [[member]] with id, client and peer for every founding node";
        return Err(Refused::new(&Place::File, "there are no members", fix));
    }
    if draft.member.len() > limits::MEMBERS_MAX {
        let problem = format!("{} members are more than {}", draft.member.len(), limits::MEMBERS_MAX);
        return Err(Refused::new(&Place::File, problem, "3 or 5 are usual"));
    }
    let mut members = BTreeMap::new();
    let mut addresses: BTreeMap<&str, &Place> = BTreeMap::new();
    for DraftMember { id, client, peer } in &draft.member {
        if id.value == 0 {
            return Err(Refused::new(&id.place, "member id 0 is not allowed", "number members from 1"));
        }
        for address in [client, peer] {
            if host_and_port(&address.value).is_none() {
                let problem = format!("{:?} is not HOST:PORT", address.value);
                let fix = "write it like 10.0.0.1:7600 or node1.example:7600";
                return Err(Refused::new(&address.place, problem, fix));
            }
            if let Some(before) = addresses.insert(&address.value, &address.place) {
                let before = source.shown(before);
                let problem = format!("address {} is used twice (before at {before})", address.value);
                return Err(Refused::new(&address.place, problem, "give every listener a different address"));
            }
        }
        let entry = Member { client: client.value.clone(), peer: peer.value.clone() };
        if members.insert(id.value, entry).is_some() {
            let problem = format!("member id {} is used twice", id.value);
            return Err(Refused::new(&id.place, problem, "give every member a different id"));
        }
    }
    Ok(members)
}

fn host_and_port(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let port = port.parse::<u16>().ok().filter(|port| *port > 0)?;
    let is_host = !host.is_empty() && !host.contains("://");
    is_host.then(|| (host.trim_start_matches('[').trim_end_matches(']'), port))
}

fn listen(draft: &Draft, member: &Member) -> Checked<Listen> {
    let client = listener("client", draft.listen.client.as_ref(), &member.client)?;
    let peer = listener("peer", draft.listen.peer.as_ref(), &member.peer)?;
    let http = draft.listen.http.as_ref().map(socket).transpose()?;
    if let Some((http, at)) = http.zip(draft.listen.http.as_ref()) {
        for (key, other) in [("client", client), ("peer", peer)] {
            if overlaps(http, other) {
                let problem = format!("listen.http {http} is also the address of listen.{key}");
                return Err(Refused::new(&at.place, problem, "give it another port, such as 7620"));
            }
        }
    }
    if overlaps(client, peer) {
        let place = draft.listen.peer.as_ref().map_or(&Place::File, |at| &at.place);
        let problem = format!("listen.peer {peer} is also the address of listen.client");
        return Err(Refused::new(place, problem, "give clients and peers different ports"));
    }
    Ok(Listen { client, peer, http })
}

fn overlaps(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && (one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified())
}

/// The address to listen on: the written one, if the members can reach this node there, or else the address of the
/// member.
fn listener(key: &str, written: Option<&Placed<String>>, member: &str) -> Checked<SocketAddr> {
    let Some(at) = written else {
        return member.parse().map_err(|_| {
            let problem = format!("listen.{key} is missing, and the member's address {member} is a name");
            Refused::new(&Place::File, problem, format!("add {key} = \"0.0.0.0:PORT\" under [listen]"))
        });
    };
    let address = socket(at)?;
    let is_reached = host_and_port(member).is_some_and(|(host, port)| {
        let here = |ip: IpAddr| ip == address.ip() || address.ip().is_unspecified();
        port == address.port() && host.parse().ok().is_none_or(here)
    });
    if !is_reached {
        let problem = format!("listen.{key} is {address}, but the members reach this node at {member}");
        return Err(Refused::new(
            &at.place,
            problem,
            format!("listen on {member}, or correct the member on every node"),
        ));
    }
    Ok(address)
}

fn socket(at: &Placed<String>) -> Checked<SocketAddr> {
    let refused = |fix: &str| Refused::new(&at.place, format!("{:?} is not IP:PORT", at.value), fix);
    let address: SocketAddr =
        at.value.parse().map_err(|_| refused("a listener needs an address, such as 0.0.0.0:7600"))?;
    if address.port() == 0 {
        return Err(refused("choose a fixed port: members and clients must find it"));
    }
    Ok(address)
}

fn timing(draft: &Draft) -> Checked<Timing> {
    let by_hand = [&draft.timing.heartbeat, &draft.timing.election_min, &draft.timing.election_max];
    let written = by_hand.iter().find_map(|at| at.as_ref());
    let Some(written) = written else {
        let Some(at) = &draft.timing.profile else { return Ok(Timing::default()) };
        return Profile::from_name(&at.value).map(Profile::timing).ok_or_else(|| {
            let problem = format!("there is no timing profile {:?}", at.value);
            Refused::new(&at.place, problem, "use lan, fast or wan")
        });
    };
    if let Some(profile) = &draft.timing.profile {
        let problem = format!("timing.profile {:?} cannot be combined with heartbeat or election times", profile.value);
        return Err(Refused::new(
            &profile.place,
            problem,
            "keep the profile, or heartbeat, election_min and election_max",
        ));
    }
    let [Some(heartbeat), Some(election_min), Some(election_max)] = by_hand else {
        let problem = "heartbeat, election_min and election_max belong together, and one is missing";
        return Err(Refused::new(&written.place, problem, "set all three, or profile = \"lan\""));
    };
    Timing::by_hand(milliseconds(heartbeat)?, milliseconds(election_min)?, milliseconds(election_max)?)
        .map_err(|problem| Refused::new(&heartbeat.place, problem, "use a profile, or times in that order"))
}

fn milliseconds(at: &Placed<String>) -> Checked<u64> {
    let duration = humantime::parse_duration(&at.value).map_err(|error| {
        let fix = match at.value.trim().parse::<u64>() {
            Ok(number) => format!("did you mean \"{number}ms\"?"),
            Err(_) => "write it like \"50ms\"".to_owned(),
        };
        Refused::new(&at.place, format!("{:?} is not a duration: {error}", at.value), fix)
    })?;
    u64::try_from(duration.as_millis())
        .map_err(|_| Refused::new(&at.place, format!("{:?} is too long", at.value), "write it like \"50ms\""))
}
