//! Plain words, as tests: comments, texts of the program, pages of the manual and names in the code say what an
//! engineer understands at the first reading. Exempt are code between backticks and literals of one word, which are
//! data.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

const COLUMNS_MAX: usize = 120;
const DOC_WORDS_MIN: usize = 3;

/// Words and phrases to avoid, with their other forms, and what to write instead.
const WORDS: &[(&str, &str)] = &[
    ("nobody|no one", "no client, no node, none"),
    ("everybody|everyone", "all clients, all nodes, each caller"),
    ("somebody|someone|anybody|anyone", "a client, another client, any node"),
    ("whoever", "the caller that, the client that"),
    ("whatever", "any, each, all that"),
    ("whom", "the name of the party"),
    ("tell|tells|told", "return, report, notify, print"),
    ("hear|hears|heard|unheard", "receive, detect, learn; unreachable"),
    ("anew", "again"),
    ("for ever", "permanently, without end"),
    ("so many", "the number, N"),
    ("so long", "while, this duration"),
    ("mend|mends|mended|mending", "fix, repair"),
    ("come to an end|comes to an end|came to an end", "end"),
    ("by itself|by themselves", "automatically, alone"),
    ("of its own .|of its own ,|of its own ;|of its own :|of their own .|of their own ,", "its own X, separate"),
    ("learnt", "learned"),
    ("a moment ago", "recently, just now"),
    ("in vain", "without success, timed out"),
    ("be it", "even if, whether"),
    ("a room|the room|this room|that room|each room|every room|one room|its room|rooms", "module; space, memory"),
    ("keeper|keepers", "task"),
    ("crowd|crowds|errand|errands|pursuit|pursuits", "many clients; request, retry"),
    ("bite|bites", "take effect, detect"),
    ("blow|blows|strike|strikes|struck", "fault; inject, hit, fail"),
    ("story|stories", "scenario, run"),
    ("circle|circles", "cycle"),
    ("go on|goes on|went on", "continue"),
    ("go away|goes away|went away", "disconnect, end"),
    ("beside", "next to, besides, and"),
    ("way out", "fix, remedy"),
    ("put back", "restore, return"),
    ("give way|gives way|gave way", "yield"),
    ("held up", "delayed"),
    ("let go", "release"),
    ("for people", "for display, readable"),
    ("set aside", "reserve, store, skip"),
    ("taken for|takes for", "confused with, treated as"),
    ("as far as", "to the extent, up to, if"),
    ("made up", "invented, consists of"),
    ("one own", "the caller's own, the owner's own"),
    ("stand in|stands in|stand at|stands at", "is in, is at"),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Doc,
    Comment,
    Literal,
    Name,
    Other,
}

/// A run of text with one meaning: comment lines that follow each other, a literal, a name, a page.
struct Passage {
    kind: Kind,
    /// The number of its first line.
    line: usize,
    text: String,
}

/// The length of the character or string literal that begins here, if one does.
fn literal_length(rest: &str) -> Option<usize> {
    let hashes = rest.strip_prefix('r').map(|after| after.len() - after.trim_start_matches('#').len());
    if let Some(hashes) = hashes.filter(|hashes| rest[1 + hashes..].starts_with('"')) {
        let closing = format!("\"{}", "#".repeat(hashes));
        let body = 2 + hashes;
        return rest[body..].find(&closing).map(|end| body + end + closing.len());
    }
    let quote = rest.chars().next().filter(|c| ['"', '\''].contains(c))?;
    let mut inner = rest.char_indices().skip(1);
    while let Some((at, c)) = inner.next() {
        match c {
            '\\' => drop(inner.next()),
            c if c == quote => return Some(at + 1),
            // A lifetime.
            _ if quote == '\'' && rest[1..].chars().nth(1) != Some('\'') && !rest.starts_with("'\\") => return None,
            _ => {}
        }
    }
    None
}

/// The words of a name: `LockName` and `lock_name` are `lock name`.
fn words_of(name: &str) -> String {
    let mut words = String::new();
    for c in name.chars() {
        if c.is_uppercase() && words.ends_with(char::is_lowercase) {
            words.push(' ');
        }
        words.push(if c == '_' { ' ' } else { c });
    }
    words
}

/// Comments, string literals and names of a Rust file: each name once, at its first place. In a `.proto` file: also the
/// words of its code, which are names.
fn passages(text: &str) -> Vec<Passage> {
    let mut found: Vec<Passage> = Vec::new();
    let mut names = BTreeSet::new();
    let (mut at, mut line) = (0, 1);
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        let mut length = c.len_utf8();
        if rest.starts_with("//") {
            length = rest.find('\n').unwrap_or(rest.len());
            let is_doc = ["///", "//!"].iter().any(|marker| rest.starts_with(marker));
            let (kind, skipped) = if is_doc { (Kind::Doc, 3) } else { (Kind::Comment, 2) };
            let comment = &rest[skipped..length];
            match found.last_mut() {
                Some(last) if last.kind == kind && last.line + last.text.matches('\n').count() + 1 == line => {
                    last.text = format!("{}\n{comment}", last.text);
                }
                _ => found.push(Passage { kind, line, text: comment.to_owned() }),
            }
        } else if let Some(literal) = literal_length(rest) {
            length = literal;
            if !rest.starts_with('\'') && rest[..length].contains(' ') {
                found.push(Passage { kind: Kind::Literal, line, text: rest[..length].to_owned() });
            }
        } else if c.is_alphabetic() || c == '_' {
            length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            let name = &rest[..length];
            if names.insert(name) {
                found.push(Passage { kind: Kind::Name, line, text: words_of(name) });
            }
        }
        line += text[at..at + length].matches('\n').count();
        at += length;
    }
    found
}

/// Words in lower case and marks of punctuation, each with its line. Leaves out code between backticks and the
/// placeholders of format strings.
fn tokens(passage: &Passage) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    let mut line = passage.line;
    let (mut word, mut before, mut is_code) = (String::new(), ' ', false);
    for c in passage.text.chars().chain([' ']) {
        if (c.is_alphanumeric() || c == '_' || c == '\'') && !is_code {
            word.extend(c.to_lowercase());
            continue;
        }
        let whole = std::mem::take(&mut word);
        let is_placeholder = before == '{' && passage.kind == Kind::Literal;
        if !whole.is_empty() && !is_placeholder {
            found.push((whole.trim_end_matches("'s").trim_matches('\'').to_owned(), line));
        }
        before = c;
        match c {
            '\n' => line += 1,
            '`' => is_code = !is_code,
            '.' | ',' | ';' | ':' | '?' | '!' | '(' | ')' if !is_code => found.push((c.to_string(), line)),
            _ => {}
        }
    }
    found
}

/// Whether a clause without a noun begins at this word: `Who waits is served first`, but not the question `Who waits?`.
fn is_headless(tokens: &[(String, usize)], at: usize) -> bool {
    let begins = at == 0 || [".", ";", ":"].contains(&tokens[at - 1].0.as_str());
    let end = tokens[at..].iter().find(|(word, _)| [".", ";", "?", "!"].contains(&word.as_str()));
    let next = tokens.get(at + 1).is_some_and(|(word, _)| word.chars().all(char::is_alphanumeric));
    tokens[at].0 == "who" && begins && next && end.is_none_or(|(mark, _)| mark != "?")
}

fn check_passage(path: &str, passage: &Passage, broken: &mut Vec<String>) {
    let words = passage.text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
    if passage.kind == Kind::Doc && words < DOC_WORDS_MIN {
        broken.push(format!("{path}:{}: {words} words: write at least {DOC_WORDS_MIN}", passage.line));
    }
    let tokens = tokens(passage);
    for (at, (word, line)) in tokens.iter().enumerate() {
        for (phrases, instead) in WORDS.iter().filter(|(phrases, _)| phrases.contains(word)) {
            let begins = |phrase: &&str| {
                let mut following = tokens[at..].iter().map(|(word, _)| word.as_str());
                phrase.split(' ').all(|word| following.next() == Some(word))
            };
            if let Some(phrase) = phrases.split('|').find(begins) {
                broken.push(format!("{path}:{line}: {phrase:?}: write: {instead}"));
            }
        }
        if passage.kind != Kind::Name && is_headless(&tokens, at) {
            broken.push(format!("{path}:{line}: \"who\" without a noun: write: a client that, the node that"));
        }
    }
}

/// Comment lines of code, and lines of Markdown outside of fences, that are too wide.
fn check_width(path: &str, text: &str, broken: &mut Vec<String>) {
    let is_page = path.ends_with(".md");
    let mut is_fenced = false;
    for (line, number) in text.lines().zip(1..) {
        let prose = line.trim_start().trim_start_matches(['/', '!']).trim_start();
        is_fenced ^= is_page && prose.starts_with("```");
        let is_exempt = is_fenced || prose.starts_with('|') || line.contains("://");
        let is_prose = is_page || line.contains("// ") || line.contains("//! ");
        if is_prose && !is_exempt && COLUMNS_MAX < line.chars().count() {
            broken.push(format!("{path}:{number}: {} columns: break at {COLUMNS_MAX}", line.chars().count()));
        }
    }
}

/// All that breaks the rules, as `path:line: what: instead`, also in paths that do not pass yet.
static BROKEN: LazyLock<Vec<String>> = LazyLock::new(|| {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = ["README.md", ".github/CONTRIBUTING.md", "scripts/compare/README.md", "scripts/python/README.md"];
    let mut paths: Vec<_> = pages.iter().map(|page| root.join(page)).collect();
    let folders = ["src", "tests", "proto", "scripts/compare/src"];
    folders.iter().for_each(|folder| super::walk(&root.join(folder), &mut paths));
    let mut broken = Vec::new();
    for full in paths {
        let path = full.strip_prefix(root).expect("inside").display().to_string();
        // ZooKeeper's library has a name with such a word.
        let zookeeper = "scripts/compare/src/client/zookeeper.rs";
        if ["tests/bytes", "tests/tidy/words.rs", zookeeper].iter().any(|exempt| path.starts_with(exempt)) {
            continue;
        }
        let text = || std::fs::read_to_string(&full).expect("a text");
        let passages = match full.extension().and_then(|extension| extension.to_str()) {
            Some("rs" | "proto") => passages(&text()),
            Some("md") => vec![Passage { kind: Kind::Other, line: 1, text: text().replace("```", "") }],
            None if ["src/machine/scripts", "tests/golden/verify"].iter().any(|folder| path.starts_with(folder)) => {
                let text = text();
                let comments: Vec<_> = text.lines().map(|line| line.strip_prefix('#').unwrap_or_default()).collect();
                let name = path.rsplit('/').next().unwrap_or_default().replace('_', " ");
                vec![Passage { kind: Kind::Other, line: 1, text: format!("{name}. {}", comments.join("\n")) }]
            }
            _ => continue,
        };
        check_width(&path, &text(), &mut broken);
        passages.iter().for_each(|passage| check_passage(&path, passage, &mut broken));
    }
    broken
});

/// Comments, texts, pages and names use plain words.
#[test]
fn words_are_plain() {
    super::report("words to replace", &BROKEN);
}
