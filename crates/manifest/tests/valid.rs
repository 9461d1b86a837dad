//! Manifests that are accepted, and what they become; the published schema; no input makes the reader panic.

use contract::{ByteSize, Demanded, Limits};
use millpond_manifest::{self as manifest, Manifest, Missed, S3Action, parse};
use proptest::prelude::*;
use serde_json::Value;
use std::{collections::BTreeSet, fs, path::Path, time::Duration};

const FULL: &str = r#"
# A comment.
[application]
name = "shop"

[function.resize]
source = "build/resize.wasm"
engine = "wasmtime"
memory = "1.5GiB"
timeout = "30s"
cpu_time = "250ms"
cpus = 2
request_body = "0B"
response_body = "1GiB"
concurrency = 1
queue = 0
deadline = "40ms"
priority = -7
tenant = "acme"
reuse = 1_000
arguments = ["--fast", ""]
content_type = "text/html; charset=utf-8"
protocol = "raw"
env = { LEVEL = "3", _x = "" }

[function.resize.build]
command = "make"
watch = ["src/**/*.c"]

[[function.resize.grants.http]]
host = "api.example.org"
[[function.resize.grants.http]]
host = "[2001:db8::1]"
headers = { Authorization = "Bearer {secret:API_KEY}", x-kind = "{{a}}" }
clear_text = true
[[function.resize.grants.s3]]
bucket = "photos"
prefix = "in/"
actions = ["get", "list"]

[[function.resize.grants.aws]]
service = "dynamodb"
actions = ["GetItem"]
resources = ["orders"]

[function.gps-ekf]
source = "ekf.wasm"
protocol = "cgi"

[function.join]
source = "join.wasm"
protocol = "pure"
input_sets = ["left", "right"]
output_sets = ["both"]

[function.greet]
source = "app.py"
handler = "lib/app.greet"
requirements = "requirements.txt"
grants.lambda.functions = ["resize:live", "bank.pay"]

[[trigger.http]]
function = "resize"
path = "/resize/{size}"
method = "POST"
host = "img.example.org"

[[trigger.http]]
function = "gps-ekf"
path = "/resize/{size}"
method = ["GET", "POST"]

[[trigger.http]]
function = "resize"
path = "/resize/{size}"

[[trigger.http]]
function = "resize"
path = "/files/{*rest}"

[[trigger.http]]
function = "resize"
path = "/{{literal}}/img-{id}.png"

[[trigger.schedule]]
function = "resize"
cron = "0 2 * * MON"
timezone = "Europe/Berlin"
missed = "all"
payload = "all of them"
enabled = false

[[trigger.schedule]]
function = "gps-ekf"
every = "90s"

[[trigger.cloudevents]]
function = "resize"
type = "com.example.photo.*"
source = "/camera/1"

[[trigger.object]]
function = "resize"
bucket = "photos"
prefix = "in/"
suffix = ".jpg"
"#;

fn minimal(function: &str) -> String {
    format!("[application]\nname = \"a\"\n[function.f]\nsource = \"f.wasm\"\n{function}")
}

#[test]
fn a_full_manifest_is_read() {
    let manifest = parse(FULL).unwrap();
    assert_eq!(manifest.application.name.as_str(), "shop");
    let resize = &manifest.function[&"resize".parse().unwrap()];
    assert_eq!(
        resize.limits(),
        Limits {
            memory: ByteSize(3 << 29),
            timeout: Duration::from_secs(30),
            cpu_time: Duration::from_millis(250),
            cpus: 2,
            request_body: ByteSize(0),
            response_body: ByteSize(1 << 30),
            concurrency: 1,
            queue: 0,
            demanded: Demanded {
                cpu_time: true,
                cpus: true,
            },
        }
    );
    assert_eq!(resize.deadline, Some(Duration::from_millis(40)));
    assert_eq!((resize.priority, resize.reuse), (-7, 1000));
    assert_eq!(resize.tenant, Some("acme".parse().unwrap()));
    assert_eq!(
        resize.protocol(),
        contract::Protocol::Raw {
            content_type: "text/html; charset=utf-8".into()
        }
    );
    assert_eq!(resize.grants.s3[0].actions, [S3Action::Get, S3Action::List]);
    assert_eq!(resize.operations()[0].resources, ["orders"]);
    let greet = manifest.function[&"greet".parse().unwrap()].invoked();
    let invoked: Vec<_> = greet.iter().map(ToString::to_string).collect();
    assert_eq!(invoked, ["resize:live", "bank.pay"]);
    let [open, secret] = &resize.grants.http[..] else {
        panic!("two hosts")
    };
    assert!(open.headers.is_empty() && !open.clear_text && secret.clear_text);
    assert_eq!(
        secret.headers["Authorization"].to_string(),
        "Bearer {secret:API_KEY}"
    );
    let secrets: Vec<_> = resize
        .grants
        .secrets()
        .into_iter()
        .map(|name| name.as_str())
        .collect();
    assert_eq!(secrets, ["API_KEY"]);
    assert_eq!(resize.environment()[0], ("LEVEL".to_owned(), "3".to_owned()));
    let ekf = &manifest.function[&"gps-ekf".parse().unwrap()];
    assert_eq!(ekf.limits(), Limits::default());
    assert_eq!((ekf.reuse, ekf.protocol()), (1, contract::Protocol::Cgi));
    assert!(ekf.grants.is_empty());
    let join = &manifest.function[&"join".parse().unwrap()];
    assert_eq!(
        join.protocol(),
        contract::Protocol::Pure {
            inputs: vec!["left".to_owned(), "right".to_owned()],
            outputs: vec!["both".to_owned()],
            content_type: "application/octet-stream".into(),
        }
    );
    let greet = &manifest.function[&"greet".parse().unwrap()];
    assert_eq!(
        greet.protocol(),
        contract::Protocol::Lambda {
            handler: "lib/app.greet".to_owned(),
        }
    );
    assert_eq!(manifest.trigger.http[0].method, ["POST"]);
    assert_eq!(manifest.trigger.http[1].method, ["GET", "POST"]);
    assert!(manifest.trigger.http[2].method.is_empty());
    let [nightly, often] = &manifest.trigger.schedule[..] else {
        panic!("{:?}", manifest.trigger.schedule);
    };
    assert_eq!((nightly.missed, nightly.enabled), (Missed::All, false));
    assert_eq!(nightly.when(), "0 2 * * MON Europe/Berlin");
    assert_eq!(
        (often.missed, often.enabled, often.payload.as_str()),
        (Missed::Once, true, "")
    );
    assert_eq!(
        (often.when().as_str(), often.timing().unwrap().next(5)),
        ("every 90s", Some(90_005))
    );
    assert_eq!(manifest.trigger.cloudevents[0].kind, "com.example.photo.*");
    let objects = &manifest.trigger.object[0];
    let matches = |bucket, keys: [&str; 2]| keys.map(|key| objects.matches(bucket, key));
    assert_eq!(matches("photos", ["in/a.jpg", "in/.jpg"]), [true; 2]);
    assert_eq!(matches("photos", ["a.jpg", "in/a.png"]), [false; 2]);
    assert_eq!(matches("photo", ["in/a.jpg", "in.jpg"]), [false; 2]);
}

#[test]
fn json_says_the_same() {
    let manifest = parse(FULL).unwrap();
    assert_eq!(manifest.validate(), []);
    let json = serde_json::to_value(&manifest).unwrap();
    assert_eq!(manifest::from_json(&json).unwrap(), manifest);
    assert_eq!(serde_json::from_value::<Manifest>(json).unwrap(), manifest);
    let bare = serde_json::to_value(parse(&minimal("")).unwrap()).unwrap();
    assert_eq!(
        bare,
        serde_json::json!({ "application": { "name": "a" }, "function": { "f": { "source": "f.wasm" } } }),
        "defaults are left out, so that a later default applies to what was deployed earlier only by a new deploy"
    );
}

#[test]
fn a_manifest_made_otherwise_is_validated_too() {
    let mut manifest = parse(FULL).unwrap();
    let resize = manifest.function.get_mut(&"resize".parse().unwrap()).unwrap();
    resize.reuse = 0;
    resize.memory = Some(ByteSize(1));
    let codes: Vec<String> = manifest.validate().into_iter().map(|fault| fault.code).collect();
    assert_eq!(codes, ["out-of-range", "out-of-range"]);
    manifest.function.clear();
    assert_eq!(manifest.validate()[0].code, "empty");
}

#[test]
fn all_faults_are_reported_in_the_order_of_the_text() {
    let text = minimal("memroy = \"1MiB\"\ntimeout = \"5 parsecs\"\nqueue = -1\n");
    let faults = parse(&text).unwrap_err();
    let found: Vec<(&str, &str)> = faults
        .iter()
        .map(|fault| (fault.code.as_str(), &text[fault.span.clone().unwrap()]))
        .collect();
    assert_eq!(
        found,
        [
            ("unknown-key", "memroy"),
            ("bad-duration", "\"5 parsecs\""),
            ("out-of-range", "-1")
        ]
    );
}

#[test]
fn the_schema_in_the_repository_is_the_schema() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manifest.schema.json");
    let schema = manifest::schema_text();
    if std::env::var_os("MILLPOND_UPDATE").is_some() {
        fs::write(&path, &schema).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == schema,
        "docs/manifest.schema.json is stale: run the tests of millpond-manifest with MILLPOND_UPDATE=1"
    );
}

/// All keys of all tables, by their places.
fn keys(schema: &Value, at: &str, found: &mut BTreeSet<String>) {
    for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
        found.insert(format!("{at}{key}"));
        keys(schema, &format!("{at}{key}."), found);
    }
    for (_, schema) in schema["patternProperties"].as_object().into_iter().flatten() {
        keys(schema, &format!("{at}NAME."), found);
    }
    if schema["items"].is_object() {
        keys(&schema["items"], at, found);
    }
    let open = schema["properties"].is_object() && schema["additionalProperties"] != false;
    assert!(!open, "`{at}` takes any key");
}

#[test]
fn every_key_of_the_schema_is_read_and_no_other() {
    let mut found = BTreeSet::new();
    keys(manifest::schema(), "", &mut found);
    // FULL uses every key there is: what the types read is what the schema lists.
    let json = serde_json::to_value(parse(FULL).unwrap()).unwrap();
    let mut used = BTreeSet::new();
    fn walk(value: &Value, at: &str, used: &mut BTreeSet<String>) {
        for (key, value) in value.as_object().into_iter().flatten() {
            let named = at == "function.";
            let key = if named { "NAME" } else { key };
            if !named {
                used.insert(format!("{at}{key}"));
            }
            // Tables whose keys are their author's.
            if !["env", "headers"].contains(&key) {
                walk(value, &format!("{at}{key}."), used);
            }
        }
        value
            .as_array()
            .into_iter()
            .flatten()
            .for_each(|value| walk(value, at, used));
    }
    walk(&json, "", &mut used);
    // Said in FULL, but equal to the default and so left out of its JSON.
    used.insert("function.NAME.protocol".to_owned());
    assert_eq!(found, used);
}

#[test]
fn the_patterns_of_the_schema_accept_what_the_reader_accepts() {
    let properties = &manifest::schema()["properties"]["function"]["patternProperties"];
    let function = &properties.as_object().unwrap().values().next().unwrap()["properties"];
    let pattern = |schema: &Value| regex::Regex::new(schema["pattern"].as_str().unwrap()).unwrap();
    for text in [
        "64MiB",
        "6MB",
        "1.5GiB",
        "17",
        "64 KiB",
        "",
        "MiB",
        "64 mib",
        "-1B",
        "1.B",
        "1..2KB",
        "1e9",
        "64Mi",
        "1.1234567890GiB",
    ] {
        assert_eq!(
            pattern(&function["memory"]).is_match(text),
            text.parse::<ByteSize>().is_ok(),
            "{text}"
        );
    }
    for text in [
        "30s",
        "1.5h",
        "250ms",
        "10 m",
        "7us",
        "",
        "30",
        "s",
        "5 parsecs",
        "-1s",
        "1.s",
    ] {
        assert_eq!(
            pattern(&function["timeout"]).is_match(text),
            contract::parse_duration(text).is_ok(),
            "{text}"
        );
    }
    let name = pattern(&manifest::schema()["properties"]["application"]["properties"]["name"]);
    for text in [
        "a",
        "gps-ekf",
        "x9",
        "",
        "-a",
        "a-",
        "9a",
        "A",
        "a.b",
        &"a".repeat(63),
        &"a".repeat(64),
    ] {
        assert_eq!(
            name.is_match(text),
            text.parse::<contract::Name>().is_ok(),
            "{text}"
        );
    }
}

#[test]
fn the_schema_names_the_real_defaults() {
    let properties = &manifest::schema()["properties"]["function"]["patternProperties"];
    let function = &properties.as_object().unwrap().values().next().unwrap()["properties"];
    let mut lines = String::new();
    for (key, schema) in function.as_object().unwrap() {
        if let Some(default) = schema.get("default") {
            lines.push_str(&format!("{key} = {default}\n"));
        }
    }
    assert!(lines.lines().count() >= 10, "{lines}");
    let (said, left_out) = (parse(&minimal(&lines)).unwrap(), parse(&minimal("")).unwrap());
    let f = |manifest: &Manifest| manifest.function[&"f".parse().unwrap()].clone();
    let (wanted, usual) = (f(&said).limits(), f(&left_out).limits());
    // What is said is demanded of a host, even where it is usual.
    assert!(
        wanted.demanded.cpus && wanted.demanded.cpu_time && !usual.demanded.cpus && !usual.demanded.cpu_time
    );
    let demanded = usual.demanded;
    assert_eq!(contract::Limits { demanded, ..wanted }, usual);
    assert_eq!(
        (f(&said).reuse, f(&said).engine, f(&said).protocol),
        (f(&left_out).reuse, f(&left_out).engine, f(&left_out).protocol)
    );
}

#[test]
fn the_examples_are_accepted() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for folder in fs::read_dir(examples).into_iter().flatten().flatten() {
        let path = folder.path().join("millpond.toml");
        if let Ok(text) = fs::read_to_string(&path) {
            let manifest = parse(&text).unwrap_or_else(|faults| panic!("{}: {faults:#?}", path.display()));
            assert_eq!(manifest.validate(), []);
        }
    }
}

/// Whatever comes of a text, it is well-formed itself.
fn hold(text: &str) {
    match parse(text) {
        Ok(manifest) => {
            assert_eq!(manifest.validate(), []);
            let json = serde_json::to_value(&manifest).unwrap();
            assert_eq!(manifest::from_json(&json).unwrap(), manifest);
        }
        Err(faults) => {
            assert!(!faults.is_empty());
            for fault in faults {
                assert!(!fault.message.is_empty() && !fault.code.is_empty());
                if let Some(span) = fault.span {
                    assert!(
                        text.get(span.clone()).is_some(),
                        "{span:?} is not in the text: {}",
                        fault.message
                    );
                }
            }
        }
    }
}

fn mutation() -> impl Strategy<Value = (prop::sample::Index, usize, String)> {
    let token = prop::sample::select(vec![
        "",
        "\"",
        "'",
        "[",
        "]",
        "[[",
        "]]",
        "{",
        "}",
        "=",
        ".",
        ",",
        "\n",
        "\0",
        "é",
        "🦀",
        "\\u0000",
        "-1",
        "0x7f",
        "1e400",
        "nan",
        "99999999999999999999",
        "1979-05-27",
        "true",
        "[]",
        "{}",
        "\"\"",
        "name",
        "function",
        "trigger",
        "http",
        "inputs",
        "memory",
        "\"64MiB\"",
        "[function.x]",
        "[[trigger.http]]",
        "/{a}",
        "/{*a}/b",
        "/{a}{b}",
        "{{",
        "}}",
        "%2",
        "host = \"x\"\n",
    ])
    .prop_map(str::to_owned);
    (
        any::<prop::sample::Index>(),
        0usize..24,
        prop_oneof![4 => token, 1 => "\\PC{0,12}"],
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(text in "\\PC*") {
        hold(&text);
    }

    #[test]
    fn no_mutation_makes_it_panic(mutations in prop::collection::vec(mutation(), 1..6)) {
        let mut text: Vec<char> = FULL.chars().collect();
        for (place, length, insert) in mutations {
            let start = place.index(text.len() + 1);
            let end = (start + length).min(text.len());
            text.splice(start..end, insert.chars());
        }
        hold(&text.into_iter().collect::<String>());
    }

    #[test]
    fn no_path_or_host_makes_it_panic(path in "/[a-z{}*/.%é-]{0,24}", other in "/[a-z{}*/]{0,12}", host in "\\PC{0,12}") {
        let trigger = |path: &str, host: &str| {
            format!("[[trigger.http]]\nfunction = \"f\"\npath = {}\nhost = {}\n", Value::from(path), Value::from(host))
        };
        hold(&minimal(&[trigger(&path, &host), trigger(&path, "x"), trigger(&other, "x")].concat()));
    }
}

#[test]
fn nesting_is_bounded() {
    for (open, close) in [("[", "]"), ("{a=", "}")] {
        let text = format!("x = {}1{}", open.repeat(50_000), close.repeat(50_000));
        assert!(parse(&text).is_err());
    }
    let dotted = format!("{}a = 1", "a.".repeat(100_000));
    assert!(parse(&dotted).is_err());
    let header = format!("[{}a]\nx = 1", "a.".repeat(100_000));
    assert!(parse(&header).is_err());
}
