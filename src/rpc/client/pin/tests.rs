//! Clients whose endpoints belong to two clusters, or to another service.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tonic::codegen::http::HeaderMap;
use tonic::transport::Endpoint;
use tonic::{Code, Request};

use super::super::tests::{acquire, attach, open, session, take};
use super::super::{RemoteService, RemoteSettings};
use super::ClusterPin;
use crate::model::Query;
use crate::mutex::Mutex;
use crate::rpc::convert;
use crate::rpc::fake::{CLUSTER, Node, granted, reply};
use crate::rpc::naming::{self, header_of};
use crate::rpc::pb;
use crate::rpc::pb::acquire_request::Holder;
use crate::rpc::pb::locks_client::LocksClient;
use crate::service::{Freshness, LeaderHint, LockService, NotSent, Operation, Proof, ServiceError};

const FOREIGN: u128 = 0xdef;
const ANY_PORT: &str = "127.0.0.1:0";

/// Sentences about endpoints that were left out, from any test of this process.
static REPORTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn reports_of(address: &str) -> Vec<String> {
    let reports = REPORTS.lock();
    reports.iter().filter(|sentence| sentence.starts_with(address)).cloned().collect()
}

fn connect(cluster: Option<u128>, endpoints: &[&str]) -> RemoteService {
    let settings = RemoteSettings {
        cluster,
        on_left_out: Some(|reports| REPORTS.lock().push(reports.to_owned())),
        ..RemoteSettings::new(endpoints.iter().copied())
    };
    RemoteService::new(settings).expect("legal endpoints")
}

fn unreachable(answer: Result<impl std::fmt::Debug, ServiceError>) -> String {
    match answer {
        Err(ServiceError::NotSent { why: NotSent::Unreachable(text), .. }) => text,
        other => panic!("not unreachable: {other:?}"),
    }
}

/// Endpoints of two clusters are an error before either gets a call: a lock could be granted in both. The error names
/// both ids, the cluster of each endpoint, and the fix.
#[tokio::test]
async fn endpoints_of_two_clusters_are_refused() {
    let own = Node::start(1).await;
    let foreign = Node::start_in(FOREIGN, 1, ANY_PORT).await;
    let dead = "127.0.0.1:1";
    for endpoints in [[&own.address, dead, &foreign.address], [dead, &foreign.address, &own.address]] {
        let refused = connect(None, &endpoints).submit(take("free")).await;
        let Err(ServiceError::Invalid(invalid)) = refused else { panic!("{refused:?}") };
        let reports = invalid.to_string();
        for (address, cluster_id) in [(&own.address, CLUSTER), (&foreign.address, FOREIGN)] {
            assert!(reports.contains(&format!("{address} belongs to cluster {cluster_id:032x}")), "{reports}");
        }
        assert!(reports.starts_with("endpoints: ") && reports.contains("--cluster"), "{reports}");
    }
    assert_eq!((own.end().await, foreign.end().await), (vec![], vec![]));
}

/// With the cluster in the settings, endpoints of another cluster are left out and reported, and get no calls.
#[tokio::test]
async fn only_the_named_cluster_is_asked() {
    let own = Node::start(1).await;
    let foreign = Node::start_in(FOREIGN, 1, ANY_PORT).await;
    let remote = connect(Some(CLUSTER), &[&foreign.address, &own.address]);
    assert_eq!(remote.submit(take("free")).await, Ok(reply(granted())));
    let reports = format!("{} belongs to cluster {FOREIGN:032x} and is left out", foreign.address);
    assert_eq!((reports_of(&foreign.address), reports_of(&own.address)), (vec![reports], vec![]));
    assert_eq!(own.end().await, [take("free")]);
    assert_eq!(foreign.end().await, []);
}

/// If no endpoint belongs to the cluster of the settings, the error names it and the clusters that were found. The
/// settings are wrong if all endpoints have answered; otherwise the right cluster may come back.
#[tokio::test]
async fn a_cluster_that_is_not_there_is_named() {
    let foreign = Node::start_in(FOREIGN, 1, ANY_PORT).await;
    let met = format!("{} belongs to cluster {FOREIGN:032x}", foreign.address);
    let refused = connect(Some(CLUSTER), &[&foreign.address]).submit(take("free")).await;
    let Err(ServiceError::Invalid(invalid)) = refused else { panic!("{refused:?}") };
    assert!(invalid.to_string().contains(&met) && invalid.value == format!("{CLUSTER:032x}"), "{invalid}");
    let dead = "127.0.0.1:1";
    let reports = unreachable(connect(Some(CLUSTER), &[&foreign.address, dead]).submit(take("free")).await);
    assert!(
        reports.contains(&met) && reports.contains(dead) && reports.contains(&format!("{CLUSTER:032x}")),
        "{reports}"
    );
    assert_eq!(foreign.end().await, []);
}

/// A client stays with its first cluster. If another cluster answers at its only endpoint, as after a restore, that
/// counts as no answer. No session ends or is renewed, nothing is granted, and the error says to start the client
/// again. When its own cluster is back, the client continues.
#[tokio::test]
async fn a_client_stays_with_its_first_cluster() {
    let own = Node::start(1).await;
    let address = own.address.clone();
    let remote = connect(None, &[&address]);
    remote.submit(open()).await.expect("opened");
    own.end().await;

    let foreign = Node::start_in(FOREIGN, 1, &address).await;
    let totals = || remote.query(Query::Totals, Freshness::Stale);
    for reports in [
        unreachable(remote.submit(take("free")).await),
        unreachable(remote.submit(attach(1)).await),
        unreachable(remote.submit(take("held")).await),
        unreachable(totals().await),
        unreachable(remote.status().await),
    ] {
        let (theirs, ours) = (format!("belongs to cluster {FOREIGN:032x}"), format!("cluster {CLUSTER:032x}"));
        assert!(reports.contains(&theirs) && reports.contains(&ours) && reports.contains("start again"), "{reports}");
    }
    assert_eq!(foreign.end().await, []);

    let own = Node::start_in(CLUSTER, 1, &address).await;
    remote.submit(attach(2)).await.expect("attached");
    assert_eq!(own.end().await.first(), Some(&attach(2)));
}

/// A node whose cluster has no id yet is neither another cluster nor another service. A client finds no leader there,
/// even if its settings name a cluster; it sends that node nothing, does not leave it out, and is served once the id is
/// known. A client that has accepted a cluster does not treat such a node as one of its nodes.
#[tokio::test]
async fn a_node_of_no_cluster_yet_counts_as_no_leader() {
    let node = Node::start_in(None, 1, ANY_PORT).await;
    let remotes = [None, Some(CLUSTER)].map(|expected| connect(expected, &[&node.address]));
    for remote in &remotes {
        assert_eq!(remote.submit(take("free")).await, Err(ServiceError::not_sent(NotSent::NoLeader)));
    }
    let channel = Endpoint::from_shared(format!("http://{}", node.address)).expect("legal").connect().await;
    let asked = convert::command(&take("free"), &Proof::Trusted).expect("a take");
    let mut request = Request::new(asked);
    request.metadata_mut().insert("lockkeeper-cluster", format!("{CLUSTER:032x}").parse().expect("digits"));
    let refused = LocksClient::new(channel.expect("connected")).submit(request).await.expect_err("no cluster yet");
    assert_eq!(ServiceError::from(refused.clone()), ServiceError::not_sent(NotSent::NoLeader));
    assert!(naming::is_unfounded(&refused.metadata().clone().into_headers()), "{refused:?}");

    node.cluster_id.send_replace(Some(CLUSTER));
    for remote in &remotes {
        assert_eq!(remote.submit(take("free")).await, Ok(reply(granted())));
    }
    let address = node.address.clone();
    assert_eq!(node.end().await, [take("free"), take("free")]);
    let wiped = Node::start_in(None, 1, &address).await;
    assert_eq!(remotes[0].submit(take("free")).await, Err(ServiceError::not_sent(NotSent::NoLeader)));
    assert_eq!((wiped.end().await, reports_of(&address)), (vec![], vec![]));
}

/// A call that reaches another cluster over an old connection was not sent: the next endpoint gets it, even a call that
/// is not repeated otherwise.
#[tokio::test]
async fn another_endpoint_is_asked_instead_of_a_foreign_one() {
    let (first, second) = (Node::start(1).await, Node::start(1).await);
    let remote = connect(None, &[&first.address, &second.address]);
    remote.submit(take("free")).await.expect("granted");
    let address = first.address.clone();
    assert_eq!(first.end().await, [take("free")]);
    let foreign = Node::start_in(FOREIGN, 1, &address).await;
    assert_eq!(remote.submit(take("free")).await, Ok(reply(granted())));
    assert_eq!(remote.operate(Operation::Transfer(1)).await, Ok(()));
    assert_eq!((second.end().await, foreign.end().await), (vec![take("free")], vec![]));
}

/// A hint that the leader is at a node of another cluster is not followed: the node that gave it serves the call.
#[tokio::test]
async fn a_hint_to_another_cluster_is_not_followed() {
    let own = Node::start(2).await;
    let foreign = Node::start_in(FOREIGN, 1, ANY_PORT).await;
    own.leader.send_replace(Some(LeaderHint { node: 1, client: foreign.address.clone() }));
    let remote = connect(None, &[&own.address]);
    remote.submit(open()).await.expect("opened");
    assert!(*remote.attachment(session()).borrow());
    assert_eq!(remote.submit(acquire("free", 1)).await, Ok(reply(granted())));
    assert_eq!(foreign.end().await, []);
}

/// An endpoint that is not a node's client port is left out and named: another server answers in another protocol or
/// closes the connection. If it is the only endpoint, the error says so.
#[tokio::test]
async fn what_is_no_client_port_is_named() {
    let own = Node::start(1).await;
    let web = something_else(Some("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")).await;
    let redis = something_else(Some("-ERR unknown command 'PRI'\r\n")).await;
    let mute = something_else(None).await;
    let remote = connect(None, &[&web, &redis, &mute, &own.address]);
    assert_eq!(remote.submit(take("free")).await, Ok(reply(granted())));
    for address in [&web, &redis, &mute] {
        let reports = reports_of(address).concat();
        assert!(reports.starts_with(&format!("{address} is not a lockkeeper client port (")), "{reports}");
        let alone = unreachable(connect(None, &[address]).submit(take("free")).await);
        assert!(alone.starts_with(&format!("{address} is not a lockkeeper client port (")), "{alone}");
    }
}

/// Starts a server that sends a text to every client that connects, and closes the connection. Returns its address.
async fn something_else(says: Option<&'static str>) -> String {
    let listener = TcpListener::bind(ANY_PORT).await.expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut asked = [0; 1024];
            let _ = connection.read(&mut asked).await;
            if let Some(says) = says {
                let _ = connection.write_all(says.as_bytes()).await;
            }
        }
    });
    address
}

/// An answer counts only if its headers name the accepted cluster. An answer of another cluster counts as if nothing
/// had been sent; if the headers name no cluster, which a proxy may have caused, the outcome is unknown. Neither is
/// decoded.
#[test]
fn an_answer_is_checked_by_its_headers() {
    let pin = ClusterPin::new(Some(CLUSTER), None);
    pin.decide(&[("a:1", Ok(CLUSTER))]).expect("found");
    let headers = |cluster_id| HeaderMap::from_iter([(naming::CLUSTER, header_of(cluster_id))]);
    assert_eq!(pin.check_answer("a:1", &headers(CLUSTER)), None);
    let reports = unreachable(Err::<(), _>(pin.check_answer("a:1", &headers(FOREIGN)).expect("foreign")));
    assert!(
        reports.starts_with("a:1 belongs to cluster") && reports.ends_with(&format!("not to {CLUSTER:032x}")),
        "{reports}"
    );
    assert!(matches!(pin.check_answer("a:1", &HeaderMap::new()), Some(ServiceError::Unknown { .. })));
    let unfounded = HeaderMap::from_iter([(naming::GROUP, "0".parse().expect("a digit"))]);
    assert_eq!(pin.check_answer("a:1", &unfounded), Some(ServiceError::not_sent(NotSent::NoLeader)));
}

/// A node names its cluster in every answer and error, and refuses a call for another cluster before its service sees
/// it.
#[tokio::test]
async fn a_node_names_its_cluster_and_refuses_calls_for_others() {
    let mut node = Node::start(1).await;
    let channel = Endpoint::from_shared(format!("http://{}", node.address)).expect("legal").connect().await;
    let mut locks = LocksClient::new(channel.expect("connected"));
    let asked = |lock: &str, meant: Option<u128>| {
        let holder = Some(Holder::Handle("secret".to_owned()));
        let mut request = Request::new(pb::AcquireRequest { holder, lock: lock.to_owned(), ..Default::default() });
        request.set_timeout(Duration::from_secs(10));
        if let Some(meant) = meant {
            request.metadata_mut().insert("lockkeeper-cluster", format!("{meant:032x}").parse().expect("digits"));
        }
        request
    };
    let own = format!("{CLUSTER:032x}");
    let named = |metadata: &tonic::metadata::MetadataMap| {
        ["lockkeeper-cluster", "lockkeeper-group"]
            .map(|key| metadata.get(key).map(|text| text.to_str().expect("a text").to_owned()).unwrap_or_default())
    };
    for meant in [None, Some(CLUSTER)] {
        let answer = locks.acquire(asked("free", meant)).await.expect("granted");
        assert_eq!(named(answer.metadata()), [own.as_str(), "0"]);
        node.asked().await;
        let error = locks.acquire(asked("held", meant)).await.expect_err("held");
        assert_eq!(named(error.metadata()), [own.as_str(), "0"]);
        node.asked().await;
    }
    let refused = locks.acquire(asked("free", Some(FOREIGN))).await.expect_err("meant for another");
    assert_eq!((refused.code(), named(refused.metadata())), (Code::InvalidArgument, [own, "0".to_owned()]));
    assert!(refused.message().starts_with("cluster_id: "), "{refused:?}");
    assert_eq!(node.end().await, []);
}
