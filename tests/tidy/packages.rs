//! The packages that the program contains: their licences and sources are accepted, and no package is there twice
//! without a reason.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::report;

/// Licences that permit distribution in a program under MIT or Apache-2.0. `.cargo/deny.toml` has the same list.
const LICENCES: &[&str] =
    &["MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "ISC", "Unicode-3.0", "Unlicense", "Zlib"];

/// Packages with several versions, and which package needs the other one. `.cargo/deny.toml` names the older versions,
/// too.
const SEVERAL: &[(&str, &str)] = &[
    ("base64", "rcgen uses a newer one than bson and tonic"),
    ("convert_case", "the derive_more of codeq"),
    ("cpufeatures", "sha2 0.10"),
    ("derive_more", "codeq, which raft-log needs"),
    ("derive_more-impl", "codeq, which raft-log needs"),
    ("foldhash", "petgraph, for the build of the messages"),
    ("getrandom", "ring and bson use older ones"),
    ("hashbrown", "petgraph and metrics-util use older ones"),
    ("itertools", "prost"),
    ("rand", "bson, metrics-util, and the tables of phf at build time"),
    ("rand_core", "as rand"),
    ("syn", "macros are moving to the next version"),
    ("thiserror", "raft-log"),
    ("thiserror-impl", "raft-log"),
    ("unicode-width", "miette, for the build of the messages"),
];

/// Runs `cargo tree` for the packages that the program contains, and returns its lines.
fn tree(arguments: &[&str]) -> Vec<String> {
    let cargo = option_env!("CARGO").unwrap_or("cargo");
    let everything = ["tree", "--locked", "--target", "x86_64-unknown-linux-gnu", "--edges", "normal,build"];
    let mut command = Command::new(cargo);
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(everything).args(["--all-features", "--prefix", "none"]);
    let output = command.args(arguments).output().expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").lines().map(|line| line.replace(" (*)", "")).collect()
}

/// Whether a package with this expression of licences may be used: of each part, one alternative is accepted.
fn accepted(expression: &str) -> bool {
    let accepts = |licence: &str| LICENCES.contains(&licence.trim());
    expression.split(" AND ").all(|part| {
        let alternatives = part.trim_matches(['(', ')']).replace('/', " OR ");
        alternatives.split(" OR ").any(accepts)
    })
}

#[test]
fn licences_are_accepted() {
    let lines = tree(&["--format", "{l}\t{p}"]);
    let refused = lines.iter().filter(|line| !accepted(line.split('\t').next().unwrap_or_default()));
    report("packages with another licence", &refused.cloned().collect::<Vec<_>>());
    assert!(100 < lines.len(), "{lines:?}");
    assert!(accepted("(MIT OR GPL-3.0) AND Zlib") && accepted("GPL-3.0/MIT"));
    assert!(!accepted("GPL-3.0") && !accepted("MIT AND GPL-3.0") && !accepted(""));
}

/// Each package is there once, or the list says why not. The list has no other package.
#[test]
fn packages_are_there_once() {
    let mut versions = BTreeMap::<String, Vec<String>>::new();
    for line in tree(&["--format", "{p}"]) {
        let mut words = line.split(' ').map(str::to_owned);
        if let (Some(name), Some(version)) = (words.next(), words.next()) {
            let known = versions.entry(name).or_default();
            if !known.contains(&version) {
                known.push(version);
            }
        }
    }
    versions.retain(|_, versions| 1 < versions.len());
    let expected: Vec<_> = SEVERAL.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(versions.keys().cloned().collect::<Vec<_>>(), expected, "{versions:?}");
}

/// Every package is from crates.io, so that each version stays available and has a checksum.
#[test]
fn packages_are_from_the_registry() {
    let lockfile =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.lock")).expect("a lockfile");
    let sources = lockfile.lines().filter(|line| line.starts_with("source = "));
    let other = sources.filter(|line| *line != "source = \"registry+https://github.com/rust-lang/crates.io-index\"");
    report("other sources", &other.map(str::to_owned).collect::<Vec<_>>());
}
