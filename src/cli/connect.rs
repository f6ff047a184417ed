//! From endpoints to a client. The only place of the command line that knows which service it talks to.

use super::failure::Failure;
use super::options::Common;
use crate::client::Client;
use crate::limits;
use crate::model::Metadata;

pub(super) use remote::Remote;

/// A client of the named cluster, who says who and where it is. Nothing is sent yet.
pub(super) fn connect(common: &Common) -> Result<Client<Remote>, Failure> {
    let service = remote::service(common)?;
    Ok(Client::new(service).namespace(common.namespace.clone()).request_wait(common.timeout).metadata(metadata()?))
}

/// Who asks: user, host and process, as far as they are known.
pub(super) fn metadata() -> Result<Metadata, Failure> {
    let user = ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok()).unwrap_or_default();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::env::var("HOSTNAME"));
    let metadata = Metadata {
        who: shortened(&user).into(),
        host: shortened(host.unwrap_or_default().trim()).into(),
        pid: std::process::id(),
        ..Metadata::default()
    };
    Ok(metadata.checked()?)
}

/// Names from the environment are shown, not trusted: cut, and without control characters.
fn shortened(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(limits::METADATA_BYTES_MAX / 16).collect()
}

mod remote {
    //! Stands in for the service over the network until that is part of the crate: it reaches nobody, and says so.

    use crate::model::{Answered, Query, Reply};
    use crate::service::{
        Call, ClaimRef, Events, Freshness, LockService, NotSent, RenewalCall, ServiceError, Status, Subscription,
    };

    use super::super::failure::Failure;
    use super::super::options::Common;

    #[derive(Debug, Clone)]
    pub(in crate::cli) struct Remote {
        endpoints: String,
    }

    pub(super) fn service(common: &Common) -> Result<Remote, Failure> {
        Ok(Remote { endpoints: common.endpoints.join(", ") })
    }

    impl Remote {
        fn unreachable<T>(&self) -> Result<T, ServiceError> {
            Err(ServiceError::not_sent(NotSent::Unreachable(self.endpoints.clone())))
        }
    }

    impl LockService for Remote {
        async fn submit(&self, _call: Call) -> Result<Reply, ServiceError> {
            self.unreachable()
        }
        async fn renew(&self, _renewals: Vec<RenewalCall>) -> Result<Vec<Reply>, ServiceError> {
            self.unreachable()
        }
        async fn settled(&self, _claim: ClaimRef) -> Result<Reply, ServiceError> {
            self.unreachable()
        }
        async fn query(&self, _query: Query, _freshness: Freshness) -> Result<Answered, ServiceError> {
            self.unreachable()
        }
        async fn subscribe(&self, _subscription: Subscription) -> Result<Events, ServiceError> {
            self.unreachable()
        }
        async fn status(&self) -> Result<Status, ServiceError> {
            self.unreachable()
        }
        async fn transfer(&self, _to: u64) -> Result<(), ServiceError> {
            self.unreachable()
        }
    }
}
