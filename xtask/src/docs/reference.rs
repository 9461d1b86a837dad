//! Pages that are a view of a schema or of the command's own help.

use super::MARK;
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, env, fmt::Write, process::Command};

/// Text for a table's cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

// --- the manifest ---

/// Every key of `millpond.toml`, from its JSON schema.
pub(super) fn manifest(schema: &Value) -> Result<String> {
    let mut page = format!(
        "# The manifest\n\n{MARK}\n\n{}\nIt is TOML. An unknown key is an error that names the nearest known one. The same as \
         a JSON schema, for editors: `docs/manifest.schema.json` in the repository, `GET /manifest.schema.json` on the \
         admin port.\n\nSizes are written `64KiB`, `16MiB`, `1GiB` (powers of 1024) or `64kB`, `16MB` (powers of 1000); \
         durations `250us`, `10ms`, `30s`, `5m`, `1h`. What happens when a limit is met: [Limits](../guides/limits.md). \
         What is said about a wrong manifest: [Errors](errors.md#faults-of-a-manifest).\n",
        schema["description"].as_str().unwrap_or_default()
    );
    table(&mut page, "", schema, false)?;
    Ok(page)
}

/// One table of the manifest, then those inside it.
fn table(page: &mut String, path: &str, schema: &Value, repeated: bool) -> Result<()> {
    let empty = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&empty);
    let is_required = |key: &str| {
        schema["required"]
            .as_array()
            .is_some_and(|keys| keys.iter().any(|name| name.as_str() == Some(key)))
    };
    let below = |key: &str| {
        if path.is_empty() {
            key.to_owned()
        } else {
            format!("{path}.{key}")
        }
    };
    let plain: Vec<_> = properties
        .iter()
        .filter(|(_, value)| inner(value).is_none())
        .collect();
    if !plain.is_empty() {
        let (open, close) = if repeated { ("[[", "]]") } else { ("[", "]") };
        writeln!(page, "\n## `{open}{path}{close}`\n")?;
        writeln!(page, "{}\n", schema["description"].as_str().unwrap_or_default())?;
        writeln!(page, "| key | value | when absent | meaning |\n|---|---|---|---|")?;
        for (key, value) in plain {
            let absent = match &value["default"] {
                Value::Null if is_required(key) => "an error".to_owned(),
                Value::Null => String::new(),
                default => format!("`{default}`"),
            };
            let meaning = cell(&meaning(value));
            writeln!(
                page,
                "| `{key}` | {} | {absent} | {meaning} |",
                cell(&kind(value))
            )?;
        }
    }
    for (key, value) in properties {
        if let Some((schema, repeated)) = inner(value) {
            match schema["patternProperties"]
                .as_object()
                .and_then(|named| named.values().next())
            {
                Some(each) => table(page, &below(&format!("{key}.NAME")), each, false)?,
                None => table(page, &below(key), schema, repeated)?,
            }
        }
    }
    Ok(())
}

/// The table that a key opens, and whether there may be several of it.
fn inner(value: &Value) -> Option<(&Value, bool)> {
    let is_table =
        |schema: &Value| schema["properties"].is_object() || schema["patternProperties"].is_object();
    if is_table(value) {
        Some((value, false))
    } else if is_table(&value["items"]) {
        Some((&value["items"], true))
    } else {
        None
    }
}

fn meaning(value: &Value) -> String {
    let mut text = value["description"].as_str().unwrap_or_default().to_owned();
    for choice in value["oneOf"].as_array().into_iter().flatten() {
        if let (Some(word), Some(description)) = (choice["const"].as_str(), choice["description"].as_str()) {
            text.push_str(&format!(" `\"{word}\"`: {description}"));
        }
    }
    text
}

/// What may be written as a value.
fn kind(value: &Value) -> String {
    let alternatives = |key: &str| value[key].as_array().filter(|options| !options.is_empty());
    if let Some(options) = alternatives("oneOf").or_else(|| alternatives("anyOf")) {
        let words: Vec<String> = options
            .iter()
            .map(|option| match option["const"].as_str() {
                Some(word) => format!("`\"{word}\"`"),
                None => kind(option),
            })
            .collect();
        return words.join(" or ");
    }
    match (value["format"].as_str(), value["type"].as_str()) {
        (Some("millpond-name"), _) => {
            "name: a letter, then up to 62 letters, digits and `-`, in lower case".to_owned()
        }
        (Some("millpond-size"), _) => "size".to_owned(),
        (Some("millpond-duration"), _) => "duration".to_owned(),
        (_, Some("string")) => "text".to_owned(),
        (_, Some("array")) => match &value["items"] {
            items if items["oneOf"].is_array() => format!("array of {}", kind(items)),
            _ => "array of texts".to_owned(),
        },
        (_, Some("object")) => "table of texts".to_owned(),
        (_, Some("integer")) => match (&value["minimum"], &value["maximum"]) {
            (Value::Number(minimum), Value::Number(maximum)) => format!("{minimum} to {maximum}"),
            _ => "integer".to_owned(),
        },
        (_, Some(other)) => other.to_owned(),
        (_, None) => "value".to_owned(),
    }
}

// --- the control API ---

/// Every operation of the control API, from its OpenAPI document.
pub(super) fn control_api(document: &Value) -> Result<String> {
    let mut page = format!(
        "# The control API\n\n{MARK}\n\nIt is on the admin port, `127.0.0.1:9080` unless told otherwise. The whole \
         description, with every schema: `docs/openapi.json` in the repository, `GET /openapi.json` on the admin port. \
         An error is [`application/problem+json`](http.md#problems); its codes: [Errors](errors.md). With a token set, \
         requests carry `Authorization: Bearer TOKEN`; `/healthz` and `/readyz` need none. \
         *Role* is what a [tenant's token](../guides/tenants.md#roles) needs; the node's own token is good for all of them.\n"
    );
    let mut groups: BTreeMap<&str, Vec<(&str, &str, &Value)>> = BTreeMap::new();
    for (path, methods) in document["paths"]
        .as_object()
        .context("the OpenAPI document has no paths")?
    {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            let tag = operation["tags"][0].as_str().unwrap_or("other");
            groups.entry(tag).or_default().push((method, path, operation));
        }
    }
    for (tag, operations) in groups {
        writeln!(
            page,
            "\n## {tag}\n\n| operation | role | what it does | parameters | answers |\n|---|---|---|---|---|"
        )?;
        for (method, path, operation) in operations {
            let summary = operation["summary"].as_str().unwrap_or_default();
            let description = operation["description"].as_str().unwrap_or_default();
            let what = match description {
                "" => format!("{summary}."),
                _ => format!("{summary}. {description}"),
            };
            writeln!(
                page,
                "| `{} {path}` | {} | {} | {} | {} |",
                method.to_uppercase(),
                operation["x-millpond-role"].as_str().unwrap_or_default(),
                cell(&what),
                cell(&parameters(operation)),
                cell(&answers(operation)),
            )?;
        }
    }
    Ok(page)
}

/// The query's parameters, and what the body is.
fn parameters(operation: &Value) -> String {
    let mut items = Vec::new();
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        if parameter["in"] == "query" {
            let name = parameter["name"].as_str().unwrap_or_default();
            items.push(format!(
                "`{name}`: {}",
                parameter["description"].as_str().unwrap_or_default()
            ));
        }
    }
    for (media, content) in operation["requestBody"]["content"]
        .as_object()
        .into_iter()
        .flatten()
    {
        items.push(match reference(&content["schema"]) {
            Some(schema) => format!("body: `{schema}`"),
            None => format!("body: {media}"),
        });
    }
    items.join("<br>")
}

fn answers(operation: &Value) -> String {
    let mut items = Vec::new();
    for (status, response) in operation["responses"].as_object().into_iter().flatten() {
        let mut contents = response["content"].as_object().into_iter().flatten();
        let schema = contents.find_map(|(_, content)| reference(&content["schema"]));
        // A problem is what every other status answers; the page's head says so.
        match schema {
            Some("Problem") => {}
            Some(schema) => items.push(format!("{status} `{schema}`")),
            None => items.push(status.clone()),
        }
    }
    items.join("<br>")
}

/// The name of the schema that is referred to.
fn reference(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.rsplit('/').next()
}

// --- the command line ---

/// Every verb with its flags: what `millpond VERB --help` prints.
pub(super) fn command_line() -> Result<String> {
    let mut page = format!(
        "# The command line\n\n{MARK}\n\nEach verb with `--help`. A flag wins over its environment variable. Exit codes are \
         the same for all: 0 ok, 1 error of a function or a service, 2 wrong usage or manifest, 124 timeout, 130 \
         interrupted. With `-o json` answers and errors are JSON; an error goes to standard error as \
         `{{\"error\": {{\"code\", \"detail\", \"hint\", …}}}}` with a code of [Errors](errors.md).\n"
    );
    command(&mut page, &[])?;
    Ok(page)
}

fn command(page: &mut String, words: &[&str]) -> Result<()> {
    let help = help(words)?;
    let name: Vec<&str> = std::iter::once("millpond").chain(words.iter().copied()).collect();
    writeln!(
        page,
        "\n## `{}`\n\n```text\n{}\n```",
        name.join(" "),
        help.trim_end()
    )?;
    for verb in verbs(&help) {
        command(page, &[words, &[verb]].concat())?;
    }
    Ok(())
}

/// What the command that was built beside this one prints.
fn help(words: &[&str]) -> Result<String> {
    let here = env::current_exe().context("cannot tell where this program is")?;
    let program = here.with_file_name("millpond");
    let output = Command::new(&program)
        .args(words)
        .arg("--help")
        .env_clear()
        .output()
        .with_context(|| format!("cannot run {}: build it with `make build`", program.display()))?;
    if !output.status.success() {
        bail!("`millpond {} --help` failed: {}", words.join(" "), output.status);
    }
    let text = String::from_utf8(output.stdout).context("help is not UTF-8")?;
    Ok(text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n"))
}

/// The verbs that a help text lists.
fn verbs(help: &str) -> Vec<&str> {
    help.lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help")
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_key_of_the_schema_is_in_the_page() {
        fn keys(schema: &Value, found: &mut Vec<String>) {
            for (key, value) in schema["properties"].as_object().into_iter().flatten() {
                match inner(value) {
                    None => found.push(key.clone()),
                    Some((schema, _)) => {
                        keys(schema, found);
                        for each in schema["patternProperties"]
                            .as_object()
                            .into_iter()
                            .flat_map(Map::values)
                        {
                            keys(each, found);
                        }
                    }
                }
            }
        }
        let mut found = Vec::new();
        keys(manifest::schema(), &mut found);
        let page = manifest(manifest::schema()).unwrap();
        for key in ["name", "source", "memory", "command", "actions", "path"] {
            assert!(found.iter().any(|known| known == key), "{key} in {found:?}");
        }
        for key in found {
            assert!(page.contains(&format!("\n| `{key}` |")), "{key}");
        }
        for heading in [
            "`[application]`",
            "`[function.NAME]`",
            "`[function.NAME.build]`",
            "`[[trigger.http]]`",
        ] {
            assert!(page.contains(&format!("\n## {heading}\n")), "{heading}");
        }
    }

    #[test]
    fn values_are_described() {
        for (schema, said) in [
            (json!({"type": "integer", "minimum": 1, "maximum": 9}), "1 to 9"),
            (
                json!({"oneOf": [{"const": "raw"}, {"const": "cgi"}]}),
                "`\"raw\"` or `\"cgi\"`",
            ),
            (
                json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
                "text or array of texts",
            ),
            (json!({"type": "boolean"}), "boolean"),
            (json!({}), "value"),
        ] {
            assert_eq!(kind(&schema), said);
        }
    }

    #[test]
    fn every_operation_is_in_the_page() {
        let document = admin::openapi();
        let page = control_api(&document).unwrap();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for method in methods.as_object().unwrap().keys() {
                let operation = format!("| `{} {path}` |", method.to_uppercase());
                assert!(page.contains(&operation), "{operation}");
            }
        }
    }

    #[test]
    fn verbs_are_read_from_help() {
        let help = "Serve\n\nUsage: x\n\nCommands:\n  serve   Run\n  deploy  Deploy an\n          application\n  help    Print\n\nOptions:\n  -o\n";
        assert_eq!(verbs(help), ["serve", "deploy"]);
        assert!(verbs("Usage: x\n").is_empty());
    }
}
