//! New connections to endpoints.

use std::time::Duration;

use tokio::time::timeout;
use tonic::codegen::http::HeaderValue;
use tonic::transport::Endpoint;

use super::endpoints::Endpoints;
use super::pin::{Dialled, Unfit, cause};
use super::token_file;
use crate::limits;
use crate::net::{CoalescingConnector, Protocol, TlsConnector, TlsRefusal};

impl Endpoints {
    /// Reads the client's token for a new connection to this address.
    fn token(&self, address: &str) -> Result<Option<HeaderValue>, Unfit> {
        let Some(path) = &self.auth_token_file else { return Ok(None) };
        if self.is_plain() && !token_file::stays_here(address) {
            let why = "a token is sent to another machine only with TLS: give --ca";
            return Err(Unfit::Unreached(why.to_owned()));
        }
        token_file::read(path).map(Some).map_err(Unfit::Unreached)
    }

    /// Whether the file of the client's token has another one than a connection to this address.
    pub(super) fn has_another_token(&self, address: &str, token: Option<HeaderValue>) -> bool {
        token.is_some() && self.token(address).is_ok_and(|now| now != token)
    }

    /// Opens a new connection.
    pub(super) async fn dial(&self, address: &str) -> Result<Dialled, Unfit> {
        let token = self.token(address)?;
        let endpoint = self.endpoint(address).map_err(|error| Unfit::Unreached(cause(&error)))?;
        let longest = Duration::from_millis(limits::CONNECT_MS_MAX);
        let connecting = async {
            match (self.connector.clone(), self.tls.clone()) {
                (Some(connector), _) => endpoint.connect_with_connector(CoalescingConnector(connector)).await,
                (None, None) => endpoint.connect_with_connector(CoalescingConnector::tcp()).await,
                (None, Some(files)) => {
                    let tls = TlsConnector { files, protocol: Protocol::Http2, below: CoalescingConnector::tcp().0 };
                    endpoint.connect_with_connector(CoalescingConnector(tls)).await
                }
            }
        };
        let late = |_| Unfit::Unreached("no connection in time".to_owned());
        let connected = timeout(longest, connecting).await.map_err(late)?;
        let channel = connected.map_err(|error| match TlsRefusal::of(&error) {
            Some(refusal) => Unfit::TlsRefused(refusal.clone()),
            None => Unfit::Unreached(cause(&error)),
        })?;
        Ok(Dialled { channel, token })
    }

    pub(super) fn endpoint(&self, address: &str) -> Result<Endpoint, tonic::transport::Error> {
        // The connector adds TLS.
        Ok(Endpoint::from_shared(format!("http://{address}"))?
            .connect_timeout(Duration::from_millis(limits::CONNECT_MS_MAX))
            .http2_keep_alive_interval(Duration::from_millis(limits::KEEPALIVE_MS))
            .keep_alive_timeout(Duration::from_millis(limits::KEEPALIVE_WAIT_MS))
            .keep_alive_while_idle(true)
            .http2_max_header_list_size(limits::HEADER_LIST_BYTES_MAX)
            .initial_stream_window_size(limits::STREAM_WINDOW_BYTES)
            .initial_connection_window_size(limits::CONNECTION_WINDOW_BYTES))
    }
}
