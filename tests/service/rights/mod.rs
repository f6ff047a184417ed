//! Principals and their rights: what each operation needs, and what belongs to another principal.

mod audit;
mod guessed;
mod own;
mod rates;
mod reload;
mod sources;
mod table;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use lockkeeper::auth::{TokenHash, Who, new_token};
use lockkeeper::model::{
    Command, Handle, Instance, LockKey, LockName, Metadata, Namespace, OpenSession, Outcome, SessionId,
};
use lockkeeper::node::Node;
use lockkeeper::rpc::{RemoteService, RemoteSettings, pb};
use lockkeeper::service::{Call, LockService, NotSent, Proof, ServiceError, Source};
use lockkeeper::testing::{Cluster, ClusterOptions};
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic_prost::ProstCodec;

use crate::suite::{PATIENT, POLL};

/// A cluster whose nodes have the same file of rules.
struct Guarded {
    cluster: Cluster,
    folder: tempfile::TempDir,
}

fn rules_with(tokens: &str) -> String {
    let roles = ["read", "lock", "admin"].map(|right| {
        format!(
            "[[role]]\nname = \"{right}\"\nrules = [{{ namespace = \"prod\", prefix = \"a/\", right = \"{right}\" }}]\n\
             [[role]]\nname = \"{right}-all\"\nrules = [{{ namespace = \"prod\", right = \"{right}\" }}]\n"
        )
    });
    let cluster = ["metrics", "backup", "operate"]
        .map(|right| format!("[[role]]\nname = \"{right}\"\ncluster = [\"{right}\"]\n"));
    let named = ["read", "lock", "admin", "read-all", "lock-all", "admin-all", "metrics", "backup", "operate"];
    let principal = |name: &str, roles: &str| format!("[[principal]]\nname = \"{name}\"\nroles = [{roles}]\n");
    let mut text = format!("version = 1\n{}{}", roles.concat(), cluster.concat());
    named.iter().for_each(|name| text += &principal(name, &format!("\"{name}\"")));
    text += &principal("none", "");
    text += &principal("other", "\"lock-all\"");
    text += &principal("anonymous", "\"lock-all\"");
    text + tokens
}

impl Guarded {
    /// Starts this number of nodes. A single one has no elections.
    async fn start(nodes: u64) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("auth.toml");
        write(&file, &rules_with(""));
        let audit = Some(folder.path().to_owned());
        let options = ClusterOptions { nodes, auth: Some(file), audit, ..ClusterOptions::default() };
        let cluster = Cluster::start_with(options).await.expect("a cluster");
        cluster.leader().await;
        Self { cluster, folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("auth.toml")
    }

    /// Replaces the rules of all nodes.
    fn reload(&self, text: &str) {
        write(&self.file(), text);
        self.cluster.nodes().iter().for_each(|node| node.reload_auth().expect("good rules"));
    }

    /// Makes a token of a principal, which the rules do not have yet, and its entry.
    fn token(&self, principal: &str, number: u128) -> (RemoteService, String) {
        let token = new_token([7, number]);
        let path = self.folder.path().join(format!("{principal}.token"));
        write(&path, &token);
        let hash = TokenHash::of(&token).expect("a token");
        let settings = RemoteSettings { auth_token_file: Some(path), ..RemoteSettings::new(self.cluster.endpoints()) };
        let entry = format!(
            "[[token]]\nprincipal = \"{principal}\"\nsha256 = \"{hash}\"\nexpires = \"2035-01-01T00:00:00Z\"\n"
        );
        (RemoteService::new(settings).expect("settings"), entry)
    }
}

fn write(path: &std::path::Path, text: &str) {
    fs::write(path, text).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("set");
}

fn namespace() -> Namespace {
    Namespace::parse("prod").expect("legal")
}

fn key(name: &str) -> LockKey {
    LockKey { namespace: namespace(), name: LockName::parse(name).expect("legal") }
}

fn named(node: &Node, principal: &str) -> Node {
    node.service_as(principal).expect("a principal")
}

/// Returns a handle for a caller that shows nothing.
fn stranger(node: &Node) -> Node {
    node.for_caller(Source::Connection(1), None, || Ok(Who::Anonymous)).expect("a principal")
}

/// Opens a session, and returns its id and handle.
async fn open(node: &Node, secret: u128) -> (SessionId, Handle) {
    let handle = Handle::from_random(secret);
    let open = OpenSession {
        namespace: namespace(),
        handle: handle.clone(),
        instance: Instance(1),
        ttl_ms: 60_000,
        disconnect_grace_ms: None,
        metadata: Metadata::default(),
        accepts_hand_over: false,
    };
    let reply = sent(|| node.submit(Call::new(Command::OpenSession(open.clone())))).await.expect("opened");
    let Outcome::Opened { session, .. } = reply.outcome else { panic!("{reply:?}") };
    (session, handle)
}

/// Submits a command with the proof of a session.
async fn submit(node: &Node, handle: &Handle, command: Command) -> Result<Outcome, ServiceError> {
    let proof = Proof::Handle { handle: handle.clone(), namespace: namespace() };
    let call = Call { proof, ..Call::new(command) };
    sent(|| node.submit(call.clone())).await.map(|reply| reply.outcome)
}

/// Repeats a call while no node leads, as it may happen on a slow machine.
pub(super) async fn sent<T, F: Future<Output = Result<T, ServiceError>>>(
    call: impl Fn() -> F,
) -> Result<T, ServiceError> {
    loop {
        match call().await {
            Err(ServiceError::NotSent { why: NotSent::NotLeader | NotSent::NoLeader, .. })
            | Err(ServiceError::Unknown { .. }) => tokio::time::sleep(POLL).await,
            answered => return answered,
        }
    }
}

fn is_forbidden<T: std::fmt::Debug>(answered: &Result<T, ServiceError>) -> bool {
    matches!(answered, Err(ServiceError::Forbidden { .. }))
}

/// A call whose header shows that its caller is refused is answered before its message arrives.
#[tokio::test]
async fn a_refused_call_needs_no_message() {
    let guarded = Guarded::start(1).await;
    let endpoint = format!("http://{}", guarded.cluster.endpoints()[0]);
    let channel = Endpoint::from_shared(endpoint).expect("an address").connect().await.expect("connected");
    for path in ["/lockkeeper.v1.Locks/Submit", "/lockkeeper.v1.Admin/Backup"] {
        let mut client = Grpc::new(channel.clone());
        client.ready().await.expect("ready");
        let mut request = tonic::Request::new(futures_util::stream::pending::<pb::Command>());
        let bearer = format!("Bearer {}", new_token([7, 1]));
        request.metadata_mut().insert("authorization", bearer.parse().expect("a header"));
        let codec = ProstCodec::<_, pb::Reply>::default();
        let call = client.client_streaming(request, PathAndQuery::from_static(path), codec);
        let answered = timeout(PATIENT, call).await.expect("it waits for the message");
        assert_eq!(answered.expect_err("refused").code(), tonic::Code::Unauthenticated, "{path}");
    }
}
