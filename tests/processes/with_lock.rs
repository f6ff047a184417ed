//! `scripts/examples/with-lock.sh` in each shell that is there: it runs a command under a lock with curl alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::cluster::Cluster;
use crate::http::HttpPort;
use crate::wait::block_until;

/// How the script is run in one shell.
struct Script<'a> {
    cluster: &'a Cluster,
    shell: &'static str,
}

impl Script<'_> {
    fn command(&self, arguments: &[&str]) -> Command {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/examples/with-lock.sh");
        let nodes: Vec<_> = (1..=3).map(|node| format!("http://{}", self.cluster.http(node))).collect();
        let mut command = Command::new(self.shell);
        command.arg(path).args(arguments).env("LOCKKEEPER_HTTP", nodes.join(",")).env("LOCKKEEPER_TTL_MS", "3000");
        command.env_remove("LOCKKEEPER_NAMESPACE").stdin(Stdio::null());
        command
    }

    fn code(&self, arguments: &[&str]) -> Option<i32> {
        self.command(arguments).stderr(Stdio::null()).status().expect("a shell").code()
    }

    /// Starts a command that creates a file, and returns once that is there.
    fn start(&self, lock: &str, script: &str) -> (Child, PathBuf) {
        let file = self.cluster.folder().join(format!("{}-{lock}", self.shell));
        let script =
            format!("echo $LOCKKEEPER_LOCK $LOCKKEEPER_TOKEN > {0}.new; mv {0}.new {0}; {script}", file.display());
        let child = self.command(&[lock, "sh", "-c", &script]).stderr(Stdio::null()).spawn().expect("a shell");
        block_until("the command starts", || file.exists());
        (child, file)
    }
}

fn is_there(program: &str) -> bool {
    let there = Command::new(program).arg("-c").arg(":").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    assert!(there || std::env::var_os("LOCKKEEPER_SKIP_NOTHING").is_none(), "there is no {program}");
    there
}

fn ended(mut child: Child) -> Option<i32> {
    block_until("the script ends", || child.try_wait().expect("a child").is_some());
    child.wait().expect("ended").code()
}

/// The command runs with the lock and gets its token; its exit code is that of the script, and the lock is free at
/// once. A lock that is held gives 75, one that is broken 76 after a TERM, and a hold continues while its node is
/// replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_holds_a_lock_with_curl() {
    let mut cluster = Cluster::start().await;
    for shell in ["dash", "bash"].into_iter().filter(|shell| is_there(shell) && is_there("curl")) {
        let script = Script { cluster: &cluster, shell };
        let port = HttpPort::new(&cluster.http(2));
        // The script repeats its request for seconds, and the other cases need not wait for it.
        let mut nowhere = script.command(&["a", "true"]);
        nowhere.env("LOCKKEEPER_HTTP", "http://127.0.0.1:1").stderr(Stdio::null());
        let nowhere = nowhere.spawn().expect("a shell");
        assert_eq!(script.code(&["only-a-lock"]), Some(64));
        assert_eq!(script.code(&["na\"me", "sh", "-c", "exit 7"]), Some(7), "{shell}");
        let free = port.post("wait", json!({"lock": "na\"me", "poll_ms": 0}));
        assert_eq!(free.body["free"], true, "{shell}");
        let (running, file) = script.start("a", "trap 'exit 0' TERM; while :; do sleep 0.1; done");
        let holder = port.get("locks?lock=a").body["holders"][0].clone();
        let expected = format!("a {}\n", holder["token"].as_str().expect("a token"));
        assert_eq!(fs::read_to_string(file).expect("its variables"), expected);
        for wait_ms in ["0", "300"] {
            let busy = script.command(&["a", "true"]).env("LOCKKEEPER_WAIT_MS", wait_ms).stderr(Stdio::null()).status();
            assert_eq!(busy.expect("a shell").code(), Some(75), "{shell}");
        }
        port.post("break", json!({"lock": "a", "token": holder["token"], "why": "a test"}));
        assert_eq!(ended(running), Some(76), "{shell}");
        // The first node has the stream. The command lasts for two TTLs.
        let (running, _) = script.start("b", "sleep 6; exit 5");
        assert_eq!(cluster.stop(1), Some(0));
        cluster.spawn(1);
        cluster.await_answer(1).await;
        assert_eq!(ended(running), Some(5), "{shell}: the hold continues at another node");
        assert_eq!(ended(nowhere), Some(69), "{shell}");
    }
}

/// If no node shows that the lock is held, the command gets TERM before another client can have it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_stops_its_command_without_nodes() {
    let mut cluster = Cluster::start().await;
    let script = Script { cluster: &cluster, shell: "sh" };
    if !is_there("curl") {
        return;
    }
    let (running, _) = script.start("a", "exec sleep 600");
    for node in 1..=3 {
        cluster.kill(node);
    }
    assert_eq!(ended(running), Some(76));
}
