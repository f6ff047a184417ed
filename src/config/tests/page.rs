//! The page of the manual has every key and every variable, and its examples are good, as are those of the page on
//! monitoring.

use super::*;

const PAGE: &str = include_str!("../../manual/config.md");
const MONITORING: &str = include_str!("../../manual/monitoring.md");

/// Returns the first cells of the tables below a heading of the page, without their backticks.
fn first_cells(heading: &str) -> Vec<String> {
    let part = PAGE.split(heading).nth(1).expect("the heading").split("\n## ").next().expect("its text");
    let rows = part.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.split('`').nth(1).expect("a key").to_owned()).collect()
}

/// Returns the keys that a section may have, as the error for an unknown key lists them.
fn keys_of(section: &str) -> Vec<String> {
    let error = read(&format!("{section}\nno_such_key = 1\n")).expect_err("it must be refused").problem;
    let listed = error.split("expected").nth(1).unwrap_or_default();
    listed.split('`').skip(1).step_by(2).map(ToOwned::to_owned).collect()
}

/// Returns every key of a node's file, with its sections.
fn every_key() -> Vec<String> {
    let mut keys = Vec::new();
    for key in keys_of("") {
        match key.as_str() {
            "listen" | "timing" | "log" | "http" | "limits" => {
                keys.extend(keys_of(&format!("[{key}]")).into_iter().map(|of| format!("{key}.{of}")));
            }
            "metrics" => {
                for of in keys_of("[metrics]") {
                    match of.as_str() {
                        "class" => {
                            let of_class = keys_of("[[metrics.class]]").into_iter();
                            keys.extend(of_class.map(|of| format!("metrics.class.{of}")));
                        }
                        _ => keys.push(format!("metrics.{of}")),
                    }
                }
            }
            "member" => keys.extend(keys_of("[[member]]").into_iter().map(|of| format!("member.{of}"))),
            "quota" => {
                for of in keys_of("[quota]") {
                    if of == "namespace" {
                        let rates = keys_of("[quota.namespace.batch]").into_iter();
                        keys.extend(rates.map(|rate| format!("quota.namespace.NAME.{rate}")));
                    } else {
                        keys.push(format!("quota.{of}"));
                    }
                }
            }
            "auth" | "audit" => {
                keys.extend(keys_of(&format!("[{key}]")).into_iter().map(|of| format!("{key}.{of}")));
            }
            "tls" => {
                for of in keys_of("[tls]") {
                    if ["client", "peer", "http"].contains(&of.as_str()) {
                        let own = keys_of(&format!("[tls.{of}]")).into_iter();
                        keys.extend(own.map(|key| format!("tls.{of}.{key}")));
                    } else {
                        keys.push(format!("tls.{of}"));
                    }
                }
            }
            _ => keys.push(key),
        }
    }
    keys.sort();
    keys
}

/// The manual's page has every key of a node's file, and no other key.
#[test]
fn the_page_has_every_key() {
    let (keys, mut in_page) = (every_key(), first_cells("## Every key"));
    in_page.sort();
    assert!(keys.len() > 15, "{keys:?}");
    assert_eq!(in_page, keys);
}

/// Every key has a variable, except lists and the keys of repeated sections. The manual's page has every variable, next
/// to the key that it sets.
#[test]
fn the_page_has_every_variable() {
    let mut scalars = every_key();
    scalars.retain(|key| !draft::ONLY_IN_FILE.iter().any(|part| key.starts_with(part)));
    let keys = draft::SCALARS.map(|(key, _)| key);
    let mut with_variable = keys;
    with_variable.sort_unstable();
    assert_eq!(scalars, with_variable);
    assert_eq!(first_cells("## Variables"), keys);
    for key in keys {
        let variable = format!("LOCKKEEPER_{}", key.to_uppercase().replace('.', "__"));
        assert!(PAGE.contains(&format!("| `{key}` | `{variable}` |")), "{variable}");
    }
}

/// Returns the examples of a page.
fn examples(page: &str) -> Vec<&str> {
    page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

/// The sections that the page on monitoring shows are accepted in a node's file.
#[test]
fn the_page_on_monitoring_has_good_sections() {
    let sections = examples(MONITORING);
    assert_eq!(sections.len(), 1);
    for section in sections {
        read(&format!("{GOOD}{section}")).expect("a good section");
    }
}

/// The manual's examples are accepted, and its table of profiles has the times of the profiles.
#[test]
fn the_page_has_good_examples_and_the_profiles() {
    let examples = examples(PAGE);
    assert_eq!(examples.len(), 2);
    for example in examples {
        read(example).expect("a good example");
    }
    for profile in [Profile::Lan, Profile::Fast, Profile::Wan] {
        let Timing { heartbeat_ms, election_ms_min, election_ms_max, ttl_ms_min, .. } = profile.timing();
        let row = PAGE.lines().find(|line| line.starts_with(&format!("| `{}` |", profile.name()))).expect("a row");
        let times = format!("| {heartbeat_ms} ms | {election_ms_min} to {election_ms_max} ms | {ttl_ms_min} ms |");
        assert!(row.replace(',', "").ends_with(&times), "{row}: {times}");
    }
}
