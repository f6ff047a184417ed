//! The results of all rounds: tables with medians and spreads, ratios to lockkeeper, and a file with all measurements.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use serde::Serialize;

use crate::chart;
use crate::product::Product;
use crate::spread::{Spread, number};
use crate::work::{Figure, Measured, Size, Workload};

/// All measurements and their ratios.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    machine: Machine,
    versions: BTreeMap<Product, String>,
    size: Size,
    /// The usage of other programs, in cores, above which a measurement is discarded.
    foreign_cores_max: f64,
    cells: Vec<Cell>,
    ratios: Vec<Ratio>,
}

/// The machine and the day of the measurement.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    /// The day, in UTC.
    date: String,
    cores: usize,
    processor: String,
    memory_mib: u64,
    kernel: String,
}

/// One workload on one product.
#[derive(Debug, Serialize)]
struct Cell {
    workload: Workload,
    product: Product,
    /// The accepted measurements by round.
    kept: BTreeMap<u32, Measured>,
    /// The number of measurements that other programs disturbed.
    discarded: u32,
    /// The errors of failed measurements.
    errors: Vec<String>,
}

/// How much better lockkeeper is: above 1 if it is better, below 1 if the other product is.
#[derive(Debug, Serialize)]
struct Ratio {
    workload: Workload,
    figure: &'static str,
    product: Product,
    ratio: Spread,
}

impl Machine {
    /// Describes this machine, with empty fields where it has no answer.
    pub(crate) fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
            line.split_once(':').map_or(String::new(), |(_, value)| value.trim().to_owned())
        };
        let memory_kib = field(&read("/proc/meminfo"), "MemTotal");
        let today = Command::new("date").args(["-u", "+%F"]).output();
        Self {
            date: today.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            processor: field(&read("/proc/cpuinfo"), "model name"),
            memory_mib: memory_kib.split(' ').next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}

impl Report {
    pub(crate) fn new(machine: Machine, versions: BTreeMap<Product, String>, size: Size, foreign: f64) -> Self {
        Self { machine, versions, size, foreign_cores_max: foreign, cells: Vec::new(), ratios: Vec::new() }
    }

    /// Adds a measurement, unless other programs disturbed it. Returns whether it was added.
    pub(crate) fn add(&mut self, product: Product, workload: Workload, round: u32, measured: Measured) -> bool {
        let quiet = measured.usage.foreign <= self.foreign_cores_max;
        let cell = self.cell(product, workload);
        if quiet {
            cell.kept.insert(round, measured);
        } else {
            cell.discarded += 1;
        }
        quiet
    }

    /// Records a failed measurement.
    pub(crate) fn failed(&mut self, product: Product, workload: Workload, error: &anyhow::Error) {
        self.cell(product, workload).errors.push(format!("{error:#}"));
    }

    fn cell(&mut self, product: Product, workload: Workload) -> &mut Cell {
        let of = |cell: &Cell| (cell.workload, cell.product) == (workload, product);
        let at = self.cells.iter().position(of).unwrap_or_else(|| {
            let (kept, errors) = (BTreeMap::new(), Vec::new());
            self.cells.push(Cell { workload, product, kept, discarded: 0, errors });
            self.cells.len() - 1
        });
        &mut self.cells[at]
    }

    /// The cells of a workload, in the order of the products.
    fn row(&self, workload: Workload) -> Vec<&Cell> {
        let mut cells: Vec<_> = self.cells.iter().filter(|cell| cell.workload == workload).collect();
        cells.sort_unstable_by_key(|cell| cell.product);
        cells
    }

    /// Writes `compare.json`, a chart for each workload, and `README.md` with the tables and charts.
    pub(crate) fn write(&mut self, folder: &Path) -> Result<()> {
        self.ratios = self.all_ratios();
        fs::write(folder.join("compare.json"), serde_json::to_string_pretty(self)? + "\n")?;
        let mut page = format!("# Results\n\n{}\n", self.tables());
        for workload in Workload::ALL {
            let cells = self.row(workload);
            let Some(figure) = cells.iter().find_map(|cell| cell.first_figure()) else { continue };
            let bars: Vec<_> =
                cells.iter().filter_map(|cell| Some((cell.product.name(), cell.spread(figure.name)?))).collect();
            let better = if figure.more_is_better { "more is better" } else { "less is better" };
            let title = format!("{}: {} ({better})", workload.title(&self.size), figure.name);
            let name = serde_json::to_value(workload)?.as_str().unwrap_or("chart").to_owned();
            fs::write(folder.join(format!("{name}.svg")), chart::bars(&title, &bars))?;
            let _ = writeln!(page, "![{title}]({name}.svg)\n");
        }
        fs::write(folder.join("README.md"), page)?;
        Ok(())
    }

    fn all_ratios(&self) -> Vec<Ratio> {
        let mut ratios = Vec::new();
        for workload in Workload::ALL {
            let cells = self.row(workload);
            let Some(own) = cells.iter().find(|cell| cell.product == Product::Lockkeeper) else { continue };
            let figures = own.kept.values().next().map_or(&[][..], |measured| &measured.figures);
            for (cell, figure) in cells.iter().flat_map(|cell| figures.iter().map(move |figure| (cell, figure))) {
                if let Some(ratio) = own.ratio(cell, figure).filter(|_| cell.product != own.product) {
                    ratios.push(Ratio { workload, figure: figure.name, product: cell.product, ratio });
                }
            }
        }
        ratios
    }

    /// The results and the ratios as Markdown.
    pub(crate) fn tables(&self) -> String {
        let mut text = String::new();
        let versions: Vec<_> =
            self.versions.iter().map(|(product, version)| format!("{} {version}", product.name())).collect();
        let Machine { date, cores, processor, memory_mib, kernel } = &self.machine;
        // Writing to memory cannot fail.
        let _ = writeln!(
            text,
            "{date}; {}; {cores} cores of {processor}, {memory_mib} MiB, Linux {kernel}. Medians of the rounds; least and \
             greatest in brackets.\n",
            versions.join(", ")
        );
        self.overview(&mut text);
        // A workload that was not selected has no cells.
        for workload in Workload::ALL.into_iter().filter(|workload| !self.row(*workload).is_empty()) {
            self.table(workload, &mut text);
        }
        self.ratio_table(&mut text);
        text
    }

    /// A table of medians with a row for each figure and a column for each product.
    fn overview(&self, text: &mut String) {
        let products: Vec<_> = self.versions.keys().copied().collect();
        let names: Vec<_> = products.iter().map(|product| product.name()).collect();
        let _ = writeln!(text, "| | {} |\n|{}", names.join(" | "), " --- |".repeat(names.len() + 1));
        for workload in Workload::ALL {
            let cells = self.row(workload);
            let figures =
                cells.iter().find_map(|cell| cell.kept.values().next()).map_or(&[][..], |first| &first.figures);
            for figure in figures {
                let median = |product: &Product| {
                    let cell = cells.iter().find(|cell| cell.product == *product);
                    cell.and_then(|cell| cell.spread(figure.name)).map_or("–".to_owned(), |of| number(of.median))
                };
                let medians: Vec<_> = products.iter().map(median).collect();
                let _ = writeln!(text, "| {}: {} | {} |", workload.title(&self.size), figure.name, medians.join(" | "));
            }
        }
        text.push('\n');
    }

    fn table(&self, workload: Workload, text: &mut String) {
        let cells = self.row(workload);
        let Some(measured) = cells.iter().find_map(|cell| cell.kept.values().next()) else {
            let discarded: u32 = cells.iter().map(|cell| cell.discarded).sum();
            let _ = writeln!(
                text,
                "### {}\n\nnothing was kept; {discarded} measurements were discarded\n",
                workload.title(&self.size)
            );
            return;
        };
        let names: Vec<_> = measured.figures.iter().map(|figure| figure.name).collect();
        let _ = writeln!(
            text,
            "### {}\n\n| | {} | rounds kept / discarded / failed |",
            workload.title(&self.size),
            names.join(" | ")
        );
        let _ = writeln!(text, "|{}", " --- |".repeat(names.len() + 2));
        for cell in cells {
            let figures: Vec<_> =
                names.iter().map(|name| cell.spread(name).map_or("–".to_owned(), |spread| spread.shown())).collect();
            let counts = format!("{} / {} / {}", cell.kept.len(), cell.discarded, cell.errors.len());
            let _ = writeln!(text, "| {} | {} | {counts} |", cell.product.name(), figures.join(" | "));
        }
        text.push('\n');
    }

    fn ratio_table(&self, text: &mut String) {
        let others: Vec<_> = self.versions.keys().filter(|product| **product != Product::Lockkeeper).collect();
        let names: Vec<_> = others.iter().map(|product| product.name()).collect();
        text.push_str("### lockkeeper against the others: above 1 where lockkeeper is better\n\n");
        let _ = writeln!(text, "| | {} |\n|{}", names.join(" | "), " --- |".repeat(names.len() + 1));
        let mut rows: Vec<(Workload, &str)> = self.ratios.iter().map(|ratio| (ratio.workload, ratio.figure)).collect();
        let mut seen = Vec::new();
        rows.retain(|row| {
            !seen.contains(row) && {
                seen.push(*row);
                true
            }
        });
        for (workload, figure) in rows {
            let of = |product: &Product| {
                let ratio =
                    self.ratios.iter().find(|r| (r.workload, r.figure, r.product) == (workload, figure, *product));
                ratio.map_or("–".to_owned(), |ratio| ratio.ratio.shown())
            };
            let cells: Vec<_> = others.iter().map(|product| of(product)).collect();
            let _ = writeln!(text, "| {}: {figure} | {} |", workload.title(&self.size), cells.join(" | "));
        }
    }
}

impl Cell {
    fn first_figure(&self) -> Option<Figure> {
        self.kept.values().next()?.figures.first().copied()
    }

    fn value(&self, round: u32, figure: &str) -> Option<f64> {
        let measured = self.kept.get(&round)?;
        measured.figures.iter().find(|known| known.name == figure).map(|known| known.value)
    }

    fn spread(&self, figure: &str) -> Option<Spread> {
        Spread::of(self.kept.keys().filter_map(|round| self.value(*round, figure)))
    }

    /// The ratio to another product, round by round, because load that varies over time affects both.
    fn ratio(&self, other: &Cell, figure: &Figure) -> Option<Spread> {
        Spread::of(self.kept.keys().filter_map(|round| {
            let (own, others) = (self.value(*round, figure.name)?, other.value(*round, figure.name)?);
            // Memory that shrank has no ratio.
            let ratio = if figure.more_is_better { own / others } else { others / own };
            (0.0 < own && 0.0 < others).then_some(ratio)
        }))
    }
}
