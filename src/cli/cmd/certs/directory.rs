//! The directory of certificates: `NAME.pem` and `NAME.key` of the authority `ca`, of nodes and of clients.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::auth::time;
use crate::certs::{Authority, Described, Issued, describe};
use crate::cli::error::Failure;
use crate::cli::files::{PRIVATE, failed, locked, replace};
use crate::clock::{Clock, SystemClock};
use crate::limits::RENEWED_BELOW_PERCENT;
use crate::model::WallTime;
use crate::net::{RefuseList, Role};

/// The value of the command line that names the directory.
const DIR: &str = "<DIR>";
const AUTHORITY: &str = "ca";
/// The mode of a file that every user may read.
const PUBLIC: u32 = 0o644;
/// The list of refused certificates.
const REFUSED: &str = "refused.txt";
/// The digests of certificates that were replaced by newer ones, and may not have expired yet.
const REPLACED: &str = "replaced.txt";
/// The name with which `--renew` means all certificates.
const ALL: &str = "all";

/// A certificate of the directory, as the JSON line shows it.
#[derive(Serialize)]
pub(super) struct Listed {
    /// Name of its files, without the extension.
    pub(super) name: String,
    pub(super) subject: String,
    sha256: String,
    pub(super) hosts: Vec<String>,
    /// End of its validity, in the format of RFC 3339.
    pub(super) expires: String,
    /// Whether this run made it.
    pub(super) made: bool,
    /// Whether the list of refused certificates has it.
    pub(super) refused: bool,
}

pub(super) struct CertsDir {
    path: PathBuf,
    /// Certificates of nodes and clients by the name of their files.
    found: Vec<(String, Role, Described)>,
    /// Names of the files that this run wrote.
    made: Vec<String>,
    /// Keeps other commands out of the directory: two at once could make two authorities, or a key that does not belong
    /// to its certificate.
    _locked: File,
}

/// The name of the files of a certificate.
fn file_name(role: &Role) -> String {
    match role {
        Role::Node(id) => format!("node-{id}"),
        Role::Client(name) => format!("client-{name}"),
    }
}

/// Returns the files that a node or client needs, in a directory of certificates: authority, certificate and key.
pub(in crate::cli::cmd) fn files_of(dir: &Path, role: &Role) -> [PathBuf; 3] {
    let file = |name: &str, extension: &str| dir.join(format!("{name}.{extension}"));
    let name = file_name(role);
    [file(AUTHORITY, "pem"), file(&name, "pem"), file(&name, "key")]
}

impl CertsDir {
    /// Opens the directory, or creates it for this user alone. Waits for another command that has it open.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        if !path.is_dir() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed(DIR, "create", path))?;
        }
        let locked = locked(path).map_err(failed(DIR, "lock", path))?;
        let mut dir = Self { path: path.to_owned(), found: Vec::new(), made: Vec::new(), _locked: locked };
        dir.read()?;
        // A list that cannot be read is an error before anything is written.
        dir.refused()?;
        Ok(dir)
    }

    fn read(&mut self) -> Result<(), Failure> {
        self.found.clear();
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed(DIR, "read", &self.path))? {
            let name = entry.map_err(failed(DIR, "read", &self.path))?.file_name().to_string_lossy().into_owned();
            names.extend(name.strip_suffix(".pem").map(str::to_owned));
        }
        names.sort_unstable();
        for name in names {
            let described = describe(&self.text(&name, "pem")?);
            if let Some((role, described)) = described.first().and_then(|one| Some((one.role()?, one.clone()))) {
                self.found.push((name, role, described));
            }
        }
        Ok(())
    }

    fn file(&self, name: &str, extension: &str) -> PathBuf {
        self.path.join(format!("{name}.{extension}"))
    }

    fn text(&self, name: &str, extension: &str) -> Result<String, Failure> {
        let path = self.file(name, extension);
        fs::read_to_string(&path).map_err(failed(DIR, "read", &path))
    }

    pub(super) fn has_authority(&self) -> bool {
        self.file(AUTHORITY, "pem").exists()
    }

    /// The cluster of the certificates here; `None` if there are none of a node or client.
    pub(super) fn cluster(&self) -> Option<String> {
        self.found.iter().find_map(|(_, _, described)| Some(described.name.as_ref()?.cluster.clone()))
    }

    pub(super) fn has(&self, role: &Role) -> bool {
        self.file(&file_name(role), "pem").exists()
    }

    /// The hosts in the certificate of a node; `None` if the node has none here.
    pub(super) fn hosts(&self, node: u64) -> Option<&[String]> {
        let of_node = self.found.iter().find(|(_, role, _)| *role == Role::Node(node));
        of_node.map(|(.., described)| &described.hosts[..])
    }

    pub(super) fn authority(&self, cluster: &str) -> Result<Authority, Failure> {
        let path = self.file(AUTHORITY, "key");
        if !path.exists() {
            let detail = format!("{} is missing, and only this key can sign certificates", path.display());
            let next = "bring it here, or make another authority with --new-ca";
            return Err(Failure::usage(DIR, format!("{detail}; {next}")));
        }
        let key = self.text(AUTHORITY, "key")?;
        let unusable = |error| Failure::usage(DIR, format!("{}: {error}", path.display()));
        Authority::from_key(cluster, &key).map_err(unusable)
    }

    /// Adds an authority before the older ones, which stay accepted.
    pub(super) fn add_authority(&mut self, issued: &Issued) -> Result<(), Failure> {
        let older = if self.has_authority() { self.text(AUTHORITY, "pem")? } else { String::new() };
        self.replace(AUTHORITY, &Issued { cert: format!("{}{older}", issued.cert), key: issued.key.clone() })
    }

    /// Removes all authorities but the newest.
    ///
    /// # Errors
    /// An older one signed a certificate here, which no node or client would accept any more.
    pub(super) fn drop_old_authorities(&mut self) -> Result<(), Failure> {
        self.read()?;
        let newest = self.newest_key()?;
        let older = self.found.iter().filter(|(.., described)| described.signed_by != newest);
        let older: Vec<_> = older.map(|(name, ..)| format!("{name}.pem")).collect();
        if !older.is_empty() {
            let detail = format!("{} must first be replaced: an older authority signed this", older.join(", "));
            let next = "run certs with --renew, give nodes and clients the new files, and then drop the old authority";
            return Err(Failure::usage("--drop-old-ca", format!("{detail}; {next}")));
        }
        let text = self.text(AUTHORITY, "pem")?;
        let newest = text.split_inclusive("-----END CERTIFICATE-----").next().unwrap_or_default();
        replace(DIR, &self.file(AUTHORITY, "pem"), &format!("{}\n", newest.trim()), PUBLIC)
    }

    /// Returns what to renew: the named certificate, all, or without a name those that expire soon or are not from the
    /// newest authority.
    pub(super) fn to_renew(&self, asked: Option<&Option<String>>) -> Result<Vec<(Role, Vec<String>)>, Failure> {
        let Some(named) = asked else { return Ok(Vec::new()) };
        let now = SystemClock::new().wall().0 / 1_000;
        let newest = self.newest_key()?;
        let wanted = |name: &str, described: &Described| match named {
            Some(named) => named == name || named == ALL,
            None => {
                let soon = described.left(now) * 100 < described.lifetime() * RENEWED_BELOW_PERCENT;
                soon || described.signed_by != newest
            }
        };
        let renewed = self.found.iter().filter(|(name, _, described)| wanted(name, described));
        let renewed: Vec<_> = renewed.map(|(_, role, described)| (role.clone(), described.hosts.clone())).collect();
        match named {
            Some(named) if renewed.is_empty() => Err(self.unknown("--renew", named)),
            Some(_) | None => Ok(renewed),
        }
    }

    /// Returns what identifies the key of the newest authority.
    fn newest_key(&self) -> Result<Vec<u8>, Failure> {
        let authorities = describe(&self.text(AUTHORITY, "pem")?);
        Ok(authorities.into_iter().next().map_or_else(Vec::new, |newest| newest.key))
    }

    pub(super) fn write(&mut self, role: &Role, issued: &Issued) -> Result<(), Failure> {
        let name = file_name(role);
        if let Some((.., before)) = self.found.iter().find(|(found, ..)| *found == name) {
            let line = format!("sha256:{}  {name}\n", before.digest);
            replace(DIR, &self.path.join(REPLACED), &(self.digests(REPLACED)? + &line), PUBLIC)?;
        }
        self.replace(&name, issued)
    }

    /// Returns the text of a list of digests, to which lines can be added; an empty one if there is none.
    fn digests(&self, list: &str) -> Result<String, Failure> {
        let path = self.path.join(list);
        match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Ok(text) if !text.is_empty() && !text.ends_with('\n') => Ok(text + "\n"),
            read => read.map_err(failed(DIR, "read", &path)),
        }
    }

    /// Reads the list of refused certificates as the nodes do.
    fn refused(&self) -> Result<RefuseList, Failure> {
        let list = RefuseList::parse(&self.path.join(REFUSED), &self.digests(REFUSED)?);
        list.map_err(|why| Failure::usage(DIR, why))
    }

    /// Creates an empty list of refused certificates if there is none, so that the nodes' settings can name it from the
    /// start.
    pub(super) fn add_refuse_list(&self) -> Result<(), Failure> {
        let path = self.path.join(REFUSED);
        if path.exists() {
            return Ok(());
        }
        replace(DIR, &path, "# Certificates that no node accepts: sha256:DIGEST, then a comment\n", PUBLIC)
    }

    /// Adds certificates to the list of refused ones, with those of the same name that were replaced.
    pub(super) fn refuse(&self, names: &[String]) -> Result<(), Failure> {
        let path = self.path.join(REFUSED);
        let (mut text, replaced) = (self.digests(REFUSED)?, self.digests(REPLACED)?);
        let refused = self.refused()?;
        for name in names.iter().collect::<BTreeSet<_>>() {
            let Some((.., described)) = self.found.iter().find(|(found, ..)| found == name) else {
                return Err(self.unknown("--refuse", name));
            };
            let before = replaced.lines().filter_map(|line| line.strip_prefix("sha256:")?.split_once("  "));
            let before = before.filter(|(_, of)| of == name).map(|(digest, _)| digest);
            for digest in before.chain([&*described.digest]).filter(|digest| !refused.has_digest(digest)) {
                text.push_str(&format!("sha256:{digest}  {name}\n"));
            }
        }
        replace(DIR, &path, &text, PUBLIC)
    }

    fn unknown(&self, option: &str, name: &str) -> Failure {
        let known = self.found.iter().map(|(name, ..)| name.as_str()).collect::<Vec<_>>().join(", ");
        Failure::usage(option, format!("there is no certificate {name}; there are: {known}"))
    }

    /// Writes the key first: a node that reads both files in between finds that they do not belong together, and keeps
    /// what it has.
    fn replace(&mut self, name: &str, issued: &Issued) -> Result<(), Failure> {
        replace(DIR, &self.file(name, "key"), &issued.key, PRIVATE)?;
        replace(DIR, &self.file(name, "pem"), &issued.cert, PUBLIC)?;
        self.made.push(name.to_owned());
        Ok(())
    }

    /// Returns all certificates, the authorities first.
    pub(super) fn listed(&mut self) -> Result<Vec<Listed>, Failure> {
        self.read()?;
        let refused = self.refused()?;
        let made = |name: &str| self.made.iter().any(|made| made == name);
        let listed = |name: &str, made: bool, described: &Described| Listed {
            name: name.to_owned(),
            subject: described.subject.clone(),
            sha256: described.digest.clone(),
            hosts: described.hosts.clone(),
            expires: time(WallTime(described.ends * 1_000)),
            made,
            refused: refused.has_digest(&described.digest),
        };
        let authorities = describe(&self.text(AUTHORITY, "pem")?);
        let newest = |at: usize| at == 0 && made(AUTHORITY);
        let authorities = authorities.iter().enumerate().map(|(at, one)| listed(AUTHORITY, newest(at), one));
        let others = self.found.iter().map(|(name, _, one)| listed(name, made(name), one));
        Ok(authorities.chain(others).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// A command waits until another one has written its files, and then finds them.
    #[test]
    fn commands_take_turns() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("certs");
        let mut first = CertsDir::open(&path).unwrap();
        assert!(File::open(&path).unwrap().try_lock().is_err(), "the directory is not locked");
        let second = thread::spawn({
            let path = path.clone();
            move || CertsDir::open(&path).unwrap().cluster()
        });
        let authority = Authority::issue_own("harbour", 1).unwrap();
        first.add_authority(&authority).unwrap();
        let role = Role::Client("ci".to_owned());
        let issued = first.authority("harbour").unwrap().issue(role.clone(), &[], 1).unwrap();
        first.write(&role, &issued).unwrap();
        drop(first);
        assert_eq!(second.join().unwrap(), Some("harbour".to_owned()));
    }

    /// A name that is given twice is refused once. A list with anything but digests is an error of the directory, so
    /// that no command writes certificates and then fails.
    #[test]
    fn a_list_of_refused_certificates_is_read_first() {
        let folder = tempfile::tempdir().unwrap();
        let mut dir = CertsDir::open(folder.path()).unwrap();
        let role = Role::Client("ci".to_owned());
        dir.add_authority(&Authority::issue_own("harbour", 1).unwrap()).unwrap();
        let issued = dir.authority("harbour").unwrap().issue(role.clone(), &[], 1).unwrap();
        dir.write(&role, &issued).unwrap();
        dir.read().unwrap();
        let ci = "client-ci".to_owned();
        dir.refuse(&[ci.clone(), ci]).unwrap();
        let list = folder.path().join(REFUSED);
        assert_eq!(fs::read_to_string(&list).unwrap().lines().count(), 1);
        drop(dir);
        fs::write(&list, "a word\n").unwrap();
        let failure = CertsDir::open(folder.path()).err().unwrap();
        assert!(failure.detail.contains("names no certificate"), "{failure:?}");
    }
}
