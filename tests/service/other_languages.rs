//! The manual's page for other languages: its program runs, its calls exist, and clients in another language can read
//! the reflection of a node.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use lockkeeper::rpc::pb;
use lockkeeper::rpc::pb::locks_client::LocksClient;
use prost_reflect::{DescriptorPool, Kind, MessageDescriptor};
use serde_json::Value;

use crate::venv::{for_grpc, run};

const PAGE: &str = include_str!("../../src/manual/other-languages.md");
const PROGRAM_LINES_MAX: usize = 20;

/// Returns the first code sample of the page in this language.
fn sample(language: &str) -> &'static str {
    let begin = format!("```{language}\n");
    PAGE.split(&begin).nth(1).and_then(|rest| rest.split("```").next()).expect("a sample")
}

/// Returns the Python interpreter of an environment with the packages that the page names. If it cannot be installed,
/// prints why and returns `None`, or fails if tests must not be skipped.
fn python() -> Option<&'static Path> {
    static PYTHON: OnceLock<Option<PathBuf>> = OnceLock::new();
    PYTHON.get_or_init(|| for_grpc(PAGE)).as_deref()
}

/// Runs a Python program with the address of a node as its argument. Returns its standard output, or `None` without
/// Python.
async fn run_python(program: String, place: usize) -> Option<String> {
    crate::shared().cluster.leader().await;
    let endpoint = crate::shared().cluster.endpoints()[place].clone();
    let printed = tokio::task::spawn_blocking(move || {
        let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
        let mut command = Command::new(python()?);
        let command = command.env("PYTHONPATH", protos).args(["-c", &program.replace("127.0.0.1:7601", &endpoint)]);
        Some(run(command.arg(endpoint)).expect("the program succeeds"))
    });
    printed.await.expect("no panic")
}

/// The program of the page opens a session, acquires a lock, prints its token, keeps the session alive and releases the
/// lock, at any node. It is short.
#[tokio::test]
async fn the_program_of_the_page_runs() {
    let program = sample("python");
    assert!(program.lines().count() <= PROGRAM_LINES_MAX, "{program}");
    for place in 0..2 {
        let Some(printed) = run_python(program.to_owned(), place).await else { return };
        let token = printed.trim().parse().expect("a token");
        let endpoint = format!("http://{}", crate::shared().cluster.endpoints()[0]);
        let mut locks = LocksClient::connect(endpoint).await.expect("connected");
        let lock = Some(pb::LockKey { namespace: String::new(), name: "nightly".to_owned() });
        let answer = locks.check(pb::TokenOf { lock, token }).await.expect("checked").into_inner().answer;
        let Some(pb::query_reply::Answer::Checked(checked)) = answer else { panic!("not checked: {answer:?}") };
        assert_eq!(checked.state, i32::from(pb::TokenState::Stale), "it was granted and released");
    }
}

/// A Python client reads the services and their messages by reflection, under the current name and under the older one,
/// which is the only one that its own package supports.
#[tokio::test]
async fn python_sees_what_the_node_describes() {
    const PROGRAM: &str = r#"
import sys, grpc
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha import reflection_pb2 as messages
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
channel = grpc.insecure_channel(sys.argv[1])
database = ProtoReflectionDescriptorDatabase(channel)
print(*sorted(database.get_services()))
locks = DescriptorPool(database).FindServiceByName("lockkeeper.v1.Locks")
print(locks.FindMethodByName("Acquire").input_type.full_name)
newer = channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    request_serializer=messages.ServerReflectionRequest.SerializeToString,
    response_deserializer=messages.ServerReflectionResponse.FromString)
answer = next(newer(iter([messages.ServerReflectionRequest(list_services="")])))
print(*sorted(service.name for service in answer.list_services_response.service))
"#;
    let Some(printed) = run_python(PROGRAM.to_owned(), 1).await else { return };
    let lines: Vec<_> = printed.lines().collect();
    let services = "grpc.health.v1.Health lockkeeper.v1.Admin lockkeeper.v1.Locks";
    for line in [lines[0], lines[2]] {
        let known: Vec<_> = line.split(' ').filter(|name| !name.starts_with("grpc.reflection.")).collect();
        assert_eq!(known.join(" "), services);
    }
    assert_eq!(lines[1], "lockkeeper.v1.AcquireRequest");
}

/// A Python program reads the name of an error and its advice from the metadata of the call, as the page says.
#[tokio::test]
async fn python_reads_the_code_of_an_error() {
    let handler = PAGE.rsplit("```python\n").next().and_then(|rest| rest.split("```").next()).expect("a sample");
    let program = format!(
        r#"
import grpc
pb, rpc = grpc.protos_and_services("lockkeeper/v1/locks.proto")
locks = rpc.LocksStub(grpc.insecure_channel("127.0.0.1:7601"))
request = pb.AcquireRequest(lock="python-held", handle="")
got = locks.Acquire(request)
try:
    locks.Acquire(request)
{handler}print(code)
locks.Release(pb.ReleaseRequest(lock="python-held", handle=got.handle))
"#
    );
    let Some(printed) = run_python(program, 2).await else { return };
    assert_eq!(printed.trim(), "not-acquired");
}

/// Returns the calls of the page in the form `grpcurl -plaintext -d JSON ADDRESS METHOD`.
fn typed() -> Vec<(&'static str, Value)> {
    let lines: Vec<_> = sample("sh").lines().collect();
    let parts = |line: &&'static str| {
        let (before, json, after) = match line.split('\'').collect::<Vec<_>>()[..] {
            [before, json, after] => (before, json, after),
            _ => panic!("unexpected line: {line}"),
        };
        assert_eq!(before, "grpcurl -plaintext -d ", "{line}");
        let method = after.strip_prefix(" 127.0.0.1:7601 ").expect("the address");
        (method, serde_json::from_str(json).expect("JSON"))
    };
    lines.iter().map(parts).collect()
}

/// Checks that all fields in the JSON exist in the message, recursively.
fn fits(message: &MessageDescriptor, json: &Value) {
    for (name, value) in json.as_object().expect("an object") {
        let field = message.get_field_by_name(name).or_else(|| message.get_field_by_json_name(name));
        let field = field.unwrap_or_else(|| panic!("{} has no field {name}", message.full_name()));
        if let Kind::Message(message) = field.kind() {
            fits(&message, value);
        } else {
            assert!(value.is_string() || value.is_number() || value.is_boolean(), "{name}: {value}");
        }
    }
}

/// The services, methods and fields in the calls of the page exist. If grpcurl is installed, the calls are made.
#[tokio::test]
async fn the_calls_of_the_page_exist() {
    let pool = DescriptorPool::decode(pb::DESCRIPTORS).expect("descriptors");
    let typed = typed();
    assert_eq!(typed.len(), 5);
    for (path, json) in &typed {
        let (service, method) = path.split_once('/').expect("a service and a method");
        let service = pool.get_service_by_name(service).unwrap_or_else(|| panic!("no service {service}"));
        let method = service.methods().find(|known| known.name() == method).unwrap_or_else(|| panic!("no {path}"));
        fits(&method.input(), json);
    }
    if Command::new("grpcurl").arg("-version").output().is_err() {
        return;
    }
    crate::shared().cluster.leader().await;
    let endpoint = crate::shared().cluster.endpoints()[0].clone();
    let calls = typed.into_iter().map(move |(path, json)| {
        run(Command::new("grpcurl").args(["-plaintext", "-d", &json.to_string(), &endpoint, path])).expect("answered")
    });
    let answers = tokio::task::spawn_blocking(|| calls.collect::<Vec<_>>()).await.expect("no panic");
    assert!(answers[0].contains("\"token\""), "{}", answers[0]);
}
