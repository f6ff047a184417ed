//! TLS between nodes, and between clients and nodes: which certificates a port accepts, and what a refusal reports.
//!
//! One authority signs the certificates of nodes and of clients, and the URI in a certificate says which of the two it
//! is: `spiffe://CLUSTER/node/ID` or `spiffe://CLUSTER/client/NAME`. The port for the other nodes accepts only nodes,
//! and the port for clients accepts no nodes. A node that dials another one accepts only the certificate of that node.
//!
//! Only TLS 1.3 is spoken. Sessions are never resumed, because a resumed session skips the check of the certificate. A
//! connection ends when the certificate of the other side expires, or is not accepted any more after a reload.

#![expect(clippy::wildcard_enum_match_arm, reason = "rustls may add variants to its errors")]

mod accept;
mod dial;
mod files;
mod name;
mod peer;
mod recheck;
mod refuse_list;
mod server_files;
#[cfg(all(test, feature = "cli"))]
pub(super) mod tests;
mod verify;

pub use accept::PortTls;
pub use dial::{Protocol, TlsConnector, TlsRefusal};
pub use files::{CertificateEnd, TlsError, TlsFiles};
pub use name::{CertificateName, Role};
#[cfg(feature = "cli")]
pub(crate) use refuse_list::RefuseList;
pub use refuse_list::digest;
