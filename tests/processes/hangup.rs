//! A node reloads its config on SIGHUP: the log level and the rates.

use std::fs;
use std::path::Path;
use std::process::Command;

use lockkeeper::client::Client;
use lockkeeper::model::{
    Command as Said, Handle, LeaseRequestId, LockKey, LockName, Metadata, Mode, Namespace, Patience, TakeLease,
};
use lockkeeper::rpc::RemoteService;
use lockkeeper::service::{Call, LockService, NotSent, ServiceError};
use rustix::process::Signal;

use crate::cluster::PATIENCE;
use crate::single_node::{SingleNode, config_of_one, free_addresses};

/// Starts a node that logs at this level, and waits until it serves. Returns the node, a client of it and its config
/// without the level.
async fn started(folder: &Path, level: &str) -> (SingleNode, Client<RemoteService>, String) {
    let [client, peer] = free_addresses();
    let config = config_of_one("single", &folder.join("data"), &client, &peer);
    let node = SingleNode::start(folder, "node", &with_level(&config, level), &client);
    let client = node.leads().await;
    (node, client, config)
}

fn with_level(config: &str, level: &str) -> String {
    format!("{config}[log]\nlevel = {level:?}\n")
}

/// SIGHUP reloads the log level, in both directions. A config that cannot be parsed changes nothing.
#[tokio::test]
async fn a_hangup_reloads_the_log_level() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut single, _, config) = started(folder.path(), "warn").await;
    assert!(!single.log().contains("serving"), "the level is warn, but the log has info lines:\n{}", single.log());
    fs::write(&single.config, with_level(&config, "info")).expect("a config");
    single.signal(Signal::HUP);
    single.logs("reloaded the config", 1).await;
    fs::write(&single.config, "cluster = 7\n").expect("a bad config");
    single.signal(Signal::HUP);
    single.logs("was not reloaded", 1).await;
    fs::write(&single.config, with_level(&config, "info")).expect("a config");
    single.signal(Signal::HUP);
    single.logs("reloaded the config", 2).await;
    // The last config is a named pipe: once it has been read, the level is known to be set before the node is stopped.
    fs::remove_file(&single.config).expect("removed");
    assert!(Command::new("mkfifo").arg(&single.config).status().expect("mkfifo").success());
    single.signal(Signal::HUP);
    let (pipe, quiet) = (single.config.clone(), with_level(&config, "error"));
    let read = tokio::task::spawn_blocking(move || fs::write(pipe, quiet));
    tokio::time::timeout(PATIENCE, read).await.expect("the config is read").expect("a thread").expect("a config");
    single.signal(Signal::TERM);
    assert_eq!(single.await_end().await, Some(0));
    assert!(!single.log().contains("stopping"), "the level is error, but the log has info lines:\n{}", single.log());
}

/// SIGHUP reloads the rates of `[quota]`: an added limit applies at once, and a removed limit no longer applies.
#[tokio::test]
async fn a_hangup_reloads_the_rates() {
    let folder = tempfile::tempdir().expect("a folder");
    let (single, client, without) = started(folder.path(), "info").await;
    assert_eq!(refused_by_rate(&client, 100).await, 0, "there is no limit");
    fs::write(&single.config, format!("{without}[quota]\ncommands_a_second = 1\n")).expect("a config");
    single.signal(Signal::HUP);
    single.logs("reloaded the config", 1).await;
    assert!(0 < refused_by_rate(&client, 200).await, "the limit is one command a second");
    fs::write(&single.config, without).expect("a config");
    single.signal(Signal::HUP);
    single.logs("reloaded the config", 2).await;
    assert_eq!(refused_by_rate(&client, 300).await, 0, "the limit was removed");
}

/// Sends twenty commands at once. Returns how many are refused because of the rate of their namespace.
async fn refused_by_rate(client: &Client<RemoteService>, first: u128) -> usize {
    let take = |number: u128| {
        Call::new(Said::TakeLease(TakeLease {
            lock: LockKey { namespace: Namespace::default(), name: LockName::parse("a").expect("legal") },
            take: LeaseRequestId(number),
            handle: Handle::from_random(number),
            access: Mode::Shared.into(),
            lease_ms: 60_000,
            patience: Patience::Try,
            metadata: Metadata::default(),
            claim_ms: None,
        }))
    };
    let answers =
        futures_util::future::join_all((first..first + 20).map(|number| client.service().submit(take(number)))).await;
    let by_rate =
        |error: &ServiceError| matches!(error, ServiceError::NotSent { why: NotSent::RateExceeded { .. }, .. });
    let mut errors: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
    let all = errors.len();
    errors.retain(by_rate);
    assert_eq!(errors.len(), all, "some commands were refused for another reason");
    all
}
