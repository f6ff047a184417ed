//! The messages in `proto/`, from which clients in other languages are generated.

use std::path::Path;

use super::report;

/// The proto files from which clients in other languages are generated, with their paths.
fn public_messages() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto/lockkeeper/v1");
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> = entries
        .map(|path| (path.display().to_string(), std::fs::read_to_string(&path).expect("a file of messages")))
        .collect();
    files.sort();
    files
}

/// The name that a line of a proto file declares, if any: of a field, a message, a call or a value.
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

/// No field, message, call or value has the name of a Python keyword, which Python code could use only with `getattr`.
#[test]
fn no_name_of_a_message_is_a_keyword_of_python() {
    // The list `keyword.kwlist` of Python 3.13.
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
    report("Python keywords as names", &broken);
}

/// Every declaration in the proto files has a comment, which is all that a client in another language sees.
#[test]
fn every_part_of_a_message_has_its_comment() {
    const WORDS_MIN: usize = 4;
    let (mut found, mut broken) = (0, Vec::new());
    for (path, text) in public_messages() {
        let mut comment = String::new();
        for (line, number) in text.lines().zip(1..) {
            if let Some(text) = line.trim().strip_prefix("//") {
                comment = comment + " " + text.trim();
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
    report("declarations without a comment", &broken);
}
