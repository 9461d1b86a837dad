//! A corpus of manifests that are refused: each by its code, with words that a person can act on.

use millpond_manifest::{self as manifest, parse};

/// Around what stands in `[function.f]`.
fn function(lines: &str) -> String {
    format!("[application]\nname = \"a\"\n[function.f]\nsource = \"f.wasm\"\n{lines}\n")
}

/// Around what stands in `[[trigger.http]]`.
fn trigger(lines: &str) -> String {
    function(&format!("[[trigger.http]]\n{lines}"))
}

/// Around a trigger of a path.
fn path(path: &str) -> String {
    trigger(&format!("function = \"f\"\npath = {path}"))
}

/// Around two triggers.
fn two(first: &str, second: &str) -> String {
    trigger(&format!(
        "function = \"f\"\n{first}\n[[trigger.http]]\nfunction = \"f\"\n{second}"
    ))
}

fn refused(text: &str, code: &str, words: &str) -> Option<String> {
    let faults = match parse(text) {
        Ok(_) => return Some(format!("accepted:\n{text}\n")),
        Err(faults) => faults,
    };
    let said = faults
        .iter()
        .map(|fault| format!("{}: {fault}", fault.code))
        .collect::<Vec<_>>()
        .join("\n");
    let good = faults
        .iter()
        .any(|fault| fault.code == code && fault.to_string().contains(words));
    (!good).then(|| format!("expected `{code}` with `{words}`, got\n{said}\nfor\n{text}\n"))
}

#[test]
fn each_is_refused_with_its_reason() {
    let f = function;
    let t = trigger;
    let s = |lines: &str| function(&format!("[[trigger.schedule]]\nfunction = \"f\"\n{lines}"));
    let e = |lines: &str| function(&format!("[[trigger.cloudevents]]\nfunction = \"f\"\n{lines}"));
    let o = |lines: &str| function(&format!("[[trigger.object]]\nfunction = \"f\"\n{lines}"));
    let h = |lines: &str| function(&format!("[[function.f.grants.http]]\nhost = \"x.org\"\n{lines}"));
    let long = "a".repeat(64);
    let cases: Vec<(String, &str, &str)> = vec![
        // Not TOML.
        ("[application".into(), "toml-syntax", "not TOML"),
        ("[application]\nname = shop".into(), "toml-syntax", "not TOML"),
        ("[application]\nname = \"shop".into(), "toml-syntax", "not TOML"),
        ("= 1".into(), "toml-syntax", "not TOML"),
        ("\0".into(), "toml-syntax", "not TOML"),
        (
            "[application]\nname = \"a\"\nname = \"b\"".into(),
            "toml-syntax",
            "duplicate",
        ),
        (
            "[application]\nname = \"a\"\n[application]".into(),
            "toml-syntax",
            "duplicate",
        ),
        ("{\"application\": {}}".into(), "toml-syntax", "not TOML"),
        ("application:\n  name: a".into(), "toml-syntax", "not TOML"),
        ("[application]\nname = \"\\q\"".into(), "toml-syntax", "not TOML"),
        ("[[application]\n".into(), "toml-syntax", "not TOML"),
        (
            format!("#{}", "x".repeat(manifest::MAXIMUM_LENGTH)),
            "too-large",
            "1048576",
        ),
        // The frame.
        (String::new(), "missing-key", "`application` is missing"),
        (
            "[application]\nname = \"a\"".into(),
            "missing-key",
            "`function` is missing",
        ),
        (
            "[application]\nname = \"a\"\n[function]".into(),
            "empty",
            "at least one",
        ),
        (
            "[function.f]\nsource = \"f\"".into(),
            "missing-key",
            "add a `[application]` table",
        ),
        (
            "[application]\n[function.f]\nsource = \"f\"".into(),
            "missing-key",
            "`application.name` is missing",
        ),
        (
            "[application]\nname = \"a\"\n[function.f]".into(),
            "missing-key",
            "`function.f.source` is missing",
        ),
        (
            "application = \"a\"".into(),
            "wrong-type",
            "must be a table, not a string",
        ),
        (
            "[[application]]\nname = \"a\"".into(),
            "wrong-type",
            "must be a table, not an array",
        ),
        (
            "function = []\n[application]\nname = \"a\"".into(),
            "wrong-type",
            "must be a table, not an array",
        ),
        (
            "[application]\nname = \"a\"\n[[function]]\nname = \"f\"".into(),
            "wrong-type",
            "`function` must be a table",
        ),
        (
            "[application]\nname = \"a\"\n[function]\nf = \"f.wasm\"".into(),
            "wrong-type",
            "`function.f` must be a table",
        ),
        // Names.
        (
            "[application]\nname = \"Shop\"".into(),
            "bad-name",
            "`Shop` is not a name",
        ),
        (
            "[application]\nname = \"\"".into(),
            "bad-name",
            "`` is not a name",
        ),
        (
            "[application]\nname = \"9a\"".into(),
            "bad-name",
            "beginning with a letter",
        ),
        (
            "[application]\nname = \"a.b\"".into(),
            "bad-name",
            "`a.b` is not a name",
        ),
        (
            "[application]\nname = \"a-\"".into(),
            "bad-name",
            "not ending with `-`",
        ),
        ("[application]\nname = \"é\"".into(), "bad-name", "a name"),
        (format!("[application]\nname = \"{long}\""), "bad-name", "1 to 63"),
        (
            "[application]\nname = 5".into(),
            "wrong-type",
            "must be a string, not an integer",
        ),
        ("[application]\nname = \"a\\u0000\"".into(), "bad-text", "NUL"),
        (
            "[application]\nname = \"a\"\n[function.F]\nsource = \"f\"".into(),
            "bad-name",
            "`F` is not a name",
        ),
        (
            "[application]\nname = \"a\"\n[function.\"f g\"]\nsource = \"f\"".into(),
            "bad-name",
            "`f g` is not a name",
        ),
        (
            "[application]\nname = \"a\"\n[function.\"\"]\nsource = \"f\"".into(),
            "bad-name",
            "`` is not a name",
        ),
        (
            "[application]\nname = \"a\"\n[function.f_g]\nsource = \"f\"".into(),
            "bad-name",
            "`f_g` is not a name",
        ),
        // Unknown keys.
        (
            "aplication = 1".into(),
            "unknown-key",
            "did you mean `application`?",
        ),
        (
            "[functions.f]\nsource = \"f\"".into(),
            "unknown-key",
            "did you mean `function`?",
        ),
        ("[triggers]\n".into(), "unknown-key", "did you mean `trigger`?"),
        (
            "zebra = 1".into(),
            "unknown-key",
            "known here: `application`, `function`, `trigger`",
        ),
        (
            "[application]\nnmae = \"a\"".into(),
            "unknown-key",
            "did you mean `name`?",
        ),
        (
            "[application]\nmemory = \"1MiB\"".into(),
            "unknown-key",
            "`memory` belongs in `[function.NAME]`",
        ),
        (f("memroy = \"64MiB\""), "unknown-key", "did you mean `memory`?"),
        (f("Memory = \"64MiB\""), "unknown-key", "did you mean `memory`?"),
        (f("cpu-time = \"1s\""), "unknown-key", "did you mean `cpu_time`?"),
        (f("cpu = 1"), "unknown-key", "did you mean `cpus`?"),
        (f("environment = {}"), "unknown-key", "did you mean `env`?"),
        (
            f("bucket = \"x\""),
            "unknown-key",
            "belongs in `[[function.NAME.grants.s3]]`",
        ),
        (f("path = \"/x\""), "unknown-key", "belongs in `[[trigger.http]]`"),
        (f("\"\" = 1"), "unknown-key", "is not a key of `function.f`"),
        (
            f("[function.f.build]\ncomand = \"make\""),
            "unknown-key",
            "did you mean `command`?",
        ),
        (f("[function.f.grant]"), "unknown-key", "did you mean `grants`?"),
        (
            f("[[function.f.grants.https]]\nhost = \"x\""),
            "unknown-key",
            "did you mean `http`?",
        ),
        (
            f("[[function.f.grants.http]]\nhost = \"x\"\nport = 80"),
            "unknown-key",
            "`port` is not a key",
        ),
        (
            t("function = \"f\"\npath = \"/\"\nmethods = \"GET\""),
            "unknown-key",
            "did you mean `method`?",
        ),
        (f("[[trigger.https]]"), "unknown-key", "did you mean `http`?"),
        // Schedules.
        (s(""), "missing-key", "nothing says when it is due"),
        (
            s("cron = \"* * * * *\"\nevery = \"1m\""),
            "contradiction",
            "beside `cron`",
        ),
        (s("cron = \"* * * *\""), "bad-cron", "4 fields"),
        (s("cron = \"* * * * * * *\""), "bad-cron", "7 fields"),
        (s("cron = \"60 * * * *\""), "bad-cron", "is not a cron expression"),
        (s("cron = \"x * * * *\""), "bad-cron", "every five minutes"),
        (s("cron = \"0 0 31 2 *\""), "bad-cron", "never due"),
        (s("cron = \"\""), "bad-text", "empty"),
        (
            s("cron = \"* * * * *\"\ntimezone = \"Mars\""),
            "bad-timezone",
            "Europe/Berlin",
        ),
        (
            s("every = \"1m\"\ntimezone = \"UTC\""),
            "contradiction",
            "the same everywhere",
        ),
        (s("every = \"999ms\""), "bad-duration", "it can be 1s to"),
        (s("every = \"8785h\""), "bad-duration", "it can be 1s to"),
        (s("every = \"soon\""), "bad-duration", "is no duration"),
        (s("every = 5"), "wrong-type", "must be a string"),
        (
            s("every = \"1m\"\nmissed = \"never\""),
            "unknown-value",
            "\"skip\"",
        ),
        (s("every = \"1m\"\nenabled = \"no\""), "wrong-type", "a boolean"),
        (
            s(&format!("every = \"1m\"\npayload = \"{}\"", "x".repeat(65_537))),
            "too-large",
            "65536",
        ),
        (
            f("[[trigger.schedule]]\nfunction = \"g\"\nevery = \"1m\""),
            "unknown-function",
            "functions of this application: f",
        ),
        (
            s("cron = \"0 0 * * *\"\n[[trigger.schedule]]\nfunction = \"f\"\ncron = \"0  0 * * *\""),
            "duplicate-schedule",
            "trigger.schedule[0]",
        ),
        // Events.
        (e(""), "missing-key", "`trigger.cloudevents[0].type`"),
        (e("type = \"\""), "bad-text", "empty"),
        (e("type = \"*.created\""), "bad-event-pattern", "not its end"),
        (e("type = \"a b\""), "bad-event-pattern", "a space"),
        (
            e("type = \"a\"\nsource = \"/*/b\""),
            "bad-event-pattern",
            "trigger.cloudevents[0].source",
        ),
        (
            e("type = \"a\"\n[[trigger.cloudevents]]\nfunction = \"f\"\ntype = \"a\""),
            "duplicate-subscription",
            "trigger.cloudevents[0]",
        ),
        (o("prefix = \"in/\""), "missing-key", "`trigger.object[0].bucket`"),
        (o("bucket = \"Abc\""), "bad-bucket", "trigger.object[0].bucket"),
        (
            o("bucket = \"abc\"\n[[trigger.object]]\nfunction = \"f\"\nbucket = \"abc\""),
            "duplicate-subscription",
            "trigger.object[0]",
        ),
        (path("\"/events/new\""), "reserved-path", "belong to the platform"),
        // Promised for later.
        (f("[function.f.inputs]"), "not-available", "not available yet"),
        (
            f("engine = \"microvm\""),
            "not-available",
            "use \"auto\", \"wasmtime\", \"wasmtime-dense\", \"aot\", \"aot-software\", \"aot-mask\", \"aot-none\", \"rwasm\", \"rwasm-mask\" or \"process\"",
        ),
        // Values.
        (
            "[application]\nname = \"a\"\n[function.f]\nsource = \"\"".into(),
            "bad-text",
            "`function.f.source` is empty",
        ),
        (
            "[application]\nname = \"a\"\n[function.f]\nsource = [\"x\"]".into(),
            "wrong-type",
            "must be a string, not an array",
        ),
        (
            "[application]\nname = \"a\"\n[function.f]\nsource = \"a\\u0000b\"".into(),
            "bad-text",
            "NUL",
        ),
        (
            f("engine = \"wasmtme\""),
            "unknown-value",
            "did you mean \"wasmtime\"?",
        ),
        (
            f("engine = \"Wasmtime\""),
            "unknown-value",
            "did you mean \"wasmtime\"?",
        ),
        (
            f("engine = 1"),
            "wrong-type",
            "must be one of \"auto\", \"wasmtime\", \"wasmtime-dense\", \"aot\", \"aot-software\", \"aot-mask\", \"aot-none\", \"rwasm\", \"rwasm-mask\" or \"process\", not an integer",
        ),
        (
            f("engine = \"wasmtime-dense\"\nmemory = \"257MiB\""),
            "out-of-range",
            "at most 256MiB",
        ),
        (
            f("protocol = \"http\""),
            "unknown-value",
            "it can be \"raw\", \"cgi\" or \"pure\"",
        ),
        (f("memory = 64"), "wrong-type", "for example \"64MiB\""),
        (f("memory = 1.5"), "wrong-type", "not a number with a fraction"),
        (f("memory = nan"), "wrong-type", ""),
        (f("memory = true"), "wrong-type", "not a boolean"),
        (f("memory = 1979-05-27"), "wrong-type", "is a date"),
        (f("memory = \"64 megabytes\""), "bad-size", "a size"),
        (f("memory = \"64mb\""), "bad-size", "`64mb` is not a size"),
        (f("memory = \"-1MiB\""), "bad-size", "a size"),
        (f("memory = \"\""), "bad-size", "a size"),
        (f("memory = \"63KiB\""), "out-of-range", "it can be 64KiB to 4GiB"),
        (f("memory = \"5GiB\""), "out-of-range", "is 5GiB"),
        (f("memory = \"99999999999TiB\""), "bad-size", "a size"),
        (f("request_body = \"2GiB\""), "out-of-range", "0B to 1GiB"),
        (f("response_body = \"1073741825\""), "out-of-range", "0B to 1GiB"),
        (f("timeout = 30"), "wrong-type", "for example \"30s\""),
        (f("timeout = \"30\""), "bad-duration", "a duration"),
        (
            f("timeout = \"forever\""),
            "bad-duration",
            "`forever` is not a duration",
        ),
        (f("timeout = \"0s\""), "out-of-range", "1ms to 1h"),
        (f("timeout = \"61m\""), "out-of-range", "is 61m"),
        (f("cpu_time = \"999us\""), "out-of-range", "1ms to 1h"),
        (
            f("cpu_time = \"9999999999999999999h\""),
            "bad-duration",
            "a duration",
        ),
        (f("cpus = 0"), "out-of-range", "1 to 1024"),
        (f("concurrency = 0"), "out-of-range", "1 to 100000"),
        (f("concurrency = 100001"), "out-of-range", "1 to 100000"),
        (
            f("concurrency = \"many\""),
            "wrong-type",
            "must be an integer, not a string",
        ),
        (f("concurrency = 99999999999999999999"), "out-of-range", "64 bits"),
        (f("queue = -1"), "out-of-range", "0 to 1000000"),
        (f("queue = 1000001"), "out-of-range", "0 to 1000000"),
        (f("deadline = \"0s\""), "out-of-range", "1ms to 1h"),
        (f("deadline = 50"), "wrong-type", "must be a string"),
        (f("priority = 101"), "out-of-range", "-100 to 100"),
        (f("priority = -101"), "out-of-range", "-100 to 100"),
        (
            f("priority = \"high\""),
            "wrong-type",
            "must be an integer, not a string",
        ),
        (f("tenant = \"Acme Inc\""), "bad-name", "a name"),
        (f("tenant = \"\""), "bad-name", "1 to 63"),
        (f("tenant = 7"), "wrong-type", "must be a string"),
        (f("reuse = 0"), "out-of-range", "1 to 1000000"),
        (f("reuse = true"), "wrong-type", "must be an integer"),
        (f("reuse = 1.0"), "wrong-type", "must be an integer"),
        (
            f("arguments = \"--fast\""),
            "wrong-type",
            "must be an array, not a string",
        ),
        (
            f("arguments = [1]"),
            "wrong-type",
            "`function.f.arguments[0]` must be a string",
        ),
        (f("arguments = [\"a\\u0000\"]"), "bad-text", "NUL"),
        (
            format!("{}arguments = [\"{}\"]", f(""), "x".repeat(70_000)),
            "too-large",
            "65536",
        ),
        // Environment.
        (f("env = []"), "wrong-type", "must be a table, not an array"),
        (
            f("env = { A = 1 }"),
            "wrong-type",
            "`function.f.env.A` must be a string",
        ),
        (f("env = { A = \"\\u0000\" }"), "bad-text", "NUL"),
        (
            f("env = { \"A-B\" = \"\" }"),
            "bad-variable",
            "not the name of a variable",
        ),
        (
            f("env = { \"\" = \"\" }"),
            "bad-variable",
            "not the name of a variable",
        ),
        (
            f("env = { 1A = \"\" }"),
            "bad-variable",
            "beginning with a letter or `_`",
        ),
        (
            f("env = { \"A=B\" = \"\" }"),
            "bad-variable",
            "not the name of a variable",
        ),
        (
            f("env = { \"A\\u0000\" = \"\" }"),
            "bad-variable",
            "not the name of a variable",
        ),
        (
            f("env = { HTTP_HOST = \"\" }"),
            "bad-variable",
            "every request sets itself",
        ),
        (
            f("env = { MILLPOND_X = \"\" }"),
            "bad-variable",
            "every request sets itself",
        ),
        (
            f("env = { PATH_INFO = \"\" }"),
            "bad-variable",
            "choose another name",
        ),
        // Content types.
        (f("content_type = \"\""), "bad-text", "is empty"),
        (
            f("content_type = \"png\""),
            "bad-content-type",
            "not a media type",
        ),
        (
            f("content_type = \"image/\""),
            "bad-content-type",
            "not a media type",
        ),
        (
            f("content_type = \"image/png/x\""),
            "bad-content-type",
            "not a media type",
        ),
        (
            f("content_type = \"text/plain; charset\""),
            "bad-content-type",
            "not a media type",
        ),
        (
            f("content_type = \"text/plain\\r\\nX-Evil: 1\""),
            "bad-content-type",
            "cannot stand in a header",
        ),
        (
            f("content_type = \"text/plain; x=é\""),
            "bad-content-type",
            "cannot stand in a header",
        ),
        (
            f("protocol = \"cgi\"\ncontent_type = \"text/plain\""),
            "contradiction",
            "`protocol = \"cgi\"`",
        ),
        // Build and grants.
        (f("build = \"make\""), "wrong-type", "must be a table"),
        (
            f("[function.f.build]\nwatch = []"),
            "missing-key",
            "`function.f.build.command` is missing",
        ),
        (f("[function.f.build]\ncommand = \"\""), "bad-text", "is empty"),
        (
            f("[function.f.build]\ncommand = \"make\"\nwatch = \"src\""),
            "wrong-type",
            "must be an array",
        ),
        (
            f("[function.f.grants.http]\nhost = \"x\""),
            "wrong-type",
            "must be an array, not a table",
        ),
        (
            f("[[function.f.grants.http]]"),
            "missing-key",
            "add `host = \"api.example.org\"`",
        ),
        (
            f("[[function.f.grants.http]]\nhost = \"https://x.org\""),
            "bad-host",
            "without a scheme",
        ),
        (
            f("[[function.f.grants.http]]\nhost = \"*\""),
            "bad-host",
            "patterns of hosts",
        ),
        (
            h("headers = { authorization = \"Bearer {secret:A\" }"),
            "bad-header",
            "a `{` stands alone",
        ),
        (
            h("headers = { authorization = \"Bearer {API_KEY}\" }"),
            "bad-header",
            "write `{secret:NAME}`",
        ),
        (
            h("headers = { authorization = \"{secret:a.b}\" }"),
            "bad-header",
            "is not the name of a secret",
        ),
        (
            h("headers = { x = \"a\\nb\" }"),
            "bad-header",
            "cannot stand in a header",
        ),
        (
            h("headers = { x = \" a\" }"),
            "bad-header",
            "begins or ends with a blank",
        ),
        (h("headers = { x = \"\" }"), "bad-text", "is empty"),
        (
            h("headers = { x = 1 }"),
            "wrong-type",
            "`function.f.grants.http[0].headers.x`",
        ),
        (
            h("headers = { \"a b\" = \"c\" }"),
            "bad-header",
            "is not the name of a header",
        ),
        (
            h("headers = { Host = \"c\" }"),
            "bad-header",
            "is the connection's to say",
        ),
        (
            h("headers = { Transfer-Encoding = \"chunked\" }"),
            "bad-header",
            "is the connection's to say",
        ),
        (
            h("headers = { X-Key = \"a\", x-key = \"b\" }"),
            "bad-header",
            "is the same header as \"X-Key\"",
        ),
        (h("clear_text = true"), "contradiction", "no header has a secret"),
        (
            h("headers = { x = \"{secret:A}\" }\n[[function.f.grants.http]]\nhost = \"x.org\""),
            "duplicate-grant",
            "which another grant has already",
        ),
        (
            h("header = { x = \"{secret:A}\" }"),
            "unknown-key",
            "did you mean `headers`?",
        ),
        (
            f("output_sets = [\"a\"]"),
            "contradiction",
            "`function.f.output_sets` is of pure functions, and this is none",
        ),
        (
            f("protocol = \"pure\"\ninput_sets = [\"a/b\"]"),
            "bad-name",
            "`function.f.input_sets[0]` is no name of a set: a name has no `/`",
        ),
        (
            f("protocol = \"pure\"\ninput_sets = [\"a\", \"b\", \"a\"]"),
            "bad-name",
            "`function.f.input_sets[2]` is another set's name",
        ),
        (
            f("protocol = \"pure\"\nreuse = 2"),
            "contradiction",
            "`function.f.reuse` is above 1",
        ),
        (
            f("protocol = \"pure\"\n[[function.f.grants.http]]\nhost = \"x.org\""),
            "contradiction",
            "`function.f.grants` let it reach others",
        ),
        (
            f("[[function.f.grants.s3]]\nbucket = \"photos\""),
            "missing-key",
            "`function.f.grants.s3[0].actions` is missing",
        ),
        (
            f("[[function.f.grants.s3]]\nbucket = \"photos\"\nactions = []"),
            "empty",
            "at least one",
        ),
        (
            f("[[function.f.grants.s3]]\nbucket = \"photos\"\nactions = [\"read\"]"),
            "unknown-value",
            "\"get\", \"put\", \"list\" or \"delete\"",
        ),
        (
            f("[[function.f.grants.s3]]\nbucket = \"P\"\nactions = [\"get\"]"),
            "bad-text",
            "too short",
        ),
        (
            f("[[function.f.grants.s3]]\nbucket = \"Photos\"\nactions = [\"get\"]"),
            "bad-bucket",
            "not the name of a bucket",
        ),
        (
            f("[function.f.grants.lambda]\nfunctions = [\"f\", \"g\"]"),
            "unknown-function",
            "`function.f.grants.lambda.functions[1]` names `g`, which is not a function of this manifest",
        ),
        (
            f("[function.f.grants.lambda]\nfunctions = [\"A b\"]"),
            "bad-name",
            "`function.f.grants.lambda.functions[0]` is \"A b\", which names no function",
        ),
        (
            f("[function.f.grants.lambda]\nfunctions = [\"acme/shop.pay\"]"),
            "bad-name",
            "of their own tenant only",
        ),
        // Triggers.
        (
            f("[trigger.http]\nfunction = \"f\"\npath = \"/\""),
            "wrong-type",
            "must be an array, not a table",
        ),
        (
            t("path = \"/x\""),
            "missing-key",
            "`trigger.http[0].function` is missing",
        ),
        (
            t("function = \"f\""),
            "missing-key",
            "`trigger.http[0].path` is missing",
        ),
        (
            t("function = \"g\"\npath = \"/\""),
            "unknown-function",
            "functions of this application: f",
        ),
        (
            two("path = \"/\"", "path = \"/a\"")
                .replace("[function.f]", "[function.resize]")
                .replace("\"f\"", "\"reszie\""),
            "unknown-function",
            "did you mean `resize`?",
        ),
        (
            t("function = \"F\"\npath = \"/\""),
            "bad-name",
            "`F` is not a name",
        ),
        (path("\"\""), "bad-path", "begins with `/`"),
        (path("\"resize\""), "bad-path", "begins with `/`"),
        (path("7"), "wrong-type", "must be a string"),
        (path("\"/a b\""), "bad-path", "percent-encode"),
        (path("\"/é\""), "bad-path", "percent-encode"),
        (path("\"/a?b=c\""), "bad-path", "QUERY_STRING"),
        (path("\"/a#b\""), "bad-path", "cannot stand in a path"),
        (path("\"/a\\tb\""), "bad-path", "cannot stand in a path"),
        (path("\"/%zz\""), "bad-path", "hexadecimal"),
        (path("\"/100%\""), "bad-path", "%25"),
        (path("\"/a/../b\""), "bad-path", "clients resolve"),
        (path("\"/.\""), "bad-path", "clients resolve"),
        (path("\"/{a\""), "bad-path", "has no `}`"),
        (path("\"/a}\""), "bad-path", "has no `{`"),
        (path("\"/{}\""), "bad-path", "not the name of a parameter"),
        (path("\"/{*}\""), "bad-path", "not the name of a parameter"),
        (path("\"/{a-b}\""), "bad-path", "not the name of a parameter"),
        (path("\"/{a}{b}\""), "bad-path", "only one parameter"),
        (path("\"/{*rest}/b\""), "bad-path", "only allowed at the end"),
        (path("\"/{a}/{a}\""), "bad-path", "two parameters `a`"),
        (
            path(&format!("\"/{}\"", "a".repeat(1024))),
            "bad-path",
            "may have 1024",
        ),
        (path("\"/function/x\""), "reserved-path", "`/function`"),
        (path("\"/function\""), "reserved-path", "belong to the platform"),
        (
            path("\"/async-function/{x}\""),
            "reserved-path",
            "belong to the platform",
        ),
        (path("\"/healthz\""), "reserved-path", "belong to the platform"),
        (path("\"/readyz\""), "reserved-path", "belong to the platform"),
        (
            path("\"/2015-03-31/functions\""),
            "reserved-path",
            "choose another first segment",
        ),
        (
            t("function = \"f\"\npath = \"/\"\nmethod = \"get\""),
            "bad-method",
            "write \"GET\"",
        ),
        (
            t("function = \"f\"\npath = \"/\"\nmethod = \"\""),
            "bad-text",
            "is empty",
        ),
        (
            t("function = \"f\"\npath = \"/\"\nmethod = \"GET POST\""),
            "bad-method",
            "not an HTTP method",
        ),
        (
            t("function = \"f\"\npath = \"/\"\nmethod = []"),
            "empty",
            "at least one",
        ),
        (
            t("function = \"f\"\npath = \"/\"\nmethod = [\"GET\", \"GET\"]"),
            "bad-method",
            "twice",
        ),
        (
            t("function = \"f\"\npath = \"/\"\nmethod = [\"GET\", 1]"),
            "wrong-type",
            "`trigger.http[0].method[1]`",
        ),
        (
            t("function = \"f\"\npath = \"/\"\nmethod = 1"),
            "wrong-type",
            "must be a string or an array",
        ),
        (
            t("function = \"f\"\npath = \"/\"\nhost = \"\""),
            "bad-text",
            "is empty",
        ),
        (
            t("function = \"f\"\npath = \"/\"\nhost = \"Img.example.org\""),
            "bad-host",
            "write \"img.example.org\"",
        ),
        (
            t("function = \"f\"\npath = \"/\"\nhost = \"x.org:8080\""),
            "bad-host",
            "without a port",
        ),
        (
            t("function = \"f\"\npath = \"/\"\nhost = \"a..b\""),
            "bad-host",
            "not the name of a host",
        ),
        (
            t("function = \"f\"\npath = \"/\"\nhost = \"-a.b\""),
            "bad-host",
            "not the name of a host",
        ),
        (
            t("function = \"f\"\npath = \"/\"\nhost = \"[::g]\""),
            "bad-host",
            "not an address",
        ),
        (
            t("function = \"f\"\npath = \"/\"\nhost = \"[0:0::1]\""),
            "bad-host",
            "write \"[::1]\"",
        ),
        (
            t("function = \"f\"\npath = \"/\"\nhost = \"x.org/\""),
            "bad-host",
            "without a scheme or path",
        ),
        // Routes that exclude each other.
        (
            two("path = \"/a\"", "path = \"/a\""),
            "duplicate-route",
            "`trigger.http[0]`",
        ),
        (
            two("path = \"/a/{x}\"", "path = \"/a/{y}\""),
            "duplicate-route",
            "the same requests as `trigger.http[0]`",
        ),
        (
            two(
                "path = \"/a\"\nmethod = \"GET\"",
                "path = \"/a\"\nmethod = [\"POST\", \"GET\"]",
            ),
            "duplicate-route",
            "(GET /a, for `f`)",
        ),
        (
            two(
                "path = \"/a\"\nhost = \"x.org\"",
                "path = \"/a\"\nhost = \"x.org\"",
            ),
            "duplicate-route",
            "x.org/a",
        ),
        (
            two("path = \"/{x}\"", "path = \"/{*y}\""),
            "ambiguous-route",
            "cannot be told",
        ),
    ];
    assert!(cases.len() >= 150, "{}", cases.len());
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|(text, code, words)| refused(text, code, words))
        .collect();
    assert!(
        failures.is_empty(),
        "{} of {}:\n\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
}
