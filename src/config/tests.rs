//! Tests of the settings. The error for each invalid setting names the file, the line and the fix.

mod page;
mod tls;

use std::os::unix::ffi::OsStringExt;

use super::*;
use crate::net::{ConnectionsMax, TlsFiles};

const GOOD: &str = r#"cluster = "harbour"
node = 1
data = "data/n1"

[listen]
client = "127.0.0.1:7601"
peer   = "127.0.0.1:7611"
http   = "127.0.0.1:7621"

[[member]]
id = 1
client = "127.0.0.1:7601"
peer   = "127.0.0.1:7611"

[[member]]
id = 2
client = "127.0.0.1:7602"
peer   = "127.0.0.1:7612"

[timing]
profile = "lan"

[tls]
[quota]
"#;

const CERTIFICATES: &str = "ca = \"ca.pem\"\ncert = \"n1.pem\"\nkey = \"n1.key\"\nrefuse = \"refused.txt\"";

fn read(text: &str) -> Result<Config, ConfigError> {
    Config::from_toml("n1.toml", text, [])
}

fn with(variable: &str, value: &str) -> Result<Config, ConfigError> {
    Config::from_toml("n1.toml", GOOD, [(variable.to_owned(), value.to_owned())])
}

/// Replaces one part of the valid text. The result must be refused with an error that begins with the line and contains
/// this text.
fn refused(from: &str, to: &str, begins: &str, holds: &str) {
    assert!(GOOD.contains(from), "{from:?} is not in the text");
    let error = read(&GOOD.replacen(from, to, 1)).expect_err("it must be refused").to_string();
    assert!(error.starts_with(begins), "{error}");
    assert!(error.contains(holds), "{error}");
}

/// A file in another encoding is refused with the line, and with what to do.
#[test]
fn a_file_in_another_encoding_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("n1.toml");
    std::fs::write(&path, b"node = 1\ncluster = \"h\xe4fen\"\n").expect("written");
    let error = Config::from_file(&path).expect_err("it must be refused").to_string();
    assert!(error.ends_with("n1.toml: line 2 is not in UTF-8; save the file in UTF-8"), "{error}");
}

/// The example of the manual is accepted, and each of its values is read.
#[test]
fn the_example_is_read_whole() {
    let config = read(GOOD).unwrap();
    assert_eq!((config.cluster.as_str(), config.node), ("harbour", 1));
    assert_eq!(config.data, PathBuf::from("data/n1"));
    assert_eq!(config.listen.http, Some("127.0.0.1:7621".parse().unwrap()));
    assert_eq!(config.members.len(), 2);
    assert_eq!(config.member().unwrap().peer, "127.0.0.1:7611");
    assert_eq!(config.timing, Profile::Lan.timing());
    assert_eq!(config.timing.ttl_ms_min, 3_000);
}

/// Without a `[listen]` section, a node listens at its own address in the list of members, and has no HTTP port.
#[test]
fn listen_defaults_to_the_members_address() {
    let (head, rest) = GOOD.split_once("[listen]").unwrap();
    let (_, rest) = rest.split_once("\n\n").unwrap();
    let config = read(&format!("{head}{rest}")).unwrap();
    assert_eq!(config.listen.client, "127.0.0.1:7601".parse().unwrap());
    assert_eq!(config.listen.http, None);
}

/// A node may listen on every interface, or its members may use a host name, as long as the port is the same.
#[test]
fn every_interface_and_names_agree_by_port() {
    let every = GOOD.replacen("client = \"127.0.0.1:7601\"", "client = \"0.0.0.0:7601\"", 1);
    let every = every.replace("[tls]", "[tls.client]\ninsecure = true");
    assert_eq!(read(&every).unwrap().listen.client.port(), 7601);
    let named = every.replace("client = \"127.0.0.1:7601\"", "client = \"n1.example:7601\"");
    assert_eq!(read(&named).unwrap().member().unwrap().client, "n1.example:7601");
}

/// An unknown key is refused with its line, even in a section.
#[test]
fn unknown_keys_are_refused_with_their_line() {
    refused("data = \"data/n1\"", "dada = \"data/n1\"", "n1.toml:3: ", "unknown field `dada`");
    refused("profile = \"lan\"", "profil = \"lan\"", "n1.toml:21: ", "unknown field `profil`");
    refused("[quota]", "[quotas]", "n1.toml:24: ", "unknown field `quotas`");
}

/// Unknown settings of protection and bounds are refused and not ignored, and so is a section of principals without
/// their file.
#[test]
fn settings_that_would_be_ignored_are_refused() {
    refused("[quota]", "[auth]", "n1.toml:24: missing field `file`", "add it");
    refused("[quota]", "[auth]\nfile = \"a\"\ntokens = 1", "n1.toml:26: ", "unknown field `tokens`");
    refused("[quota]", "[quota]\nlocks = 5", "n1.toml:25: ", "unknown field `locks`");
}

/// Principals need an audit log, and a client port on which no other machine can read their tokens, even if that port
/// may be open otherwise.
#[test]
fn principals_need_a_protected_port_and_an_audit_log() {
    let unaudited = "[auth]\nfile = \"auth.toml\"\n";
    refused("[quota]", unaudited, "n1.toml:25: ", "[auth] is set and [audit] is not");
    let auth = &format!("{unaudited}[audit]\nfile = \"audit.jsonl\"\n");
    assert_eq!(read(GOOD).unwrap().auth, None);
    assert_eq!(read(&format!("{GOOD}{auth}")).unwrap().auth, Some("auth.toml".into()));
    let open = GOOD.replacen("client = \"127.0.0.1:7601\"", "client = \"0.0.0.0:7601\"", 1);
    let meant = format!("{}{auth}", open.replace("[tls]", "[tls.client]\ninsecure = true"));
    let refused = read(&meant).expect_err("refused").to_string();
    assert!(refused.contains("[auth] is set and listen.client is reachable in plain text"), "{refused}");
    assert!(read(&format!("{}{auth}", open.replace("[tls]", &format!("[tls]\n{CERTIFICATES}")))).is_ok());
}

/// Principals need a port for nodes on which no other machine can name one. A running cluster has it from the second
/// step of its way to TLS on.
#[test]
fn principals_need_proven_nodes() {
    let auth = "[auth]\nfile = \"auth.toml\"\n[audit]\nfile = \"audit.jsonl\"\n";
    let open = GOOD.replacen("peer   = \"127.0.0.1:7611\"", "peer   = \"0.0.0.0:7611\"", 1);
    let with = |tls: &str| read(&format!("{}{auth}", open.replace("[tls]", tls)));
    let refused = with("[tls.peer]\ninsecure = true").expect_err("refused").to_string();
    assert!(refused.contains("[auth] is set and listen.peer is reachable in plain text"), "{refused}");
    let step = |mode| with(&format!("[tls]\n{CERTIFICATES}\n[tls.peer]\nmode = \"{mode}\""));
    let refused = step("allow").expect_err("refused").to_string();
    assert!(refused.ends_with("add [auth] after all nodes have it"), "{refused}");
    assert!(step("prefer").is_ok() && step("require").is_ok());
}

/// Text that is not TOML, and a value of a wrong type, are refused with the line.
#[test]
fn bad_toml_and_wrong_types_are_refused_with_their_line() {
    for (from, to, error) in [
        ("node = 1", "node = \"one\"", "2: node must be a whole number, 0 or more, got \"one\"; write it in digits"),
        ("node = 1", "node = \"1\"", "2: node must be a whole number, 0 or more, got \"1\"; write node = 1"),
        ("node = 1", "node = -1", "2: node must be a whole number, 0 or more, got -1; write it in digits"),
        (
            "profile = \"lan\"",
            "heartbeat = 50",
            "21: heartbeat must be a duration in quotes, got 50; write heartbeat = \"50ms\"",
        ),
        ("[quota]", "[log]\nlevel = 5", "25: level must be a text in quotes, got 5; write level = \"5\""),
        ("[quota]", "[log]\nlevel = [5]", "25: level must be a text in quotes, got [5]; write it in quotes"),
        ("node = 1", "log = { level = 5 }", "2: level must be a text in quotes, got 5; write level = \"5\""),
        ("node = 1", "log = 5", "2: log must be a section of keys, got 5; write [log], and the keys below it"),
        ("[quota]", "[http]\nhosts = \"a\"", "25: hosts must be a list, got \"a\"; "),
        (
            "[quota]",
            "[tls.http]\ninsecure = \"true\"",
            "25: insecure must be true or false, got \"true\"; write it without quotes",
        ),
        ("node = 1", "node = ", "2: "),
        ("node = 1", "node = 1\nnode = 2", "3: node is written twice; remove one"),
        ("profile = \"lan\"", "profile = \"lan\"\n[timing]", "22: timing is written twice; remove one"),
    ] {
        refused(from, to, &format!("n1.toml:{error}"), "");
    }
    let one = read("node = 1\n\n[member]\nid = 1\n").expect_err("one section").to_string();
    assert_eq!(one, "n1.toml:3: member is a list of sections; write [[member]]");
}

/// A file that does not exist is refused with the line and the key that name it.
#[test]
fn missing_files_are_refused_with_their_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, there) = (folder.path().join("n1.toml"), folder.path().join("n1.pem"));
    std::fs::write(&there, "").expect("written");
    let section = |section: String| {
        std::fs::write(&path, GOOD.replace("[quota]", &section)).expect("written");
        Config::from_file(&path).expect_err("it must be refused").to_string()
    };
    let missing = section(format!("[tls.http]\ncert = {there:?}\nkey = \"/nonexistent.key\""));
    let expected = format!("{}:26: tls.http.key /nonexistent.key cannot be read: ", path.display());
    assert!(missing.starts_with(&expected) && missing.ends_with("; check the path"), "{missing}");
    let missing = section("[auth]\nfile = \"/nonexistent.toml\"".to_owned());
    assert!(missing.contains(":25: auth.file /nonexistent.toml cannot be read: "), "{missing}");
}

/// The error for a missing setting names it.
#[test]
fn missing_settings_are_named() {
    refused("cluster = \"harbour\"", "", "n1.toml: ", "cluster is missing");
    refused("node = 1", "", "n1.toml: ", "node = 1");
    refused("data = \"data/n1\"", "", "n1.toml: ", "data is missing");
    let error = read("cluster = \"harbour\"\nnode = 1\ndata = \"d\"\n").expect_err("no members").to_string();
    assert!(error.contains("there are no members"), "{error}");
}

/// The error for a node that is not one of the members lists the members.
#[test]
fn a_node_outside_the_members_is_refused() {
    refused("node = 1", "node = 4", "n1.toml:2: ", "node 4 is not among the members (1, 2)");
}

/// Two members with the same id, or the same address, are refused.
#[test]
fn ids_and_addresses_are_used_once() {
    refused("id = 2", "id = 1", "n1.toml:16: ", "member id 1 is used twice");
    refused("\"127.0.0.1:7612\"", "\"127.0.0.1:7611\"", "n1.toml:18: ", "used twice (before at n1.toml:13)");
    refused("id = 2", "id = 0", "n1.toml:16: ", "from 1");
}

/// A node that listens elsewhere than at its address in the list of members is refused.
#[test]
fn listening_elsewhere_than_the_member_says_is_refused() {
    refused(
        "client = \"127.0.0.1:7601\"",
        "client = \"127.0.0.1:7609\"",
        "n1.toml:6: ",
        "reach this node at 127.0.0.1:7601",
    );
    refused("client = \"127.0.0.1:7601\"", "client = \"10.0.0.1:7601\"", "n1.toml:6: ", "reach this node at");
}

/// Two listeners on the same port are refused.
#[test]
fn listeners_do_not_share_a_port() {
    refused("http   = \"127.0.0.1:7621\"", "http = \"0.0.0.0:7611\"", "n1.toml:8: ", "the address of listen.peer");
}

/// The names of hosts of the HTTP port are read, and a URL is refused with its line.
#[test]
fn http_hosts_are_names() {
    let config = read(&GOOD.replace("[tls]", "[http]\nhosts = [\"locks.example\"]\n[tls]")).unwrap();
    assert!(config.hosts().any(|host| host == "locks.example") && config.hosts().any(|host| host == "127.0.0.1"));
    refused("[tls]", "[http]\nhosts = [\"https://locks.example\"]", "n1.toml:", "without a scheme and without a port");
}

/// Malformed addresses are refused with an example.
#[test]
fn malformed_addresses_are_refused() {
    refused("\"127.0.0.1:7621\"", "\"localhost:7621\"", "n1.toml:8: ", "is not IP:PORT");
    refused("\"127.0.0.1:7621\"", "\"127.0.0.1:0\"", "n1.toml:8: ", "fixed port");
    refused("\"127.0.0.1:7602\"", "\"http://127.0.0.1:7602\"", "n1.toml:17: ", "is not HOST:PORT");
}

/// An unknown profile is refused. Custom times must be complete and in the right order.
#[test]
fn timing_relations_hold() {
    let timing = |text: &str, holds: &str| refused("profile = \"lan\"", text, "n1.toml:21: ", holds);
    timing("profile = \"slow\"", "use lan, fast or wan");
    timing("profile = \"lan\"\nheartbeat = \"50ms\"", "cannot be combined");
    timing("heartbeat = \"50ms\"", "set all three");
    timing("heartbeat = \"80ms\"\nelection_min = \"150ms\"\nelection_max = \"300ms\"", "two heartbeats (160 ms)");
    timing("heartbeat = \"50ms\"\nelection_min = \"300ms\"\nelection_max = \"300ms\"", "shorter than election_max");
    timing("heartbeat = \"50\"\nelection_min = \"150ms\"\nelection_max = \"300ms\"", "did you mean \"50ms\"?");
    let by_hand = "heartbeat = \"20ms\"\nelection_min = \"100ms\"\nelection_max = \"200ms\"";
    let config = read(&GOOD.replace("profile = \"lan\"", by_hand)).unwrap();
    assert_eq!((config.timing.profile, config.timing.ttl_ms_min), (None, 2_000));
}

/// An environment variable replaces the value in the file, and an error about it names the variable.
#[test]
fn the_environment_lies_over_the_file() {
    assert_eq!(with("LOCKKEEPER_NODE", "2").expect_err("listen contradicts").place, "n1.toml:6");
    assert_eq!(with("LOCKKEEPER_TIMING__PROFILE", "fast").unwrap().timing, Profile::Fast.timing());
    assert_eq!(with("LOCKKEEPER_DATA", "/var/lib/lockkeeper").unwrap().data, PathBuf::from("/var/lib/lockkeeper"));
    assert_eq!(with("LOCKKEEPER_ENDPOINTS", "a,b").unwrap(), read(GOOD).unwrap());
    assert_eq!(with("LOCKKEEPER_CLUSTER", "port").unwrap().cluster, "port");
    let of_clients = with("LOCKKEEPER_CLUSTER", &"0a".repeat(16)).unwrap();
    assert_eq!(of_clients, read(GOOD).unwrap(), "an id is for clients");
    let error = with("LOCKKEEPER_TIMING__PROFILE", "slow").expect_err("no such profile");
    assert_eq!(error.place, "environment variable LOCKKEEPER_TIMING__PROFILE");
    let error = with("LOCKKEEPER_TIMING__PROFIL", "lan").expect_err("no such key");
    assert!(error.fix.contains("LOCKKEEPER_TIMING__PROFILE"), "{error}");
    assert!(with("LOCKKEEPER_NODE", "one").is_err());
    let rates = with("LOCKKEEPER_QUOTA__COMMANDS_A_SECOND", "50").unwrap().rates;
    assert_eq!(rates.of(&crate::model::Namespace::default()), Some(50));
    let error = with("LOCKKEEPER_TLS__CLIENT__MODE", "maybe").expect_err("no such mode");
    assert_eq!(error.place, "environment variable LOCKKEEPER_TLS__CLIENT__MODE");
    let error = with("LOCKKEEPER_TLS__HTTP__INSECURE", "yes").expect_err("neither").to_string();
    assert!(error.contains("LOCKKEEPER_TLS__HTTP__INSECURE: insecure must be true or false"), "{error}");
    let open = GOOD.replacen("client = \"127.0.0.1:7601\"", "client = \"0.0.0.0:7601\"", 1);
    let insecure = ("LOCKKEEPER_TLS__CLIENT__INSECURE".to_owned(), "true".to_owned());
    assert!(read(&open).is_err() && Config::from_toml("n1.toml", &open, [insecure]).is_ok());
}

/// A list and a named section have no variable, and the error says where to write them. The error of a key that does
/// not exist lists the variables.
#[test]
fn lists_are_set_in_the_file_only() {
    for (variable, key) in [
        ("HTTP__HOSTS", "http.hosts"),
        ("METRICS__NAMESPACES", "metrics.namespaces"),
        ("METRICS__CLASS__NAME", "metrics.class.name"),
        ("QUOTA__NAMESPACE__BATCH__COMMANDS_A_SECOND", "quota.namespace.batch.commands_a_second"),
        ("MEMBER__ID", "member.id"),
    ] {
        let error = with(&format!("LOCKKEEPER_{variable}"), "x").expect_err("it has no variable").to_string();
        let why = format!("only the file can set {key}; unset it, and write the setting in the file");
        assert_eq!(error, format!("environment variable LOCKKEEPER_{variable}: {why}"));
    }
    for unknown in ["LOCKKEEPER_HTTP__HOSTSX", "LOCKKEEPER_QUOTA__NAMESPACES__A"] {
        let error = with(unknown, "x").expect_err("no such key").to_string();
        assert!(error.contains("there is no setting"), "{error}");
    }
    assert_eq!(with("LOCKKEEPER_MEMBER", "1").unwrap(), read(GOOD).unwrap(), "it may belong to another program");
}

/// A variable in another encoding is refused if it sets a value, because the node would run with another one.
#[test]
fn a_variable_in_another_encoding_is_refused() {
    let with = |variable: &str| {
        let variables = [(variable.to_owned(), OsString::from_vec(b"h\xe4fen".to_vec()))];
        Config::checked(Source { name: "n1.toml", text: GOOD }, variables, |_| Ok(()))
    };
    for (variable, key) in [("DATA", "data"), ("CLUSTER", "cluster"), ("LOG__LEVEL", "log.level")] {
        let error = with(&format!("LOCKKEEPER_{variable}")).expect_err("it must be refused").to_string();
        let begins = format!("environment variable LOCKKEEPER_{variable}: {key} is not in UTF-8: ");
        assert!(error.starts_with(&begins) && error.ends_with("; write it in UTF-8"), "{error}");
    }
    assert_eq!(with("LOCKKEEPER_ENDPOINTS").unwrap(), read(GOOD).unwrap(), "it is for clients");
}

/// Each scalar key sets its field in the file, and has a variable.
#[test]
fn every_scalar_has_its_field() {
    use draft::Slot;
    for (key, slot) in draft::SCALARS {
        let value = match slot {
            Slot::Text(_) | Slot::Path(_) | Slot::Section(_) => "\"x\"",
            Slot::Number(_) => "1",
            Slot::Flag(_) => "true",
        };
        let text = format!("{key} = {value}\n");
        let mut draft = Draft::parse(Source { name: "n1.toml", text: &text }).expect("a key of the file");
        let is_set = match slot {
            Slot::Text(slot) | Slot::Path(slot) => slot(&mut draft).is_some(),
            Slot::Number(slot) => slot(&mut draft).is_some(),
            Slot::Flag(slot) => slot(&mut draft).is_some(),
            Slot::Section(section) => section(&mut draft).is_some(),
        };
        assert!(is_set, "{key}");
        let variable = format!("LOCKKEEPER_{}", key.to_uppercase().replace('.', "__"));
        let error = with(&variable, "x").map_or_else(|error| error.to_string(), |_| String::new());
        assert!(!error.contains("there is no setting"), "{error}");
    }
}

/// The profiles meet the rules for custom times.
#[test]
fn profiles_keep_the_relations() {
    for profile in [Profile::Lan, Profile::Fast, Profile::Wan] {
        let timing = profile.timing();
        assert!(Timing::by_hand(timing.heartbeat_ms, timing.election_ms_min, timing.election_ms_max).is_ok());
        assert_eq!(Profile::from_name(profile.name()), Some(profile));
    }
}

/// Rates are read for all namespaces and for single ones. An invalid rate is refused with its line.
#[test]
fn rates_are_read_and_checked() {
    let quota = "[quota]\ncommands_a_second = 500\n[quota.namespace.batch]\ncommands_a_second = 50\n";
    let rates = read(&GOOD.replace("[quota]", quota)).expect("good").rates;
    let of = |name: &str| rates.of(&crate::model::Namespace::parse(name).expect("legal"));
    assert_eq!((of("default"), of("batch"), rates.is_off()), (Some(500), Some(50), false));
    assert!(read(GOOD).expect("good").rates.is_off());
    refused("[quota]", "[quota]\ncommands_a_second = 0", "n1.toml:25: ", "not 1 to 1000000");
    let bad = "[quota.namespace.Batch]\ncommands_a_second = 5";
    refused("[quota]", bad, "n1.toml:25: ", "a namespace is");
}

/// Limits are read from the file and from variables. A limit that nothing could reach is refused with its place, the
/// largest value and the reason.
#[test]
fn limits_are_read_and_checked() {
    assert_eq!(read(GOOD).expect("good").limits, Limits::default());
    let text = "[limits]\nclient_connections = 100\nclient_connections_an_address = 10\nhttp_connections = 5\n\
                http_connections_an_address = 4\nwatchers_a_principal = 7\n[quota]";
    let limits = read(&GOOD.replace("[quota]", text)).expect("good").limits;
    let connections = ConnectionsMax { client: 100, client_an_address: 10, http: 5, http_an_address: 4 };
    assert_eq!(limits, Limits { connections, watchers_a_principal: 7 });
    let variable = with("LOCKKEEPER_LIMITS__HTTP_CONNECTIONS", "9").expect("good").limits;
    assert_eq!(variable.connections, ConnectionsMax { http: 9, ..ConnectionsMax::default() });
    let error = with("LOCKKEEPER_LIMITS__WATCHERS_A_PRINCIPAL", "many").expect_err("no number").to_string();
    assert!(error.contains("LOCKKEEPER_LIMITS__WATCHERS_A_PRINCIPAL: limits.watchers_a_principal is not"), "{error}");
    for (key, least_refused, default) in [
        ("client_connections", 1_045_505, 16_384),
        ("client_connections_an_address", 1_045_505, 4_096),
        ("http_connections", 1_025, 1_024),
        ("http_connections_an_address", 1_025, 32),
        ("watchers_a_principal", 4_097, 1_024),
    ] {
        for value in [0, least_refused] {
            let text = format!("[limits]\n{key} = {value}\n[quota]");
            let bounds = format!("limits.{key} is {value}, not 1 to {}, ", least_refused - 1);
            refused("[quota]", &text, "n1.toml:25: ", &bounds);
            refused("[quota]", &text, "n1.toml:25: ", &format!("; correct it, or remove it for {default}"));
        }
        let most = format!("[limits]\n{key} = {}\n[quota]", least_refused - 1);
        read(&GOOD.replace("[quota]", &most)).expect("the largest value");
    }
}

/// The labels of metrics are read in their order. Too many, a name twice, and a name that stands for all others are
/// refused with their places.
#[test]
fn labels_of_metrics_are_read_and_checked() {
    assert_eq!(read(GOOD).expect("good").metrics, MetricsLabels::default());
    let class = |name: &str, prefix: &str| format!("[[metrics.class]]\nname = \"{name}\"\nprefix = \"{prefix}\"\n");
    let section = |text: &str| format!("[metrics]\n{text}\n[quota]");
    let both =
        section(&format!("namespaces = [\"ci\", \"default\"]\n{}{}", class("jobs", "job/"), class("all-j", "j")));
    let labels = read(&GOOD.replace("[quota]", &both)).expect("good").metrics;
    let names: Vec<_> = labels.namespaces.iter().map(crate::model::Namespace::as_str).collect();
    let of = |name: &str, prefix: &str| LockClass { name: name.to_owned(), prefix: prefix.to_owned() };
    assert_eq!((names, labels.classes), (vec!["ci", "default"], vec![of("jobs", "job/"), of("all-j", "j")]));

    let many = (0..33).map(|number| format!("\"n{number}\"")).collect::<Vec<_>>().join(", ");
    let many = section(&format!("namespaces = [{many}]"));
    refused("[quota]", &many, "n1.toml:25: ", "metrics.namespaces has 33 entries, and 32 are the most");
    let many: String = (0..17).map(|number| class(&format!("c{number}"), "p")).collect();
    refused("[quota]", &section(&many), "n1.toml:74: ", "metrics.class has 17 entries, and 16 are the most");
    refused("[quota]", &section("namespaces = [\"Ci\"]"), "n1.toml:25: ", "metrics.namespaces must be");
    refused("[quota]", &section("namespaces = [\"other\"]"), "n1.toml:25: ", "stands for all that have no metrics");
    refused("[quota]", &section(&class("a", "")), "n1.toml:27: ", "has 0 bytes; write 1 to 255");
    let twice = class("a", "x") + &class("a", "y");
    refused("[quota]", &section(&twice), "n1.toml:29: ", "two metrics.class have the name \"a\"");
}
