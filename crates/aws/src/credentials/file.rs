//! Keys in a file of the form of AWS's `credentials`.

use super::{CredentialsError, Found};
use std::{fs::File, io::Read, os::unix::fs::MetadataExt, path::Path};
use zeroize::Zeroizing;

/// More than any such file has.
const MAXIMUM: u64 = 1 << 20;

/// Reads a profile's keys.
pub(super) fn read(path: &Path, profile: &str) -> Result<Found, CredentialsError> {
    let broken = |reason: String| CredentialsError::File {
        path: path.to_owned(),
        reason,
    };
    let file = File::open(path).map_err(|error| broken(error.to_string()))?;
    // Of what was opened: the name may be another file's by now.
    let about = file.metadata().map_err(|error| broken(error.to_string()))?;
    if about.mode() & 0o077 != 0 {
        return Err(CredentialsError::Open(path.to_owned()));
    }
    // It does not grow, which would leave a copy behind.
    let mut text = Zeroizing::new(String::with_capacity(about.len().min(MAXIMUM) as usize + 1));
    let read = file.take(MAXIMUM).read_to_string(&mut text);
    read.map_err(|error| broken(error.to_string()))?;
    parse(&text, profile).map_err(|reason| broken(reason.to_owned()))
}

fn parse(text: &str, profile: &str) -> Result<Found, &'static str> {
    let (mut key, mut secret, mut token) = (None, None, None);
    let mut is_ours = profile == "default";
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let name = section.split_once(']').map_or("", |(name, _)| name.trim());
            is_ours = name.strip_prefix("profile ").unwrap_or(name).trim() == profile;
        } else if let Some((name, value)) = line.split_once('=')
            && is_ours
        {
            let value = || Some(Zeroizing::new(value.trim().to_owned()));
            match name.trim() {
                "aws_access_key_id" => key = value(),
                "aws_secret_access_key" => secret = value(),
                "aws_session_token" => token = value(),
                _ => {}
            }
        }
    }
    Ok(Found {
        key: key.ok_or("it has no `aws_access_key_id` in this profile")?,
        secret: secret.ok_or("it has no `aws_secret_access_key` in this profile")?,
        token,
        ends: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    const FILE: &str = "# ours\n[default]\naws_access_key_id = AKIA1\naws_secret_access_key=a=b/c+d \n; x = y\n\n\
        [other]\nregion = x\naws_access_key_id = AKIA2\naws_secret_access_key = e\naws_session_token = f\n\
        [half]\naws_access_key_id = AKIA3\n";

    fn keys(text: &str, profile: &str) -> Result<(String, String, Option<String>), &'static str> {
        let found = parse(text, profile)?;
        let token = found.token.map(|token| token.to_string());
        Ok((found.key.to_string(), found.secret.to_string(), token))
    }

    #[test]
    fn profiles() {
        assert_eq!(
            keys(FILE, "default"),
            Ok(("AKIA1".into(), "a=b/c+d".into(), None))
        );
        assert_eq!(
            keys(FILE, "other"),
            Ok(("AKIA2".into(), "e".into(), Some("f".into())))
        );
        assert!(keys(FILE, "half").is_err() && keys(FILE, "none").is_err() && keys("", "default").is_err());
        let bare = "aws_access_key_id = A\naws_secret_access_key = B";
        assert_eq!(keys(bare, "default"), Ok(("A".into(), "B".into(), None)));
        assert!(keys(bare, "other").is_err());
    }

    #[test]
    fn only_its_owner_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("credentials");
        fs::write(&path, FILE).unwrap();
        for (mode, is_good) in [
            (0o600, true),
            (0o400, true),
            (0o640, false),
            (0o604, false),
            (0o620, false),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let read = read(&path, "default");
            assert_eq!(read.is_ok(), is_good, "{mode:o}");
            assert!(matches!(read, Ok(_) | Err(CredentialsError::Open(_))));
        }
        let missing = read(&folder.path().join("none"), "default");
        assert!(matches!(missing, Err(CredentialsError::File { .. })));
    }
}
