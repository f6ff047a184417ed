//! Three real nodes on free ports, with their data in a temporary directory.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::cli::error::Failure;
use crate::cli::lock::{SHIM_COMMAND, own_program};
use crate::clock::{Clock, SystemClock};
use crate::config::Profile;
use crate::faults;
use crate::service::ErrorCode;

pub(super) const IDS: [u64; 3] = [1, 2, 3];

/// Ports below the range from which systems take the ports of outgoing connections, so that a node finds its port free
/// again when it is restarted.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

/// The nodes. They end with the thread that started them, and dropping this value kills them.
#[derive(Debug)]
pub(super) struct Nodes {
    folder: PathBuf,
    /// The address of each node for clients.
    pub(super) endpoints: Vec<String>,
    running: BTreeMap<u64, Child>,
}

impl Nodes {
    /// Creates a directory with a config file for each node. No node runs yet.
    pub(super) fn create(profile: Profile) -> Result<Self, Failure> {
        let clock = SystemClock::new();
        let folder = std::env::temp_dir().join(format!("lockkeeper-drill-{:016x}", clock.random_below(u64::MAX)));
        let mut ports = free_ports(clock.random_below(PORTS.len() as u64));
        let mut addresses = || ports.next().map(|port| format!("127.0.0.1:{port}"));
        let taken = || Failure::new(ErrorCode::Unreachable, "no port of the loopback address is free");
        let mut members = Vec::new();
        for _ in IDS {
            members.push((addresses().ok_or_else(taken)?, addresses().ok_or_else(taken)?));
        }
        fs::create_dir(&folder)?;
        for id in IDS {
            fs::write(config(&folder, id), config_text(&folder, id, &members, profile))?;
        }
        let endpoints = members.into_iter().map(|(client, _)| client).collect();
        Ok(Self { folder, endpoints, running: BTreeMap::new() })
    }

    /// Starts a node. The system kills it when this thread ends, even if this process was killed.
    pub(super) fn start(&mut self, id: u64) -> Result<(), Failure> {
        let log = File::options().create(true).append(true).open(self.folder.join(format!("n{id}.log")))?;
        let mut command = Command::new(own_program());
        command.args([SHIM_COMMAND, "--parent", &std::process::id().to_string(), "--"]);
        command.arg(own_program()).args(["serve", "--config"]).arg(config(&self.folder, id));
        // Variables for clients and for other nodes must not change the config of these nodes.
        for (name, _) in std::env::vars_os() {
            let named = name.to_string_lossy();
            if named.starts_with("LOCKKEEPER_") && named != faults::VARIABLE {
                command.env_remove(name);
            }
        }
        // In its own process group, a node does not receive the terminal's Ctrl-C.
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0).kill_on_drop(true);
        self.running.insert(id, command.spawn()?);
        Ok(())
    }

    /// Sends a signal to a node that runs.
    pub(super) fn signal(&self, id: u64, signal: Signal) -> Result<(), Failure> {
        let pid = self.running.get(&id).and_then(Child::id).and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let gone = || Failure::new(ErrorCode::Unreachable, format!("node {id} has ended unexpectedly"));
        Ok(kill_process(pid.ok_or_else(gone)?, signal).map_err(io::Error::from)?)
    }

    /// Waits until a node has ended.
    pub(super) async fn ended(&mut self, id: u64) -> Result<(), Failure> {
        if let Some(mut child) = self.running.remove(&id) {
            child.wait().await?;
        }
        Ok(())
    }

    /// Kills all nodes and waits until they have ended. Then removes the directory, or keeps it for an inspection.
    pub(super) async fn end(mut self, kept: bool) -> Result<Option<PathBuf>, Failure> {
        for child in self.running.values_mut() {
            child.kill().await?;
        }
        if kept {
            return Ok(Some(self.folder.clone()));
        }
        fs::remove_dir_all(&self.folder)?;
        Ok(None)
    }
}

fn config(folder: &Path, id: u64) -> PathBuf {
    folder.join(format!("n{id}.toml"))
}

fn config_text(folder: &Path, id: u64, members: &[(String, String)], profile: Profile) -> String {
    let data = toml::Value::from(folder.join(format!("n{id}")).to_string_lossy().into_owned());
    let mut text = format!("cluster = \"drill\"\nnode = {id}\ndata = {data}\n");
    for (id, (client, peer)) in IDS.iter().zip(members) {
        // Writing to a string cannot fail.
        let _ = write!(text, "[[member]]\nid = {id}\nclient = \"{client}\"\npeer = \"{peer}\"\n");
    }
    let _ = write!(text, "[timing]\nprofile = \"{}\"\n", profile.name());
    text
}

/// Returns free ports, from a random one on.
fn free_ports(first: u64) -> impl Iterator<Item = u16> {
    let first = usize::try_from(first).unwrap_or(0);
    let ports = PORTS.cycle().skip(first).take(PORTS.len());
    ports.filter(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    /// The config of each node is accepted, names all members and has the chosen timing. No two addresses are the same.
    #[test]
    fn the_configs_are_good() {
        [Profile::Lan, Profile::Fast, Profile::Wan].into_iter().for_each(configs_are_good);
    }

    fn configs_are_good(profile: Profile) {
        let nodes = Nodes::create(profile).unwrap();
        let folder = nodes.folder.clone();
        let mut addresses = std::collections::BTreeSet::new();
        for id in IDS {
            let config = Config::from_file(config(&folder, id)).unwrap();
            assert_eq!((config.node, config.members.len(), config.timing.profile), (id, 3, Some(profile)));
            addresses.extend([config.listen.client, config.listen.peer]);
        }
        assert_eq!(addresses.len(), 6);
        fs::remove_dir_all(folder).unwrap();
    }
}
