//! Certificates of a cluster: one authority, and the certificates of nodes and clients that it signs.
//!
//! Knows: clock, limits, net's names. Never: files, what a certificate permits.

use std::net::IpAddr;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, SerialNumber, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::extensions::{GeneralName, ParsedExtension};

use crate::clock::{Clock, SystemClock};
use crate::limits::{CERTIFICATE_BACKDATED_MS, DAY_MS};
use crate::net::{CertificateName, Role, digest};

/// A certificate and its private key, both in PEM.
#[derive(Debug, Clone)]
pub(crate) struct Issued {
    pub(crate) cert: String,
    pub(crate) key: String,
}

/// The authority of a cluster. It signs the certificates of nodes and of clients.
pub(crate) struct Authority {
    cluster: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Creates a new key and the certificate of the authority that has it, which signs itself.
    pub(crate) fn issue_own(cluster: &str, days: u32) -> Result<Issued, rcgen::Error> {
        let key = KeyPair::generate()?;
        let cert = Self::params(cluster, &key, days).self_signed(&key)?.pem();
        Ok(Issued { cert, key: key.serialize_pem() })
    }

    /// Returns the authority that has this key, in PEM.
    pub(crate) fn from_key(cluster: &str, key: &str) -> Result<Self, rcgen::Error> {
        let key = KeyPair::from_pem(key)?;
        let issuer = Issuer::new(Self::params(cluster, &key, 1), key);
        Ok(Self { cluster: cluster.to_owned(), issuer })
    }

    /// The name contains a digest of the key, so that a certificate of an older authority is recognized as such.
    fn params(cluster: &str, key: &KeyPair, days: u32) -> CertificateParams {
        let mut params = params("", days);
        let digits: String = params.key_identifier(key).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        params.distinguished_name.push(DnType::CommonName, format!("authority of {cluster} {digits}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
    }

    /// Issues a certificate with a new key. `hosts` are the names and addresses at which a node is reached.
    pub(crate) fn issue(&self, role: Role, hosts: &[String], days: u32) -> Result<Issued, rcgen::Error> {
        self.signed(&self.certificate(role, hosts, days)?)
    }

    fn certificate(&self, role: Role, hosts: &[String], days: u32) -> Result<CertificateParams, rcgen::Error> {
        let is_node = matches!(role, Role::Node(_));
        let name = CertificateName { cluster: self.cluster.clone(), role, digest: None }.to_string();
        let mut params = params(&name, days);
        params.subject_alt_names = vec![SanType::URI(name.as_str().try_into()?)];
        for host in hosts {
            params.subject_alt_names.push(match host.parse::<IpAddr>() {
                Ok(ip) => SanType::IpAddress(ip),
                Err(_) => SanType::DnsName(host.as_str().try_into()?),
            });
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if is_node {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        params.use_authority_key_identifier_extension = true;
        Ok(params)
    }

    fn signed(&self, params: &CertificateParams) -> Result<Issued, rcgen::Error> {
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Issued { cert, key: key.serialize_pem() })
    }
}

/// Returns the parameters of a certificate that is valid from an hour ago, so that machines whose clocks differ accept
/// it at once.
fn params(common_name: &str, days: u32) -> CertificateParams {
    let clock = SystemClock::new();
    let now = date_time_ymd(1970, 1, 1) + Duration::from_millis(clock.wall().0);
    let mut params = CertificateParams::default();
    params.not_before = now - Duration::from_millis(CERTIFICATE_BACKDATED_MS);
    params.not_after = now + Duration::from_millis(DAY_MS) * days;
    params.serial_number = Some(SerialNumber::from_slice(&clock.random_u128().to_be_bytes()));
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

/// What a certificate says.
#[derive(Debug, Clone)]
pub(crate) struct Described {
    /// Name of a node or client; `None` for an authority.
    pub(crate) name: Option<CertificateName>,
    pub(crate) subject: String,
    /// SHA-256 of the certificate, which names it in a refuse list.
    pub(crate) digest: String,
    /// Names and addresses at which a node is reached.
    pub(crate) hosts: Vec<String>,
    /// Identifies its key; empty for a node or client.
    pub(crate) key: Vec<u8>,
    /// Identifies the key that signed it; empty for an authority.
    pub(crate) signed_by: Vec<u8>,
    /// Begin of its validity, in seconds since 1970.
    begins: u64,
    /// End of its validity, in seconds since 1970.
    pub(crate) ends: u64,
}

impl Described {
    /// Returns the role of a node or client.
    pub(crate) fn role(&self) -> Option<Role> {
        self.name.as_ref().map(|name| name.role.clone())
    }

    /// Seconds for which it is valid in all.
    pub(crate) fn lifetime(&self) -> u64 {
        self.ends.saturating_sub(self.begins)
    }

    /// Seconds for which it remains valid.
    pub(crate) fn left(&self, now: u64) -> u64 {
        self.ends.saturating_sub(now)
    }
}

/// Describes the certificates of a PEM text. Other parts of the text are skipped.
pub(crate) fn describe(text: &str) -> Vec<Described> {
    let read = CertificateDer::pem_slice_iter(text.as_bytes()).filter_map(Result::ok);
    read.filter_map(|der| {
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).ok()?;
        let seconds = |time: i64| u64::try_from(time).unwrap_or(0);
        let names = parsed.subject_alternative_name().ok().flatten().map(|names| &names.value.general_names);
        let hosts = names.into_iter().flatten().filter_map(|name| {
            if let GeneralName::IPAddress(bytes) = name {
                return address(bytes);
            }
            if let GeneralName::DNSName(name) = name { Some((*name).to_owned()) } else { None }
        });
        let (mut key, mut signed_by) = (Vec::new(), Vec::new());
        for extension in parsed.extensions() {
            let extension = extension.parsed_extension();
            if let ParsedExtension::SubjectKeyIdentifier(id) = extension {
                key = id.0.to_vec();
            }
            if let ParsedExtension::AuthorityKeyIdentifier(signer) = extension {
                signed_by = signer.key_identifier.as_ref().map(|id| id.0.to_vec()).unwrap_or_default();
            }
        }
        let common_name = parsed.subject().iter_common_name().find_map(|name| name.as_str().ok());
        Some(Described {
            name: CertificateName::of(&der),
            subject: common_name.unwrap_or_default().to_owned(),
            digest: digest(&der),
            hosts: hosts.collect(),
            key,
            signed_by,
            begins: seconds(parsed.validity().not_before.timestamp()),
            ends: seconds(parsed.validity().not_after.timestamp()),
        })
    })
    .collect()
}

fn address(bytes: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let address = v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from));
    address.ok().map(|address| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The certificates that only tests need.
    impl Authority {
        /// Returns this authority with names of another cluster in its certificates.
        pub(crate) fn for_cluster(self, cluster: &str) -> Self {
            Self { cluster: cluster.to_owned(), ..self }
        }

        /// Issues a certificate that has expired.
        pub(crate) fn expired(&self, role: Role, hosts: &[String]) -> Issued {
            self.lasting(role, hosts, Duration::from_secs(1))
        }

        /// Issues a certificate with this lifetime, of which an hour is over.
        pub(crate) fn lasting(&self, role: Role, hosts: &[String], lifetime: Duration) -> Issued {
            self.changed(role, hosts, |params| params.not_after = params.not_before + lifetime)
        }

        /// Issues a certificate whose parameters `change` has changed.
        pub(crate) fn changed(
            &self,
            role: Role,
            hosts: &[String],
            change: impl FnOnce(&mut CertificateParams),
        ) -> Issued {
            let mut params = self.certificate(role, hosts, 1).expect("parameters");
            change(&mut params);
            self.signed(&params).expect("issued")
        }
    }
}
