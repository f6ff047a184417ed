//! Checks of the other side's certificate: its authority, its time, its use, and its name.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

use super::name::{CertificateName, Role, shown};
use super::refuse_list::{RefuseList, digest};

tokio::task_local! {
    /// Name in the certificate that the current handshake refuses, for its log line.
    pub(super) static REFUSED: std::cell::RefCell<Option<String>>;
}

/// The owners of certificates that may use a port.
#[derive(Debug, Clone)]
pub(super) enum Admitted {
    /// All nodes of this cluster.
    Nodes(String),
    /// All clients of this cluster.
    Clients(String),
}

impl Admitted {
    pub(super) fn cluster(&self) -> &str {
        match self {
            Self::Nodes(cluster) | Self::Clients(cluster) => cluster,
        }
    }

    fn admits(&self, certificate: &CertificateDer<'_>) -> bool {
        let Some(CertificateName { cluster, role, .. }) = CertificateName::of(certificate) else { return false };
        match (self, role) {
            (Self::Nodes(ours), Role::Node(_)) | (Self::Clients(ours), Role::Client(_)) => cluster == *ours,
            (Self::Nodes(_), Role::Client(_)) | (Self::Clients(_), Role::Node(_)) => false,
        }
    }
}

/// Accepts certificates from an authority whose names may use the port, but for the refused ones.
#[derive(Debug)]
pub(super) struct NamedClients {
    pub(super) trusted: Arc<dyn ClientCertVerifier>,
    pub(super) admitted: Admitted,
    pub(super) refused: Arc<RefuseList>,
}

impl ClientCertVerifier for NamedClients {
    fn offer_client_auth(&self) -> bool {
        self.trusted.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.trusted.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.trusted.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        // Outside a handshake of this module there is no log line to write.
        let _ = REFUSED.try_with(|refused| *refused.borrow_mut() = Some(shown(certificate)));
        let verified = self.trusted.verify_client_cert(certificate, intermediates, now)?;
        if self.refused.has(certificate) {
            let _ = REFUSED.try_with(|refused| *refused.borrow_mut() = Some(format!("sha256:{}", digest(certificate))));
            return Err(revoked());
        }
        if self.admitted.admits(certificate) { Ok(verified) } else { Err(wrong_name()) }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.trusted.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.trusted.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.trusted.supported_verify_schemes()
    }
}

/// The other side gets the alert `certificate_revoked`.
fn revoked() -> Error {
    Error::InvalidCertificate(CertificateError::Revoked)
}

/// The other side gets the alert `access_denied`.
fn wrong_name() -> Error {
    Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)
}

/// Accepts only the certificate of one node. The host name of its address does not matter, because a certificate of a
/// node names the node.
#[derive(Debug)]
pub(super) struct OneNode {
    pub(super) roots: Arc<RootCertStore>,
    pub(super) refused: Arc<RefuseList>,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
    pub(super) cluster: String,
    pub(super) node: u64,
}

impl OneNode {
    pub(super) fn accepts(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        in_time(&self.roots, &self.algorithms, certificate, intermediates, now)?;
        if self.refused.has(certificate) {
            return Err(revoked());
        }
        match CertificateName::of(certificate) {
            Some(name) if name.is_node(&self.cluster, self.node) => Ok(()),
            Some(_) | None => Err(wrong_name()),
        }
    }
}

impl ServerCertVerifier for OneNode {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.accepts(certificate, intermediates, now).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Checks that an authority signed the certificate of a server, and that the certificate is valid now.
pub(super) fn in_time(
    roots: &RootCertStore,
    algorithms: &WebPkiSupportedAlgorithms,
    certificate: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    now: UnixTime,
) -> Result<(), Error> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    verify_server_cert_signed_by_trust_anchor(&parsed, roots, intermediates, now, algorithms.all)
}

/// Returns the end of a certificate's validity. `check` verifies it at the time that it gets, and compares that time
/// before anything else.
pub(super) fn end_of(check: impl Fn(UnixTime) -> Result<(), Error>) -> Option<UnixTime> {
    let never = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    match check(never) {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => Some(not_after),
        Ok(()) | Err(_) => None,
    }
}
