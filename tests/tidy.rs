//! The house rules, as tests over the source: one direction of imports, quarantined crates, time and randomness in one
//! place, small files and functions, an opening page for every module. `cargo test` is the whole law.

#[path = "tidy/client_files.rs"]
mod client_files;
#[path = "tidy/import_circles.rs"]
mod import_circles;
#[path = "tidy/words.rs"]
mod words;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The rooms from the ground up: a room may import from those before it, never from those after it.
const ROOMS: &[&str] = &[
    "manual", "limits", "model", "history", "faults", "state", "machine", "codec", "storage", "clock", "net",
    "protobuf", "raft", "service", "config", "node", "client", "compat", "rpc", "testing", "http", "cli",
];

/// What a room must not know although it comes later: (room, what it never names).
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

/// Crates that live in one room only.
const QUARANTINED: &[(&str, &str)] = &[
    ("openraft", "raft"),
    ("sled", "storage"),
    ("raft_log", "storage"),
    ("codeq", "storage"),
    ("bincode", "codec"),
    ("getrandom", "clock"),
    ("sha2", "history"),
    ("axum", "http"),
    ("clap", "cli"),
    ("bson", "compat"),
];

const FILE_LINES_MAX: usize = 400;
const TEST_FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;

struct Source {
    path: String,
    room: String,
    /// Without comments, and without the inline tests at its foot.
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
    let room = path.split('/').nth(1).unwrap_or_default().trim_end_matches(".rs").to_owned();
    let code = text.lines().take_while(|line| *line != "#[cfg(test)]" || !text.contains("\nmod tests {"));
    let code = code.map(|line| line.split("//").next().unwrap_or_default().to_owned()).collect();
    Source { path, room, code, text }
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

/// Lines of the source's own code that match, as `path:line: text`.
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

/// Upper rooms know lower rooms, never the reverse.
#[test]
fn imports_go_one_way() {
    let height = |room: &str| ROOMS.iter().position(|known| *known == room);
    let broken = matching(&sources("src"), is_test, |source, line| {
        let Some(own) = height(&source.room) else { return false };
        ROOMS.iter().enumerate().any(|(other, room)| {
            let forbidden = own < other || NEVER.iter().any(|(r, never)| *r == source.room && never.contains(room));
            forbidden && names(line, &format!("crate::{room}"))
        })
    });
    report("a room names one that it must not know", &broken);
}

/// Every folder and file of the crate's root is a room with a place in the order.
#[test]
fn every_room_has_its_place() {
    let unknown = sources("src")
        .into_iter()
        .filter(|s| !["lib", "main"].contains(&s.room.as_str()) && !ROOMS.contains(&s.room.as_str()));
    report("rooms without a place in the order", &unknown.map(|source| source.path).collect::<Vec<_>>());
}

/// Each of these crates is named in one room only, so that it could be replaced there.
#[test]
fn crates_stay_in_their_rooms() {
    let broken = matching(
        &sources("src"),
        |_| false,
        |source, line| {
            QUARANTINED.iter().any(|(name, room)| {
                *room != source.room
                    && source.room != "main"
                    && (line.contains(&format!("{name}::")) || line.trim_start().starts_with(&format!("use {name}")))
            })
        },
    );
    report("a crate is named outside of its room", &broken);
}

/// Time and randomness come in through `clock` alone; the lock machine and its words know neither, nor unordered maps.
#[test]
fn time_and_randomness_have_one_window() {
    let clocks = ["Instant::now", "SystemTime::now", "thread_rng", "use rand::", " rand::", "getrandom::"];
    let broken = matching(
        &sources("src"),
        |s| s.room == "clock" || is_test(s),
        |source, line| {
            let pure = ["model", "state", "machine"].contains(&source.room.as_str());
            // A hasher without a seed gives every node the same order; such a type says so where it is named.
            let fixed = ["foldhash::fast::FixedState", "BuildHasherDefault"];
            let seedless = fixed.iter().any(|hasher| line.contains(hasher)) || line.starts_with("use ");
            let unordered = pure && !seedless && (line.contains("HashMap") || line.contains("HashSet"));
            let timed = clocks.iter().any(|clock| {
                line.contains(clock)
                    && !line.contains("tokio::time::Instant::now")
                    && !line.contains("TokioInstant::now")
                    // openraft asks for its random numbers by this name; they come from the clock's room.
                    && !line.contains("fn thread_rng() -> Draws")
            });
            let slept = pure && (line.contains("tokio") || line.contains("async ") || line.contains("std::time"));
            unordered || slept || (timed && (pure || source.room != "cli"))
        },
    );
    report("time, randomness or an unordered map where it must not be", &broken);
}

/// A bound or interval stands in `limits`, where it can be weighed against the others.
#[test]
fn waits_have_their_numbers_in_limits() {
    let broken = matching(
        &sources("src"),
        |s| s.room == "limits" || s.path.ends_with("limits_storage.rs") || is_test(s),
        |_, line| {
            ["from_millis(", "from_secs(", "from_micros(", "from_nanos("].iter().any(|call| {
                let after = line.split(call).nth(1).unwrap_or_default();
                let number: String = after.chars().take_while(|c| c.is_ascii_digit() || *c == '_').collect();
                number.len() > 1 && line.contains("Duration::")
            })
        },
    );
    report("a duration written where nobody looks for it", &broken);
}

/// Files stay readable: at most 400 lines without their tests.
#[test]
fn files_are_small() {
    let long = sources("src").into_iter().filter(|s| !is_test(s) && FILE_LINES_MAX < s.code.len());
    report("files that are too long", &long.map(|s| format!("{}: {} lines", s.path, s.code.len())).collect::<Vec<_>>());
}

/// Tests are read, too: at most 500 lines a file.
#[test]
fn test_files_are_small() {
    let own = sources("src").into_iter().filter(is_test);
    let long = own.chain(sources("tests")).filter(|s| TEST_FILE_LINES_MAX < s.text.lines().count());
    let long = long.map(|s| format!("{}: {} lines", s.path, s.text.lines().count()));
    report("test files that are too long", &long.collect::<Vec<_>>());
}

/// Functions fit on a screen: at most 70 lines.
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

/// Every module opens with a page that says what it is; a room's page also says what it never knows.
#[test]
fn modules_open_with_a_page() {
    let mut broken = Vec::new();
    for source in sources("src").iter().chain(&sources("tests")) {
        if !source.text.starts_with("//!") {
            broken.push(format!("{}: no opening page", source.path));
        }
        let is_room = ROOMS.iter().any(|room| source.path == format!("src/{room}/mod.rs"));
        if is_room && !source.text.contains("Never: ") {
            broken.push(format!("{}: does not say what it never knows", source.path));
        }
    }
    report("modules without their page", &broken);
}

/// Golden scripts say in their first line what they prove.
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
    report("scripts without a first sentence", &broken);
}

/// Files of messages that clients of other languages are generated from, with their paths.
fn public_messages() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto/lockkeeper/v1");
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> = entries
        .map(|path| (path.display().to_string(), std::fs::read_to_string(&path).expect("a file of messages")))
        .collect();
    files.sort();
    files
}

/// The name that a line of a file of messages declares, if it declares one: of a field, a message, a call, a value.
fn declared(line: &str) -> Option<&str> {
    let code = line.split("//").next().unwrap_or_default().trim();
    let words: Vec<_> = code.split_whitespace().collect();
    match words.as_slice() {
        ["message" | "enum" | "service" | "oneof" | "rpc", name, ..] => {
            Some(name.split('(').next().unwrap_or_default())
        }
        ["option" | "syntax", ..] => None,
        [.., name, "=", number] if number.trim_end_matches(';').parse::<u32>().is_ok() => Some(name),
        _ => None,
    }
}

/// A name of a field, a message, a call or a value that is a keyword of Python can only be written with `getattr` there.
#[test]
fn no_name_of_a_message_is_a_keyword_of_python() {
    // As `keyword.kwlist` of Python 3.13 lists them.
    let keywords = "False None True and as assert async await break class continue def del elif else except finally for from \
                    global if import in is lambda nonlocal not or pass raise return try while with yield";
    let keywords: Vec<_> = keywords.split_whitespace().collect();
    let (mut names, mut broken) = (0, Vec::new());
    for (path, text) in public_messages() {
        for (line, number) in text.lines().zip(1..) {
            let name = declared(line);
            names += usize::from(name.is_some());
            if name.is_some_and(|name| keywords.contains(&name)) {
                broken.push(format!("{path}:{number}: {}", line.trim()));
            }
        }
    }
    assert!(names > 500, "only {names} names were found");
    report("keywords of Python as names", &broken);
}

/// Everything that a client of another language can name says what it is in a comment of its own: such a client sees nothing else.
#[test]
fn every_part_of_a_message_has_its_comment() {
    const WORDS_MIN: usize = 4;
    let (mut found, mut broken) = (0, Vec::new());
    for (path, text) in public_messages() {
        let mut comment = String::new();
        for (line, number) in text.lines().zip(1..) {
            if let Some(said) = line.trim().strip_prefix("//") {
                comment = comment + " " + said.trim();
                continue;
            }
            if let Some(name) = declared(line) {
                found += 1;
                let words = comment.split_whitespace().count();
                let elsewhere = words == 2 && comment.trim().starts_with("See ");
                if words < WORDS_MIN || elsewhere {
                    broken.push(format!("{path}:{number}: {name}: {:?}", comment.trim()));
                }
            }
            comment.clear();
        }
    }
    assert!(found > 700, "only {found} were found");
    report("parts of messages that do not say what they are", &broken);
}

/// Nothing unfinished is left behind, and no test is switched off.
#[test]
fn nothing_is_left_behind() {
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
    report("left behind", &broken);
}

/// Whether something of this name is there: a test, the story of the simulation, a golden script, a file or a module.
fn exists(name: &str, all: &str, root: &Path) -> bool {
    let last = name.rsplit("::").next().unwrap_or_default();
    let is_text =
        [format!("fn {last}("), format!("(\"{last}\", "), format!("mod {last};")].iter().any(|t| all.contains(t));
    is_text || root.join("src/machine/scripts").join(name).is_file() || root.join(name).exists()
}

/// Every test that the manual names as an attack on a promise is there.
#[test]
fn tests_that_the_manual_names_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("src/manual/proof.md")).expect("the page");
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
    report("not there, though the manual names it", &broken);
}
