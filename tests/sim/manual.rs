//! Checks that the table of directed scenarios in `tests/README.md` names only existing tests, and every scenario.

use std::fs;
use std::path::Path;

use crate::scenarios;

fn page() -> String {
    fs::read_to_string("tests/README.md").expect("the page")
}

/// Reads the text of all sources below a directory.
fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(path).expect("a source"));
        }
    }
}

/// A renamed test, script or scenario must be renamed in the table, too.
#[test]
fn the_table_of_scenarios_names_what_exists() {
    let page = page();
    let table = page.split("## Directed scenarios").nth(1).expect("a chapter");
    let table = table.split("\n## ").next().expect("its text");
    let mut text = String::new();
    sources(Path::new("src"), &mut text);
    let named: Vec<&str> = table
        .lines()
        .filter(|line| line.starts_with("| "))
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect();
    for name in &named {
        let last = name.rsplit("::").next().expect("a name");
        let known = scenarios::ALL.iter().any(|(scenario, _)| scenario == name)
            || Path::new("src/machine/scripts").join(name).exists()
            || (name.starts_with("tests/") && Path::new(name).exists())
            || [format!("fn {last}("), format!("mod {last};")].iter().any(|defined| text.contains(defined));
        assert!(known, "the page names {name}, which does not exist");
    }
    let missing = scenarios::ALL.iter().find(|(scenario, _)| *scenario != "mixed" && !named.contains(scenario));
    assert!(missing.is_none(), "the page does not name the scenario {missing:?}");
}
