//! Tokens over TLS: signing in to the web page of a node as a browser does, and calls of a program.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::cluster::Cluster;
use crate::venv;

const OTHER_LANGUAGES: &str = include_str!("../../src/manual/other-languages.md");

/// Starts nodes with TLS and rules, which serve clients without a certificate, too. Returns them and the path of a
/// token of `ops`.
async fn with_rules() -> (Cluster, String) {
    let mut cluster = Cluster::start_tls("fast").await;
    let (rules, token) = (cluster.folder().join("auth.toml"), cluster.folder().join("token"));
    let text = "version = 1\n[[role]]\nname = \"all\"\nrules = [{ namespace = \"*\", right = \"admin\" }]\n\
                [[principal]]\nname = \"ci\"\nroles = [\"all\"]\ncertificate = true\n\
                [[principal]]\nname = \"ops\"\nroles = [\"all\"]\n";
    fs::write(&rules, text).expect("rules");
    fs::set_permissions(&rules, fs::Permissions::from_mode(0o600)).expect("private");
    let [rules, token] = [&rules, &token].map(|path| path.to_str().expect("a path").to_owned());
    let made = cluster.command(&["auth", "token", &rules, "ops", "--out", &token]).status().expect("ran");
    assert!(made.success());
    for node in 1..=3 {
        cluster.stop(node);
        let config = fs::read_to_string(cluster.config(node)).expect("a configuration");
        let config = config.replace("client_cert = \"required\"", "client_cert = \"optional\"");
        fs::write(cluster.config(node), config + &format!("[auth]\nfile = {rules:?}\n")).expect("a configuration");
    }
    for node in 1..=3 {
        cluster.spawn(node);
    }
    cluster.await_leader().await;
    cluster.await_answer(1).await;
    (cluster, token)
}

/// The sample of the manual for programs with a token reaches the nodes over TLS without a certificate, and is refused
/// with another token.
#[tokio::test]
async fn a_program_proves_its_token_over_tls() {
    let Some(python) = venv::for_grpc(OTHER_LANGUAGES) else { return };
    let (cluster, token) = with_rules().await;
    let mut samples = OTHER_LANGUAGES.split("```python\n").filter_map(|rest| rest.split("```").next());
    let sample = samples.find(|sample| sample.starts_with("credentials = ")).expect("the sample");
    let sample = sample.replace("certs/ca.pem", &cluster.folder().join("certs/ca.pem").to_string_lossy());
    let leader = cluster.endpoints().swap_remove(cluster.await_leader().await - 1);
    let sample = sample.replace("db1:7600", &leader).replace("ci.token", &token);
    let program = format!("import grpc\npb, rpc = grpc.protos_and_services(\"lockkeeper/v1/locks.proto\")\n{sample}");
    let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let run = |program: &str| venv::run(Command::new(&python).env("PYTHONPATH", &protos).args(["-c", program]));
    run(&program).unwrap_or_else(|why| panic!("{why}"));
    let refused = run(&program.replace("Bearer ", "Bearer x")).expect_err("another token");
    assert!(refused.contains("StatusCode.UNAUTHENTICATED"), "{refused}");
}

/// Over TLS a sign-in returns a cookie that a browser sends over TLS alone, and the screens know its principal.
#[tokio::test]
async fn a_sign_in_over_tls_gets_a_cookie_for_tls_alone() {
    if Command::new("curl").arg("--version").output().is_err() {
        return eprintln!("not run: there is no curl");
    }
    let (cluster, token) = with_rules().await;
    let (authority, page) = (cluster.folder().join("certs/ca.pem"), format!("https://{}", cluster.http(1)));
    let asked = |path: &str, options: &[&str]| {
        let mut curl = Command::new("curl");
        let curl = curl.args(["-sSi", "--cacert"]).arg(&authority).args(options).arg(format!("{page}{path}"));
        let output = curl.output().expect("curl");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let (origin, form) = (format!("Origin: {page}"), format!("token@{token}"));
    let answer = asked("/login?next=%2Flocks", &["-H", &origin, "--data-urlencode", &form]);
    assert!(answer.starts_with("HTTP/1.1 303 "), "{answer}");
    let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
    assert!(cookie.contains("; HttpOnly; SameSite=Strict; Secure"), "{cookie}");
    let shown = asked("/locks", &["-b", cookie.split(';').next().expect("a cookie")]);
    assert!(shown.starts_with("HTTP/1.1 200 ") && shown.contains("<span>ops</span>"), "{shown}");
}
