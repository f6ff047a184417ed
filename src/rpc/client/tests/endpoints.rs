//! Endpoints that are silent, unreachable or not the leader.

use std::collections::BTreeSet;
use std::io;

use tokio::sync::mpsc;
use tokio::time::Instant as TokioInstant;

use super::*;
use crate::client::Client;
use crate::net::Connector;
use crate::rpc::fake::CLUSTER;
use crate::service::{ErrorCode, Operation};

/// A call tries an endpoint with a connection before one without.
#[tokio::test]
async fn connected_endpoints_come_first() {
    let nodes = [Node::start(1).await, Node::start(2).await, Node::start(3).await];
    let [first, second, third] = nodes.each_ref().map(|node| node.address.clone());
    let remote = connect([&first, &second, &third]);
    remote.query(Query::Totals, Freshness::Linearizable).await.expect("answered by the first");
    assert!(remote.shared.endpoints.connected(&third).await.is_ok());
    assert_eq!(remote.shared.endpoints.candidates(), [first, third, second]);
}

/// Several clients lose the same node at the same moment. They do not all dial it again at the same moment.
#[tokio::test(start_paused = true)]
async fn clients_of_a_lost_node_do_not_dial_it_together() {
    let begun = TokioInstant::now();
    let (dialled, mut dials) = mpsc::unbounded_channel();
    let connector = Connector::new(move |_| {
        dialled.send(begun.elapsed()).expect("the test waits");
        Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) })
    });
    let clients = [(); 8].map(|()| {
        let connector = Some(connector.clone());
        let settings = RemoteSettings { connector, ..RemoteSettings::new(["lost:1"]) };
        let remote = RemoteService::new(settings).expect("legal");
        remote.shared.endpoints.open_standbys(&remote.shared.tasks);
        remote
    });
    let mut moments = BTreeSet::new();
    for _ in &clients {
        moments.insert(dials.recv().await.expect("a client dials"));
    }
    assert!(1 < moments.len(), "all dialled after {moments:?}");
}

/// A client that a node sends to the next leader keeps its connection to that node.
#[tokio::test]
async fn a_move_keeps_the_connection() {
    let (mut first, mut second) = (Node::start(1).await, Node::start(2).await);
    // The relay accepts one connection only.
    let relay = relay(first.address.clone(), Arc::default(), Arc::default()).await;
    let remote = connect([&relay, &second.address]);
    let leader = |node, client: &str| LeaderHint { node, client: client.to_owned() };
    let second_address = second.address.clone();
    let nodes = [(&mut first, leader(2, &second_address)), (&mut second, leader(1, &relay))];
    let mut attempt = 1;
    for (node, next) in nodes {
        remote.submit(attach(attempt)).await.expect("attached");
        assert_eq!(node.asked().await, attach(attempt).command);
        attempt += 1;
        node.leader.send_replace(Some(next));
        while *remote.attachment(session()).borrow() {
            tokio::task::yield_now().await;
        }
    }
    remote.submit(attach(attempt)).await.expect("attached on the first connection");
    assert_eq!(first.asked().await, attach(attempt).command);
}

/// An endpoint that accepts calls and answers none leaves time to ask another endpoint: for a query at once, for a
/// command as soon as its caller repeats it. The silent endpoint answered when the client first connected.
#[tokio::test]
async fn a_silent_endpoint_leaves_time_for_another() {
    let (first, node) = (Node::start(1).await, Node::start(1).await);
    let connected = async || {
        let still = Arc::new(AtomicBool::new(false));
        let silent = relay(first.address.clone(), Arc::default(), Arc::clone(&still)).await;
        let mut settings = RemoteSettings::new([silent, node.address.clone()]);
        settings.request_wait = Duration::from_secs(2);
        let remote = RemoteService::new(settings).expect("legal");
        remote.submit(take("free")).await.expect("granted by the first");
        still.store(true, SeqCst);
        remote
    };
    let asks = async { assert!(connected().await.query(Query::Totals, Freshness::Linearizable).await.is_ok()) };
    let takes = async {
        let remote = connected().await;
        let silence = remote.submit(take("free")).await;
        assert!(matches!(silence, Err(ServiceError::Unknown { .. })), "{silence:?}");
        assert_eq!(remote.submit(take("free")).await, Ok(reply(granted())));
    };
    tokio::join!(asks, takes);
}

/// A read that no endpoint answers was not served, which leaves nothing in doubt: the error names the endpoint. If
/// another endpoint answers that there is no leader, that is the error.
#[tokio::test]
async fn an_unanswered_read_was_not_served() {
    let (stuck, unfounded) = (Node::start(1).await, Node::start_in(None, 2, "127.0.0.1:0").await);
    let unanswered = async |first: &Node| {
        let mut settings = RemoteSettings::new([stuck.address.clone(), unfounded.address.clone()]);
        settings.request_wait = Duration::from_millis(2 * limits::ENDPOINT_WAIT_MS_MIN);
        let remote = RemoteService::new(settings).expect("legal");
        remote.query(Query::Totals, Freshness::Linearizable).await.expect("answered");
        remote.shared.endpoints.prefer(&first.address);
        remote.query(Query::Inspect { lock: lock("stuck") }, Freshness::Linearizable).await.expect_err("no answer")
    };
    let no_leader = ServiceError::not_sent(NotSent::NoLeader);
    assert_eq!(unanswered(&stuck).await, no_leader);
    assert_eq!(unanswered(&unfounded).await, no_leader);
    unfounded.stop.send_replace(true);
    let error = unanswered(&stuck).await;
    let ServiceError::NotSent { why: NotSent::Unreachable(text), .. } = &error else { panic!("{error:?}") };
    assert!(text.contains(&stuck.address) && text.contains(&unfounded.address), "{text}");
}

/// A node that answers that it stops has done nothing, so the next endpoint gets the same call.
#[tokio::test]
async fn another_node_does_what_a_stopping_one_did_not() {
    let (stopping, mut node) = (Node::start(1).await, Node::start(1).await);
    let remote = connect([&stopping.address, &node.address]);
    remote.query(Query::Totals, Freshness::Linearizable).await.expect("answered");
    stopping.service.stops();
    let prefer = || remote.shared.endpoints.prefer(&stopping.address);
    prefer();
    remote.operate(Operation::Transfer(2)).await.expect("done by the other node");
    prefer();
    remote.submit(take("free")).await.expect("granted by the other node");
    assert!(node.calls.try_recv().is_ok(), "it was asked");
}

/// A node without a leader accepts every watch and ends it later. The client makes the next watch at another node. A
/// node that ends the watch of a slow reader gets the next one, too.
#[tokio::test]
async fn a_watch_leaves_a_node_without_a_leader() {
    let (alone, other) = (Node::start(1).await, Node::start(2).await);
    let remote = connect([&alone.address, &other.address]);
    remote.query(Query::Totals, Freshness::Linearizable).await.expect("answered");
    assert!(remote.shared.endpoints.connected(&other.address).await.is_ok());
    remote.shared.endpoints.prefer(&alone.address);
    let watched = async || {
        let scope = Scope::Namespace { namespace: Namespace::default(), prefix: String::new() };
        let events = remote.subscribe(Subscription { scope, after: None, cluster_id: None }).await.expect("subscribed");
        (events, alone.service.subscribers(), other.service.subscribers())
    };
    let (mut slow, at_alone, at_other) = watched().await;
    assert_eq!((at_alone, at_other), (1, 0));
    alone.service.cut();
    assert!(matches!(slow.next().await, Err(ServiceError::EventsMissed { .. })));
    let (mut leaderless, at_alone, at_other) = watched().await;
    assert_eq!((at_alone, at_other), (1, 0), "the node has a leader");
    alone.service.end_events(&ServiceError::not_sent(NotSent::NoLeader));
    let end = leaderless.next().await;
    assert!(matches!(end, Err(ServiceError::NotSent { why: NotSent::NoLeader, .. })), "{end:?}");
    let (_events, at_alone, at_other) = watched().await;
    assert_eq!((at_alone, at_other), (0, 1));
}

/// An endpoint that accepts connections and never names its cluster gets no calls: if another one has answered, the
/// first command goes there.
#[tokio::test]
async fn an_endpoint_that_never_answers_gets_no_calls() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = silent.local_addr().expect("bound").to_string();
    let kept = tokio::spawn(async move {
        let mut connections = Vec::new();
        while let Ok((connection, _)) = silent.accept().await {
            connections.push(connection);
        }
    });
    let node = Node::start(1).await;
    assert_eq!(connect([&address, &node.address]).submit(take("free")).await, Ok(reply(granted())));
    kept.abort();
}

/// If no endpoint can be reached, nothing was sent, and the text names every endpoint.
#[tokio::test]
async fn unreachable_names_every_endpoint() {
    let closed = ["127.0.0.1:1".to_owned(), "127.0.0.1:2".to_owned()];
    let Err(ServiceError::NotSent { why: NotSent::Unreachable(text), .. }) = connect(&closed).submit(open()).await
    else {
        panic!("unreachable");
    };
    assert!(closed.iter().all(|address| text.contains(address.as_str())) && text.contains("refused"), "{text}");
}

/// A session's stream is opened at the leader, although another node was asked; a dead endpoint does no harm.
#[tokio::test]
async fn the_leader_is_found_from_any_endpoint() {
    let mut leader = Node::start(1).await;
    let mut follower = Node::start(2).await;
    follower.leader.send_replace(Some(LeaderHint { node: 1, client: leader.address.clone() }));
    let dead = "127.0.0.1:1".to_owned();
    let remote = connect([&dead, &follower.address]);
    remote.submit(open()).await.expect("opened");
    assert_eq!(leader.asked().await, open().command);
    assert!(follower.calls.try_recv().is_err(), "the follower was asked nothing");
}

/// A follower whose leader cannot be reached from here serves the session itself.
#[tokio::test]
async fn an_unreachable_leader_is_reached_through_a_follower() {
    let mut follower = Node::start(2).await;
    follower.leader.send_replace(Some(LeaderHint { node: 1, client: "127.0.0.1:1".to_owned() }));
    let remote = connect([&follower.address]);
    remote.submit(open()).await.expect("opened");
    assert_eq!(follower.asked().await, open().command);
}

/// Endpoints that no connection could be made to are refused by name.
#[test]
fn endpoints_are_checked() {
    for bad in ["", "host", "http://host:1", "host:1/path", "host:99999"] {
        let refused = RemoteService::new(RemoteSettings::new([bad])).expect_err(bad);
        assert_eq!(refused.field, "endpoints");
    }
    assert!(RemoteService::new(RemoteSettings::new(["[::1]:7601", "localhost:7602"])).is_ok());
    let settings = RemoteSettings::new(["localhost:7602"]);
    let unread = RemoteSettings { auth_token_file: Some("/nonexistent".into()), ..settings };
    let refused = RemoteService::new(unread).expect_err("no token").to_string();
    assert!(refused.starts_with("auth_token_file: a file with a token, got none: /nonexistent cannot be read: "));
    assert!(refused.ends_with("; check the path"), "{refused}");
}

/// A client that connects to a cluster before that has its first entry waits until it is founded.
#[tokio::test]
async fn connecting_waits_for_the_founding() {
    let node = Node::start_in(None, 1, "127.0.0.1:0").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    // Each attempt dials once, so at the second connection the first attempt has failed.
    let founds = async {
        for attempt in 1.. {
            let (mut client, _) = listener.accept().await.expect("a client");
            if attempt == 2 {
                node.cluster_id.send_replace(Some(CLUSTER));
            }
            let mut server = TcpStream::connect(&node.address).await.expect("the node");
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut server).await });
        }
    };
    tokio::select! {
        connected = Client::connect([&address]) => drop(connected.expect("founded meanwhile")),
        () = founds => unreachable!("it accepts until it is dropped"),
    }
}

/// A client that connects to a cluster that is not founded in time reports that there is no leader. Every other error
/// is reported at once.
#[tokio::test]
async fn connecting_waits_for_nothing_else() {
    let node = Node::start_in(None, 1, "127.0.0.1:0").await;
    let connect = async |address: &str, request_wait| {
        let settings = RemoteSettings { request_wait, ..RemoteSettings::new([address]) };
        Client::connect_with(settings).await.expect_err("no cluster").code()
    };
    let short = Duration::from_millis(limits::ENDPOINT_WAIT_MS_MIN);
    assert_eq!(connect(&node.address, short).await, ErrorCode::NoLeader);
    let closed = tokio::time::timeout(LONG, connect("127.0.0.1:1", 100 * LONG)).await.expect("at once");
    assert_eq!(closed, ErrorCode::Unreachable);
}
