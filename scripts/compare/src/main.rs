//! The same lock workloads on lockkeeper, etcd, ZooKeeper and Redis, in turn, on one machine. See README.md beside this package.

mod chart;
mod client;
mod product;
mod report;
mod usage;
mod work;
mod workers;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Parser;

use product::{Cluster, Product};
use report::{Machine, Report};
use work::{Measured, Size, Workload};

/// A measurement that was disturbed is made again so often, within one round.
const TRIES: usize = 3;

#[derive(Debug, Parser)]
struct Options {
    /// How often everything is measured
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100), value_name = "N")]
    rounds: u32,
    /// Short and small: shows that everything works; its figures mean little
    #[arg(long)]
    quick: bool,
    /// A measurement beside which other programs used more than this is discarded
    #[arg(long, default_value_t = 0.1, value_name = "CORES")]
    foreign: f64,
    /// Only these
    #[arg(long, value_enum, value_delimiter = ',', default_value = "lockkeeper,etcd,zookeeper,redis")]
    products: Vec<Product>,
    /// Only these; all where it is not said
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WORKLOADS")]
    workloads: Vec<Workload>,
    /// Where compare.json and the charts go
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Where the servers keep their data meanwhile: on a real disk, or syncing costs nothing
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
                crowd: 32,
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
                crowd: 256,
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
    fs::create_dir_all(&options.out).with_context(|| format!("{} cannot be made", options.out.display()))?;
    fs::create_dir_all(&options.data).with_context(|| format!("{} cannot be made", options.data.display()))?;
    let versions = options.products.iter().map(|product| Ok((*product, product.version()?))).collect::<Result<_>>()?;
    let mut report = Report::new(Machine::here(), versions, options.size(), options.foreign);
    for round in 0..options.rounds {
        for place in 0..options.products.len() {
            // Another one begins each round, so that none always has the coldest or the warmest machine.
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
            let told: Vec<_> =
                measured.figures.iter().map(|figure| format!("{} {:.2}", figure.name, figure.value)).collect();
            eprintln!("{what}: {} (others used {:.2} cores)", told.join(", "), measured.usage.foreign);
            if report.add(product, workload, round, measured) {
                break;
            }
        }
    }
    Ok(())
}

/// One workload on servers that were started for it, with nothing in them.
async fn one(data: &Path, product: Product, workload: Workload, size: &Size) -> Result<Measured> {
    let mut cluster = Cluster::start(product, data).await?;
    workload.run(&mut cluster, size).await
}
