//! Keys that a program gives, as AWS's `credential_process` says it.

use super::{CredentialsError, Found};
use jiff::Timestamp;
use serde::Deserialize;
use std::{process::Stdio, time::Duration};
use tokio::{io::AsyncReadExt, process::Command, time};
use zeroize::Zeroizing;

/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How much it may write.
const MAXIMUM: usize = 64 << 10;

/// What it writes.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Output {
    version: u32,
    access_key_id: Zeroizing<String>,
    secret_access_key: Zeroizing<String>,
    session_token: Option<Zeroizing<String>>,
    expiration: Option<String>,
}

/// Runs it, and reads what it writes.
pub(super) async fn run(command: &[String]) -> Result<Found, CredentialsError> {
    let program = command.first().map_or("", String::as_str);
    let ran = time::timeout(PATIENCE, written(command)).await;
    let found = ran.unwrap_or_else(|_| Err("it took too long".to_owned()));
    let found = found.and_then(|text| parse(&text).map_err(str::to_owned));
    found.map_err(|reason| CredentialsError::Command {
        program: program.to_owned(),
        reason,
    })
}

async fn written(command: &[String]) -> Result<Zeroizing<Vec<u8>>, String> {
    let (program, arguments) = command.split_first().ok_or("it is empty")?;
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let mut child = child.map_err(|error| error.to_string())?;
    let mut text = Zeroizing::new(vec![0; MAXIMUM]);
    let mut length = 0;
    if let Some(mut output) = child.stdout.take() {
        loop {
            let read = output.read(&mut text[length..]).await;
            match read.map_err(|error| error.to_string())? {
                0 if length == MAXIMUM => return Err("it writes too much".to_owned()),
                0 => break,
                more => length += more,
            }
        }
    }
    let status = child.wait().await.map_err(|error| error.to_string())?;
    if !status.success() {
        return Err(status.to_string());
    }
    text.truncate(length);
    Ok(text)
}

/// A parser's error would quote what it stands at.
fn parse(text: &[u8]) -> Result<Found, &'static str> {
    let output: Output = serde_json::from_slice(text)
        .map_err(|_| "it does not write an object with Version, AccessKeyId and SecretAccessKey")?;
    if output.version != 1 {
        return Err("it does not write Version 1");
    }
    let ends = output.expiration.map(|text| text.parse::<Timestamp>());
    let ends = ends.transpose().map_err(|_| "its Expiration is no time")?;
    Ok(Found {
        key: output.access_key_id,
        secret: output.secret_access_key,
        token: output.session_token,
        ends: ends.map(Into::into),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_writes() {
        let found = parse(
            br#"{"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "B", "Expiration": "2013-05-24T00:00:00Z", "x": 1}"#,
        );
        let found = found.unwrap_or_else(|error| panic!("{error}"));
        assert!(found.token.is_none() && found.ends.is_some());
        for bad in [
            &b""[..],
            b"{}",
            br#"{"Version": 2, "AccessKeyId": "A", "SecretAccessKey": "B"}"#,
            br#"{"Version": 1, "AccessKeyId": "A"}"#,
            br#"{"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "B", "Expiration": "soon"}"#,
            br#"{"Version": "hidden", "AccessKeyId": "A", "SecretAccessKey": "B"}"#,
        ] {
            let error = parse(bad)
                .err()
                .unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(bad)));
            assert!(!error.contains("hidden"));
        }
    }
}
