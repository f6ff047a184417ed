//! Acts with the page: they need a sign-in, a form of the page, a reason and the name of the lock, and hit one grant.

use std::fs;

use serde_json::{Value, json};

use super::{Answer, Port, SCREENS};

impl Port {
    /// Takes a lock for a minute, and returns its token and handle.
    async fn take(&self, lock: &str) -> (String, String) {
        let taken = self.call("acquire", json!({"lock": lock, "lease_ms": 60_000, "who": "ann"})).await;
        let text = |name: &str| taken[name].as_str().expect("a text").to_owned();
        (text("token"), text("handle"))
    }

    /// Returns the token of the holder, if any.
    async fn holder(&self, lock: &str, cookie: &str) -> Option<String> {
        let shown = self.visit(&format!("/lock?lock={lock}"), cookie).await;
        let token = shown.body.split("<dt>token</dt><dd>").nth(1)?;
        token.split('<').next().map(str::to_owned)
    }

    /// Returns the executed acts of this name in the audit log.
    fn acts(&self, word: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.audit()).expect("a log");
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        lines.filter(|line| line["act"] == word && line["phase"] == "done").collect()
    }
}

fn break_of(lock: &str, token: &str) -> String {
    format!("/break?lock={lock}&token={token}")
}

/// A break shows what it would do, wants a reason and the name of the lock, and then breaks the hold. The audit log and
/// the history name the principal and the reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_break_is_shown_first_and_kept() {
    let port = Port::start(true).await;
    let (token, _) = port.take("nightly").await;
    let cookie = port.sign_in("ops").await;
    let lock = port.visit("/lock?lock=nightly", &cookie).await;
    assert!(lock.all("href").contains(&break_of("nightly", &token)), "{}", lock.body);
    let form = port.visit(&break_of("nightly", &token), &cookie).await;
    assert!(
        form.body.contains("none: no client waits, or the first waiter still waits")
            && form.body.contains("Nothing was broken yet")
    );
    let secret = form.secret();
    let path = break_of("nightly", &token);
    for (fields, expected) in [
        ("why=dead+host&typed=nightl", "The typed name is not the name"),
        ("why=&typed=nightly", "The reason was refused"),
    ] {
        let refused = port.post(&path, &cookie, &format!("secret={secret}&{fields}")).await;
        assert_eq!(refused.status, 400, "{refused:?}");
        assert!(refused.body.contains(expected), "{}", refused.body);
        assert_eq!(port.holder("nightly", &cookie).await.as_ref(), Some(&token));
    }
    let done = port.post(&path, &cookie, &format!("secret={secret}&why=dead+host&typed=nightly")).await;
    assert_eq!(done.status, 200, "{done:?}");
    assert!(done.body.contains("The hold is broken."), "{}", done.body);
    assert_eq!(port.holder("nightly", &cookie).await, None);
    let [act] = &port.acts("break")[..] else { panic!("{:?}", port.acts("break")) };
    assert_eq!((&act["principal"], &act["why"], &act["token"]), (&json!("ops"), &json!("dead host"), &json!(token)));
    let lock = port.visit("/lock?lock=nightly", &cookie).await;
    assert!(lock.body.contains("by ops") && lock.body.contains("<q>dead host</q>"), "{}", lock.body);
}

/// Blanks belong to the name of a lock, also where the name is typed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_with_blanks_is_typed_with_them() {
    let port = Port::start(true).await;
    let (token, _) = port.take(" two  blanks ").await;
    let (cookie, path) = (port.sign_in("ops").await, break_of("+two++blanks+", &token));
    let form = port.visit(&path, &cookie).await;
    assert!(form.body.contains("<code> two  blanks </code>"), "{}", form.body);
    for (typed, status) in [("two++blanks", 400), ("+two+blanks+", 400), ("+two++blanks+", 200)] {
        let fields = format!("secret={}&why=+dead+host+&typed={typed}", form.secret());
        assert_eq!(port.post(&path, &cookie, &fields).await.status, status, "{typed}");
    }
    assert_eq!(port.acts("break")[0]["why"], "dead host");
}

/// A form that was shown for one grant changes nothing once another client holds the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_break_changes_nothing() {
    let port = Port::start(true).await;
    let cookie = port.sign_in("ops").await;
    let (stale, handle) = port.take("nightly").await;
    let secret = port.visit(&break_of("nightly", &stale), &cookie).await.secret();
    port.call("release", json!({"lock": "nightly", "handle": handle})).await;
    let (newer, _) = port.take("nightly").await;
    let fields = format!("secret={secret}&why=dead+host&typed=nightly");
    let refused = port.post(&break_of("nightly", &stale), &cookie, &fields).await;
    assert_eq!(refused.status, 409, "{refused:?}");
    assert!(refused.body.contains("Nothing was done"), "{}", refused.body);
    // The secret of a form is of no use for the newer grant.
    assert_eq!(port.post(&break_of("nightly", &newer), &cookie, &fields).await.status, 403);
    assert_eq!(port.holder("nightly", &cookie).await, Some(newer));
    assert!(port.acts("break").is_empty());
}

/// A holder is asked by a caller with the right to lock. The same caller cannot break, and a reader can do neither.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acts_need_their_rights() {
    let port = Port::start(true).await;
    let (token, _) = port.take("nightly").await;
    let path = format!("/ask?lock=nightly&token={token}");
    for (principal, status) in [("dev", 200), ("eye", 403)] {
        let cookie = port.sign_in(principal).await;
        let secret = port.visit(&path, &cookie).await.secret();
        let asked = port.post(&path, &cookie, &format!("secret={secret}&why=please+finish")).await;
        assert_eq!(asked.status, status, "{principal}: {asked:?}");
        assert_eq!(port.visit(&break_of("nightly", &token), &cookie).await.status, 403, "{principal}");
    }
    assert_eq!(port.holder("nightly", &port.sign_in("eye").await).await.as_ref(), Some(&token));
    let [asked] = &port.acts("ask")[..] else { panic!("{:?}", port.acts("ask")) };
    assert_eq!([&asked["principal"], &asked["why"], &asked["token"]], ["dev", "please finish", &token]);
}

/// A form counts only with the cookie and secret of its sign-in, and from a page of this port.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_forms_change_nothing() {
    let port = Port::start(true).await;
    let (token, _) = port.take("nightly").await;
    let (cookie, other) = (port.sign_in("ops").await, port.sign_in("ops").await);
    let path = break_of("nightly", &token);
    let secret = port.visit(&path, &cookie).await.secret();
    let fields = format!("secret={secret}&why=dead+host&typed=nightly");
    let kind = ("Content-Type", "application/x-www-form-urlencoded");
    let own = format!("http://{}", port.address);
    let own = ("Origin", &*own);
    let evil = ("Origin", "http://evil.example");
    let (session, another) = (("Cookie", &*cookie), ("Cookie", &*other));
    /// A name, headers and a body.
    type Forged<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);
    let forged: [Forged<'_>; 8] = [
        ("no cookie", &[kind, own], &fields),
        ("another sign-in", &[kind, own, another], &fields),
        ("another site", &[kind, evil, session], &fields),
        ("no origin", &[kind, session], &fields),
        ("another site by Sec-Fetch-Site", &[kind, session, ("Sec-Fetch-Site", "cross-site")], &fields),
        ("no form", &[("Content-Type", "text/plain"), own, session], &fields),
        ("no secret", &[kind, own, session], "why=dead+host&typed=nightly"),
        ("the secret of an ask", &[kind, own, session], ""),
    ];
    let ask = port.visit(&format!("/ask?lock=nightly&token={token}"), &cookie).await.secret();
    let of_ask = format!("secret={ask}&why=dead+host&typed=nightly");
    for (what, headers, fields) in forged {
        let fields = if fields.is_empty() { &of_ask } else { fields };
        let answer = port.send("POST", &path, headers, fields).await;
        assert!([401, 403, 415].contains(&answer.status), "{what}: {answer:?}");
    }
    assert_eq!(port.holder("nightly", &cookie).await, Some(token));
    assert_eq!(port.post(&path, &cookie, &fields).await.status, 200, "the true form");
}

/// After a sign-out the cookie opens nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sign_out_ends_the_cookie() {
    let port = Port::start(true).await;
    let cookie = port.sign_in("eye").await;
    let secret = |screen: &Answer| {
        screen.body.split("name=\"secret\" value=\"").nth(1).and_then(|rest| rest.split('"').next()).map(str::to_owned)
    };
    let screen = port.visit("/", &cookie).await;
    assert!(screen.body.contains("<span>eye</span>"), "{}", screen.body);
    assert_eq!(port.post("/logout", &cookie, "secret=0").await.status, 403);
    assert_eq!(port.visit("/", &cookie).await.status, 200, "a forged form signs no browser out");
    let secret = secret(&screen).expect("a form");
    assert_eq!(port.post("/logout", &cookie, &format!("secret={secret}")).await.status, 303);
    assert_eq!(port.visit("/", &cookie).await.status, 303);
}

/// Sign-ins and mistyped tokens do not count as guesses. After five unknown tokens an address must wait, also with a
/// known one, and keeps its sign-ins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guesses_are_limited() {
    let port = Port::start(true).await;
    let mut cookie = String::new();
    for _ in 0..7 {
        cookie = port.sign_in("eye").await;
        for mistyped in ["", "x", "lkt_0"] {
            let answer = port.post("/login", "", &format!("token={mistyped}")).await;
            assert_eq!((answer.status, answer.header("set-cookie")), (401, ""), "{mistyped}");
        }
    }
    let unknown = format!("token={}", super::token("unknown"));
    for _ in 0..5 {
        let answer = port.post("/login", "", &unknown).await;
        assert_eq!((answer.status, answer.header("set-cookie")), (401, ""));
    }
    let known = format!("token={}", super::token("ops"));
    for form in [&unknown, &known] {
        let answer = port.post("/login", "", form).await;
        assert_eq!(answer.status, 429);
        assert!(answer.body.contains("5 unknown tokens within a minute: try again in "), "{}", answer.body);
    }
    assert_eq!(port.visit("/", &cookie).await.status, 200);
}

/// A browser whose token was revoked, whose principal lost its rights, or whose sign-in the node has forgotten is led
/// to the form, which says why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sign_in_that_ended_is_explained() {
    let port = Port::start(true).await;
    let (token, _) = port.take("nightly").await;
    let cookie = port.sign_in("ops").await;
    let (path, known) = (break_of("nightly", &token), ["ops", "dev", "eye"].map(|name| (name, super::token(name))));
    let secret = port.visit(&path, &cookie).await.secret();
    let form = format!("secret={secret}&why=dead+host&typed=nightly");

    port.reload(&super::rules(&known).replace("\"*\"", "\"other\""));
    let refused = port.visit("/locks", &cookie).await;
    assert_eq!(refused.status, 403, "{refused:?}");
    assert!(refused.body.contains("Ask an operator for the right") && refused.body.contains(">Sign in<"));

    port.reload(&super::rules(&known[1..]));
    for screen in ["/", "/locks", &path, "/page/live"] {
        let moved = port.visit(screen, &cookie).await;
        assert_eq!(moved.status, 303, "{screen}: {moved:?}");
        let login = port.visit(moved.header("location"), &cookie).await;
        assert!(login.body.contains("Your sign-in has ended: the token is not known"), "{login:?}");
    }
    let refused = port.post(&path, &cookie, &form).await;
    assert_eq!(refused.status, 401, "{refused:?}");
    assert!(refused.body.contains("Nothing was done. Sign in, then repeat it."), "{}", refused.body);
    assert_eq!(port.holder("nightly", &port.sign_in("eye").await).await, Some(token));

    let login = port.visit("/login?next=%2F", "lockkeeper-node-1=f").await;
    assert!(login.body.contains("a node that restarts forgets it"), "{}", login.body);
    let login = port.get("/login?next=%2F").await;
    assert!(!login.body.contains("has ended"), "a browser that never signed in has nothing that could end");
}

/// Looking changes nothing: not the holders, not the history, and no act is executed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_get_changes_nothing() {
    let port = Port::start(true).await;
    let (token, _) = port.take("nightly").await;
    let cookie = port.sign_in("ops").await;
    let kept = async || {
        let bearer = format!("Bearer {}", super::token("ops"));
        let headers = [("Authorization", &*bearer)];
        let history = port.send("GET", "/v1/ns/default/history", &headers, "").await;
        (history.body, port.acts("break").len())
    };
    let before = kept().await;
    let secret = port.visit(&break_of("nightly", &token), &cookie).await.secret();
    let lock = ["lock", "ask", "break"]
        .map(|word| format!("/{word}?lock=nightly&token={token}&secret={secret}&why=x&typed=nightly&dry_run=false"));
    for path in SCREENS.iter().map(|path| (*path).to_owned()).chain(lock) {
        for method in ["GET", "HEAD"] {
            let answer = port.send(method, &path, &[("Cookie", &cookie)], "").await;
            assert_eq!(answer.status, 200, "{method} {path}: {answer:?}");
        }
    }
    assert_eq!(port.visit("/logout", &cookie).await.status, 405);
    assert_eq!(kept().await, before);
    assert_eq!(port.holder("nightly", &cookie).await, Some(token));
}

/// A cluster that knows its callers names its node and its id only to them, also in refusals. Without principals every
/// answer has both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_node_is_named_to_those_that_it_knows() {
    let (knows, open) = (Port::start(true).await, Port::start(false).await);
    let bearer = format!("Bearer {}", super::token("ops"));
    for (path, known, unknown) in [
        ("/v1/status", 200, 401),
        ("/v1/ns/Default/locks", 400, 401),
        ("/v1/ns/%ff/locks", 400, 401),
        ("/v1/ns/default/locks?lock=%ff", 400, 401),
    ] {
        let status = |answer: &super::Answer| {
            let named = ["lockkeeper-node", "lockkeeper-cluster"].map(|name| !answer.header(name).is_empty());
            assert_eq!(named[0], named[1], "{answer:?}");
            (answer.status, named[0])
        };
        assert_eq!(status(&knows.send("GET", path, &[("Authorization", &bearer)], "").await), (known, true), "{path}");
        assert_eq!(status(&knows.get(path).await), (unknown, false), "{path}");
        assert_eq!(status(&open.get(path).await), (known, true), "{path}");
    }
    assert_eq!(knows.get("/v1/nothing").await.header("lockkeeper-node"), "");
    assert_ne!(open.get("/v1/nothing").await.header("lockkeeper-node"), "");
}

/// Without principals in the cluster the page has no acts, also for a caller that knows their paths.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_without_principals_has_no_acts() {
    let port = Port::start(false).await;
    let (token, _) = port.take("nightly").await;
    let lock = port.get("/lock?lock=nightly").await;
    assert!(!lock.body.contains("/break") && !lock.body.contains("Sign in"), "{}", lock.body);
    assert_eq!(port.get(&break_of("nightly", &token)).await.status, 403);
    assert_eq!(port.post(&break_of("nightly", &token), "", "why=x&typed=nightly").await.status, 403);
    assert_eq!(port.post("/login", "", &format!("token={}", super::token("ops"))).await.status, 403);
    assert_eq!(port.holder("nightly", "").await, Some(token));
}
