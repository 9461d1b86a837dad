//! What STS answers: a session's keys, or why there are none, in XML.

use super::Found;
use jiff::Timestamp;
use quick_xml::{Reader, escape::resolve_predefined_entity, events::Event};
use std::collections::HashMap;
use zeroize::Zeroizing;

/// Bytes of an answer, at most. A session's token has some hundreds, or a few thousands where the policy is long.
pub(super) const MAXIMUM: usize = 64 << 10;

/// Elements within each other, at most.
const DEPTH: usize = 16;

/// Characters of what STS says of an error that are told.
const TOLD: usize = 300;

/// Why STS refuses, in its own words.
pub(super) struct Refusal {
    /// Its code, such as `AccessDenied`.
    pub(super) code: String,
    /// What it says to a person.
    pub(super) message: String,
}

/// A session's keys: the answer to
/// [AssumeRole](https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html).
pub(super) fn session(bytes: &[u8]) -> Result<Found, &'static str> {
    let mut texts = texts(bytes).ok_or("it is no XML of STS")?;
    let mut take =
        |name: &str| texts.remove(&format!("AssumeRoleResponse/AssumeRoleResult/Credentials/{name}"));
    let key = take("AccessKeyId").ok_or("it has no AccessKeyId")?;
    let secret = take("SecretAccessKey").ok_or("it has no SecretAccessKey")?;
    let token = take("SessionToken").filter(|token| !token.is_empty());
    let ends = take("Expiration").ok_or("it has no Expiration")?;
    let ends: Timestamp = ends.trim().parse().map_err(|_| "its Expiration is no time")?;
    Ok(Found {
        key,
        secret,
        token,
        ends: Some(ends.into()),
    })
}

/// Why there is none. What of it is told has one line: behind the first, STS quotes what it was sent, a token included.
pub(super) fn refusal(bytes: &[u8]) -> Option<Refusal> {
    let mut texts = texts(bytes)?;
    let mut take = |name: &str| texts.remove(&format!("ErrorResponse/Error/{name}"));
    let code = take("Code")?;
    let is_code = !code.is_empty() && code.len() <= 100 && code.bytes().all(|byte| byte.is_ascii_graphic());
    let message = take("Message").unwrap_or_default();
    let line = message.lines().next().unwrap_or_default();
    let shown = line.chars().filter(|character| !character.is_control());
    is_code.then(|| Refusal {
        code: code.to_string(),
        message: shown.take(TOLD).collect(),
    })
}

/// The texts of a document's innermost elements, by their names and those that they are in; `None` if it is no such document, or has one of them twice.
fn texts(bytes: &[u8]) -> Option<HashMap<String, Zeroizing<String>>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}').trim_start());
    reader.config_mut().expand_empty_elements = true;
    let (mut open, mut texts, mut is_innermost) = (Vec::<String>::new(), HashMap::new(), false);
    // It does not grow, which would leave copies behind.
    let mut inner = Zeroizing::new(String::with_capacity(text.len()));
    let mut is_over = false;
    loop {
        match reader.read_event().ok()? {
            Event::Start(start) if open.len() < DEPTH && !is_over => {
                open.push(start.local_name().as_ref().to_owned());
                inner.clear();
                is_innermost = true;
            }
            Event::Start(_) => return None,
            Event::End(_) => {
                let name = open.join("/");
                open.pop()?;
                if std::mem::take(&mut is_innermost) {
                    let value = Zeroizing::new(inner.as_str().to_owned());
                    if texts.insert(name, value).is_some() {
                        return None;
                    }
                }
                is_over = open.is_empty();
            }
            Event::Text(text) => inner.push_str(&text.xml10_content()),
            Event::CData(text) => inner.push_str(&text.xml10_content()),
            Event::GeneralRef(reference) => match reference.resolve_char_ref().ok()? {
                Some(character) => inner.push(character),
                None => inner.push_str(resolve_predefined_entity(&reference.xml10_content())?),
            },
            Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
            Event::Eof => return is_over.then_some(texts),
            Event::DocType(_) | Event::Empty(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    /// The example of the API reference, with a token that is not as long.
    const SESSION: &str = "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">
  <AssumeRoleResult>
  <SourceIdentity>DevUser123</SourceIdentity>
    <AssumedRoleUser>
      <Arn>arn:aws:sts::123456789012:assumed-role/demo/John</Arn>
      <AssumedRoleId>ARO123EXAMPLE123:John</AssumedRoleId>
    </AssumedRoleUser>
    <Credentials>
      <AccessKeyId>ASIAIOSFODNN7EXAMPLE</AccessKeyId>
      <SecretAccessKey>wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKEY</SecretAccessKey>
      <SessionToken>AQoDYXdzEPT//&#43;&amp;a<![CDATA[==]]></SessionToken>
      <Expiration>2019-11-09T13:34:41Z</Expiration>
    </Credentials>
    <PackedPolicySize>6</PackedPolicySize>
  </AssumeRoleResult>
  <ResponseMetadata>
    <RequestId>c6104cbe-af31-11e0-8154-cbc7ccf896c7</RequestId>
  </ResponseMetadata>
</AssumeRoleResponse>";

    #[test]
    fn a_session_is_read() {
        let declared = format!("\u{feff}<?xml version=\"1.0\"?>\n<!-- x -->{SESSION}\n");
        for text in [SESSION, &declared] {
            let found = session(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(*found.key, "ASIAIOSFODNN7EXAMPLE");
            assert_eq!(*found.secret, "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKEY");
            assert_eq!(
                found.token.as_deref().map(String::as_str),
                Some("AQoDYXdzEPT//+&a==")
            );
            assert_eq!(found.ends, Some(UNIX_EPOCH + Duration::from_secs(1_573_306_481)));
        }
    }

    /// Servers without tokens leave theirs out, or empty.
    #[test]
    fn a_token_may_be_missing() {
        let (before, rest) = SESSION.split_once("<SessionToken>").unwrap();
        let (_, behind) = rest.split_once("</SessionToken>").unwrap();
        for between in ["", "<SessionToken/>", "<SessionToken></SessionToken>"] {
            let found = session([before, between, behind].concat().as_bytes());
            assert!(
                found.unwrap_or_else(|error| panic!("{error}")).token.is_none(),
                "{between}"
            );
        }
    }

    #[test]
    fn what_is_no_session_is_none_and_is_not_quoted() {
        let key = "<AccessKeyId>ASIAIOSFODNN7EXAMPLE</AccessKeyId>";
        let twice = SESSION.replace(key, &[key, key].concat());
        let elsewhere = SESSION.replace("AssumeRoleResult", "GetSessionTokenResult");
        let deep = format!("{}{}", "<a>".repeat(100), "</a>".repeat(100));
        for (text, expected) in [
            (String::new(), "XML"),
            ("hidden".to_owned(), "XML"),
            ("{\"AccessKeyId\": \"hidden\"}".to_owned(), "XML"),
            (SESSION[..SESSION.len() - 3].to_owned(), "XML"),
            (format!("{SESSION}<more/>"), "XML"),
            (format!("<!DOCTYPE a>{SESSION}"), "XML"),
            (SESSION.replace("&amp;", "&hidden;"), "XML"),
            (twice, "XML"),
            (deep, "XML"),
            (elsewhere, "AccessKeyId"),
            ("<html><body>hidden</body></html>".to_owned(), "AccessKeyId"),
            (SESSION.replace("SecretAccessKey", "hidden"), "SecretAccessKey"),
            (SESSION.replace("Expiration", "hidden"), "Expiration"),
            (SESSION.replace("2019-11-09T13:34:41Z", "hidden"), "no time"),
        ] {
            let error = session(text.as_bytes()).err().unwrap_or_else(|| panic!("{text}"));
            assert!(
                error.contains(expected) && !error.contains("hidden"),
                "{text}: {error}"
            );
        }
        assert!(session(&[0xff; 100]).is_err());
    }

    #[test]
    fn a_refusal_is_told_in_one_line() {
        let refused = |message: &str| {
            let text = format!(
                "<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error><Type>Sender</Type>\
                 <Code>AccessDenied</Code><Message>{message}</Message></Error><RequestId>1</RequestId></ErrorResponse>"
            );
            let refusal = refusal(text.as_bytes()).unwrap();
            assert_eq!(refusal.code, "AccessDenied");
            refusal.message
        };
        assert_eq!(
            refused("User &lt;x&gt; is not authorized"),
            "User <x> is not authorized"
        );
        assert_eq!(
            refused("The request signature is wrong.\n\nIt should have been\nx-amz-security-token:hidden"),
            "The request signature is wrong."
        );
        assert_eq!(refused("a&#27;[31mb"), "a[31mb");
        assert_eq!(refused(&"x".repeat(1000)).len(), TOLD);
        for none in [
            "",
            "Bad Gateway",
            "<html/>",
            "<ErrorResponse><Error><Message>x</Message></Error></ErrorResponse>",
            "<ErrorResponse><Error><Code></Code></Error></ErrorResponse>",
            "<ErrorResponse><Error><Code>a b</Code></Error></ErrorResponse>",
        ] {
            assert!(refusal(none.as_bytes()).is_none(), "{none}");
        }
    }
}
