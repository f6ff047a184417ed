//! Checks of `[tls]`.

use super::*;

/// The files of `[tls]` protect every listener. A section of one listener may name other files.
#[test]
fn tls_protects_every_listener() {
    let files = |cert: &str| TlsFiles {
        ca: Some("ca.pem".into()),
        cert: Some(format!("{cert}.pem").into()),
        key: Some(format!("{cert}.key").into()),
        refuse: Some("refused.txt".into()),
    };
    let required = |cert, client_cert_required| Protection::Tls {
        mode: TlsMode::Require,
        files: files(cert),
        client_cert_required,
    };
    let config = read(&GOOD.replace("[tls]", &format!("[tls]\n{CERTIFICATES}"))).unwrap();
    let Tls { client, peer, http } = config.tls;
    assert_eq!([client, peer, http], [true, false, true].map(|clients| required("n1", clients)));
    let own = "[tls.client]\ncert = \"web.pem\"\nkey = \"web.key\"\nclient_cert = \"optional\"";
    let config = read(&GOOD.replace("[tls]", &format!("[tls]\n{CERTIFICATES}\n{own}"))).unwrap();
    assert_eq!((config.tls.client, config.tls.peer), (required("web", false), required("n1", false)));
    assert_eq!(read(GOOD).unwrap().tls, Tls::default());
}

/// Without `[auth]` a certificate is all that a client proves, so each client needs one by default. With it, a token
/// serves as well.
#[test]
fn clients_need_a_certificate_without_rules() {
    let clients = |section: &str| {
        let tls = read(&GOOD.replace("[tls]", &format!("[tls]\n{CERTIFICATES}\n{section}"))).unwrap().tls;
        [tls.client, tls.http].map(|of| matches!(of, Protection::Tls { client_cert_required: true, .. }))
    };
    let rules = "[auth]\nfile = \"auth.toml\"\n[audit]\nfile = \"audit.jsonl\"";
    assert_eq!(clients(""), [true, true]);
    assert_eq!(clients(rules), [false, false]);
    assert_eq!(clients("[tls.http]\nclient_cert = \"optional\""), [true, false]);
    assert_eq!(clients(&format!("[tls.client]\nclient_cert = \"required\"\n{rules}")), [true, false]);
}

/// A listener that other machines can reach needs TLS, or the operator says that it is meant to be open.
#[test]
fn an_open_listener_needs_tls() {
    let open = GOOD.replacen("client = \"127.0.0.1:7601\"", "client = \"0.0.0.0:7601\"", 1);
    let refused = read(&open).expect_err("refused").to_string();
    assert!(
        refused.starts_with("n1.toml:6: listen.client is 0.0.0.0:7601, which other machines can reach"),
        "{refused}"
    );
    let fix = "; make certificates with \"lockkeeper certs certs --config n1.toml\" and set ca, cert and key under \
               [tls], or listen on 127.0.0.1";
    assert!(refused.contains(fix), "{refused}");
    let meant = read(&open.replace("[tls]", "[tls.client]\ninsecure = true")).unwrap();
    let warning = meant.tls.client.warning("client", meant.listen.client, false).expect("a warning");
    assert!(warning.ends_with("is open to every machine that reaches it (tls.client.insecure)"), "{warning}");
    let protected = read(&open.replace("[tls]", &format!("[tls]\n{CERTIFICATES}"))).unwrap();
    assert_eq!(protected.tls.client.warning("client", protected.listen.client, false), None);
    let section = format!("[tls]\n{CERTIFICATES}\n[tls.client]\nclient_cert = \"optional\"");
    let served = read(&open.replace("[tls]", &section)).unwrap();
    let warning = |has_auth| served.tls.client.warning("client", served.listen.client, has_auth);
    assert!(warning(false).expect("a warning").ends_with("and there is no [auth] (tls.client.client_cert)"));
    assert_eq!(warning(true), None);
    let mapped = GOOD.replace("127.0.0.1:7621", "[::ffff:127.0.0.1]:7621");
    assert!(read(&mapped).is_ok());
}

/// Contradictions and missing parts of `[tls]` are refused with their line.
#[test]
fn tls_settings_must_agree() {
    let refuse = |section: &str, holds: &str| refused("[tls]", section, "n1.toml:", holds);
    refuse("[tls]\ncert = \"n1.pem\"", "[tls] names cert and no key; name both");
    refuse("[tls]\nkey = \"n1.key\"", "[tls] names key and no cert; name both");
    for (key, value) in [("mode", "require"), ("client_cert", "required"), ("ca", "ca.pem"), ("refuse", "refused.txt")]
    {
        let holds = format!("tls.client.{key} is set, and there is no certificate; set ca, cert and key under [tls]");
        refuse(&format!("[tls.client]\n{key} = \"{value}\""), &holds);
    }
    for key in ["ca", "refuse"] {
        let holds = format!("tls.{key} is set, and there is no certificate; set ca, cert and key under [tls]");
        refuse(&format!("[tls]\n{key} = \"a.pem\""), &holds);
    }
    let without_ca = "[tls]\ncert = \"a\"\nkey = \"b\"";
    refuse(without_ca, "tls.client checks certificates, and there is no ca; set ca, cert and key under [tls], or set");
    let optional = format!("{without_ca}\n[tls.client]\nclient_cert = \"optional\"");
    refuse(&optional, "tls.peer checks certificates, and there is no ca");
    let mode = format!("{optional}\n[tls.peer]\nmode = \"require\"");
    refuse(&mode, "tls.peer.mode is \"require\" and there is no ca; set ca, cert and key under [tls]");
    let with = |section: &str| format!("[tls]\n{CERTIFICATES}\n{section}");
    refuse(&with("[tls.client]\nmode = \"prefer\""), "there is no tls.client.mode \"prefer\"; use allow or require");
    refuse(&with("[tls.client]\ninsecure = true"), "tls.client has insecure = true and mode = \"require\"; remove one");
    refuse(&with("[tls.http]\nclient_cert = \"yes\""), "use optional or required");
    refuse(&with("[tls.peer]\nclient_cert = \"required\""), "there is no tls.peer.client_cert, because nodes");
}
