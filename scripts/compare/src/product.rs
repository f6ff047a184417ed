//! The compared products: their programs and versions, the addresses of a node, and the TTL that all clients use.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Serialize;

/// The TTL of a session or a key. All are renewed at a third of it.
pub(crate) const TTL: Duration = Duration::from_secs(10);

/// The compared products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Product {
    /// Three lockkeeper nodes.
    Lockkeeper,
    /// The same, with clients whose sessions keep the holds of their own locks.
    #[serde(rename = "lockkeeper-cached")]
    LockkeeperCached,
    /// Three etcd nodes.
    Etcd,
    /// Three ZooKeeper nodes.
    Zookeeper,
    /// One server: no consensus and no failover.
    Redis,
}

/// The addresses of a node.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    pub(crate) client: String,
    pub(crate) ports: [u16; 3],
}

impl Product {
    /// The name in tables and files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Product::Lockkeeper => "lockkeeper",
            Product::LockkeeperCached => "lockkeeper-cached",
            Product::Etcd => "etcd",
            Product::Zookeeper => "ZooKeeper",
            Product::Redis => "Redis",
        }
    }

    /// The number of servers.
    pub(crate) fn nodes(self) -> usize {
        match self {
            Product::Lockkeeper | Product::LockkeeperCached | Product::Etcd | Product::Zookeeper => 3,
            Product::Redis => 1,
        }
    }

    /// The installed version, or an error if the product cannot be run.
    pub(crate) fn version(self) -> Result<String> {
        let mut asked = match self {
            Product::Lockkeeper | Product::LockkeeperCached | Product::Etcd | Product::Redis => {
                Command::new(program(self))
            }
            Product::Zookeeper => Command::new("java"),
        };
        match self {
            Product::Zookeeper => asked.args(["-cp", &class_path(), "org.apache.zookeeper.version.VersionInfoMain"]),
            Product::Lockkeeper | Product::LockkeeperCached | Product::Etcd | Product::Redis => asked.arg("--version"),
        };
        let output = asked.stdin(Stdio::null()).output().with_context(|| format!("{} cannot be run", self.name()))?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = printed.lines().find(|line| line.chars().any(|c| c.is_ascii_digit()));
        let line = line.with_context(|| format!("{}: {}", self.name(), String::from_utf8_lossy(&output.stderr)))?;
        let number = line
            .split([' ', '=', ','])
            .find(|word| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit()));
        Ok(number.and_then(|number| number.split('-').next()).unwrap_or(line).to_owned())
    }
}

/// The program of a product, or the one that its variable names.
pub(crate) fn program(product: Product) -> String {
    let (variable, usual) = match product {
        Product::Lockkeeper | Product::LockkeeperCached => ("LOCKKEEPER_BIN", "lockkeeper"),
        Product::Etcd => ("ETCD", "etcd"),
        Product::Redis => ("REDIS_SERVER", "redis-server"),
        Product::Zookeeper => ("JAVA", "java"),
    };
    std::env::var(variable).unwrap_or_else(|_| usual.to_owned())
}

/// The class path of ZooKeeper.
pub(crate) fn class_path() -> String {
    std::env::var("ZOOKEEPER_CLASSPATH").unwrap_or_else(|_| "/usr/share/java/zookeeper.jar".to_owned())
}
