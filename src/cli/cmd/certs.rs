//! `certs`: makes the certificates of a cluster in a directory, renews them, and lists them.

mod directory;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Args;

pub(super) use self::directory::files_of;
use self::directory::{CertsDir, Listed};
use crate::auth::principal_name;
use crate::certs::{Authority, Issued};
use crate::cli::error::Failure;
use crate::cli::output::Output;
use crate::config::founders;
use crate::limits::{AUTHORITY_DAYS, CLIENT_CERTIFICATE_DAYS, NODE_CERTIFICATE_DAYS};
use crate::model::{Namespace, Principal};
use crate::net::Role;

#[derive(Debug, Args)]
pub(in crate::cli) struct CertsOptions {
    /// Directory of the certificates and keys
    dir: PathBuf,
    /// Make certificates for the cluster and the members in this configuration [default: none]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Name of the cluster [default: that of --config, or of the certificates in the directory]
    #[arg(long, value_name = "NAME", conflicts_with = "config")]
    cluster: Option<String>,
    /// Make a certificate for this node, which is reached at these hosts; may be repeated [default: none]
    #[arg(long = "node", value_parser = node, value_name = "ID=HOST[,HOST]")]
    nodes: Vec<(u64, Vec<String>)>,
    /// Make a certificate for the client of this name; may be repeated [default: none]
    #[arg(long = "client", value_parser = principal_name, value_name = "NAME")]
    clients: Vec<Principal>,
    /// Days until a new certificate expires [default: 365 for nodes, 90 for clients]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=3650), value_name = "DAYS")]
    days: Option<u32>,
    /// Renew this certificate, such as node-1, or all; without a name those that expire soon or are from an older
    /// authority [default: none]
    #[arg(long, value_name = "NAME")]
    renew: Option<Option<String>>,
    /// Make a new authority. The old one stays accepted
    #[arg(long)]
    new_ca: bool,
    /// Remove the older authorities, once every certificate is from the newest one
    #[arg(long, conflicts_with = "new_ca")]
    drop_old_ca: bool,
    /// Add the certificates of this name to refused.txt, so that no node accepts them: client-ci, node-2; may be
    /// repeated [default: none]
    #[arg(long, value_name = "NAME")]
    refuse: Vec<String>,
}

fn node(text: &str) -> Result<(u64, Vec<String>), String> {
    let wrong = || "write it like 1=db1.example,10.0.0.1".to_owned();
    let (id, hosts) = text.split_once('=').ok_or_else(wrong)?;
    let id = id.parse().ok().filter(|id| *id != 0).ok_or_else(wrong)?;
    let hosts: Vec<_> = hosts.split(',').map(str::to_owned).collect();
    if hosts.iter().any(String::is_empty) { Err(wrong()) } else { Ok((id, hosts)) }
}

/// Makes what is missing or asked for, and lists all certificates of the directory.
pub(in crate::cli) fn run(options: &CertsOptions, output: &Output) -> Result<u8, Failure> {
    if !options.dir.is_dir() && options.config.is_none() && options.cluster.is_none() {
        return Err(no_certificates(&options.dir));
    }
    let mut dir = CertsDir::open(&options.dir)?;
    let mut wanted = Wanted::read(options, &dir)?;
    if options.new_ca && dir.has_authority() {
        dir.add_authority(&new_authority(&wanted.cluster)?)?;
    }
    dir.add_refuse_list()?;
    // The certificate that this run replaces is the one to refuse.
    dir.refuse(&options.refuse)?;
    wanted.renew(dir.to_renew(options.renew.as_ref())?, &dir)?;
    issue(&mut dir, &wanted.cluster, wanted.roles, options.days)?;
    if options.drop_old_ca {
        dir.drop_old_authorities()?;
    }
    list(&dir.listed()?, output)
}

/// Makes the missing certificates of a cluster in a directory, and the authority if there is none.
pub(super) fn make_missing(path: &Path, cluster: &str, roles: Vec<(Role, Vec<String>)>) -> Result<(), Failure> {
    let mut dir = CertsDir::open(path)?;
    dir.add_refuse_list()?;
    let roles = roles.into_iter().filter(|(role, _)| !dir.has(role)).collect();
    issue(&mut dir, cluster, roles, None)
}

/// Makes certificates for these nodes and clients, and the authority if there is none.
fn issue(
    dir: &mut CertsDir,
    cluster: &str,
    roles: Vec<(Role, Vec<String>)>,
    lifetime: Option<u32>,
) -> Result<(), Failure> {
    if !dir.has_authority() {
        dir.add_authority(&new_authority(cluster)?)?;
    }
    if roles.is_empty() {
        // A directory without the authority's key can still be listed.
        return Ok(());
    }
    let authority = dir.authority(cluster)?;
    for (role, hosts) in roles {
        let days = lifetime.unwrap_or(match role {
            Role::Node(_) => NODE_CERTIFICATE_DAYS,
            Role::Client(_) => CLIENT_CERTIFICATE_DAYS,
        });
        let issued = authority.issue(role.clone(), &hosts, days).map_err(cannot_create)?;
        dir.write(&role, &issued)?;
    }
    Ok(())
}

/// The error for a directory without certificates, if no option names the cluster of new ones.
fn no_certificates(dir: &Path) -> Failure {
    let detail = format!("there are no certificates of nodes or clients in {}", dir.display());
    let next = "name another directory, or make them with --config FILE or --cluster NAME";
    Failure::usage("<DIR>", format!("{detail}; {next}"))
}

fn new_authority(cluster: &str) -> Result<Issued, Failure> {
    Authority::issue_own(cluster, AUTHORITY_DAYS).map_err(cannot_create)
}

fn cannot_create(error: rcgen::Error) -> Failure {
    Failure::usage("--node", format!("the certificate cannot be made: {error}; check the names of hosts"))
}

/// The cluster, and the certificates that the options ask for and that do not exist.
struct Wanted {
    cluster: String,
    roles: Vec<(Role, Vec<String>)>,
    /// The hosts that the options give to nodes.
    hosts: BTreeMap<u64, Vec<String>>,
}

impl Wanted {
    fn read(options: &CertsOptions, dir: &CertsDir) -> Result<Self, Failure> {
        let (named, mut nodes) = match &options.config {
            None => (options.cluster.clone(), BTreeMap::new()),
            Some(file) => {
                let (cluster, members) = founders(file)?;
                let nodes = members.iter().map(|(id, member)| (*id, hosts([&member.client, &member.peer])));
                (Some(cluster), nodes.collect::<BTreeMap<_, _>>())
            }
        };
        let cluster = match (named, dir.cluster()) {
            (Some(named), Some(found)) if named != found => {
                let detail = format!("{} has certificates of {found}, not of {named}", options.dir.display());
                return Err(Failure::usage("<DIR>", format!("{detail}; name another directory")));
            }
            (Some(named), _) => named,
            (None, Some(found)) => found,
            (None, None) => return Err(no_certificates(&options.dir)),
        };
        let unfit = |invalid| Failure::usage("--cluster", format!("--cluster: {invalid}"));
        Namespace::parse(&cluster).map_err(unfit)?;
        nodes.extend(options.nodes.iter().cloned());
        let roles = nodes.clone().into_iter().map(|(id, hosts)| (Role::Node(id), hosts));
        let clients = options.clients.iter().map(|name| (Role::Client(name.to_string()), Vec::new()));
        let missing = |(role, _): &(Role, Vec<String>)| !dir.has(role);
        Ok(Self { cluster, roles: roles.chain(clients).filter(missing).collect(), hosts: nodes })
    }

    /// Adds what is to be renewed, with the hosts that the options give.
    ///
    /// # Errors
    /// The options give a node other hosts than its certificate has, which is not renewed.
    fn renew(&mut self, renewed: Vec<(Role, Vec<String>)>, dir: &CertsDir) -> Result<(), Failure> {
        let sorted = |hosts: &[String]| hosts.iter().cloned().collect::<BTreeSet<_>>();
        for (node, hosts) in &self.hosts {
            let others = dir.hosts(*node).filter(|found| sorted(found) != sorted(hosts));
            if let Some(found) = others.filter(|_| !renewed.iter().any(|(role, _)| *role == Role::Node(*node))) {
                let detail = format!("node-{node}.pem is for {}, not for {}", found.join(","), hosts.join(","));
                return Err(Failure::usage("--renew", format!("{detail}; add --renew node-{node}")));
            }
        }
        self.roles.extend(renewed.into_iter().map(|(role, hosts)| match role {
            Role::Node(id) => (role, self.hosts.get(&id).cloned().unwrap_or(hosts)),
            Role::Client(_) => (role, hosts),
        }));
        Ok(())
    }
}

/// Returns the hosts of these addresses, and those of this machine's loopback.
fn hosts(addresses: [&String; 2]) -> Vec<String> {
    let host = |address: &&String| address.rsplit_once(':').map(|(host, _)| host.trim_matches(['[', ']']).to_owned());
    let mut hosts: Vec<_> = addresses.iter().filter_map(host).collect();
    hosts.extend(["localhost".to_owned(), "127.0.0.1".to_owned()]);
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

fn list(certificates: &[Listed], output: &Output) -> Result<u8, Failure> {
    let row = |listed: &Listed| {
        let state = match listed {
            Listed { refused: true, .. } => "refused",
            Listed { made: true, .. } => "new",
            Listed { .. } => "",
        };
        let day = listed.expires.chars().take(10).collect();
        vec![listed.name.clone(), day, state.to_owned(), listed.subject.clone(), listed.hosts.join(",")]
    };
    let heading = ["NAME", "EXPIRES", "", "SUBJECT", "HOSTS"];
    output.list(certificates.iter(), &heading, certificates.iter().map(row))
}
