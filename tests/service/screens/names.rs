//! Names and reasons of clients are text on every screen: no markup, and no character that hides or reverses others.

use serde_json::json;

use super::{Port, SCREENS};

/// Names that try to act on a page, and how it shows them.
const CORPUS: &[(&str, &str)] = &[
    ("<img src=x onerror=alert(1)>", "&#60;img src=x onerror=alert(1)&#62;"),
    ("<script>alert(1)</script>", "&#60;script&#62;alert(1)&#60;/script&#62;"),
    ("\"><svg onload=alert(1)>", "&#34;&#62;&#60;svg onload=alert(1)&#62;"),
    ("' autofocus onfocus='alert(1)", "&#39; autofocus onfocus=&#39;alert(1)"),
    ("</title></textarea></noscript><b>", "&#60;/title&#62;&#60;/textarea&#62;&#60;/noscript&#62;&#60;b&#62;"),
    ("javascript:alert(1)", "javascript:alert(1)"),
    ("{{7*7}} ${7*7} &lt;b&gt;", "{{7*7}} ${7*7} &#38;lt;b&#38;gt;"),
    ("pay\u{200b}roll", "pay\\u{200b}roll"),
    ("a\u{202e}gpj.exe", "a\\u{202e}gpj.exe"),
    ("\u{2067}rtl\u{2069}\u{200f}", "\\u{2067}rtl\\u{2069}\\u{200f}"),
    ("\u{feff}bom\u{ad}", "\\u{feff}bom\\u{ad}"),
    ("short\u{1bca0}hand\u{1bca3}", "short\\u{1bca0}hand\\u{1bca3}"),
];

/// What must be nowhere on a screen: markup of the names, and characters that are not seen.
fn check(path: &str, body: &str) {
    for markup in ["<img src=x", "<script>", "<svg onload", "<b>\"", "\" onfocus", "' onfocus", "</textarea>"] {
        assert!(!body.contains(markup), "{path} has {markup}");
    }
    let unseen = body.chars().find(|c| {
        c.is_control() && *c != '\n'
            || matches!(*c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
                | '\u{feff}' | '\u{1bca0}'..='\u{1bca3}')
    });
    assert_eq!(unseen, None, "{path}");
    // Links lead to screens, also those that are made of names.
    for link in body.split(" href=\"").skip(1) {
        assert!(link.starts_with('/') || link.starts_with("#main"), "{path} leads to {}", &link[..link.len().min(40)]);
    }
}

/// Each name is a lock, a holder, a waiter, a reason and a session, and every screen shows it as text.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_text_on_every_screen() {
    let port = Port::start(false).await;
    for (number, (name, _)) in CORPUS.iter().enumerate() {
        let who = json!({"who": name, "why": name, "host": name});
        let with = |mut body: serde_json::Value| {
            body.as_object_mut().expect("fields").extend(who.as_object().expect("fields").clone());
            body
        };
        let (handle, lock) = (format!("s-{number}"), name);
        let session = port.call("sessions", with(json!({"handle": handle, "ttl_ms": 60_000}))).await["session"].clone();
        port.call("acquire", with(json!({"lock": lock, "session": session, "handle": handle, "request": "1"}))).await;
        let waits = json!({
            "lock": lock, "lease_ms": 60_000, "wait_ms": 600_000, "poll_ms": 1, "handle": "h",
            "request": format!("00000000-0000-4000-8000-{number:012}"),
        });
        port.call("acquire", with(waits)).await;
    }
    for screen in SCREENS {
        let answer = port.get(screen).await;
        assert_eq!(answer.status, 200, "{screen}: {}", answer.body);
        check(screen, &answer.body);
    }
    let list = port.get("/locks").await;
    for (name, shown) in CORPUS {
        assert!(list.body.contains(shown), "{shown} is not in {}", list.body);
        let link = form(name);
        let answer = port.get(&format!("/lock?lock={link}")).await;
        assert_eq!(answer.status, 200, "{name}: {}", answer.body);
        check(name, &answer.body);
        assert!(answer.body.contains(&format!("<h1 class=\"name\">{shown}</h1>")), "{}", answer.body);
        assert_eq!(answer.body.matches("1 holding, 1 waiting").count(), 1, "the link is exact");
        assert!(list.all("href").contains(&format!("/lock?lock={link}")), "{link} in {:?}", list.all("href"));
        let filtered = port.get(&format!("/locks?prefix={link}&ns=default")).await;
        check(name, &filtered.body);
        let session = answer.all("href").into_iter().find(|link| link.starts_with("/session?")).expect("a session");
        let session = port.get(&session).await;
        check("/session", &session.body);
        assert!(session.body.contains(shown), "{}", session.body);
    }
    for refused in [
        "/lock?lock=",
        "/lock?lock=%00",
        "/lock?lock=%ff",
        "/?ns=%3Cb%3E",
        "/session?id=%3Cb%3E",
        "/session?id=999",
        "/sessions?after=x",
    ] {
        let answer = port.get(refused).await;
        assert!([400, 404].contains(&answer.status), "{refused}: {}", answer.status);
        assert!(answer.body.starts_with("<!doctype html>"), "{}", answer.body);
        check(refused, &answer.body);
    }
}

/// Encodes a text for a query.
pub(super) fn form(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"*-._".contains(&byte);
    let encoded = |byte: u8| match byte {
        b' ' => "+".to_owned(),
        byte if plain(byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(encoded).collect()
}
