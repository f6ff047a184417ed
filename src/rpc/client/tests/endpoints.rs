//! Endpoints that are silent, unreachable or not the leader.

use super::*;

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
}
