//! How a request shows its caller.

use crate::auth::{TokenHash, Who};
use crate::model::Principal;
use crate::net::{CertificateName, ConnectionInfo, Role};
use crate::service::ServiceError;

/// Returns what a request shows about its caller: the token in its header `authorization`, or else the certificate of
/// its connection.
///
/// # Errors
/// The header has no token, or the token was sent in plain text from another machine, so that others may know it.
pub fn who_calls(authorization: Option<&[u8]>, connection: Option<&ConnectionInfo>) -> Result<Who, ServiceError> {
    let Some(header) = authorization else {
        let name = connection.and_then(|connection| connection.proven.as_deref());
        return Ok(match name {
            Some(CertificateName { role: Role::Client(name), digest, .. }) => match Principal::parse(name) {
                Ok(name) => Who::Certificate { name, digest: digest.clone().unwrap_or_default() },
                Err(_) => Who::Anonymous,
            },
            Some(CertificateName { role: Role::Node(_), .. }) | None => Who::Anonymous,
        });
    };
    let refused = |why: &str| ServiceError::Unauthenticated { why: why.to_owned() };
    if connection.is_none_or(|connection| connection.exposed) {
        return Err(refused("the token was sent in plain text, and others may know it now: revoke it, and use TLS"));
    }
    let hash = bearer(header).and_then(|token| TokenHash::of(token).ok());
    hash.map(Who::Token).ok_or_else(|| refused("the token is not known"))
}

/// Returns the token of a header `authorization`. The case of the scheme does not count.
fn bearer(header: &[u8]) -> Option<&str> {
    let (scheme, token) = std::str::from_utf8(header).ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_start_matches(' '))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// The scheme is read in any case, as in RFC 9110, and only this one.
    #[test]
    fn the_case_of_the_scheme_does_not_count() {
        for header in ["Bearer lk_1", "bearer lk_1", "BEARER  lk_1"] {
            assert_eq!(bearer(header.as_bytes()), Some("lk_1"), "{header}");
        }
        for header in ["Basic lk_1", "Bearerlk_1", "Bearer", "lk_1", ""] {
            assert_eq!(bearer(header.as_bytes()), None, "{header}");
        }
    }

    /// A certificate shows its name and its digest, so that the audit log can say which of a client's certificates was
    /// used.
    #[test]
    fn a_certificate_is_shown_with_its_digest() {
        let role = Role::Client("ci".to_owned());
        let certificate = CertificateName { cluster: "harbour".to_owned(), role, digest: Some("9f".into()) };
        let connection = ConnectionInfo::new(Some(Arc::new(certificate)), false, None);
        let name = Principal::parse("ci").expect("legal");
        assert_eq!(who_calls(None, Some(&connection)), Ok(Who::Certificate { name, digest: "9f".into() }));
    }
}
