//! Damaged frames of a session's stream get a reply or end the stream, without a panic, and without more memory than
//! ten times their length.

use prost::Message;
use tokio::sync::{mpsc, watch};

use crate::codec::tests::hostile::{Sample, attack, kept, within_memory_bound};
use crate::limits;
use crate::model::{Attachment, SessionId};
use crate::net::CertificateState;
use crate::protobuf;
use crate::rpc::convert::AsInvalid;
use crate::rpc::convert::hostile::{full_acquire, full_alterations, full_of_elements, full_open, full_set};
use crate::rpc::fake::{Fake, SESSION};
use crate::rpc::pb;
use crate::rpc::pb::client_frame::Body;
use crate::rpc::pb::command::Command as Submitted;
use crate::rpc::server::stream::hello::expected_cluster;
use crate::rpc::server::stream::{Bound, Outgoing, SessionStream};
use crate::service::{Call, ServerInfo};

fn samples() -> Vec<Sample> {
    let frame = |body| pb::ClientFrame { number: 3, body: Some(body) }.encode_to_vec();
    let (lock, request) = ("free".to_owned(), 12);
    let hello = pb::ClientHello {
        protocol_min: 1,
        protocol_max: 9,
        features: vec!["of-tomorrow".to_owned()],
        namespace: "default".to_owned(),
        cluster_id: "03".repeat(16),
    };
    let command = |command| frame(Body::Command(pb::Command { command: Some(command) }));
    let namespace = "default".to_owned();
    let attach = pb::Attach { namespace, session: SESSION, handle: "secret".to_owned(), attempt: 4 };
    let release = pb::Release { session: None, request, answered_below: 11, lock: lock.clone(), token: 77, acquire: 0 };
    let close = pb::CloseSession { session: None, end: pb::SessionClose::Lost.into() };
    let mut samples = vec![
        ("hello", frame(Body::Hello(hello))),
        ("open", command(Submitted::OpenSession(full_open()))),
        ("open", command(Submitted::Attach(attach))),
        ("bound", command(Submitted::Acquire(full_acquire()))),
        ("bound", command(Submitted::Acquire(full_set()))),
        ("bound", command(Submitted::Release(release))),
        ("bound", command(Submitted::Cancel(pb::Cancel { session: None, request }))),
        ("bound", frame(Body::Renew(pb::StreamRenew { attempt: 6 }))),
        ("bound", command(Submitted::CloseSession(close))),
        ("bound", frame(Body::Settle(pb::StreamSettle { request, lock }))),
    ];
    samples.extend(full_alterations().into_iter().map(|alter| ("bound", command(Submitted::Alter(alter)))));
    samples.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect()
}

/// Returns a stream that can send that many frames, and the receiver that its connection would read.
pub(super) fn stream_with_capacity(frames: usize) -> (SessionStream<Fake>, mpsc::Receiver<Outgoing>) {
    stream_of(Fake::new().0, frames)
}

/// Returns a stream that is bound to a session, and what it asks the service for.
pub(super) fn bound_stream() -> (SessionStream<Fake>, mpsc::UnboundedReceiver<Call>) {
    let (service, asked) = Fake::new();
    let mut stream = stream_of(service, limits::STREAM_FRAMES_WAITING_MAX).0;
    stream.bound = Some(Bound { session: SessionId::new(0, SESSION), attachment: Attachment(4), ttl_ms: 10_000 });
    (stream, asked)
}

fn stream_of(service: Fake, frames: usize) -> (SessionStream<Fake>, mpsc::Receiver<Outgoing>) {
    let (outgoing, answers) = mpsc::channel(frames);
    let info = ServerInfo {
        cluster: "harbour".to_owned(),
        cluster_id: watch::channel(Some(0xabc)).1,
        node: 1,
        leaderless_max: std::time::Duration::MAX,
        leader: watch::channel(None).1,
        endpoints: watch::channel(vec![]).1,
        connections: crate::net::ConnectionsMax::default(),
        deadlocks: watch::channel(Default::default()).1,
    };
    (SessionStream::new(service, info, watch::channel(false).1, CertificateState::default(), outgoing), answers)
}

/// Whether a stream in this state accepted the frame as valid.
fn taken(at: &str, bytes: &[u8]) -> bool {
    let Ok(frame) = protobuf::read::<pb::ClientFrame, AsInvalid>(bytes) else { return false };
    if at == "hello" {
        let Some(Body::Hello(hello)) = frame.body else { return false };
        return expected_cluster(&hello).is_ok();
    }
    let (mut stream, mut answers) = stream_with_capacity(limits::STREAM_FRAMES_WAITING_MAX);
    if at == "bound" {
        stream.bound = Some(Bound { session: SessionId::new(0, SESSION), attachment: Attachment(4), ttl_ms: 10_000 });
    }
    let ended = stream.frame(frame).is_err();
    // A refusal is answered at once; a valid command is waiting for the service.
    !ended && answers.try_recv().is_err()
}

/// Every kind of frame.
#[tokio::test]
async fn hostile_frames_are_answered_or_end_the_stream() {
    attack(8, &kept("frames-of-clients.bin", &samples()), taken);
}

/// Frames full of the shortest elements: members of a set, and features of a hello.
#[tokio::test]
async fn many_short_elements_take_no_more_memory_than_others() {
    for (at, path) in [("hello", &[2, 3][..]), ("bound", &[3, 4, 7])] {
        for elements in [limits::LIST_ELEMENTS_MAX, limits::LIST_ELEMENTS_MAX + 1, limits::FRAME_BYTES_MAX / 2 - 8] {
            let bytes = full_of_elements(path, elements);
            within_memory_bound(at, bytes.len(), || taken(at, &bytes));
        }
    }
}
