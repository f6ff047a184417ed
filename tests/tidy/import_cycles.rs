//! No file imports a file of its module that imports it, directly or through other files.
//!
//! An import is a path in a `use`, or a path that is written where it is needed. A public re-export does not count,
//! because a module may export what its files contain. A declaration (`mod`) does not count either.

use std::collections::{BTreeMap, BTreeSet};

use super::{Source, is_test, report, sources};

type ModulePath = Vec<String>;

/// `src/raft/log_store.rs` is `raft::log_store`, and `src/raft/mod.rs` is `raft`.
fn module_path(source: &Source) -> ModulePath {
    let path = source.path.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
    path.split('/').map(str::to_owned).collect()
}

/// The tokens of the code: names, `::` and punctuation. Text between quotation marks is omitted.
fn tokens(code: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let taken = if first == '"' {
            let inside = &rest[1..];
            let end = inside.char_indices().scan(false, |escaped, (at, c)| {
                let ends = c == '"' && !*escaped;
                *escaped = c == '\\' && !*escaped;
                Some((at, ends))
            });
            end.filter(|(_, ends)| *ends).map(|(at, _)| at + 2).next().unwrap_or(rest.len())
        } else if rest.starts_with("'\"'") {
            3
        } else if rest.starts_with("::") {
            found.push("::".to_owned());
            2
        } else if first.is_alphanumeric() || first == '_' {
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            found.push(name.clone());
            name.len()
        } else {
            if !first.is_whitespace() {
                found.push(first.to_string());
            }
            first.len_utf8()
        };
        rest = &rest[taken..];
    }
    found
}

/// The paths of one `use`, from the tokens between `use` and `;`.
fn paths_of_use(tokens: &[String], before: &[String], paths: &mut Vec<ModulePath>) {
    let Some(open) = tokens.iter().position(|token| token == "{") else {
        let own = tokens.iter().take_while(|token| *token != "as").filter(|token| *token != "::");
        paths.push(before.iter().chain(own).cloned().collect());
        return;
    };
    let before: Vec<String> =
        before.iter().chain(tokens[..open].iter().filter(|token| *token != "::")).cloned().collect();
    let (mut depth, mut begin) = (0, open + 1);
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        let ends = (token == "," && depth == 1) || (token == "}" && depth == 0);
        if ends && begin < at {
            paths_of_use(&tokens[begin..at], &before, paths);
        }
        if ends {
            begin = at + 1;
        }
    }
}

/// All paths that a file imports or names in full.
fn imported_paths(code: &str) -> Vec<ModulePath> {
    let tokens = tokens(code);
    let (mut paths, mut at) = (Vec::new(), 0);
    let end_of = |from: usize, end: &str| {
        tokens[from..].iter().position(|token| token == end).map_or(tokens.len(), |n| from + n)
    };
    while at < tokens.len() {
        let next = |by: usize| tokens.get(at + by).map(String::as_str);
        match tokens[at].as_str() {
            "pub" if next(1) == Some("(") => {
                let after = end_of(at, ")") + 1;
                at = if tokens.get(after).is_some_and(|token| token == "use") { end_of(after, ";") } else { after };
            }
            "pub" if next(1) == Some("use") => at = end_of(at, ";"),
            "use" => {
                let end = end_of(at, ";");
                paths_of_use(&tokens[at + 1..end], &[], &mut paths);
                at = end;
            }
            "crate" | "self" | "super" if next(1) == Some("::") => {
                let pairs = tokens[at + 1..].chunks_exact(2);
                let pairs = pairs.take_while(|pair| pair[0] == "::" && pair[1].starts_with(char::is_alphabetic));
                let names: Vec<String> = pairs.map(|pair| pair[1].clone()).collect();
                let path: ModulePath = [&tokens[at..=at], &names].concat();
                at += 2 * names.len();
                paths.push(path);
                at += 1;
            }
            _ => at += 1,
        }
    }
    paths
}

/// The file that a path refers to in the file `own`; `None` if it is outside the crate.
fn target(own: &[String], path: &[String], files: &BTreeSet<ModulePath>) -> Option<ModulePath> {
    let supers = path.iter().take_while(|name| *name == "super").count();
    let (base, rest): (&[String], &[String]) = match path.first()?.as_str() {
        "crate" => (&[], &path[1..]),
        "self" => (own, &path[1..]),
        "super" => (&own[..own.len().checked_sub(supers)?], &path[supers..]),
        child if files.contains(&[own, &[child.to_owned()]].concat()) => (own, path),
        _ => return None,
    };
    let whole = [base, rest].concat();
    (1..=whole.len()).rev().map(|length| whole[..length].to_vec()).find(|part| files.contains(part))
}

/// For each file, the files of its module that it imports.
fn imports() -> BTreeMap<ModulePath, BTreeSet<ModulePath>> {
    let sources: Vec<Source> = sources("src").into_iter().filter(|source| !is_test(source)).collect();
    let files: BTreeSet<ModulePath> = sources.iter().map(module_path).collect();
    let of = |source: &Source| {
        let own = module_path(source);
        let paths = imported_paths(&source.code.join("\n"));
        let targets = paths.iter().filter_map(|path| target(&own, path, &files));
        let targets = targets.filter(|target| *target != own && target.first() == own.first()).collect();
        (own, targets)
    };
    sources.iter().map(of).collect()
}

/// Returns true if there is a chain of imports from one file to another.
fn is_reachable(imports: &BTreeMap<ModulePath, BTreeSet<ModulePath>>, from: &ModulePath, to: &ModulePath) -> bool {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(file) = next.pop() {
        if file == to {
            return true;
        }
        if seen.insert(file) {
            next.extend(imports.get(file).into_iter().flatten());
        }
    }
    false
}

/// The files of a module can be read from the lowest to the highest.
#[test]
fn no_files_import_each_other() {
    let imports = imports();
    assert!(100 < imports.values().map(BTreeSet::len).sum::<usize>(), "too few imports were found");
    let edges = imports.iter().flat_map(|(from, to)| to.iter().map(move |to| (from, to)));
    let cyclic = edges.filter(|(from, to)| is_reachable(&imports, to, from));
    let cyclic: Vec<_> = cyclic.map(|(from, to)| format!("{} imports {}", from.join("::"), to.join("::"))).collect();
    report("files that import each other", &cyclic);
}
