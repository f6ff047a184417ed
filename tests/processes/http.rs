//! The HTTP port of a node: health, readiness and metrics, and a client for its calls.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use crate::cluster::{Cluster, PATIENCE};
use crate::wait::block_until;

/// The HTTP port of a node, for calls under `/v1/ns/default`.
#[derive(Clone)]
pub(crate) struct HttpPort {
    address: String,
    host: String,
    /// One more line of the header.
    header: Option<String>,
}

/// The HTTP ports of all nodes.
pub(crate) fn ports(cluster: &Cluster) -> [HttpPort; 3] {
    [1, 2, 3].map(|node| HttpPort::new(&cluster.http(node)))
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Value,
}

impl HttpPort {
    pub(crate) fn new(address: &str) -> Self {
        Self { address: address.to_owned(), host: address.to_owned(), header: None }
    }

    pub(crate) fn with_host(&self, host: &str) -> Self {
        Self { host: host.to_owned(), ..self.clone() }
    }

    pub(crate) fn with_header(&self, header: &str) -> Self {
        Self { header: Some(header.to_owned()), ..self.clone() }
    }

    pub(crate) fn get(&self, call: &str) -> Answer {
        self.at("GET", &format!("/v1/ns/default/{call}"), None)
    }

    pub(crate) fn post(&self, call: &str, body: Value) -> Answer {
        let body = body.to_string();
        self.at("POST", &format!("/v1/ns/default/{call}"), Some(("application/json", &body)))
    }

    /// Number of `holders` or `waiters` of a lock.
    pub(crate) fn count(&self, lock: &str, list: &str) -> usize {
        self.get(&format!("locks?lock={lock}")).body[list].as_array().expect("a list").len()
    }

    /// Waits until a lock has this number of `holders` or `waiters`.
    pub(crate) fn await_count(&self, lock: &str, list: &str, count: usize) {
        block_until(format_args!("{count} {list} of {lock}"), || self.count(lock, list) == count);
    }

    /// Sends a request, and does not read the answer.
    pub(crate) fn begin(&self, call: &str, body: &Value) -> TcpStream {
        let body = body.to_string();
        self.send("POST", &format!("/v1/ns/default/{call}"), Some(("application/json", &body))).expect("sent")
    }

    /// Sends a request and reads its answer.
    pub(crate) fn at(&self, method: &str, path: &str, body: Option<(&str, &str)>) -> Answer {
        self.try_at(method, path, body).expect("an answer")
    }

    /// Sends a request and reads its answer; an error if the node is gone.
    pub(crate) fn try_at(&self, method: &str, path: &str, body: Option<(&str, &str)>) -> std::io::Result<Answer> {
        let mut stream = self.send(method, path, body)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let gone = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(gone)?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(gone)?;
        let body = serde_json::from_str(body).unwrap_or(Value::Null);
        Ok(Answer { status, head: head.to_owned(), body })
    }

    fn send(&self, method: &str, path: &str, body: Option<(&str, &str)>) -> std::io::Result<TcpStream> {
        let mut stream = TcpStream::connect(&self.address)?;
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.host);
        request += &self.header.as_ref().map_or(String::new(), |header| format!("{header}\r\n"));
        let (kind, body) = body.unwrap_or_default();
        if !kind.is_empty() {
            request += &format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len());
        }
        stream.write_all(format!("{request}\r\n{body}").as_bytes())?;
        Ok(stream)
    }
}

/// The events of a stream, as lines of JSON.
pub(crate) struct EventReader {
    reader: BufReader<TcpStream>,
    pub(crate) status: u16,
}

impl HttpPort {
    /// Begins a stream of a `GET`.
    pub(crate) fn follow(&self, call: &str) -> EventReader {
        self.stream("GET", call, None)
    }

    /// Begins a `hold`.
    pub(crate) fn hold(&self, body: &Value) -> EventReader {
        self.stream("POST", "hold", Some(("application/json", &body.to_string())))
    }

    fn stream(&self, method: &str, call: &str, body: Option<(&str, &str)>) -> EventReader {
        self.try_stream(method, call, body).expect("a stream")
    }

    /// Begins a stream, and reads the head of its answer.
    pub(crate) fn try_stream(
        &self,
        method: &str,
        call: &str,
        body: Option<(&str, &str)>,
    ) -> std::io::Result<EventReader> {
        let others = self.header.as_ref().map_or(String::new(), |header| format!("\r\n{header}"));
        let lines = self.with_header(&format!("Accept: application/x-ndjson{others}"));
        let stream = lines.send(method, &format!("/v1/ns/default/{call}"), body)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut reader = EventReader { reader: BufReader::new(stream), status: 0 };
        let head = reader.line()?;
        let gone = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        reader.status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(gone)?;
        while !reader.line()?.trim().is_empty() {}
        Ok(reader)
    }
}

impl EventReader {
    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        Ok(line)
    }

    /// Returns the next event; `None` at the end of the stream. Other lines are the sizes of chunks.
    pub(crate) fn next(&mut self) -> Option<Value> {
        loop {
            match self.line() {
                Ok(line) if line.starts_with('{') => return serde_json::from_str(&line).ok(),
                Ok(line) if !line.is_empty() => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("no event within {PATIENCE:?}"),
                Ok(_) | Err(_) => return None,
            }
        }
    }

    /// Returns the next event with this word, and skips others.
    pub(crate) fn until(&mut self, word: &str) -> Value {
        loop {
            let event = self.next().unwrap_or_else(|| panic!("the stream ended before {word:?}"));
            if event["event"] == word {
                return event;
            }
        }
    }

    /// Returns all events up to the end of the stream.
    pub(crate) fn rest(&mut self) -> Vec<Value> {
        std::iter::from_fn(|| self.next()).collect()
    }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Checks that the answer is this problem.
    pub(crate) fn is_problem(&self, status: u16, code: &str, advice: &str) {
        let found = (self.status, self.body["error"].as_str(), self.body["advice"].as_str());
        assert_eq!(found, (status, Some(code), Some(advice)), "{}", self.body);
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert_eq!(self.body["status"], status);
    }
}

pub(crate) fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the port answers");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    answer
}

/// A node reports its health and readiness: it is ready while it has a quorum, and not ready without one.
#[tokio::test]
async fn health_and_readiness_describe_the_node() {
    let mut cluster = Cluster::start().await;
    let client = cluster.client();
    client.lock("a").acquire().await.expect("free").release().await.expect("released");
    let leader = cluster.await_leader().await;
    let address = cluster.http(leader);
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200"));
    assert!(get(&address, "/readyz").starts_with("HTTP/1.1 200"));
    for node in (1..=3).filter(|node| *node != leader) {
        cluster.kill(node);
    }
    // A probe may still get the answer of the one before.
    block_until("it is not ready without a quorum", || get(&address, "/readyz").starts_with("HTTP/1.1 503"));
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200"), "the process itself is healthy");
    let stale = HttpPort::new(&address).get("locks?lock=a&stale=true");
    assert_eq!((stale.status, &stale.body["lock"]), (200, &Value::from("a")), "a stale read needs no other node");
}
