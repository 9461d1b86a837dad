//! HTTP requests as events, and what handlers answer to them: version 2.0 of the
//! [payload format](https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-develop-integrations-lambda.html), which HTTP APIs
//! and function URLs have.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use contract::Head;
use serde_json::{Map, Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// The event that a request is, in JSON.
pub fn event(head: &Head, body: &[u8], now: SystemTime) -> Vec<u8> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut headers = Map::new();
    let mut cookies = Vec::new();
    for (name, value) in head.headers() {
        if name.eq_ignore_ascii_case("cookie") {
            cookies.extend(
                text(value)
                    .split("; ")
                    .map(|cookie| Value::from(cookie.to_owned())),
            );
        } else {
            append(&mut headers, name.to_ascii_lowercase(), &text(value));
        }
    }
    let field = |name: &str| head.header(name).map(text).unwrap_or_default();
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (host, path) = (field("host"), head.path());
    let mut event = json!({
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": head.query(),
        "headers": headers,
        "requestContext": {
            "accountId": "anonymous",
            "apiId": "millpond",
            "domainName": host,
            "domainPrefix": host.split('.').next().unwrap_or_default(),
            "http": {
                "method": head.method(),
                "path": path,
                "protocol": head.origin.protocol(),
                "sourceIp": head.origin.remote.map(|remote| remote.ip().to_string()).unwrap_or_default(),
                "userAgent": field("user-agent"),
            },
            "requestId": crate::request_uuid(head.id),
            "routeKey": "$default",
            "stage": "$default",
            "time": humantime::format_rfc3339_seconds(now).to_string(),
            "timeEpoch": u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
        },
        "isBase64Encoded": false,
    });
    if !cookies.is_empty() {
        event["cookies"] = cookies.into();
    }
    let parameters = parameters(head.query());
    if !parameters.is_empty() {
        event["queryStringParameters"] = parameters.into();
    }
    if !body.is_empty() {
        match std::str::from_utf8(body) {
            Ok(text) => event["body"] = text.into(),
            Err(_) => {
                event["body"] = BASE64_STANDARD.encode(body).into();
                event["isBase64Encoded"] = true.into();
            }
        }
    }
    // It has texts, numbers and lists of these.
    serde_json::to_vec(&event).unwrap_or_default()
}

/// Values of the same name are one, with commas between them.
fn append(to: &mut Map<String, Value>, name: String, value: &str) {
    match to.get_mut(&name) {
        Some(Value::String(known)) => {
            known.push(',');
            known.push_str(value);
        }
        _ => {
            to.insert(name, value.into());
        }
    }
}

fn parameters(query: &str) -> Map<String, Value> {
    let decoded = |text: &str| {
        let text = text.replace('+', " ");
        percent_encoding::percent_decode_str(&text)
            .decode_utf8_lossy()
            .into_owned()
    };
    let mut parameters = Map::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        append(&mut parameters, decoded(name), &decoded(value));
    }
    parameters
}

/// What a handler has answered, as the output of a CGI program (RFC 3875, section 6): that is checked where all such output is. `Err` says what it is
/// not.
///
/// Without a `statusCode` all of it is the body of a 200, in JSON, as the format says.
pub fn response(payload: &[u8]) -> Result<Vec<u8>, String> {
    let answer: Value =
        serde_json::from_slice(payload).map_err(|error| format!("it is not JSON: {error}"))?;
    let Some(status) = answer.get("statusCode") else {
        let mut output = b"Content-Type: application/json\n\n".to_vec();
        match &answer {
            Value::String(text) => output.extend_from_slice(text.as_bytes()),
            _ => output.extend_from_slice(payload),
        }
        return Ok(output);
    };
    let code = status.as_u64().or_else(|| status.as_str()?.parse().ok());
    let code = code.filter(|code| (200..=599).contains(code));
    let code = code.ok_or_else(|| format!("its statusCode is {status}, which is none"))?;
    let mut output = format!("Status: {code}\n").into_bytes();
    let mut has_type = false;
    let several = |name: &str| answer.get(name).and_then(Value::as_object).into_iter().flatten();
    for (name, value) in several("headers") {
        has_type |= name.eq_ignore_ascii_case("content-type");
        add(&mut output, name, value)?;
    }
    for (name, values) in several("multiValueHeaders") {
        has_type |= name.eq_ignore_ascii_case("content-type");
        for value in values.as_array().into_iter().flatten() {
            add(&mut output, name, value)?;
        }
    }
    for cookie in answer
        .get("cookies")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        add(&mut output, "Set-Cookie", cookie)?;
    }
    if !has_type {
        output.extend_from_slice(b"Content-Type: application/json\n");
    }
    output.push(b'\n');
    match answer.get("body") {
        None | Some(Value::Null) => {}
        Some(Value::String(body)) if answer.get("isBase64Encoded") == Some(&Value::Bool(true)) => {
            let body = BASE64_STANDARD.decode(body);
            output.extend(body.map_err(|error| format!("its body is not Base64: {error}"))?);
        }
        Some(Value::String(body)) => output.extend_from_slice(body.as_bytes()),
        Some(_) => return Err("its body is not a string".to_owned()),
    }
    Ok(output)
}

fn add(output: &mut Vec<u8>, name: &str, value: &Value) -> Result<(), String> {
    let value = match value {
        Value::String(text) => text.clone(),
        Value::Number(_) | Value::Bool(_) => value.to_string(),
        _ => return Err(format!("its header `{name}` is neither text nor a number")),
    };
    // An empty line would end the header, and a line more would be another field; a status is `statusCode`'s to say.
    if name.is_empty()
        || name.eq_ignore_ascii_case("status")
        || [name, &value].iter().any(|text| text.contains(['\n', '\r']))
    {
        return Err(format!("its header `{}` is no header", name.escape_default()));
    }
    output.extend_from_slice(format!("{name}: {value}\n").as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::{HeadBuilder, RequestId};
    use std::time::Duration;

    fn read(method: &str, target: &str, headers: &[(&str, &[u8])], body: &[u8]) -> Value {
        let mut builder = HeadBuilder::new(method, target, 0);
        for (name, value) in headers {
            builder.header(name, value);
        }
        let head = builder.build(RequestId(7));
        let now = UNIX_EPOCH + Duration::from_millis(1_500);
        serde_json::from_slice(&event(&head, body, now)).unwrap()
    }

    #[test]
    fn a_request_is_an_event() {
        let headers: [(&str, &[u8]); 5] = [
            ("Host", b"shop.example.org"),
            ("X-Two", b"1"),
            ("x-two", b"2"),
            ("Cookie", b"a=1; b=2"),
            ("User-Agent", b"curl"),
        ];
        let event = read("POST", "/a%20b/c?x=1&x=%202&y", &headers, b"hello");
        assert_eq!(event["rawPath"], "/a%20b/c");
        assert_eq!(event["rawQueryString"], "x=1&x=%202&y");
        assert_eq!(event["queryStringParameters"], json!({"x": "1, 2", "y": ""}));
        assert_eq!(event["headers"]["x-two"], "1,2");
        assert_eq!(event["headers"].get("cookie"), None);
        assert_eq!(event["cookies"], json!(["a=1", "b=2"]));
        assert_eq!(event["body"], "hello");
        assert_eq!(event["isBase64Encoded"], false);
        let context = &event["requestContext"];
        assert_eq!(context["domainPrefix"], "shop");
        assert_eq!(context["http"]["method"], "POST");
        assert_eq!(context["http"]["userAgent"], "curl");
        assert_eq!(context["timeEpoch"], 1500);
    }

    #[test]
    fn bodies_that_are_no_text_are_encoded() {
        let event = read("PUT", "/", &[], b"\xff\x00");
        assert_eq!(
            (&event["body"], &event["isBase64Encoded"]),
            (&json!("/wA="), &json!(true))
        );
        assert_eq!(read("GET", "/", &[], b"").get("body"), None);
    }

    fn answered(answer: &Value) -> Result<String, String> {
        response(answer.to_string().as_bytes()).map(|output| String::from_utf8(output).unwrap())
    }

    #[test]
    fn an_answer_is_a_response() {
        let answer = json!({
            "statusCode": 201,
            "headers": {"content-type": "text/plain", "x-count": 3},
            "cookies": ["a=1; Secure", "b=2"],
            "body": "aGVsbG8=",
            "isBase64Encoded": true,
        });
        let expected = "Status: 201\ncontent-type: text/plain\nx-count: 3\nSet-Cookie: a=1; Secure\nSet-Cookie: b=2\n\nhello";
        assert_eq!(answered(&answer).unwrap(), expected);
        assert_eq!(
            answered(&json!({"statusCode": "204"})).unwrap(),
            "Status: 204\nContent-Type: application/json\n\n"
        );
    }

    #[test]
    fn an_answer_without_a_status_is_a_body() {
        let object = json!({"a": 1});
        assert_eq!(
            answered(&object).unwrap(),
            "Content-Type: application/json\n\n{\"a\":1}"
        );
        assert_eq!(
            answered(&json!("text")).unwrap(),
            "Content-Type: application/json\n\ntext"
        );
    }

    #[test]
    fn what_is_no_response_says_why() {
        for (answer, why) in [
            (json!({"statusCode": 42}), "statusCode"),
            (json!({"statusCode": {}}), "statusCode"),
            (json!({"statusCode": 200, "body": {}}), "body"),
            (
                json!({"statusCode": 200, "body": "?", "isBase64Encoded": true}),
                "Base64",
            ),
            (
                json!({"statusCode": 200, "headers": {"a": "b\nc: d"}}),
                "no header",
            ),
            (
                json!({"statusCode": 200, "headers": {"a\r\nb": "c"}}),
                "no header",
            ),
            (
                json!({"statusCode": 200, "headers": {"Status": "500"}}),
                "no header",
            ),
            (json!({"statusCode": 200, "headers": {"a": []}}), "neither"),
        ] {
            let error = answered(&answer).unwrap_err();
            assert!(error.contains(why), "{answer}: {error}");
        }
        assert!(response(b"{").unwrap_err().contains("JSON"));
    }
}
