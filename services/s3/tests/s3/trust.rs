//! Against versitygw by TLS: who is not known is not asked.

use super::{
    Ours, call,
    gateway::{Gateway, ask},
    granted,
};
use contract::CallError;
use millpond_service_s3::Credentials;
use std::{
    env,
    path::Path,
    process::{Command, Stdio},
};

/// Where this test, run once more, finds a server that its roots are of.
const TRUSTED: &str = "MILLPOND_TEST_S3_TRUSTED";

#[test]
fn a_server_shows_who_it_is() {
    if let Ok(address) = env::var(TRUSTED) {
        let trusting = Ours::start(format!("https://{address}"), Credentials::anonymous(), |_| ());
        let call = call("GET", "/bucket/k", &[], "");
        assert_eq!(ask(&trusting, &[granted("bucket", "")], call).status, 404);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (key, certificate) = (folder.path().join("key"), folder.path().join("certificate"));
    let made = Command::new("openssl")
        .args([
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=s3",
        ])
        .args([
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .stderr(Stdio::null())
        .status();
    if !made.is_ok_and(|status| status.success()) {
        println!("skipped: openssl makes no certificate");
        return;
    }
    let options = [Path::new("--cert"), &certificate, Path::new("--key"), &key];
    let Some(gateway) = Gateway::start_with(&options) else {
        return;
    };
    let endpoint = format!("https://{}", gateway.address);
    let doubting = Ours::start(endpoint, Credentials::anonymous(), |_| ());
    let failed = doubting.ask(vec![granted("bucket", "")], call("GET", "/bucket/k", &[], ""));
    assert!(matches!(failed, Err(CallError::Secure(_))), "{failed:?}");
    // The roots are read from where the environment says, which is a process's own.
    let again = Command::new(env::current_exe().unwrap())
        .args(["--exact", "trust::a_server_shows_who_it_is"])
        .env("SSL_CERT_FILE", &certificate)
        .env(TRUSTED, gateway.address.to_string())
        .output()
        .unwrap();
    assert!(
        again.status.success(),
        "{}",
        String::from_utf8_lossy(&again.stdout)
    );
}
