//! `top`: one frame without a terminal, and the keys on a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockkeeper::client::Client;
use lockkeeper::rpc::RemoteService;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::Value;

use crate::cluster::{Cluster, PATIENCE};

/// A program on a pseudo-terminal of 24 lines.
struct Terminal {
    keyboard: File,
    printed: Arc<Mutex<String>>,
    program: Child,
}

impl Terminal {
    fn run(mut command: Command, columns: u16) -> Self {
        let controller: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        tcsetwinsize(&controller, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap().into_string().unwrap();
        let user = File::options().read(true).write(true).open(name).unwrap();
        let program = command.stdin(user.try_clone().unwrap()).stdout(user.try_clone().unwrap()).stderr(user).spawn();
        let keyboard = File::from(controller);
        let printed = Arc::<Mutex<String>>::default();
        let (mut screen, seen) = (keyboard.try_clone().unwrap(), Arc::clone(&printed));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                seen.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self { keyboard, printed, program: program.unwrap() }
    }

    /// Sends keys, and waits until this text is printed afterwards.
    fn press(&mut self, keys: &str, text: &str) {
        self.printed.lock().unwrap().clear();
        self.keyboard.write_all(keys.as_bytes()).unwrap();
        self.shows(text);
    }

    fn shows(&self, text: &str) {
        let began = Instant::now();
        while !self.printed.lock().unwrap().contains(text) {
            assert!(began.elapsed() < PATIENCE, "no {text:?} on the screen: {}", self.printed.lock().unwrap());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// Waits until a lock has a waiter.
async fn until_waiting(client: &Client<RemoteService>, name: &str) {
    let began = Instant::now();
    while client.inspect(name).await.unwrap().value.waiters.is_empty() {
        assert!(began.elapsed() < PATIENCE, "no waiter");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Prints frames until one has what each node measured. A busy node may answer one request for its metrics too late.
fn measured(cluster: &Cluster) -> Value {
    let began = Instant::now();
    loop {
        let shown = cluster.command(&["top", "--json", "--delay", "200ms"]).output().expect("ran");
        let frame: Value = serde_json::from_slice(&shown.stdout).expect("an object");
        let complete = |node: &Value| {
            let has = |field: &str| node[field].is_u64();
            has("memory_bytes") && has("cpu_percent") && has("behind") && has("uncounted_ms")
        };
        if frame["nodes"].as_array().expect("nodes").iter().all(complete) {
            return frame;
        }
        assert!(began.elapsed() < PATIENCE, "{frame}");
    }
}

/// Under TLS, too, a frame has what each node measured.
#[tokio::test]
async fn nodes_are_measured_under_tls() {
    let cluster = Cluster::start_tls("fast").await;
    let frame = measured(&cluster);
    assert_eq!(frame["notes"], serde_json::json!([]), "{frame}");
}

/// A frame has the nodes with what they measured, and the lock with a waiter first. On a terminal the keys filter,
/// explain, ask the holder and end the program, which leaves the terminal as it was.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_and_locks_are_shown_as_they_change() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let idle = client.lock("archive").acquire().await.unwrap();
    let held = client.lock("nightly").why("rebuild").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let client = cluster.client();
        async move { client.lock("nightly").acquire().await.map(drop) }
    });
    until_waiting(&client, "nightly").await;

    let frame = measured(&cluster);
    assert_eq!((&frame["held"], &frame["waiting"]), (&2.into(), &1.into()), "{frame}");
    assert_eq!((&frame["locks"][0]["lock"], &frame["locks"][0]["state"]), (&"nightly".into(), &"live".into()));
    assert!(frame["locks"][0]["longest_wait_ms"].is_u64(), "{frame}");
    let nodes = frame["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.iter().filter(|node| node["role"] == "leader").count(), 1);

    let mut watch = client.watch("nightly", None).await.unwrap();
    let mut terminal = Terminal::run(cluster.command(&["top", "--delay", "100ms"]), 80);
    terminal.shows("> nightly");
    terminal.press("s", "longest hold");
    terminal.press("farch\r", "LOCK arch*");
    terminal.press("f\u{7f}\u{7f}\u{7f}\u{7f}nigh\r", "> nightly");
    terminal.press("\r", "is held by");
    terminal.press("x", "f filter");
    terminal.press("aplease\r", "asked the holder of nightly");
    let event = tokio::time::timeout(PATIENCE, watch.next()).await.expect("the holder is asked").unwrap();
    assert_eq!(event.kind.word(), "revoke-requested");
    terminal.press("q", "\u{1b}[?1049l");
    let ended = terminal.program.wait().expect("ended");
    assert_eq!(ended.code(), Some(0));
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap();
    idle.release().await.unwrap();
}
