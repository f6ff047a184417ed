//! The name in a certificate.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use super::refuse_list::digest;

/// The name in a certificate, written as a URI: `spiffe://CLUSTER/node/ID` or `spiffe://CLUSTER/client/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateName {
    /// Name of the cluster.
    pub cluster: String,
    /// What the owner of the certificate is in that cluster.
    pub role: Role,
    /// SHA-256 of the certificate in hexadecimal digits, which names it in a refuse list; `None` for a name that was
    /// not read from a certificate.
    pub digest: Option<Arc<str>>,
}

/// What the owner of a certificate is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// A node with its id.
    Node(u64),
    /// A client with its name.
    Client(String),
}

impl CertificateName {
    /// Returns the name in a certificate. A certificate without a URI, with several, or with another URI has none.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let parsed = EndEntityCert::try_from(certificate).ok()?;
        let mut uris = parsed.valid_uri_names();
        let only = uris.next().filter(|_| uris.next().is_none())?;
        Some(Self { digest: Some(digest(certificate).into()), ..Self::parse(only)? })
    }

    /// Whether this is the name of that node of that cluster.
    pub(super) fn is_node(&self, cluster: &str, node: u64) -> bool {
        self.cluster == cluster && self.role == Role::Node(node)
    }

    fn parse(uri: &str) -> Option<Self> {
        let mut parts = uri.strip_prefix("spiffe://")?.split('/');
        let (cluster, kind, name) = (parts.next()?, parts.next()?, parts.next()?);
        let role = match kind {
            "node" => Role::Node(name.parse().ok().filter(|id: &u64| id.to_string() == name)?),
            "client" if !name.is_empty() => Role::Client(name.to_owned()),
            _ => return None,
        };
        (parts.next().is_none() && !cluster.is_empty()).then(|| Self {
            cluster: cluster.to_owned(),
            role,
            digest: None,
        })
    }
}

impl fmt::Display for CertificateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.role {
            Role::Node(id) => write!(f, "spiffe://{}/node/{id}", self.cluster),
            Role::Client(name) => write!(f, "spiffe://{}/client/{name}", self.cluster),
        }
    }
}

/// Returns the name in a certificate for an error text.
pub(super) fn shown(certificate: &CertificateDer<'_>) -> String {
    CertificateName::of(certificate).map_or_else(|| "a certificate without a name".to_owned(), |name| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the two forms of a URI are names, and each is written back as it was read.
    #[test]
    fn only_nodes_and_clients_have_names() {
        for uri in ["spiffe://harbour/node/1", "spiffe://harbour/client/ci"] {
            assert_eq!(CertificateName::parse(uri).map(|name| name.to_string()).as_deref(), Some(uri));
        }
        for uri in [
            "https://harbour/node/1",
            "spiffe://harbour/node/01",
            "spiffe://harbour/node/",
            "spiffe://harbour/node/1/2",
            "spiffe:///node/1",
            "spiffe://harbour/client/",
            "spiffe://harbour/operator/1",
            "spiffe://harbour",
        ] {
            assert_eq!(CertificateName::parse(uri), None, "{uri}");
        }
    }
}
