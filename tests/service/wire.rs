//! What callers see of a node who have nothing but its proto files: reflection, health, and calls of their own.

use lockkeeper::client::Client;
use lockkeeper::rpc::pb;
use lockkeeper::rpc::pb::locks_client::LocksClient;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::suite::SHORT;

async fn node() -> Channel {
    let address = format!("http://{}", crate::shared().cluster.endpoints()[0]);
    Endpoint::from_shared(address).expect("an address").connect().await.expect("connected")
}

/// Asks the reflection service one thing.
async fn reflected(asked: MessageRequest) -> Result<MessageResponse, Code> {
    let mut client = ServerReflectionClient::new(node().await);
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(asked) };
    let mut answers = client.server_reflection_info(tokio_stream::once(request)).await.expect("a stream").into_inner();
    let answer = answers.message().await.map_err(|status| status.code())?.expect("an answer");
    Ok(answer.message_response.expect("a message"))
}

/// Reflection lists our services and health's, and shows the file behind a name of each.
#[tokio::test]
async fn reflection_shows_every_service() {
    let Ok(MessageResponse::ListServicesResponse(listed)) =
        reflected(MessageRequest::ListServices(String::new())).await
    else {
        panic!("services are not listed");
    };
    let names: Vec<_> = listed.service.into_iter().map(|service| service.name).collect();
    for service in ["lockkeeper.v1.Locks", "lockkeeper.v1.Admin", "grpc.health.v1.Health"] {
        assert!(names.iter().any(|name| name == service), "{service} is not among {names:?}");
        let shown = reflected(MessageRequest::FileContainingSymbol(service.to_owned())).await;
        assert!(matches!(shown, Ok(MessageResponse::FileDescriptorResponse(_))), "{service}: {shown:?}");
    }
    let unknown = reflected(MessageRequest::FileContainingSymbol("lockkeeper.v1.Nothing".to_owned())).await;
    assert_eq!(unknown, Err(Code::NotFound));
}

/// Health says that the node and each of its services serve, and knows no others.
#[tokio::test]
async fn health_says_that_services_serve() {
    let mut client = HealthClient::new(node().await);
    for service in ["", "lockkeeper.v1.Locks", "lockkeeper.v1.Admin"] {
        let request = HealthCheckRequest { service: service.to_owned() };
        let status = client.check(request).await.expect(service).into_inner().status;
        assert_eq!(status, i32::from(ServingStatus::Serving), "{service:?}");
    }
    let request = HealthCheckRequest { service: "lockkeeper.v1.Nothing".to_owned() };
    assert_eq!(client.check(request).await.expect_err("unknown").code(), Code::NotFound);
}

/// A unary wait is answered at once for a free name, and for a held one not before it is free, with nobody holding it;
/// what happens to other locks, and a hand-over to the next waiter, do not end it.
#[tokio::test]
async fn a_unary_wait_ends_when_the_name_is_free() {
    let client = Client::new(crate::remote().await);
    let mut locks = LocksClient::new(node().await);
    let request = || pb::WaitRequest { namespace: String::new(), lock: "awaited".to_owned() };
    assert!(locks.wait(request()).await.expect("free").into_inner().holders.is_empty());

    let first = client.lock("awaited").acquire().await.expect("free");
    let mut second = Box::pin(client.lock("awaited").acquire());
    assert!(tokio::time::timeout(SHORT, &mut second).await.is_err(), "held");
    let mut waits = Box::pin(locks.wait(request()));
    assert!(tokio::time::timeout(SHORT, &mut waits).await.is_err(), "held");
    client.lock("awaited.not").acquire().await.expect("free").release().await.expect("released");
    first.release().await.expect("released");
    let second = second.await.expect("the next one");
    assert!(tokio::time::timeout(SHORT, &mut waits).await.is_err(), "held by the next one");
    second.release().await.expect("released");
    let reply = waits.await.expect("answered").into_inner();
    assert!(reply.holders.is_empty() && reply.waiters.is_empty(), "{reply:?}");
}
