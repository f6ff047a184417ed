//! Certificates that are refused although an authority signed them.

use std::collections::HashSet;
use std::path::Path;

use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};

/// The digests of the refused certificates.
#[derive(Debug, Default)]
pub(crate) struct RefuseList(HashSet<String>);

impl RefuseList {
    /// Reads the text of a list: a digest in each line, and comments. The error names the first line with anything
    /// else.
    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self, String> {
        let mut digests = HashSet::new();
        for (at, line) in text.lines().enumerate() {
            let Some(word) = line.split_whitespace().next().filter(|word| !word.starts_with('#')) else { continue };
            let digest = word.strip_prefix("sha256:").unwrap_or_default();
            if digest.len() != 64 || !digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                let at = format!("{}:{}", path.display(), at + 1);
                let fix = "write sha256: and 64 hexadecimal digits, or # for a comment";
                return Err(format!("{at} names no certificate; {fix}"));
            }
            digests.insert(digest.to_ascii_lowercase());
        }
        Ok(Self(digests))
    }

    /// Whether the list has this certificate.
    pub(super) fn has(&self, certificate: &CertificateDer<'_>) -> bool {
        !self.0.is_empty() && self.has_digest(&digest(certificate))
    }

    /// Whether the list has the certificate with this [`digest`].
    pub(crate) fn has_digest(&self, digest: &str) -> bool {
        self.0.contains(digest)
    }
}

/// Returns the digest that names a certificate: SHA-256 in hexadecimal digits.
#[must_use]
pub fn digest(certificate: &CertificateDer<'_>) -> String {
    Sha256::digest(certificate).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list has digests with comments behind them, lines of comments, and empty lines. The error is the number of the
    /// first other line.
    #[test]
    fn lines_are_digests_or_comments() {
        let certificate = CertificateDer::from(vec![1, 2, 3]);
        let digest = digest(&certificate);
        let parse = |text: &str| RefuseList::parse(Path::new("refused.txt"), text);
        let list = parse(&format!("# lost laptops\n\nsha256:{}  ci\n", digest.to_uppercase()));
        assert!(list.expect("a list").has(&certificate));
        assert!(!RefuseList::default().has(&certificate));
        for wrong in [digest.as_str(), "sha256:12", "sha256:", &format!("sha256:{}", "g".repeat(64))] {
            let error = parse(&format!("# one\n{wrong}")).expect_err("refused");
            assert!(error.starts_with("refused.txt:2 names no certificate"), "{error}");
        }
    }
}
