//! The same lock workloads on lockkeeper, etcd, ZooKeeper and Redis, in turn, on one machine. See the README.md of this
//! package.

mod chart;
mod client;
mod cluster;
mod product;
mod report;
mod spread;
mod usage;
mod work;
mod workers;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Parser;

use cluster::Cluster;
use product::Product;
use report::{Machine, Report};
use work::{Measured, Size, Workload};

/// How often a measurement is attempted in one round if other programs disturb it.
const TRIES: usize = 3;

#[derive(Debug, Parser)]
struct Options {
    /// Number of rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100), value_name = "N")]
    rounds: u32,
    /// Run a short check; its figures mean little
    #[arg(long)]
    quick: bool,
    /// Discard a measurement during which other programs used more than this
    #[arg(long, default_value_t = 0.1, value_name = "CORES")]
    foreign: f64,
    /// Products to compare
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "lockkeeper,lockkeeper-cached,etcd,zookeeper,redis"
    )]
    products: Vec<Product>,
    /// Workloads to run [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WORKLOADS")]
    workloads: Vec<Workload>,
    /// Directory for compare.json and the charts
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Directory for the servers' data, on a real disk, because syncs cost nothing elsewhere
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

impl Options {
    fn size(&self) -> Size {
        if self.quick {
            Size {
                seconds: 1.0,
                warm_up: 0.5,
                settle: 0.5,
                some: 4,
                many: 16,
                most: 32,
                contenders: 4,
                many_contenders: 8,
                waiters: 20,
                sessions: 20,
                held: 200,
            }
        } else {
            Size {
                seconds: 10.0,
                warm_up: 8.0,
                settle: 1.0,
                some: 16,
                many: 64,
                most: 256,
                contenders: 16,
                many_contenders: 128,
                waiters: 500,
                sessions: 1000,
                held: 20_000,
            }
        }
    }
}

fn main() -> Result<()> {
    workers::spread()?.block_on(compare(Options::parse()))
}

async fn compare(options: Options) -> Result<()> {
    ensure!(0.0 < options.foreign, "--foreign: above 0, got {}", options.foreign);
    fs::create_dir_all(&options.out).with_context(|| format!("{} cannot be created", options.out.display()))?;
    fs::create_dir_all(&options.data).with_context(|| format!("{} cannot be created", options.data.display()))?;
    let versions = options.products.iter().map(|product| Ok((*product, product.version()?))).collect::<Result<_>>()?;
    let mut report = Report::new(Machine::here(), versions, options.size(), options.foreign);
    for round in 0..options.rounds {
        for place in 0..options.products.len() {
            // Each round begins with another product, so that none always runs on the coldest or warmest machine.
            let product = options.products[(place + round as usize) % options.products.len()];
            one_product(&options, product, round, &mut report).await?;
        }
        report.write(&options.out)?;
    }
    print!("{}", report.tables());
    eprintln!("compare.json and charts: {}", options.out.display());
    Ok(())
}

async fn one_product(options: &Options, product: Product, round: u32, report: &mut Report) -> Result<()> {
    let wanted = |workload: &Workload| options.workloads.is_empty() || options.workloads.contains(workload);
    for workload in Workload::ALL.into_iter().filter(|workload| workload.fits(product) && wanted(workload)) {
        let what = format!("round {}: {}, {}", round + 1, product.name(), workload.title(&options.size()));
        for _ in 0..TRIES {
            let measured = match one(&options.data, product, workload, &options.size()).await {
                Ok(measured) => measured,
                Err(error) => {
                    eprintln!("{what}: failed: {error:#}");
                    report.failed(product, workload, &error);
                    break;
                }
            };
            let figures: Vec<_> =
                measured.figures.iter().map(|figure| format!("{} {:.2}", figure.name, figure.value)).collect();
            eprintln!("{what}: {} (other programs used {:.2} cores)", figures.join(", "), measured.usage.foreign);
            if report.add(product, workload, round, measured) {
                break;
            }
        }
    }
    Ok(())
}

/// Runs one workload on servers that are started for it with no data.
async fn one(data: &Path, product: Product, workload: Workload, size: &Size) -> Result<Measured> {
    let mut cluster = Cluster::start(product, data).await?;
    workload.run(&mut cluster, size).await
}
