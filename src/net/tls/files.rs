//! The files of one side: authorities, certificate chain and private key, all in PEM.

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

/// Bits of a file's mode that let every user read it.
const READ_BY_ALL: u32 = 0o004;

/// The PEM files of one side of a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates of the authorities to accept. A client must have them. A server that has them can check its
    /// clients.
    pub ca: Option<PathBuf>,
    /// Certificate chain of this side, the own certificate first. A server must have one.
    pub cert: Option<PathBuf>,
    /// Private key of the own certificate.
    pub key: Option<PathBuf>,
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

pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(default_provider())
}

impl TlsFiles {
    /// Reads the authorities, if there is such a file.
    pub(super) fn roots(&self) -> Result<Option<Arc<RootCertStore>>, TlsError> {
        let Some(path) = &self.ca else { return Ok(None) };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(path)? {
            let refused = |error| TlsError::new(path, format!("is not an authority: {error}"), "give its certificate");
            roots.add(certificate).map_err(refused)?;
        }
        Ok(Some(Arc::new(roots)))
    }

    /// Reads the own certificate and its key, if there are such files.
    pub(super) fn identity(&self) -> Result<Option<Arc<CertifiedKey>>, TlsError> {
        let (cert, key) = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => (cert, key),
            (None, None) => return Ok(None),
            (Some(_), None) => return Err(TlsError("there is a certificate and no key; name both".to_owned())),
            (None, Some(_)) => return Err(TlsError("there is a key and no certificate; name both".to_owned())),
        };
        let chain = certificates(cert)?;
        check_mode(key)?;
        let read = PrivateKeyDer::from_pem_file(key);
        let private =
            read.map_err(|error| TlsError::new(key, format!("cannot be used: {error}"), "give a key in PEM"))?;
        let certified = CertifiedKey::from_der(chain, private, &provider()).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                TlsError::new(key, format!("does not belong to {}", cert.display()), "renew both")
            }
            other => TlsError::new(key, format!("cannot be used: {other}"), "make another key"),
        })?;
        Ok(Some(Arc::new(certified)))
    }
}

/// Returns a resolver that always presents this certificate.
pub(super) fn presented(certified: &Arc<CertifiedKey>) -> Arc<SingleCertAndKey> {
    Arc::new(SingleCertAndKey::from(CertifiedKey::clone(certified)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unread = |error| TlsError::new(path, format!("cannot be read: {error}"), "give a certificate in PEM");
    let read = CertificateDer::pem_file_iter(path).map_err(unread)?;
    let certificates = read.collect::<Result<Vec<_>, _>>().map_err(unread)?;
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
