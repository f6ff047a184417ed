//! The commands of the README and of the manual behave as the pages say, with three real nodes.
//!
//! A block of `sh` is a list of commands. A block of `console` also shows their output, which is compared except for
//! numbers and for names of users and machines. The comment `# exit code N` after a command gives its exit code;
//! without the comment it is 0.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Commands in the pages that this test does not run: the page, the start of the command, and the reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("README.md", "cargo install", "builds for minutes; `scripts/check.sh` builds the same program and runs it"),
    ("README.md", "promtool", "is not everywhere; `scripts/judge-metrics.sh` runs it"),
    ("testing.md", "scripts/check.sh", "runs all tests, and so this one"),
    ("testing.md", "scripts/attack.sh", "attacks for minutes; the tests of `floods` and `rights` are its short form"),
    ("testing.md", "scripts/nemesis.sh", "runs for minutes; the tests of `crash` are its short form"),
    ("monitoring.md", "promtool", "is not everywhere; `scripts/judge-metrics.sh` runs it"),
    ("operations.md", "lockkeeper doctor", "judges this machine; the test `doctor` runs it"),
    ("packages.md", "scripts/packaging/", "needs other tools; `scripts/judge-packages.sh` runs it"),
    ("packages.md", "dpkg -i", "changes this machine; `scripts/judge-packages.sh` does this"),
    ("packages.md", "lockkeeper config check", "needs the package; `scripts/judge-packages.sh` runs it"),
    ("packages.md", "systemctl", "needs systemd; `scripts/judge-packages.sh` starts what the unit starts"),
    ("packages.md", "docker compose", "needs Docker; `scripts/judge-packages.sh` checks the file"),
    ("packages.md", "skopeo copy", "needs the image; `scripts/judge-packages.sh` unpacks and runs it"),
    ("packages.md", "kubectl", "needs Kubernetes; `scripts/judge-packages.sh` checks the file"),
    ("other-languages.md", "grpcurl", "is not everywhere; `tests/service/other_languages.rs` makes the same calls"),
];
/// Commands that run until they are stopped. They continue in the background while the rest of the page runs.
const LASTING: &[&str] = &["lockkeeper dev", "lockkeeper serve", "lockkeeper watch"];
/// Programs that the pages run under a lock.
const JOBS: &[&str] = &["rebuild-index", "backup", "migrate", "call-the-api", "serve"];
/// Longest time for the commands of one page.
const PAGE_TIME_MAX: Duration = Duration::from_secs(120);
/// Pages whose commands run at the same time. Most of a page's time is that of sleeps and of nodes that start.
const PAGES_AT_ONCE: usize = 3;

/// A command of a page.
struct Line {
    number: usize,
    command: String,
    /// The expected output, for a command in a block of `console`.
    prints: Option<Vec<String>>,
}

impl Line {
    fn exit_code(&self) -> u8 {
        let code = self.command.rsplit_once("# exit code ").map(|(_, code)| code.trim().parse());
        code.and_then(Result::ok).unwrap_or(0)
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn pages() -> Vec<PathBuf> {
    let entries =
        fs::read_dir(root().join("src/manual")).expect("the manual").map(|entry| entry.expect("an entry").path());
    let mut pages: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    pages.push(root().join("README.md"));
    pages.sort();
    pages
}

/// The commands of a page, in order.
fn commands(text: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut block = None;
    for (text, number) in text.lines().zip(1..) {
        if let Some(language) = text.strip_prefix("```") {
            block = if block.is_some() { None } else { Some(language) };
            continue;
        }
        match block {
            Some("sh") if !text.trim().is_empty() => {
                lines.push(Line { number, command: text.to_owned(), prints: None });
            }
            Some("console") => match text.strip_prefix("$ ") {
                Some(command) => lines.push(Line { number, command: command.to_owned(), prints: Some(Vec::new()) }),
                None => {
                    let shown =
                        lines.last_mut().and_then(|line| line.prints.as_mut()).expect("a command before its answer");
                    shown.push(text.to_owned());
                }
            },
            Some(_) | None => {}
        }
    }
    lines
}

/// The first of a hundred ports, of which the ones that the nodes of a page use are free. No two pages get the same
/// hundred in one run of this program.
fn free_hundred() -> u16 {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let used = [1, 2, 3, 4, 5, 11, 12, 13, 14, 15, 21, 22, 23];
    // Concurrent runs of this program begin at different ports.
    let first = u16::try_from(std::process::id() % 16).expect("small");
    let next = || 100 * (281 + (first + TAKEN.fetch_add(1, Ordering::Relaxed)) % 40);
    let base = std::iter::repeat_with(next).take(80).find(|base| used.iter().all(|above| free(base + above)));
    base.expect("free ports")
}

/// Replaces the usual ports in the text with the ports of this run.
fn moved(text: &str, base: u16) -> String {
    text.replace("127.0.0.1:76", &format!("127.0.0.1:{}", base / 100))
}

fn program(path: &Path, text: &str) {
    fs::write(path, text).expect("a program");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("executable");
}

/// Fills a folder so that the commands of a page can run in it as in a checkout.
fn stage(folder: &Path, base: u16) {
    let lockkeeper = env!("CARGO_BIN_EXE_lockkeeper");
    for node in 1..=3 {
        let name = format!("cluster/n{node}/lockkeeper.toml");
        fs::create_dir_all(folder.join(&name).parent().expect("a folder")).expect("a folder");
        let text = fs::read_to_string(root().join(&name)).expect("a config");
        fs::write(folder.join(&name), moved(&text, base)).expect("a config");
    }
    program(&folder.join("cluster/run.sh"), &fs::read_to_string(root().join("cluster/run.sh")).expect("a script"));
    fs::create_dir(folder.join("bin")).expect("a folder");
    fs::create_dir_all(folder.join("scripts/examples")).expect("a folder");
    let with_lock = "scripts/examples/with-lock.sh";
    program(&folder.join(with_lock), &moved(&fs::read_to_string(root().join(with_lock)).expect("a script"), base));
    let dev = format!("#!/bin/sh\n[ \"$1\" = dev ] && set -- \"$@\" --port-base {base}\nexec {lockkeeper} \"$@\"\n");
    program(&folder.join("bin/lockkeeper"), &dev);
    for name in JOBS.iter().map(|job| (*job).to_owned()).chain(["bin/make".to_owned()]) {
        program(&folder.join(name), "#!/bin/sh\nexit 0\n");
    }
}

/// The commands of a page as one script. It stops at the first command whose exit code differs from the page's.
fn script(page: &str, lines: &[Line], base: u16) -> String {
    let mut script = String::from(
        "lasting=()\n\
         stop_lasting() { [ ${#lasting[@]} = 0 ] || { kill \"${lasting[@]}\"; wait \"${lasting[@]}\"; }; lasting=(); } 2> /dev/null\n\
         serves() { for _ in {1..200}; do lockkeeper status > /dev/null 2>&1 && return; sleep 0.1; done; exit 1; }\n\
         is_held() { lockkeeper show \"$1\" --json | grep -q '\"token\":'; }\n\
         holds() { for _ in {1..200}; do is_held \"$1\" && return; sleep 0.1; done; }\n",
    );
    let starts = ["cluster/run.sh start", "lockkeeper dev"];
    if !lines.iter().any(|line| starts.iter().any(|start| line.command.starts_with(start))) {
        script.push_str("cluster/run.sh start > /dev/null; serves\n");
    }
    for Line { number, command, prints } in lines {
        let code = Line { number: *number, command: command.clone(), prints: None }.exit_code();
        let command = moved(command, base);
        if LASTING.iter().any(|lasting| command.starts_with(lasting)) {
            let bare = command.split(" #").next().expect("a command").trim_end();
            writeln!(script, "{bare} > lasting.{number} 2>&1 & lasting+=($!); serves").expect("memory");
            continue;
        }
        if command.starts_with("cluster/run.sh start") {
            script.push_str("stop_lasting\n");
        }
        let into = prints.as_ref().map_or("> /dev/null".to_owned(), |_| format!("> printed.{number} 2>&1"));
        writeln!(script, "{{ {command}\n}} {into}\ncode=$?").expect("memory");
        let report = format!("{page}:{number}: exit code $code, and not {code}");
        writeln!(script, "[ $code = {code} ] || {{ echo \"{report}\" >&2; exit 1; }}").expect("memory");
        // A user enters the next command when this one holds its lock.
        let bare = command.split(" #").next().expect("a command").trim_end();
        if let Some(words) = bare.strip_suffix('&').and_then(|bare| bare.strip_prefix("lockkeeper lock ")) {
            let name = words.split_whitespace().next().expect("a name");
            writeln!(script, "holds {name}").expect("memory");
        }
        // A user enters the next command seconds later, when a leader has been elected. The script waits for the leader
        // instead.
        if command.starts_with("cluster/run.sh ") && !command.ends_with(" stop") {
            script.push_str("serves\n");
        }
    }
    script.push_str("exit 0\n");
    script
}

/// Replaces what differs between two runs: numbers, and names of users and machines.
fn masked(text: &str) -> String {
    let words =
        text.split_whitespace().map(|word| if word.contains('@') { "user@host".to_owned() } else { word.to_owned() });
    let mut masked = words.collect::<Vec<_>>().join(" ");
    for digit in '0'..='9' {
        masked = masked.replace(digit, "#");
    }
    while masked.contains("##") {
        masked = masked.replace("##", "#");
    }
    masked
}

/// Runs the commands of a page. The error names the command that behaved differently from the page.
fn run(page: &str, lines: &[Line]) -> Result<(), String> {
    let folder = tempfile::tempdir().expect("a folder");
    let base = free_hundred();
    stage(folder.path(), base);
    fs::write(folder.path().join("page.sh"), script(page, lines, base)).expect("a script");
    let endpoints = (1..=3).map(|node| format!("127.0.0.1:{}", base + node)).collect::<Vec<_>>().join(",");
    let paths = format!("{}:{}", folder.path().join("bin").display(), std::env::var("PATH").expect("a path"));
    let errors = fs::File::create(folder.path().join("errors")).expect("a file");
    let mut bash = Command::new("bash")
        .arg("page.sh")
        .current_dir(folder.path())
        .env("PATH", paths)
        .env("LOCKKEEPER_ENDPOINTS", endpoints)
        .env("LOCKKEEPER_BIN", env!("CARGO_BIN_EXE_lockkeeper"))
        .env("USER", "ada")
        .env_remove("LOCKKEEPER_NAMESPACE")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors)
        .process_group(0)
        .spawn()
        .expect("bash");
    let group = Pid::from_child(&bash);
    let begun = Instant::now();
    let ended = loop {
        match bash.try_wait().expect("a child") {
            Some(status) => break Some(status),
            None if PAGE_TIME_MAX < begun.elapsed() => break None,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    // Nodes and all other processes that the page started are in the process group of the script.
    kill_process_group(group, Signal::KILL).ok();
    bash.wait().expect("gone");
    let errors = fs::read_to_string(folder.path().join("errors")).unwrap_or_default();
    match ended {
        Some(status) if status.success() => {}
        Some(_) => return Err(format!("{page}: {errors}")),
        None => return Err(format!("{page}: not done after {PAGE_TIME_MAX:?}: {errors}")),
    }
    for Line { number, prints, .. } in lines {
        let Some(shown) = prints else { continue };
        let printed = fs::read_to_string(folder.path().join(format!("printed.{number}"))).expect("what it printed");
        let (shown, printed) = (masked(&shown.join("\n")), masked(&printed));
        if shown != printed {
            return Err(format!("{page}:{number}: it prints\n{printed}\nand the page has\n{shown}"));
        }
    }
    Ok(())
}

fn is_there(tool: &str) -> bool {
    Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Each command of the README and the manual behaves as its page says, except those in the list of exceptions. Each
/// exception is needed.
#[test]
fn the_commands_of_the_pages_run() {
    let mut used: BTreeSet<&(&str, &str, &str)> = BTreeSet::new();
    let mut tested = Vec::new();
    for path in pages() {
        let page = path.file_name().expect("a name").to_string_lossy().into_owned();
        let mut lines = commands(&fs::read_to_string(&path).expect("a page"));
        lines.retain(|line| {
            let exception = EXCEPTIONS.iter().find(|(of, begin, _)| *of == page && line.command.starts_with(begin));
            used.extend(exception);
            exception.is_none()
        });
        if !is_there("curl") || !is_there("openssl") {
            assert!(std::env::var_os("LOCKKEEPER_SKIP_NOTHING").is_none(), "there is no curl or no openssl");
            eprintln!("SKIPPED: the requests of {page}, for there is no curl or no openssl");
            let of_a_request = ["curl ", "p ", "request=", "token="];
            lines.retain(|line| !of_a_request.iter().any(|begin| line.command.starts_with(begin)));
        }
        tested.push((page, lines));
    }
    let count = tested.iter().map(|(_, lines)| lines.len()).sum::<usize>();
    tested.retain(|(_, lines)| !lines.is_empty());
    let next = Mutex::new(tested.into_iter());
    let broken = std::thread::scope(|scope| {
        let work = || {
            let pages = std::iter::from_fn(|| next.lock().expect("a page").next());
            pages.filter_map(|(page, lines)| run(&page, &lines).err()).collect::<Vec<_>>()
        };
        let workers = [(); PAGES_AT_ONCE].map(|()| scope.spawn(work));
        workers.map(|worker| worker.join().expect("a worker")).concat()
    });
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(count > 50, "only {count} commands were found");
    let unused: Vec<_> = EXCEPTIONS.iter().filter(|exception| !used.contains(exception)).collect();
    assert!(unused.is_empty(), "exceptions that no page needs: {unused:?}");
}

/// A command with another exit code than its page gives is reported, and so is one with other output.
#[test]
fn a_wrong_page_is_found() {
    let page = |text: &str| run("wrong.md", &commands(text));
    let ended =
        page("```sh\nlockkeeper dev --ephemeral\nlockkeeper check nightly 1\n```\n").expect_err("it ends with 1");
    assert!(ended.contains("wrong.md:3: exit code 1, and not 0"), "{ended}");
    let printed =
        page("```console\n$ echo one 1    # exit code 0\ntwo 2\n```\n").expect_err("it prints something else");
    assert!(printed.contains("it prints\none #"), "{printed}");
}

/// The page about `lock` lists every option of the command, and no others.
#[test]
fn the_page_on_lock_has_every_option() {
    let help = Command::new(env!("CARGO_BIN_EXE_lockkeeper")).args(["lock", "--help"]).output().expect("help").stdout;
    let help = String::from_utf8(help).expect("a text");
    let options =
        help.split("\nOptions:").nth(1).and_then(|rest| rest.split("\nCommon options").next()).expect("options");
    let named = |line: &str| {
        let words = line.split([' ', ',', '`', '|']).filter(|word| word.starts_with("--") && word.len() > 2);
        words.map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    let heads = options.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let mut in_help: BTreeSet<_> = heads.flat_map(named).collect();
    for general in ["--help", "--version"] {
        in_help.remove(general);
    }
    let page = fs::read_to_string(root().join("src/manual/lock.md")).expect("the page");
    let table = page.split("## Options\n").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("its table");
    let first_cells = table.lines().filter(|line| line.starts_with("| `")).filter_map(|line| line.split(" | ").next());
    let in_page: BTreeSet<_> = first_cells.flat_map(named).collect();
    assert!(in_help.len() > 20, "{in_help:?}");
    assert_eq!(in_page, in_help);
}

/// The output of `--help` for a command, including the options that all commands have.
fn help(command: &[&str]) -> String {
    let help = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_lockkeeper")).args(words).arg("--help").output().expect("help");
        assert!(output.status.success(), "there is no command {words:?}");
        String::from_utf8(output.stdout).expect("a text")
    };
    let common = help(&[]).split("\nCommon options:").nth(1).expect("common options").to_owned();
    help(command) + &common
}

/// Commands and options in backticks in the text of a page exist.
#[test]
fn commands_in_the_text_exist() {
    let (mut broken, mut count) = (Vec::new(), 0);
    for path in pages() {
        let text = fs::read_to_string(&path).expect("a page");
        let prose = text.split("\n```").step_by(2).collect::<Vec<_>>().join("\n");
        for span in prose.split('`').skip(1).step_by(2).filter(|span| span.starts_with("lockkeeper ")) {
            let words: Vec<_> =
                span.split_whitespace().skip(1).take_while(|word| *word != "--" && *word != "|").collect();
            let names = words.iter().take_while(|word| word.chars().all(|c| c.is_ascii_lowercase()));
            let of_two =
                ["member", "session", "features", "config", "auth"].contains(words.first().expect("a command"));
            let command: Vec<_> = names.take(if of_two { 2 } else { 1 }).copied().collect();
            let help = help(&command);
            count += 1;
            for option in words.iter().filter(|word| word.starts_with('-') && word.len() > 1) {
                let name = option.split('=').next().expect("a name");
                if !help.split([' ', ',', '\n', '=']).any(|word| word == name) {
                    broken.push(format!("{}: `{span}`: there is no {name}", path.display()));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(count > 40, "only {count} commands were found");
}
