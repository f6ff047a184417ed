//! Damaged messages between nodes yield a value or an error, never a panic, and use at most ten times their length in
//! memory. With mutual TLS only a faulty node can send such messages.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;
use tonic::Status;

use super::super::disk_ids::DiskIds;
use super::super::messages::{self, SelfIdentity};
use super::super::payload::{Origin, encode, encode_head_meta};
use super::super::state_machine::meta_of;
use super::super::types::{Proposal, RaftMembership, RaftPayload, StoredMembership};
use super::tick;
use crate::codec::tests::hostile::{Sample, attack, held, kept, within_memory_bound};
use crate::codec::{decode_entry, encode_entry};
use crate::limits::{PEER_MESSAGE_BYTES_MAX, REPLICATION_ENTRIES_MAX};
use crate::model::Member;
use crate::protobuf;

const SENDER: SelfIdentity = SelfIdentity { peers_id: 7, node: 2, disk: 22, process: 0 };
const ME: SelfIdentity = SelfIdentity { peers_id: 7, node: 1, disk: 11, process: 0 };

fn log_id(index: u64) -> Option<messages::LogId> {
    Some(messages::LogId { term: 3, node: 2, index })
}

fn entries() -> Vec<messages::LogEntry> {
    let member = |id: u64| (id, Member { client: format!("n{id}:7601"), peer: format!("n{id}:7602") });
    let nodes: BTreeMap<u64, Member> = (1..=3).map(member).collect();
    let voters = vec![BTreeSet::from([1, 2, 3]), BTreeSet::from([1, 2])];
    let membership = RaftMembership::new(voters, nodes).expect("a membership");
    let normal = RaftPayload::Normal(Proposal { bytes: encode_entry(&tick(9)), entry: None, listener: None });
    let payloads = [RaftPayload::Blank, normal, RaftPayload::Membership(membership)];
    (9..)
        .zip(&payloads)
        .map(|(index, payload)| messages::LogEntry { id: log_id(index), payload: encode(payload) })
        .collect()
}

/// One message of each kind, with every field set.
fn samples() -> Vec<Sample> {
    let header = || Some(SENDER.header(1, Some(11)));
    let vote = || Some(messages::Ballot { term: 3, node: 2, committed: true });
    let origin = Origin { cluster: "harbour".to_owned(), peers_id: 7 };
    let announced = messages::SnapshotAnnouncement {
        header: header(),
        vote: vote(),
        last: log_id(8),
        records: 1_000,
        digest: vec![5; 16].into(),
        meta: encode_head_meta(&origin, &StoredMembership::default()),
        bytes: 70_000,
    };
    let append = messages::AppendRequest {
        header: header(),
        vote: vote(),
        previous: log_id(8),
        entries: entries(),
        committed: log_id(7),
        acknowledged: log_id(8),
    };
    let asked =
        messages::VoteRequest { header: header(), vote: vote(), last: log_id(8), pre_vote: true, transfer: true };
    let part = |part| messages::SnapshotPart { part: Some(part) }.encode_to_vec();
    let answer = |result| messages::AppendResponse { result: Some(result) }.encode_to_vec();
    use messages::append_response::Result as Appended;
    let samples = [
        ("AppendRequest", append.encode_to_vec()),
        ("VoteRequest", asked.encode_to_vec()),
        ("SnapshotPart", part(messages::snapshot_part::Part::Announcement(announced))),
        ("SnapshotPart", part(messages::snapshot_part::Part::Chunk(vec![7; 200].into()))),
        (
            "TransferRequest",
            messages::TransferRequest { header: header(), leader: vote(), to: 1, last: log_id(8) }.encode_to_vec(),
        ),
        ("ForwardRequest", messages::ForwardRequest { header: header(), payload: vec![1; 40].into() }.encode_to_vec()),
        ("AppendResponse", answer(Appended::Accepted(messages::Accepted {}))),
        ("AppendResponse", answer(Appended::Partly(messages::LogId { term: 3, node: 2, index: 9 }))),
        ("AppendResponse", answer(Appended::Conflict(messages::Conflict {}))),
        ("AppendResponse", answer(Appended::HigherVote(messages::Ballot { term: 4, node: 3, committed: false }))),
        ("VoteResponse", messages::VoteResponse { vote: vote(), granted: true, last: log_id(8) }.encode_to_vec()),
        ("SnapshotResponse", messages::SnapshotResponse { vote: vote() }.encode_to_vec()),
        ("TransferResponse", messages::TransferResponse { refused: "not now".to_owned() }.encode_to_vec()),
        ("ForwardResponse", messages::ForwardResponse { payload: vec![1; 40].into() }.encode_to_vec()),
    ];
    samples.map(|(name, bytes)| (name.to_owned(), bytes)).into()
}

fn check_header(header: Option<&messages::Header>) -> Result<u64, Status> {
    ME.check(header, &DiskIds::default()).map_err(|bad| Status::failed_precondition(format!("{bad:?}")))
}

fn invalid(error: impl std::fmt::Display) -> Status {
    Status::invalid_argument(error.to_string())
}

/// Does what a receiver does before it acts on a message: reads it, checks its header, converts it to Raft's types, and
/// decodes the entries.
fn receive(name: &str, bytes: &[u8]) -> Result<(), Status> {
    match name {
        "AppendRequest" => {
            let request = protobuf::read::<messages::AppendRequest, messages::InWords>(bytes)?;
            check_header(request.header.as_ref())?;
            let _ = request.acknowledged.as_ref().map(messages::read_stored_log_id);
            for entry in messages::read_append(request)?.entries {
                if let RaftPayload::Normal(proposal) = entry.payload {
                    decode_entry(&proposal.bytes).map_err(invalid)?;
                }
            }
        }
        "VoteRequest" => {
            let request = messages::VoteRequest::decode(bytes).map_err(invalid)?;
            check_header(request.header.as_ref())?;
            let _ = (messages::read_ballot(request.vote.as_ref())?, request.last.as_ref().map(messages::read_log_id));
        }
        "SnapshotPart" => match messages::SnapshotPart::decode(bytes).map_err(invalid)?.part {
            Some(messages::snapshot_part::Part::Announcement(announced)) => {
                check_header(announced.header.as_ref())?;
                messages::read_ballot(announced.vote.as_ref())?;
                meta_of(&messages::read_head(&announced)?).map_err(invalid)?;
            }
            Some(messages::snapshot_part::Part::Chunk(_)) => {}
            None => return Err(Status::invalid_argument("nothing")),
        },
        "TransferRequest" => {
            let request = messages::TransferRequest::decode(bytes).map_err(invalid)?;
            check_header(request.header.as_ref())?;
            let _ = (messages::read_ballot(request.leader.as_ref())?, request.last.as_ref().map(messages::read_log_id));
        }
        "ForwardRequest" => {
            check_header(messages::ForwardRequest::decode(bytes).map_err(invalid)?.header.as_ref())?;
        }
        "AppendResponse" => match messages::AppendResponse::decode(bytes).map_err(invalid)?.result {
            Some(messages::append_response::Result::Partly(id)) => drop(messages::read_log_id(&id)),
            Some(messages::append_response::Result::HigherVote(vote)) => drop(messages::read_ballot(Some(&vote))?),
            Some(messages::append_response::Result::Accepted(_) | messages::append_response::Result::Conflict(_)) => {}
            None => return Err(Status::invalid_argument("nothing")),
        },
        "VoteResponse" => {
            let answer = messages::VoteResponse::decode(bytes).map_err(invalid)?;
            let _ = (messages::read_ballot(answer.vote.as_ref())?, answer.last.as_ref().map(messages::read_log_id));
        }
        "SnapshotResponse" => {
            let answer = messages::SnapshotResponse::decode(bytes).map_err(invalid)?;
            messages::read_ballot(answer.vote.as_ref())?;
        }
        "TransferResponse" => drop(messages::TransferResponse::decode(bytes).map_err(invalid)?),
        "ForwardResponse" => drop(messages::ForwardResponse::decode(bytes).map_err(invalid)?),
        other => panic!("{other}: no such message"),
    }
    Ok(())
}

/// Damages every kind of message between nodes.
#[test]
fn hostile_messages_of_nodes_are_values_or_errors() {
    attack(3, &kept("messages-of-nodes.bin", &samples()), |name, bytes| receive(name, bytes).is_ok());
}

/// A length field that exceeds the message (of a list element, a string or bytes) allocates no memory.
#[test]
fn a_huge_length_in_a_message_of_nodes_allocates_no_memory() {
    for tag in [0x0a, 0x22, 0x12] {
        let bytes = [&[tag][..], &[255, 255, 255, 127], &[0; 8]].concat();
        within_memory_bound("AppendRequest", bytes.len(), || receive("AppendRequest", &bytes))
            .expect_err("the contents are missing");
    }
}

/// A message with too many minimal entries is refused before they are allocated; the largest allowed number needs a
/// fixed amount of memory.
#[test]
fn many_short_entries_take_a_fixed_amount_of_memory() {
    let most = REPLICATION_ENTRIES_MAX as usize;
    let bytes = [0x22, 0].repeat(most);
    let (_, held) = held(|| receive("AppendRequest", &bytes).expect_err("no header"));
    assert!(held <= 256 * 1024, "{held} bytes of memory");
    for entries in [most + 1, PEER_MESSAGE_BYTES_MAX / 2] {
        let bytes = [0x22, 0].repeat(entries);
        let refused = within_memory_bound("AppendRequest", bytes.len(), || receive("AppendRequest", &bytes))
            .expect_err("too many");
        assert_eq!(refused.message(), format!("entries: at most {most}, got {entries}"));
    }
}
