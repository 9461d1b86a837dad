//! Events in HTTP, by the examples and rules of the specification's text (1.0.2).

use bytes::Bytes;
use millpond_triggers::{Event, EventError, Message, Pattern, is_event};
use proptest::prelude::*;

fn read(headers: &[(&str, &str)], body: &str) -> Result<Message, EventError> {
    let headers = headers.iter().map(|(name, value)| (*name, value.as_bytes()));
    Message::read(headers, &Bytes::copy_from_slice(body.as_bytes()))
}

fn one(headers: &[(&str, &str)], body: &str) -> Event {
    let mut events = read(headers, body).unwrap().events;
    assert_eq!(events.len(), 1);
    events.remove(0)
}

fn structured(json: &str) -> Result<Event, EventError> {
    read(
        &[("Content-Type", "application/cloudevents+json; charset=UTF-8")],
        json,
    )
    .map(|mut message| message.events.remove(0))
}

const REQUIRED: [(&str, &str); 4] = [
    ("ce-specversion", "1.0"),
    ("ce-type", "com.example.someevent"),
    ("ce-id", "1234-1234-1234"),
    ("ce-source", "/mycontext/subcontext"),
];

fn with<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    REQUIRED.iter().chain(more).copied().collect()
}

/// HTTP protocol binding, section 3.1.4.
#[test]
fn the_binding_s_example_of_binary_mode() {
    let event = one(
        &with(&[
            ("ce-time", "2018-04-05T03:56:24Z"),
            ("ce-comexampleextension1", "value"),
            ("Content-Type", "application/json; charset=utf-8"),
        ]),
        "{\"a\": 1}",
    );
    assert_eq!(
        (event.kind(), event.source()),
        ("com.example.someevent", "/mycontext/subcontext")
    );
    assert_eq!(
        event.attribute("datacontenttype"),
        Some("application/json; charset=utf-8")
    );
    assert_eq!(event.attribute("comexampleextension1"), Some("value"));
    assert_eq!(event.data, "{\"a\": 1}");
}

/// Section 3.1.3.2.
#[test]
fn the_binding_s_example_of_a_header_s_value() {
    for value in [
        "Euro%20%E2%82%AC%20%F0%9F%98%80",
        "\"Euro%20%E2%82%AC %F0%9F%98%80\"",
        "Euro %e2%82%ac %F0%9f%98%80",
        "\"E\\uro %E2%82%AC %F0%9F%98%80\"",
    ] {
        let event = one(&with(&[("ce-note", value)]), "");
        assert_eq!(event.attribute("note"), Some("Euro € 😀"), "{value}");
        let said = event.headers().find(|(name, _)| name == "ce-note").unwrap();
        assert_eq!(said.1, b"Euro%20%E2%82%AC%20%F0%9F%98%80");
    }
    // A single round.
    assert_eq!(
        one(&with(&[("ce-note", "%2541")]), "").attribute("note"),
        Some("%41")
    );
    // What is no escape is left.
    assert_eq!(
        one(&with(&[("ce-note", "100%")]), "").attribute("note"),
        Some("100%")
    );
}

/// JSON format, section 3.2, its examples.
#[test]
fn the_format_s_examples() {
    let event = structured(
        r#"{
            "specversion" : "1.0", "type" : "com.example.someevent", "source" : "/mycontext", "subject": null,
            "id" : "C234-1234-1234", "time" : "2018-04-05T17:31:00Z", "comexampleextension1" : "value",
            "comexampleothervalue" : 5, "datacontenttype" : "application/vnd.apache.thrift.binary",
            "data_base64" : "AQID"
        }"#,
    )
    .unwrap();
    assert_eq!(event.data, &[1, 2, 3][..]);
    assert_eq!(event.attribute("comexampleothervalue"), Some("5"));
    assert_eq!(event.attribute("subject"), None);

    let head =
        r#""specversion" : "1.0", "type" : "com.example.someevent", "source" : "/mycontext", "id" : "C234""#;
    let event = |rest: &str| structured(&format!("{{{head}, {rest}}}")).unwrap();
    let text = event(r#""datacontenttype" : "application/xml", "data" : "<much wow=\"xml\"/>""#);
    assert_eq!(text.data, "<much wow=\"xml\"/>");
    let json = event(
        r#""datacontenttype" : "application/json", "data" : { "appinfoA" : "abc", "big": 12345678901234567890.10 }"#,
    );
    assert_eq!(
        json.data,
        r#"{ "appinfoA" : "abc", "big": 12345678901234567890.10 }"#
    );
    // Without a type it is JSON; a string of JSON is JSON.
    let implied = event(r#""data" : "a text""#);
    assert_eq!(
        (implied.attribute("datacontenttype"), &implied.data[..]),
        (Some("application/json"), &b"\"a text\""[..])
    );
    let suffixed = event(r#""datacontenttype" : "text/calendar+json", "data" : [1, 2]"#);
    assert_eq!(suffixed.data, "[1, 2]");
    let flag = event(r#""flag" : true"#);
    assert_eq!((flag.attribute("flag"), flag.data.len()), (Some("true"), 0));
}

/// JSON format, section 4.3.
#[test]
fn the_format_s_example_of_a_batch() {
    let batch = r#"[
        { "specversion" : "1.0", "type" : "com.example.someevent", "source" : "/mycontext/4", "id" : "B234",
          "datacontenttype" : "application/vnd.apache.thrift.binary", "data_base64" : "AAEC" },
        { "specversion" : "1.0", "type" : "com.example.someotherevent", "source" : "/mycontext/9", "id" : "C234",
          "datacontenttype" : "application/json", "data" : { "appinfoA" : "abc" } }
    ]"#;
    let media = "Application/CloudEvents-Batch+JSON";
    let events = read(&[("content-type", media)], batch).unwrap().events;
    assert_eq!(
        (events[0].source(), events[1].source()),
        ("/mycontext/4", "/mycontext/9")
    );
    assert_eq!(read(&[("content-type", media)], "[]").unwrap().events, []);
    let wrong = batch.replace("\"id\" : \"C234\",", "");
    let error = read(&[("content-type", media)], &wrong).unwrap_err();
    assert!(matches!(error, EventError::InBatch { index: 1, .. }), "{error}");
}

#[test]
fn binary_mode_that_is_no_event_is_refused() {
    for (missing, ..) in REQUIRED {
        let headers: Vec<_> = REQUIRED
            .into_iter()
            .filter(|(name, _)| *name != missing)
            .collect();
        assert!(
            matches!(read(&headers, ""), Err(EventError::Missing(_))),
            "{missing}"
        );
    }
    let changed = |name: &str, value: &'static str| -> Vec<(&str, &str)> {
        REQUIRED
            .into_iter()
            .map(|(other, old)| (other, if other == name { value } else { old }))
            .collect()
    };
    for headers in [
        changed("ce-specversion", "0.3"),
        changed("ce-specversion", "1"),
        changed("ce-specversion", "1.0.2"),
        changed("ce-specversion", ""),
        changed("ce-id", ""),
        changed("ce-type", ""),
        changed("ce-source", ""),
        changed("ce-source", "a b"),
        changed("ce-source", "%C3%BC"),
        changed("ce-source", "/%25zz"),
        changed("ce-source", "a#b#c"),
        changed("ce-id", "%00"),
        changed("ce-id", "%7F"),
        changed("ce-id", "%EF%BF%BF"),
        changed("ce-id", "%FF"),
        changed("ce-id", "\"open"),
        changed("ce-id", "\"a\"b"),
        with(&[("ce-id", "again")]),
        with(&[("CE-Type", "again")]),
        with(&[("ce-time", "yesterday")]),
        with(&[("ce-time", "2018-04-05")]),
        with(&[("ce-time", "2018-04-05T17:31:00")]),
        with(&[("ce-time", "2018-02-30T17:31:00Z")]),
        with(&[("ce-time", "2018-04-05 17:31:00Z")]),
        with(&[("ce-time", "2018-04-05T17:31:00.Z")]),
        with(&[("ce-time", "20180405T173100Z")]),
        with(&[("ce-time", "2018-04-05T25:31:00Z")]),
        with(&[("ce-subject", "")]),
        with(&[("ce-dataschema", "")]),
        with(&[("ce-dataschema", "/not/absolute")]),
        with(&[("ce-datacontenttype", "text/plain")]),
        with(&[("ce-data", "x")]),
        with(&[("ce-with-dash", "x")]),
        with(&[("ce-", "x")]),
        with(&[("ce-under_score", "x")]),
        with(&[("Content-Type", "nonsense")]),
        with(&[("Content-Type", "")]),
        with(&[("Content-Type", "application/cloudevents+avro")]),
        with(&[("Content-Type", "application/cloudevents")]),
        with(&[("Content-Type", "application/cloudevents+json; charset=latin1")]),
        with(&[("ce-millpondhops", "many")]),
        with(&[("ce-millpondhops", "-1")]),
    ] {
        assert!(read(&headers, "").is_err(), "{headers:?}");
    }
}

#[test]
fn good_times_are_taken() {
    for time in [
        "2018-04-05T17:31:00Z",
        "2018-04-05t17:31:00z",
        "2018-04-05T17:31:00.123456789012Z",
        "2018-04-05T17:31:00+02:00",
        "2016-12-31T23:59:60Z",
        "2024-02-29T00:00:00-12:30",
    ] {
        let event = one(&with(&[("ce-time", time)]), "");
        assert_eq!(event.attribute("time"), Some(time));
    }
}

#[test]
fn json_that_is_no_event_is_refused() {
    let head = r#""specversion":"1.0","type":"t","source":"/s","id":"1""#;
    let more = |rest: &str| format!("{{{head},{rest}}}");
    for json in [
        String::new(),
        "[]".to_owned(),
        "null".to_owned(),
        "\"x\"".to_owned(),
        "{".to_owned(),
        format!("{{{head}}} x"),
        "{}".to_owned(),
        format!("{{{}}}", head.replace("\"1.0\"", "1.0")),
        format!("{{{}}}", head.replace("\"1.0\"", "\"2.0\"")),
        format!("{{{}}}", head.replace("\"id\":\"1\"", "\"id\":1")),
        format!("{{{}}}", head.replace("\"id\":\"1\"", "\"id\":null")),
        format!("{{{}}}", head.replace("\"t\"", "\"\"")),
        more(r#""id":"2""#),
        more(r#""Upper":"x""#),
        more(r#""with-dash":"x""#),
        more(r#""":"x""#),
        more(r#""ext":{}"#),
        more(r#""ext":[1]"#),
        more(r#""ext":1.5"#),
        more(r#""ext":2147483648"#),
        more(r#""ext":"\u0000""#),
        more(r#""time":5"#),
        more(r#""data":1,"data_base64":"AA==""#),
        more(r#""data_base64":"*""#),
        more(r#""data_base64":5"#),
        more(r#""data_base64":"AA""#),
        more(r#""datacontenttype":"text/plain","data":5"#),
        more(r#""datacontenttype":"nothing","data":"x""#),
        more(r#""data":"\ud800","datacontenttype":"text/plain""#),
        "[".repeat(100_000),
        more(&format!("\"data\":{}", "[".repeat(100_000))),
    ] {
        let shown = &json[..json.len().min(200)];
        assert!(structured(&json).is_err(), "{shown}");
    }
}

#[test]
fn patterns_want_the_whole_or_a_beginning() {
    let wants = |pattern: &str, text: &str| pattern.parse::<Pattern>().unwrap().matches(text);
    assert!(wants("com.example.*", "com.example.order"));
    assert!(wants("*", "anything"));
    assert!(wants("com.example", "com.example"));
    assert!(!wants("com.example", "com.example.order"));
    assert!(!wants("com.example.*", "com.exampl"));
    for pattern in ["", "*.created", "a*b", "**", "a b", "a\n"] {
        assert!(pattern.parse::<Pattern>().is_err(), "{pattern}");
    }
}

#[test]
fn what_means_to_be_an_event_is_known_by_its_headers() {
    let is =
        |headers: &[(&str, &str)]| is_event(headers.iter().map(|(name, value)| (*name, value.as_bytes())));
    assert!(is(&[("A", "b"), ("Ce-Type", "x")]));
    assert!(is(&[("content-type", "application/CloudEvents+json")]));
    assert!(!is(&[
        ("Content-Type", "application/json"),
        ("Cedar", "tree"),
        ("c", "")
    ]));
}

fn attribute_text() -> impl Strategy<Value = String> {
    "[ -~¡-퟿]{1,40}"
}

proptest! {
    #[test]
    fn what_is_said_is_read(id in attribute_text(), kind in attribute_text(), note in attribute_text(), data: Vec<u8>, hops in 0..1000_u32) {
        let json = serde_json::json!({
            "specversion": "1.0", "id": id, "type": kind, "source": "/a", "note": note, "datacontenttype": "text/plain", "data": "",
        });
        let event = structured(&json.to_string()).unwrap();
        let mut event = event.with_hops(hops);
        event.data = data.into();
        let headers: Vec<_> = event.headers().collect();
        let again = Message::read(headers.iter().map(|(name, value)| (name.as_str(), &value[..])), &event.data).unwrap();
        prop_assert_eq!(&again.events, &vec![event]);
        prop_assert_eq!(again.events[0].hops(), hops);
        prop_assert!(headers.iter().all(|(_, value)| value.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ')));
    }

    #[test]
    fn no_bytes_panic_anything(name in "(?i)ce-[a-z]{0,9}", value: Vec<u8>, media in "application/cloudevents(-batch)?[+]json", body: Vec<u8>) {
        let headers = [(name.as_str(), &value[..]), ("Content-Type", media.as_bytes())];
        let body = Bytes::from(body);
        let _ = Message::read(headers.into_iter(), &body);
        let _ = Message::read(headers.into_iter().take(1), &body);
        let _ = is_event(headers.into_iter());
    }
}
