//! The README and the manual: what they name exists, what exists is named, and their lines are short.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{MODULES, report, sources};

const LINE_CHARACTERS_MAX: usize = 120;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The README, the pages for contributors and all pages of the manual, with their paths.
fn pages() -> Vec<(PathBuf, String)> {
    let entries =
        std::fs::read_dir(root().join("src/manual")).expect("the manual").map(|e| e.expect("an entry").path());
    let mut paths: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    paths.sort();
    paths.extend([root().join("README.md"), root().join(".github/CONTRIBUTING.md"), root().join("tests/README.md")]);
    paths.into_iter().map(|path| (path.clone(), std::fs::read_to_string(&path).expect("a page"))).collect()
}

fn page(name: &str) -> String {
    std::fs::read_to_string(root().join("src/manual").join(name)).expect("a page")
}

/// The parts of a text in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The cells of all rows of a page's tables, without heads and rules.
fn rows(page: &str) -> Vec<Vec<&str>> {
    let mut rows = Vec::new();
    let lines: Vec<_> = page.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let head = lines.get(at + 1).is_some_and(|next| next.starts_with("| ---"));
        if line.starts_with("| ") && !line.starts_with("| ---") && !head {
            rows.push(line.trim_matches('|').split(" | ").map(str::trim).collect());
        }
    }
    rows
}

/// Source code with string literals that go over several lines put together.
fn joined(text: &str) -> String {
    let mut joined = String::new();
    let mut after_break = false;
    for line in text.lines() {
        let line = if after_break { line.trim_start() } else { line };
        after_break = line.ends_with('\\');
        joined.push_str(line.strip_suffix('\\').unwrap_or(line));
        if !after_break {
            joined.push('\n');
        }
    }
    joined
}

/// Each page is in the rustdoc manual and in the index, and nothing else is in either.
#[test]
fn every_page_is_in_the_index() {
    let (modules, index) =
        (std::fs::read_to_string(root().join("src/manual.rs")).expect("the manual"), page("index.md"));
    let mut broken = Vec::new();
    for (path, _) in pages() {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if ["README.md", "CONTRIBUTING.md"].contains(&name.as_str()) {
            continue;
        }
        if !modules.contains(&format!("include_str!(\"manual/{name}\")")) {
            broken.push(format!("src/manual.rs lacks {name}"));
        }
        if name != "index.md" && !index.contains(&format!("]({name})")) {
            broken.push(format!("src/manual/index.md lacks {name}"));
        }
    }
    report("pages that are not listed", &broken);
}

/// Each link to a file of the repository leads to one.
#[test]
fn links_of_pages_lead_to_files() {
    let mut broken = Vec::new();
    for (path, text) in pages() {
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or_default();
            let elsewhere = file.is_empty() || target.starts_with("https://") || target.starts_with("http://");
            if !elsewhere && !path.parent().expect("a folder").join(file).exists() {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
    }
    report("links that lead nowhere", &broken);
}

/// Lines outside of tables, code and images are at most 120 characters long.
#[test]
fn lines_of_pages_are_short() {
    let mut broken = Vec::new();
    for (path, text) in pages() {
        let mut code = false;
        for (line, number) in text.lines().zip(1..) {
            code ^= line.trim_start().starts_with("```");
            let exempt = code || line.starts_with(['|', '!']);
            if !exempt && line.chars().count() > LINE_CHARACTERS_MAX {
                broken.push(format!("{}:{number}", path.display()));
            }
        }
        assert!(!code, "{}: a block of code has no end", path.display());
    }
    report("lines that are too long", &broken);
}

/// The page on monitoring has every metric of the code, and no other.
#[test]
fn every_metric_is_documented() {
    let begin = concat!("\"lockkeeper", "_");
    let is_name = |name: &&str| name.split('_').count() > 1 && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let in_code: BTreeSet<String> = sources("src")
        .iter()
        .filter(|source| ["node", "net", "http", "rpc", "service"].contains(&source.module.as_str()))
        .flat_map(|source| source.text.split(begin).skip(1).map(ToOwned::to_owned).collect::<Vec<_>>())
        .filter_map(|rest| rest.split('"').next().map(|name| format!("lockkeeper_{name}")))
        .filter(|name| is_name(&name.as_str()))
        .collect();
    let text = page("monitoring.md");
    let in_page: BTreeSet<String> =
        rows(&text).into_iter().filter_map(|row| quoted(row[0]).next().map(ToOwned::to_owned)).collect();
    let in_page: BTreeSet<String> = in_page.into_iter().filter(|name| name.starts_with("lockkeeper_")).collect();
    assert!(in_code.len() > 20, "{in_code:?}");
    assert_eq!(in_code, in_page);
    let everywhere =
        text.split(|c: char| !c.is_ascii_lowercase() && c != '_').filter(|word| word.starts_with("lockkeeper_"));
    let unknown: Vec<_> = everywhere.filter(|name| !in_code.contains(*name)).map(ToOwned::to_owned).collect();
    report("metrics that do not exist", &unknown);
}

/// What the page on failures quotes of a node's last line is in the code.
#[test]
fn quoted_last_lines_exist() {
    let code: String = sources("src").iter().map(|source| joined(&source.text)).collect();
    let text = page("failures.md");
    let table = text.split("## ").next().expect("its first part");
    let quotes: Vec<_> = rows(table).iter().flat_map(|row| quoted(row[0])).flat_map(|text| text.split('…')).collect();
    let missing = quotes.iter().map(|quote| quote.trim()).filter(|quote| {
        // A message is put together from a verb and a form: `cannot {doing} {path}`.
        let verb = quote.strip_prefix("cannot ").filter(|verb| !verb.contains(' '));
        !quote.is_empty() && !verb.map_or(code.contains(*quote), |verb| code.contains(&format!("\"{verb}\"")))
    });
    let missing: Vec<_> = missing.map(ToOwned::to_owned).collect();
    assert!(quotes.len() > 15, "{quotes:?}");
    report("not a line of a node", &missing);
}

/// The functions that an acquire goes through are where the page on architecture says, and it has every module.
#[test]
fn the_page_on_architecture_is_true() {
    let text = page("architecture.md");
    let mut broken = Vec::new();
    let mut steps = 0;
    for row in rows(&text).into_iter().filter(|row| row.len() == 3 && row[1].starts_with("`src/")) {
        let (file, function) = (row[1].trim_matches('`'), row[2].trim_matches('`'));
        let code = std::fs::read_to_string(root().join(file)).unwrap_or_default();
        steps += 1;
        if ![format!("fn {function}("), format!("fn {function}<")].iter().any(|head| code.contains(head)) {
            broken.push(format!("{file} has no function {function}"));
        }
    }
    assert!(steps > 10, "{steps} steps");
    for module in MODULES.iter().filter(|module| !["manual", "faults"].contains(module)) {
        if !text.contains(&format!("\n| `{module}` | ")) {
            broken.push(format!("the module {module} is missing"));
        }
    }
    for path in quoted(&text).filter(|path| path.starts_with("src/") || path.starts_with("tests/")) {
        if !root().join(path).exists() {
            broken.push(format!("{path} does not exist"));
        }
    }
    report("the page on architecture", &broken);
}
