//! Redis, one server: `SET NX PX`, and a script that deletes only the caller's own key. There is no queue, so a client
//! retries after a short random pause, as libraries do, and there is no fencing token.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::lockkeeper::clock::{Clock, SystemClock};
use ::redis::aio::MultiplexedConnection;
use ::redis::{IntoConnectionInfo, Script, cmd};
use anyhow::{Result, bail};
use tokio::task::JoinHandle;

use crate::product::{Address, TTL};

const DELETE_OWN: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
const PAUSE_US_MIN: u64 = 1_000;
const PAUSE_US_MORE: u64 = 2_000;

pub(crate) struct Client {
    connection: MultiplexedConnection,
    delete_own: Script,
    /// The held names, which a task renews.
    held: Arc<Mutex<HashMap<String, ()>>>,
    renewing: JoinHandle<()>,
}

impl Client {
    pub(super) async fn connect(nodes: &[Address]) -> Result<Self> {
        let info = format!("redis://{}/", nodes[0].client).into_connection_info()?;
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let library = ::redis::Client::open(info.set_tcp_settings(tcp))?;
        let config = ::redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let connection = library.get_multiplexed_async_connection_with_config(&config).await?;
        let held: Arc<Mutex<HashMap<String, ()>>> = Arc::default();
        let renewing = tokio::spawn(renew(connection.clone(), Arc::clone(&held)));
        Ok(Self { connection, delete_own: Script::new(DELETE_OWN), held, renewing })
    }

    /// Returns the secret that proves the hold.
    pub(super) async fn acquire(&mut self, name: &str) -> Result<String> {
        let clock = SystemClock::new();
        let secret = format!("{:032x}", clock.random_u128());
        let ttl_ms = u64::try_from(TTL.as_millis())?;
        loop {
            let mut set = cmd("SET");
            set.arg(name).arg(&secret).arg("NX").arg("PX").arg(ttl_ms);
            let set: Option<String> = set.query_async(&mut self.connection).await?;
            if set.is_some() {
                self.held.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), ());
                return Ok(secret);
            }
            tokio::time::sleep(Duration::from_micros(PAUSE_US_MIN + clock.random_below(PAUSE_US_MORE))).await;
        }
    }

    pub(super) async fn release(&mut self, name: &str, secret: &str) -> Result<()> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        let deleted: u64 = self.delete_own.key(name).arg(secret).invoke_async(&mut self.connection).await?;
        if deleted == 0 { bail!("the lock had expired") } else { Ok(()) }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

async fn renew(mut connection: MultiplexedConnection, held: Arc<Mutex<HashMap<String, ()>>>) {
    let ttl_ms = u64::try_from(TTL.as_millis()).unwrap_or(u64::MAX);
    loop {
        tokio::time::sleep(TTL / 3).await;
        let names: Vec<_> = held.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
        for name in names {
            // An expired key is detected by its release.
            let _: Result<u64, _> = cmd("PEXPIRE").arg(&name).arg(ttl_ms).query_async(&mut connection).await;
        }
    }
}
