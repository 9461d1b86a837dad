//! A deployment as a person reads it.

use crate::output::{columns, visible};
use admin::wire::{Action, Change, Deployment, Difference, Route};
use contract::VersionNumber;

/// The plan: one line for each function and trigger.
pub(crate) fn render(deployment: &Deployment) -> String {
    let mut text = format!("{}\n", deployment.application);
    text.push_str(&indented(&changes(deployment)));
    text.push_str(&triggers(deployment));
    text.push_str(&warnings(deployment));
    text
}

/// What makes the functions run, a line for each.
pub(crate) fn triggers(deployment: &Deployment) -> String {
    let mut text = String::new();
    let routes: Vec<Vec<String>> = deployment
        .routes
        .iter()
        .map(|route| vec![said(route), format!("-> {}", route.function)])
        .collect();
    if !routes.is_empty() {
        text.push_str("routes\n");
        text.push_str(&indented(&columns(&routes)));
    }
    let schedules: Vec<Vec<String>> = deployment
        .schedules
        .iter()
        .map(|schedule| {
            let off = if schedule.enabled { "" } else { " (disabled)" };
            vec![visible(&schedule.when), format!("-> {}{off}", schedule.function)]
        })
        .collect();
    if !schedules.is_empty() {
        text.push_str("schedules\n");
        text.push_str(&indented(&columns(&schedules)));
    }
    let events: Vec<Vec<String>> = deployment
        .events
        .iter()
        .map(|event| {
            let from = event
                .source
                .as_ref()
                .map(|source| format!(" from {}", visible(source)));
            let wanted = format!("{}{}", visible(&event.r#type), from.unwrap_or_default());
            vec![wanted, format!("-> {}", event.function)]
        })
        .collect();
    if !events.is_empty() {
        text.push_str("events\n");
        text.push_str(&indented(&columns(&events)));
    }
    let objects: Vec<Vec<String>> = deployment
        .objects
        .iter()
        .map(|object| {
            let keys = visible(&format!("{}*{}", object.prefix, object.suffix));
            vec![
                format!("s3://{}/{keys}", visible(&object.bucket)),
                format!("-> {}", object.function),
            ]
        })
        .collect();
    if !objects.is_empty() {
        text.push_str("objects\n");
        text.push_str(&indented(&columns(&objects)));
    }
    text
}

/// What will fail when it runs, a line for each.
pub(crate) fn warnings(deployment: &Deployment) -> String {
    let warnings = deployment.warnings.iter();
    warnings
        .map(|warning| format!("warning: {}\n", visible(warning)))
        .collect()
}

/// One line for each function.
pub(crate) fn changes(deployment: &Deployment) -> String {
    let rows: Vec<Vec<String>> = deployment.changes.iter().map(row).collect();
    columns(&rows)
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

fn row(change: &Change) -> Vec<String> {
    let number =
        |number: Option<VersionNumber>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
    let (sign, versions) = match change.action {
        Action::Create => ('+', format!("version {}", number(change.to))),
        Action::Update => (
            '~',
            format!("version {} -> {}", number(change.from), number(change.to)),
        ),
        Action::Delete => ('-', format!("version {}", number(change.from))),
        Action::Unchanged => ('=', format!("version {}", number(change.to.or(change.from)))),
    };
    let differences: Vec<String> = change.differences.iter().map(difference).collect();
    vec![
        format!("{sign} {}", change.function),
        versions,
        differences.join(", "),
    ]
}

fn difference(difference: &Difference) -> String {
    // A digest tells a person nothing.
    if difference.key == "code" {
        return "code".to_owned();
    }
    let value = |value: &Option<String>| value.as_deref().map_or_else(|| "none".to_owned(), visible);
    format!(
        "{} {} -> {}",
        visible(&difference.key),
        value(&difference.from),
        value(&difference.to)
    )
}

/// A route: methods, host and path.
pub(crate) fn said(route: &Route) -> String {
    let methods = if route.method.is_empty() {
        "ANY".to_owned()
    } else {
        route.method.join(",")
    };
    format!(
        "{methods} {}{}",
        route.host.as_deref().unwrap_or_default(),
        route.path
    )
}

/// The addresses of functions in columns.
pub(crate) fn listed(addresses: &[(String, Vec<String>)]) -> String {
    let rows: Vec<Vec<String>> = addresses
        .iter()
        .flat_map(|(name, urls)| {
            let names = std::iter::once(name.clone()).chain(std::iter::repeat(String::new()));
            names.zip(urls).map(|(name, url)| vec![name, url.clone()])
        })
        .collect();
    columns(&rows)
}

/// Where each function can be reached: by its name, then by its routes.
pub(crate) fn addresses(deployment: &Deployment, data_plane: &str) -> Vec<(String, Vec<String>)> {
    let kept = deployment
        .changes
        .iter()
        .filter(|change| change.action != Action::Delete);
    let addresses = kept.map(|change| {
        let name = format!("{}.{}", deployment.application, change.function);
        let mut urls = vec![format!("{data_plane}/function/{name}")];
        for route in deployment
            .routes
            .iter()
            .filter(|route| route.function == change.function)
        {
            let authority = data_plane.trim_start_matches("http://");
            let url = match &route.host {
                None => format!("{data_plane}{}", route.path),
                Some(host) => match authority.rsplit_once(':') {
                    Some((_, port)) => format!("http://{host}:{port}{}", route.path),
                    None => format!("http://{host}{}", route.path),
                },
            };
            urls.push(url);
        }
        (name, urls)
    });
    addresses.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn example() -> Deployment {
        serde_json::from_value(json!({
            "application": "shop",
            "revision": 7,
            "changes": [
                { "function": "gps-ekf", "action": "unchanged", "from": 2, "to": 2, "differences": [] },
                { "function": "old", "action": "delete", "from": 7, "differences": [] },
                { "function": "resize", "action": "create", "to": 1, "differences": [] },
                { "function": "thumb", "action": "update", "from": 3, "to": 4, "differences": [
                    { "key": "code", "from": "00", "to": "11" },
                    { "key": "memory", "from": "64MiB", "to": "128MiB" },
                    { "key": "env.LEVEL", "to": "\u{1b}[2J" },
                ] },
            ],
            "routes": [
                { "function": "resize", "path": "/resize/{size}", "method": ["POST", "PUT"], "host": "img.example.org" },
                { "function": "thumb", "path": "/" },
            ],
            "schedules": [
                { "function": "thumb", "when": "0 2 * * MON Europe/Berlin", "missed": "once", "enabled": true },
                { "function": "gps-ekf", "when": "every 30s", "missed": "skip", "enabled": false },
            ],
            "events": [
                { "function": "thumb", "type": "com.example.*", "source": "/camera" },
                { "function": "resize", "type": "*" },
            ],
            "objects": [
                { "function": "thumb", "bucket": "photos", "prefix": "in/", "suffix": ".jpg" },
            ],
            "missing_code": [],
            "warnings": ["the secret `KEY` is not set"],
            "a field of later": true,
        }))
        .unwrap()
    }

    #[test]
    fn a_plan_is_rendered() {
        insta::assert_snapshot!(render(&example()));
    }

    #[test]
    fn functions_have_addresses() {
        let addresses = addresses(&example(), "http://127.0.0.1:8080");
        insta::assert_debug_snapshot!(addresses);
    }
}
