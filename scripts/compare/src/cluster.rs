//! The servers of a product: on free ports of this machine, each in its own folder, with every write synced before its
//! answer. Dropping a cluster kills it.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::client::{self, Client};
use crate::product::{Address, Product, class_path, program};

/// How long a cluster may take until it serves its first lock.
const START: Duration = Duration::from_secs(60);
/// The pause between two checks whether it serves.
const POLL: Duration = Duration::from_millis(200);

/// The servers of one product, started with no data.
pub(crate) struct Cluster {
    pub(crate) product: Product,
    pub(crate) nodes: Vec<Address>,
    folder: PathBuf,
    processes: Vec<Option<Child>>,
}

/// Ports that were free when this was called.
fn free_ports(nodes: usize) -> Result<Vec<Address>> {
    let held = (0..nodes * 3).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<Vec<_>, _>>()?;
    let ports = held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect::<Result<Vec<_>>>()?;
    let address =
        |ports: &[u16]| Address { client: format!("127.0.0.1:{}", ports[0]), ports: [ports[0], ports[1], ports[2]] };
    Ok(ports.chunks(3).map(address).collect())
}

impl Cluster {
    /// Starts the servers on an empty folder and waits until each node has served a lock.
    pub(crate) async fn start(product: Product, folder: &Path) -> Result<Self> {
        let folder = folder.join(product.name());
        // Data of an earlier measurement.
        let _ = fs::remove_dir_all(&folder);
        let nodes = free_ports(product.nodes())?;
        let mut cluster = Self { product, nodes, folder, processes: Vec::new() };
        for position in 0..product.nodes() {
            let process = cluster.spawn(position)?;
            cluster.processes.push(Some(process));
        }
        let began = Instant::now();
        loop {
            let served = tokio::time::timeout(START, cluster.serves()).await;
            match served {
                Ok(Ok(())) => return Ok(cluster),
                Ok(Err(error)) if START < began.elapsed() => {
                    let folder = cluster.folder.display();
                    return Err(error.context(format!("{} does not serve; see the logs in {folder}", product.name())));
                }
                Ok(Err(_)) => tokio::time::sleep(POLL).await,
                Err(_) => bail!("{} does not answer", product.name()),
            }
        }
    }

    /// Acquires and releases a lock through each node.
    async fn serves(&self) -> Result<()> {
        for number in 0..self.nodes.len() {
            let mut client = Client::connect(self.product, &self.nodes, number).await?;
            let held = client.acquire("is-it-there").await?;
            client.release(held).await?;
            client.close().await;
        }
        Ok(())
    }

    /// The process ids of the running servers.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.processes.iter().flatten().map(Child::id).collect()
    }

    /// Kills the leader with SIGKILL.
    pub(crate) async fn kill_leader(&mut self) -> Result<()> {
        let leader = match self.product {
            Product::Lockkeeper | Product::LockkeeperCached => client::lockkeeper_leader(&self.nodes).await?,
            Product::Etcd => client::etcd_leader(&self.nodes).await?,
            Product::Zookeeper => client::zookeeper_leader(&self.nodes).await?,
            Product::Redis => bail!("a single server has no failover"),
        };
        let mut process = self.processes.get_mut(leader).and_then(Option::take).context("the leader has no process")?;
        process.kill()?;
        process.wait()?;
        Ok(())
    }

    fn spawn(&self, position: usize) -> Result<Child> {
        let folder = self.folder.join(format!("n{}", position + 1));
        fs::create_dir_all(&folder)?;
        let mut command = match self.product {
            Product::Lockkeeper | Product::LockkeeperCached => self.lockkeeper(position, &folder)?,
            Product::Etcd => self.etcd(position, &folder),
            Product::Zookeeper => self.zookeeper(position, &folder)?,
            Product::Redis => self.redis(&folder),
        };
        let log = File::create(folder.join("log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.spawn().with_context(|| format!("{} cannot be started", self.product.name()))
    }

    /// Sets the addresses; everything else is the default.
    fn lockkeeper(&self, position: usize, folder: &Path) -> Result<Command> {
        let mut text = format!("cluster = \"compare\"\nnode = {}\ndata = {:?}\n", position + 1, folder.join("data"));
        let [client, peer, http] = self.nodes[position].ports;
        text += &format!(
            "[listen]\nclient = \"127.0.0.1:{client}\"\npeer = \"127.0.0.1:{peer}\"\nhttp = \"127.0.0.1:{http}\"\n"
        );
        for (id, Address { ports: [client, peer, _], .. }) in (1..).zip(&self.nodes) {
            text += &format!("[[member]]\nid = {id}\nclient = \"127.0.0.1:{client}\"\npeer = \"127.0.0.1:{peer}\"\n");
        }
        let config = folder.join("node.toml");
        fs::write(&config, text)?;
        let mut command = Command::new(program(self.product));
        command.args(["serve", "--config"]).arg(config);
        Ok(command)
    }

    /// Sets names and addresses; everything else is the default.
    fn etcd(&self, position: usize, folder: &Path) -> Command {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let [client, peer, _] = self.nodes[position].ports;
        let all: Vec<_> = (1..).zip(&self.nodes).map(|(id, node)| format!("n{id}={}", url(node.ports[1]))).collect();
        let mut command = Command::new(program(self.product));
        command.arg("--name").arg(format!("n{}", position + 1)).arg("--data-dir").arg(folder.join("data"));
        command.args(["--listen-client-urls", &url(client), "--advertise-client-urls", &url(client)]);
        command.args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls", &url(peer)]);
        command.args(["--initial-cluster", &all.join(","), "--initial-cluster-token", "compare"]);
        command.args(["--logger", "zap", "--log-level", "warn"]);
        command
    }

    /// Uses the values of the sample configuration, without its limit on connections from one address, because all
    /// clients are on this machine.
    fn zookeeper(&self, position: usize, folder: &Path) -> Result<Command> {
        let data = folder.join("data");
        fs::create_dir_all(&data)?;
        fs::write(data.join("myid"), (position + 1).to_string())?;
        let mut text = format!(
            "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\n\
             maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=srvr\n",
            data.display(),
            self.nodes[position].ports[0]
        );
        for (id, Address { ports: [_, peer, election], .. }) in (1..).zip(&self.nodes) {
            text += &format!("server.{id}=127.0.0.1:{peer}:{election}\n");
        }
        let config = folder.join("zoo.cfg");
        fs::write(&config, text)?;
        let mut command = Command::new(program(self.product));
        // The heap size of its own start script.
        command.args(["-Xmx1000m", "-Dzookeeper.jmx.log4j.disable=true", "-cp", &class_path()]);
        command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(config);
        Ok(command)
    }

    /// Syncs every write before its answer, as the other products do.
    fn redis(&self, folder: &Path) -> Command {
        let mut command = Command::new(program(self.product));
        command.args(["--bind", "127.0.0.1", "--daemonize", "no", "--save", "", "--appendonly", "yes"]);
        command
            .args(["--appendfsync", "always", "--port", &self.nodes[0].ports[0].to_string()])
            .arg("--dir")
            .arg(folder);
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().flatten() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
