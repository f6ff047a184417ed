//! The files of one side: authorities, certificate chain, private key, and refused certificates.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use super::refuse_list::RefuseList;
use crate::limits::{DAY_MS, EXPIRY_WARNING_DAYS};

/// Bits of a file's mode that let every user read it.
const READ_BY_ALL: u32 = 0o004;

/// The files of one side of a connection, in PEM but for the list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates of the authorities to accept. A client must have them. A server that has them can check its
    /// clients.
    pub ca: Option<PathBuf>,
    /// Certificate chain of this side, the own certificate first. A server must have one.
    pub cert: Option<PathBuf>,
    /// Private key of the own certificate.
    pub key: Option<PathBuf>,
    /// List of certificates to refuse although an authority signed them. Each line is `sha256:` and the digest of a
    /// certificate in hexadecimal digits, and may continue with a comment.
    pub refuse: Option<PathBuf>,
}

/// The contents of the files at one time.
#[derive(PartialEq, Eq)]
pub(super) struct TlsContents {
    files: TlsFiles,
    ca: Option<Vec<u8>>,
    cert: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
    refuse: Option<Vec<u8>>,
}

/// Why files cannot be used. The text names the file, the problem and the fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(pub(super) String);

impl TlsError {
    fn new(path: &Path, problem: impl std::fmt::Display, fix: &str) -> Self {
        Self(format!("{} {problem}; {fix}", path.display()))
    }
}

/// A certificate file, and the end of the certificate in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateEnd {
    /// Path of the file.
    pub file: String,
    /// End of its validity, in seconds since 1970; `None` if it is unknown.
    pub seconds: Option<u64>,
}

impl CertificateEnd {
    /// Returns the end of the first certificate of a node, whose file is not known here.
    #[must_use]
    pub fn of_node(node: u64, seconds: Option<u64>) -> Self {
        Self { file: format!("the certificate of node {node}"), seconds }
    }

    /// Records the end in the metric of a port.
    pub fn record(&self, port: &'static str) {
        let name = "lockkeeper_tls_certificate_expiry_timestamp_seconds";
        metrics::describe_gauge!(name, "When the certificate that a port shows expires, in seconds since 1970");
        if let Some(seconds) = self.seconds {
            metrics::gauge!(name, "use" => port).set(seconds as f64);
        }
    }

    /// Returns a warning if the certificate expires within [`EXPIRY_WARNING_DAYS`].
    #[must_use]
    pub fn warning(&self, now: u64) -> Option<String> {
        let end = self.seconds?;
        let on = day(UnixTime::since_unix_epoch(Duration::from_secs(end)));
        let file = &self.file;
        if end < now {
            return Some(format!("{file} expired on {on}; renew it"));
        }
        let days = Duration::from_secs(end - now).as_millis() / u128::from(DAY_MS);
        let within = EXPIRY_WARNING_DAYS.into_iter().find(|within| days < u128::from(*within))?;
        Some(format!("{file} expires on {on}, in less than {within} days; renew it"))
    }
}

pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(default_provider())
}

impl TlsFiles {
    /// Reads the files.
    pub(super) fn read(&self) -> Result<TlsContents, TlsError> {
        let Self { ca, cert, key, refuse } = self;
        match (cert, key) {
            (Some(_), None) => return Err(TlsError("there is a certificate and no key; name both".to_owned())),
            (None, Some(_)) => return Err(TlsError("there is a key and no certificate; name both".to_owned())),
            (Some(_), Some(_)) | (None, None) => {}
        }
        key.as_deref().map(check_mode).transpose()?;
        let read = |path: &Option<PathBuf>, fix| path.as_deref().map(|path| contents(path, fix)).transpose();
        Ok(TlsContents {
            files: self.clone(),
            ca: read(ca, "give a certificate in PEM")?,
            cert: read(cert, "give a certificate in PEM")?,
            key: read(key, "give a key in PEM")?,
            refuse: read(refuse, "create it, or remove the setting")?,
        })
    }

    /// Refuses files with which no connection can be made.
    #[cfg(feature = "cli")]
    pub(crate) fn check(&self) -> Result<(), TlsError> {
        let contents = self.read()?;
        contents.roots()?;
        contents.identity().map(drop)
    }

    /// The file of the own certificate, for texts.
    pub(super) fn own(&self) -> String {
        path_text(&self.cert)
    }
}

/// Returns the path of a file for a text; empty if there is none.
pub(super) fn path_text(path: &Option<PathBuf>) -> String {
    path.as_ref().map_or_else(String::new, |path| path.display().to_string())
}

impl TlsContents {
    /// Whether the own certificate, its key and the authorities are the same.
    pub(super) fn has_same_identity(&self, other: &Self) -> bool {
        (&self.ca, &self.cert, &self.key) == (&other.ca, &other.cert, &other.key)
    }

    /// Returns the authorities, if there is such a file.
    pub(super) fn roots(&self) -> Result<Option<Arc<RootCertStore>>, TlsError> {
        let (Some(path), Some(pem)) = (&self.files.ca, &self.ca) else { return Ok(None) };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(path, pem)? {
            let refused = |error| TlsError::new(path, format!("is not an authority: {error}"), "give its certificate");
            roots.add(certificate).map_err(refused)?;
        }
        Ok(Some(Arc::new(roots)))
    }

    /// Returns the own certificate and its key, if there are such files.
    pub(super) fn identity(&self) -> Result<Option<Arc<CertifiedKey>>, TlsError> {
        let (Some(cert), Some(pem)) = (&self.files.cert, &self.cert) else { return Ok(None) };
        let (Some(key), Some(key_pem)) = (&self.files.key, &self.key) else { return Ok(None) };
        let chain = certificates(cert, pem)?;
        let read = PrivateKeyDer::from_pem_slice(key_pem);
        let private =
            read.map_err(|error| TlsError::new(key, format!("cannot be used: {error}"), "give a key in PEM"))?;
        let certified = CertifiedKey::from_der(chain, private, &provider()).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                TlsError::new(key, format!("does not belong to {}", cert.display()), "copy or renew both")
            }
            other => TlsError::new(key, format!("cannot be used: {other}"), "make another key"),
        })?;
        Ok(Some(Arc::new(certified)))
    }

    /// Returns the list of refused certificates; an empty one if there is no such file.
    pub(super) fn refused(&self) -> Result<Arc<RefuseList>, TlsError> {
        let (Some(path), Some(text)) = (&self.files.refuse, &self.refuse) else { return Ok(Arc::default()) };
        RefuseList::parse(path, &String::from_utf8_lossy(text)).map(Arc::new).map_err(TlsError)
    }
}

/// Returns a resolver that always presents this certificate.
pub(super) fn presented(certified: &Arc<CertifiedKey>) -> Arc<SingleCertAndKey> {
    Arc::new(SingleCertAndKey::from(CertifiedKey::clone(certified)))
}

fn contents(path: &Path, fix: &str) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|error| TlsError::new(path, format!("cannot be read: {error}"), fix))
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let unread = |error| TlsError::new(path, format!("cannot be read: {error}"), "give a certificate in PEM");
    let certificates = read.map_err(unread)?;
    if certificates.is_empty() {
        return Err(TlsError::new(path, "has no certificate", "give a certificate in PEM"));
    }
    Ok(certificates)
}

/// Refuses a key that every user can read. A group may read it.
fn check_mode(key: &Path) -> Result<(), TlsError> {
    let read = |error| TlsError::new(key, format!("cannot be read: {error}"), "check the path");
    let mode = fs::metadata(key).map_err(read)?.permissions().mode() & 0o777;
    if mode & READ_BY_ALL == 0 {
        return Ok(());
    }
    let problem = format!("can be read by every user (mode {mode:04o})");
    Err(TlsError::new(key, problem, &format!("run chmod 600 {}", key.display())))
}

/// Returns the day of a time, as in `2027-11-24`.
pub(super) fn day(time: UnixTime) -> String {
    let text = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(time.as_secs())).to_string();
    text.split('T').next().unwrap_or_default().to_owned()
}
