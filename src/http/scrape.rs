//! The metrics of nodes as text, and what a reader finds in it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use tonic::codegen::Service;

use crate::clock::{Clock, SystemClock};
use crate::limits::{SCRAPE_BYTES_MAX, SCRAPE_MS_MAX, SCRAPE_WHY_CHARS_MAX};
use crate::net::{Connection, Connector, Protocol, TlsConnector, TlsFiles};
use crate::rpc::{stays_here, token_header};

/// Returns all metrics of a process in the text format of Prometheus.
pub type Render = Arc<dyn Fn() -> String + Send + Sync>;

/// How the HTTP ports of a cluster are reached.
#[derive(Debug, Clone)]
pub(crate) struct Scraper {
    tls: Option<Arc<TlsFiles>>,
    token: Option<HeaderValue>,
}

/// Why the metrics of a node were not read.
type Unread = Box<dyn std::error::Error + Send + Sync>;

/// All metrics of a node at one time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scrape {
    samples: Vec<Sample>,
    /// The node's wall clock in whole seconds since 1970, if its answer had a date.
    pub(crate) wall: Option<u64>,
}

#[derive(Debug, Clone, PartialEq)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Scraper {
    /// Uses the certificates of a client, and the token in a file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn new(tls: Option<TlsFiles>, token_file: Option<&Path>) -> Result<Self, String> {
        Ok(Self { tls: tls.map(Arc::new), token: token_file.map(token_header).transpose()? })
    }

    /// Returns the metrics of the node whose HTTP port has this address.
    ///
    /// # Errors
    /// The text says why there are none.
    pub(crate) async fn node(&self, address: &str) -> Result<Scrape, String> {
        if address.is_empty() {
            return Err("it has no HTTP port: set listen.http".to_owned());
        }
        if self.token.is_some() && self.tls.is_none() && !stays_here(address) {
            return Err("a token is sent to another machine only with TLS: give --ca".to_owned());
        }
        let longest = Duration::from_millis(SCRAPE_MS_MAX);
        let late = |_| format!("{address} did not answer within {SCRAPE_MS_MAX} ms");
        let scrape = timeout(longest, self.read(address)).await.map_err(late)?;
        scrape.map_err(|error| {
            let text = error.to_string();
            // A refusal of TLS names the address already.
            if text.starts_with(address) { text } else { format!("{address}: {text}") }
        })
    }

    async fn read(&self, address: &str) -> Result<Scrape, Unread> {
        let stream = self.dial(Uri::try_from(format!("http://{address}/metrics"))?).await?;
        let (mut sender, connection) = http1::handshake(stream).await?;
        let served = tokio::spawn(connection);
        let mut request = Request::get("/metrics").header(header::HOST, address);
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let (head, body) = sender.send_request(request.body(Body::empty())?).await?.into_parts();
        let text = to_bytes(Body::new(body), SCRAPE_BYTES_MAX).await?;
        served.abort();
        let text = String::from_utf8_lossy(&text);
        if head.status != StatusCode::OK {
            let why: String = text.trim().chars().take(SCRAPE_WHY_CHARS_MAX).collect();
            return Err(format!("{}: {why}", head.status).into());
        }
        Ok(Scrape { wall: wall(&head.headers), ..Scrape::parse(&text) })
    }

    async fn dial(&self, uri: Uri) -> Result<TokioIo<Connection>, Unread> {
        let mut below = Connector::tcp();
        match self.tls.clone() {
            Some(files) => TlsConnector { files, protocol: Protocol::Http1, below }.call(uri).await,
            None => Ok(below.call(uri).await?),
        }
    }
}

/// Returns the date of an answer.
fn wall(headers: &HeaderMap) -> Option<u64> {
    let date = headers.get(header::DATE)?.to_str().ok()?;
    let at = httpdate::parse_http_date(date).ok()?;
    at.duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_secs())
}

impl Scrape {
    /// Reads the text format of Prometheus. Lines that it does not know are left out.
    pub(crate) fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Self { samples: lines.filter_map(Sample::parse).collect(), wall: None }
    }

    /// Returns the seconds by which the node's wall clock is ahead of that of this process, which has just read the
    /// metrics.
    pub(crate) fn wall_ahead(&self) -> Option<i64> {
        let here = i64::try_from(SystemClock::new().wall().0 / 1_000).ok()?;
        Some(i64::try_from(self.wall?).ok()? - here)
    }

    /// The samples of one node. Several nodes of one process answer with the metrics of all of them.
    pub(crate) fn of_node(mut self, node: u64) -> Self {
        let node = node.to_string();
        self.samples.retain(|sample| sample.labels.get("node").is_none_or(|of| *of == node));
        self
    }

    /// The samples of these histograms and other metrics.
    pub(crate) fn only(mut self, names: &[&str]) -> Self {
        self.samples.retain(|sample| names.iter().any(|name| sample.name.starts_with(name)));
        self
    }

    fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| sample.name == name)
    }

    /// The sum of all samples with this name; `None` if there is none.
    pub(crate) fn sum(&self, name: &str) -> Option<f64> {
        self.named(name).map(|sample| sample.value).reduce(|all, one| all + one)
    }

    /// The largest sample with this name.
    pub(crate) fn largest(&self, name: &str) -> Option<f64> {
        self.named(name).map(|sample| sample.value).reduce(f64::max)
    }

    /// By how much a counter has grown since an earlier scrape.
    pub(crate) fn grown(&self, name: &str, earlier: &Self) -> Option<f64> {
        Some((self.sum(name)? - earlier.sum(name).unwrap_or_default()).max(0.0))
    }

    /// The quantile of a histogram, of what was recorded since an earlier scrape. `None` if nothing was.
    pub(crate) fn quantile(&self, name: &str, quantile: f64, earlier: Option<&Self>) -> Option<f64> {
        let name = format!("{name}_bucket");
        let (now, before) = (self.buckets(&name), earlier.map(|earlier| earlier.buckets(&name)).unwrap_or_default());
        let counts: Vec<_> = now
            .iter()
            .map(|(bound, count)| {
                let before = before.iter().find(|(other, _)| other == bound).map_or(0.0, |(_, count)| *count);
                (*bound, (count - before).max(0.0))
            })
            .collect();
        let all = counts.last().map(|(_, count)| *count).filter(|count| 0.0 < *count)?;
        let wanted = quantile * all;
        let (mut low, mut below) = (0.0, 0.0);
        for (bound, count) in counts {
            if wanted <= count {
                // A value above the last bound is only known to be larger.
                let width = if bound.is_finite() { bound - low } else { 0.0 };
                return Some(low + width * (wanted - below) / (count - below).max(f64::MIN_POSITIVE));
            }
            (low, below) = (bound, count);
        }
        None
    }

    /// The bounds of a histogram in order, each with the count of all values up to it.
    fn buckets(&self, name: &str) -> Vec<(f64, f64)> {
        let bound = |sample: &Sample| sample.labels.get("le")?.parse::<f64>().ok();
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for (bound, count) in self.named(name).filter_map(|sample| Some((bound(sample)?, sample.value))) {
            match buckets.iter_mut().find(|(other, _)| *other == bound) {
                Some((_, sum)) => *sum += count,
                None => buckets.push((bound, count)),
            }
        }
        buckets.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        buckets
    }
}

impl Sample {
    fn parse(line: &str) -> Option<Self> {
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}')?),
            None => (series, ""),
        };
        let labels = labels.split("\",").filter_map(|label| {
            let (name, value) = label.split_once("=\"")?;
            Some((name.to_owned(), value.trim_end_matches('"').to_owned()))
        });
        Some(Self { name: name.to_owned(), labels: labels.collect(), value: value.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP a_total Something\n# TYPE a_total counter\na_total{node=\"1\",of=\"x\"} 3\n\
                        a_total{node=\"1\",of=\"y\"} 4\na_total{node=\"2\"} 100\nup 1\n\
                        h_bucket{node=\"1\",le=\"0.001\"} 50\nh_bucket{node=\"1\",le=\"0.01\"} 98\n\
                        h_bucket{node=\"1\",le=\"0.1\"} 100\nh_bucket{node=\"1\",le=\"+Inf\"} 100\nno sample at all\n";

    /// Samples of one node are summed; metrics of the whole process belong to each node.
    #[test]
    fn samples_are_read() {
        let scrape = Scrape::parse(TEXT).of_node(1);
        assert_eq!(
            (scrape.sum("a_total"), scrape.largest("a_total"), scrape.sum("up")),
            (Some(7.0), Some(4.0), Some(1.0))
        );
        assert_eq!(scrape.sum("missing"), None);
        let earlier = Scrape::parse("a_total{node=\"1\",of=\"x\"} 2\n");
        assert_eq!(scrape.grown("a_total", &earlier), Some(5.0));
    }

    /// A quantile lies in its bucket, and counts only what was recorded since the earlier scrape.
    #[test]
    fn quantiles_are_of_the_time_between() {
        let scrape = Scrape::parse(TEXT);
        let p99 = scrape.quantile("h", 0.99, None).expect("recorded");
        assert!((0.01..=0.1).contains(&p99), "{p99}");
        let earlier = Scrape::parse(
            "h_bucket{le=\"0.001\"} 0\nh_bucket{le=\"0.01\"} 48\nh_bucket{le=\"0.1\"} 50\nh_bucket{le=\"+Inf\"} 50\n",
        );
        let p99 = scrape.quantile("h", 0.99, Some(&earlier)).expect("recorded");
        assert!(p99 <= 0.001, "{p99}");
        assert_eq!(scrape.quantile("h", 0.99, Some(&scrape)), None, "nothing was recorded");
    }
}
