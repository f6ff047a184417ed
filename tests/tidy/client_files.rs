//! The order of the client's files, and a test that enforces it for their imports.

use crate::{is_test, report, sources};

/// The files of the client from the lowest to the highest: a file imports only from those before it.
const CLIENT: &[&str] = &[
    "error",
    "on_drop",
    "retry",
    "validity",
    "settings",
    "options",
    "wait",
    "hold",
    "session/cached_holds",
    "session/hold_table",
    "session/state",
    "session/hold_lease",
    "session/hold_events",
    "session/commands",
    "session/reference",
    "session/close",
    "session/keep_alive",
    "session/mod",
    "session/takeover",
    "guard/watch",
    "guard/permit",
    "guard/mod",
    "guard/set",
    "client",
    "request/pending",
    "request/cached",
    "request/acquire",
    "request/set",
    "request/mod",
    "lease/mod",
    "lease/request",
    "query",
    "history",
    "admin",
    "watch",
    "token_filter",
    "election",
    "documents",
    "mod",
];

/// Reads one path, or a tree of paths in braces, and returns the text after it. Adds each path to `found` as its
/// segments.
fn read_paths<'t>(mut text: &'t str, mut segments: Vec<&'t str>, found: &mut Vec<Vec<&'t str>>) -> &'t str {
    loop {
        text = text.trim_start();
        if let Some(mut inner) = text.strip_prefix('{') {
            while !inner.trim_start().starts_with('}') {
                inner = read_paths(inner, segments.clone(), found).trim_start().trim_start_matches(',');
            }
            return &inner.trim_start()[1..];
        }
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
        segments.push(&text[..end]);
        text = &text[end..];
        match text.strip_prefix("::") {
            Some(rest) => text = rest,
            None => {
                found.push(segments);
                return text.trim_start_matches('*');
            }
        }
    }
}

/// The indices in [`CLIENT`] of the files that this code names. `file` is the file of the code.
fn client_files_named(code: &str, file: &str) -> Vec<usize> {
    let own: Vec<_> = file.split('/').filter(|segment| *segment != "mod").collect();
    let above = own.split_last().map_or(&[][..], |(_, above)| above);
    let mut found = Vec::new();
    for (start, base) in
        [("crate::client::", &[][..]), ("super::super::", &[][..]), ("super::", above), ("self::", &own[..])]
    {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':') {
                read_paths(&code[at + start.len()..], base.to_vec(), &mut found);
            }
        }
    }
    let place = |path: &[&str]| {
        let folder = path.first().copied().unwrap_or_default();
        let of = |name: String| CLIENT.iter().position(|known| *known == name);
        let nested = path.get(1).and_then(|name| of(format!("{folder}/{name}")));
        nested
            .or_else(|| of(folder.to_owned()))
            .or_else(|| of(format!("{folder}/mod")))
            .or_else(|| of("mod".to_owned()))
    };
    let paths = found.iter().filter(|path| path.first() != Some(&"super"));
    paths.filter_map(|path| place(path)).collect()
}

/// Every file of the client is in the list and imports only from files before it.
#[test]
fn files_of_the_client_import_from_above() {
    let mut broken = Vec::new();
    for source in sources("src/client").iter().filter(|source| !is_test(source)) {
        let file = source.path.trim_start_matches("src/client/").trim_end_matches(".rs");
        let Some(own) = CLIENT.iter().position(|known| *known == file) else {
            broken.push(format!("{} is not in the list", source.path));
            continue;
        };
        let below = client_files_named(&source.code.join("\n"), file).into_iter().filter(|named| own < *named);
        broken.extend(below.map(|named| format!("{} names {}", source.path, CLIENT[named])));
    }
    report("a file of the client imports from a later one", &broken);
}

/// Imports in all forms are recognised.
#[test]
fn imports_of_the_client_are_read() {
    let named = |code, file| client_files_named(code, file).into_iter().map(|at| CLIENT[at]).collect::<Vec<_>>();
    let tree = "use crate::client::{error::ClientError, session::{state::SessionState, Session}};";
    assert_eq!(named(tree, "hold"), ["error", "session/state", "session/mod"]);
    assert_eq!(
        named("pub(super) fn a() { super::state::b(self.super_state()) }", "session/commands"),
        ["session/state"]
    );
    assert_eq!(named("use super::{Client, wait::*};", "hold"), ["mod", "wait"]);
    assert_eq!(named("use self::permit::Permit;", "guard/mod"), ["guard/permit"]);
    assert_eq!(named("use crate::clock::Clock; let x = crate::client_of(y);", "hold"), [""; 0]);
}
