//! Explanations of sessions.

use lockkeeper::client::Client;
use lockkeeper::model::{About, Namespace, SessionId};
use lockkeeper::service::ErrorCode;
use lockkeeper::testing::Cluster;

/// A session of another namespace is not explained, and neither is one that never existed: the id of a session opens
/// nothing in another namespace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_an_open_session_of_the_namespace_is_explained() {
    let cluster = Cluster::start(1, None).await.expect("a cluster");
    let elsewhere = Client::new(cluster.leader().await.service());
    let here = elsewhere.clone().namespace(Namespace::parse("here").expect("legal"));
    let session = here.session().open().await.expect("opened");
    here.explain(About::Session(session.id())).await.expect("it is open here");
    for (client, id) in [(&elsewhere, session.id()), (&here, SessionId::new(0, 999_999))] {
        let refused = client.explain(About::Session(id)).await.expect_err("it is not open there");
        assert_eq!(refused.code(), ErrorCode::SessionEnded, "{refused}");
    }
    drop(session);
    cluster.close().await;
}
