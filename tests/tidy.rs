//! The rules of this repository as tests over its source: direction of imports, modules of crates, one source of time
//! and randomness, small files and functions, and an opening comment in every file.

#[path = "tidy/client_files.rs"]
mod client_files;
#[path = "tidy/import_cycles.rs"]
mod import_cycles;
#[path = "tidy/packages.rs"]
mod packages;
#[path = "tidy/pages.rs"]
mod pages;
#[path = "tidy/proto.rs"]
mod proto;
#[path = "tidy/words.rs"]
mod words;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The modules from the lowest to the highest: a module may import only from those before it.
const MODULES: &[&str] = &[
    "mutex",
    "manual",
    "limits",
    "model",
    "auth",
    "history",
    "faults",
    "state",
    "machine",
    "codec",
    "storage",
    "clock",
    "telemetry",
    "audit",
    "net",
    "protobuf",
    "raft",
    "service",
    "config",
    "node",
    "client",
    "compat",
    "rpc",
    "testing",
    "certs",
    "shapes",
    "http",
    "cli",
];

/// Modules that a module must not import although they are lower: (module, what it never names).
const NEVER: &[(&str, &[&str])] = &[
    ("storage", &["model", "state", "machine", "codec"]),
    ("raft", &["service"]),
    ("service", &["state", "machine", "codec", "storage", "raft"]),
    ("client", &["state", "machine", "codec", "storage", "raft", "node"]),
    ("compat", &["state", "machine", "storage", "raft", "node", "rpc"]),
    ("rpc", &["state", "machine", "storage", "raft", "node"]),
    ("http", &["state", "machine", "storage", "raft"]),
    ("config", &["state", "machine", "codec", "storage", "raft"]),
];

/// Crates that only one module may use.
const CRATES: &[(&str, &str)] = &[
    ("openraft", "raft"),
    ("sled", "storage"),
    ("raft_log", "storage"),
    ("codeq", "storage"),
    ("bincode", "codec"),
    ("getrandom", "clock"),
    ("axum", "http"),
    ("clap", "cli"),
    ("sd_notify", "cli"),
    ("bson", "compat"),
];

const FILE_LINES_MAX: usize = 400;
const TEST_FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;

struct Source {
    path: String,
    module: String,
    /// The lines without comments and without the inline tests at the end.
    code: Vec<String>,
    text: String,
}

fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> =
        std::fs::read_dir(directory).expect("a folder").map(|e| e.expect("an entry").path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            walk(&path, found);
        } else {
            found.push(path);
        }
    }
}

fn sources(folder: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    walk(&root.join(folder), &mut paths);
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    paths.into_iter().map(|path| source(root, &path)).collect()
}

fn source(root: &Path, path: &Path) -> Source {
    let text = std::fs::read_to_string(path).expect("a text");
    let path = path.strip_prefix(root).expect("inside").display().to_string();
    let module = path.split('/').nth(1).unwrap_or_default().trim_end_matches(".rs").to_owned();
    let code = text.lines().take_while(|line| *line != "#[cfg(test)]" || !text.contains("\nmod tests {"));
    let code = code.map(|line| line.split("//").next().unwrap_or_default().to_owned()).collect();
    Source { path, module, code, text }
}

fn is_test(source: &Source) -> bool {
    source.path.ends_with("tests.rs") || source.path.contains("/tests/")
}

fn report(what: &str, broken: &[String]) {
    let mut text = String::new();
    for line in broken {
        writeln!(text, "  {line}").expect("memory");
    }
    assert!(broken.is_empty(), "{what}:\n{text}");
}

/// The lines of code that match, as `path:line: text`.
fn matching(sources: &[Source], skip: impl Fn(&Source) -> bool, hit: impl Fn(&Source, &str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources.iter().filter(|source| !skip(source)) {
        for (line, number) in source.code.iter().zip(1..) {
            if hit(source, line) {
                found.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    found
}

fn names(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let letter = |c: char| c.is_alphanumeric() || c == '_';
        let before = line[..at].chars().next_back().is_some_and(letter);
        let after = line[at + word.len()..].chars().next().is_some_and(letter);
        !before && !after
    })
}

/// A module imports only lower modules.
#[test]
fn imports_go_one_way() {
    let height = |module: &str| MODULES.iter().position(|known| *known == module);
    let broken = matching(&sources("src"), is_test, |source, line| {
        let Some(own) = height(&source.module) else { return false };
        MODULES.iter().enumerate().any(|(other, module)| {
            let forbidden = own < other || NEVER.iter().any(|(r, never)| *r == source.module && never.contains(module));
            forbidden && names(line, &format!("crate::{module}"))
        })
    });
    report("a module names one that it must not import", &broken);
}

/// Every folder and file at the root of the crate is a module in the list.
#[test]
fn every_module_is_in_the_list() {
    let unknown = sources("src")
        .into_iter()
        .filter(|s| !["lib", "main"].contains(&s.module.as_str()) && !MODULES.contains(&s.module.as_str()));
    report("modules that are not in the list", &unknown.map(|source| source.path).collect::<Vec<_>>());
}

/// Each of these crates is named in one module only, so that it can be replaced there.
#[test]
fn crates_stay_in_their_modules() {
    let broken = matching(
        &sources("src"),
        |_| false,
        |source, line| {
            CRATES.iter().any(|(name, module)| {
                *module != source.module
                    && source.module != "main"
                    && (line.contains(&format!("{name}::")) || line.trim_start().starts_with(&format!("use {name}")))
            })
        },
    );
    report("a crate is named outside its module", &broken);
}

/// Only `clock` reads the time and random numbers. The lock machine and its types use neither, nor unordered maps.
#[test]
fn time_and_randomness_have_one_source() {
    let clocks = ["Instant::now", "SystemTime::now", "thread_rng", "use rand::", " rand::", "getrandom::"];
    let broken = matching(
        &sources("src"),
        |s| s.module == "clock" || is_test(s),
        |source, line| {
            let pure = ["model", "state", "machine"].contains(&source.module.as_str());
            // A hasher without a seed gives the same order on every node; the line that names such a type names its
            // hasher.
            let fixed = ["foldhash::fast::FixedState", "BuildHasherDefault"];
            let seedless = fixed.iter().any(|hasher| line.contains(hasher)) || line.starts_with("use ");
            let unordered = pure && !seedless && (line.contains("HashMap") || line.contains("HashSet"));
            let timed = clocks.iter().any(|clock| {
                line.contains(clock)
                    && !line.contains("tokio::time::Instant::now")
                    && !line.contains("TokioInstant::now")
                    // openraft requires this name; the numbers come from the module `clock`.
                    && !line.contains("fn thread_rng() -> Draws")
            });
            let slept = pure && (line.contains("tokio") || line.contains("async ") || line.contains("std::time"));
            unordered || slept || (timed && (pure || source.module != "cli"))
        },
    );
    report("time, randomness or an unordered map where it must not be", &broken);
}

/// Bounds and intervals are defined in `limits`, where they can be compared.
#[test]
fn waits_have_their_numbers_in_limits() {
    let broken = matching(
        &sources("src"),
        |s| s.module == "limits" || s.path.ends_with("limits_storage.rs") || is_test(s),
        |_, line| {
            ["from_millis(", "from_secs(", "from_micros(", "from_nanos("].iter().any(|call| {
                let after = line.split(call).nth(1).unwrap_or_default();
                let number: String = after.chars().take_while(|c| c.is_ascii_digit() || *c == '_').collect();
                number.len() > 1 && line.contains("Duration::")
            })
        },
    );
    report("durations defined outside `limits`", &broken);
}

/// Files have at most 400 lines without their tests.
#[test]
fn files_are_small() {
    let long = sources("src").into_iter().filter(|s| !is_test(s) && FILE_LINES_MAX < s.code.len());
    report("files that are too long", &long.map(|s| format!("{}: {} lines", s.path, s.code.len())).collect::<Vec<_>>());
}

/// Test files have at most 500 lines.
#[test]
fn test_files_are_small() {
    let own = sources("src").into_iter().filter(is_test);
    let long = own.chain(sources("tests")).filter(|s| TEST_FILE_LINES_MAX < s.text.lines().count());
    let long = long.map(|s| format!("{}: {} lines", s.path, s.text.lines().count()));
    report("test files that are too long", &long.collect::<Vec<_>>());
}

/// Functions have at most 70 lines.
#[test]
fn functions_are_small() {
    let mut long = Vec::new();
    for source in sources("src").iter().chain(&sources("tests")) {
        let lines: Vec<_> = source.text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let head = line.trim_start();
            let words = head.split(['(', '<']).next().unwrap_or_default();
            if !names(words, "fn") || head.starts_with("//") {
                continue;
            }
            let closing = format!("{}}}", " ".repeat(indent));
            let Some(length) = lines[at..].iter().position(|line| {
                *line == closing || line.trim_end().ends_with(';') && line.len() - line.trim_start().len() == indent
            }) else {
                continue;
            };
            if FUNCTION_LINES_MAX < length + 1 {
                long.push(format!("{}:{}: {} lines", source.path, at + 1, length + 1));
            }
        }
    }
    report("functions that are too long", &long);
}

/// Every file opens with a comment that describes it; that of a module also says what it never does.
#[test]
fn modules_open_with_a_comment() {
    let mut broken = Vec::new();
    for source in sources("src").iter().chain(&sources("tests")) {
        if !source.text.starts_with("//!") {
            broken.push(format!("{}: no opening comment", source.path));
        }
        let is_module = MODULES.iter().any(|module| source.path == format!("src/{module}/mod.rs"));
        if is_module && !source.text.contains("Never: ") {
            broken.push(format!("{}: does not say what it never does", source.path));
        }
    }
    report("files without an opening comment", &broken);
}

/// The first line of each golden script says what it proves.
#[test]
fn scripts_begin_with_a_sentence() {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/machine/scripts");
    let Ok(entries) = std::fs::read_dir(scripts) else { return };
    let mut broken = Vec::new();
    for entry in entries {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a script");
        let first = text.lines().next().unwrap_or_default();
        if !first.starts_with("# ") || !first.ends_with('.') {
            broken.push(path.display().to_string());
        }
    }
    report("scripts without a sentence in their first line", &broken);
}

/// The source has no unfinished code, and no test is disabled.
#[test]
fn nothing_is_unfinished_or_disabled() {
    let marks: Vec<String> = ["todo", "unimplemented", "dbg"].iter().map(|m| format!("{m}!(")).collect();
    let words: Vec<String> =
        [["FIX", "ME"], ["XX", "X"], ["#[ign", "ore"], ["should", "_panic"]].iter().map(|w| w.concat()).collect();
    let mut broken = Vec::new();
    for source in sources("src").iter().chain(&sources("tests")) {
        for (line, number) in source.text.lines().zip(1..) {
            if marks.iter().chain(&words).any(|mark| line.contains(mark.as_str())) {
                broken.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    report("unfinished or disabled", &broken);
}

/// Returns true if there is a test, a scenario of the simulation, a golden script, a file or a module of this name.
fn exists(name: &str, all: &str, root: &Path) -> bool {
    let last = name.rsplit("::").next().unwrap_or_default();
    let is_text =
        [format!("fn {last}("), format!("(\"{last}\", "), format!("mod {last};")].iter().any(|t| all.contains(t));
    is_text || root.join("src/machine/scripts").join(name).is_file() || root.join(name).exists()
}

/// Every test that `tests/README.md` names as a test of a situation exists.
#[test]
fn tests_that_the_page_on_tests_names_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("tests/README.md")).expect("the page");
    let scenarios = page.split("## ").find(|part| part.starts_with("Directed scenarios")).expect("its part");
    let rows: Vec<_> = scenarios.lines().filter(|line| line.starts_with("| ")).skip(2).collect();
    assert!(!rows.is_empty());
    let all: String = sources("src").iter().chain(&sources("tests")).map(|source| source.text.as_str()).collect();
    let mut broken = Vec::new();
    for row in rows {
        let named: Vec<_> = row.split('`').skip(1).step_by(2).collect();
        if named.is_empty() {
            broken.push(format!("no test: {row}"));
        }
        broken.extend(named.into_iter().filter(|name| !exists(name, &all, root)).map(ToOwned::to_owned));
    }
    report("named in tests/README.md but missing", &broken);
}
