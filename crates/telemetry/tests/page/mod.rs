//! A strict reader of the Prometheus text format, as independent of the writer as two readings of one text can be.

use std::collections::BTreeMap;

pub(crate) type Labels = BTreeMap<String, String>;

#[derive(Debug, Default)]
pub(crate) struct Page {
    pub samples: BTreeMap<(String, Labels), String>,
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn labels(mut text: &str) -> Labels {
    let mut labels = Labels::new();
    loop {
        let (name, rest) = text.split_once("=\"").expect("a label's name and value");
        assert!(is_name(name), "{name}");
        let (mut value, mut chars) = (String::new(), rest.char_indices());
        let end = loop {
            match chars.next().expect("the value's closing quote") {
                (end, '"') => break end,
                (_, '\\') => value.push(match chars.next().expect("an escaped character").1 {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    c => panic!("unknown escape {c}"),
                }),
                (_, c) => value.push(c),
            }
        };
        assert!(
            labels.insert(name.to_owned(), value).is_none(),
            "label twice: {name}"
        );
        match &rest[end + 1..] {
            "" => return labels,
            rest => text = rest.strip_prefix(',').expect("a comma"),
        }
    }
}

impl Page {
    pub(crate) fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut kinds: BTreeMap<String, String> = BTreeMap::new();
        let mut family = String::new();
        let mut lines = text.lines();
        assert!(text.ends_with('\n'));
        while let Some(line) = lines.next() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, help) = help.split_once(' ').expect("a help text");
                assert!(is_name(name) && !help.is_empty());
                let kind = lines
                    .next()
                    .and_then(|line| line.strip_prefix("# TYPE "))
                    .expect("TYPE after HELP");
                let (typed, kind) = kind.split_once(' ').expect("a type");
                assert_eq!(typed, name);
                assert!(["counter", "gauge", "histogram"].contains(&kind));
                assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
                assert!(
                    kinds.insert(name.to_owned(), kind.to_owned()).is_none(),
                    "family twice: {name}"
                );
                family = name.to_owned();
                continue;
            }
            let (series, value) = line.rsplit_once(' ').expect("a value");
            let (name, labels) = match series.split_once('{') {
                None => (series, Labels::new()),
                Some((name, rest)) => (name, labels(rest.strip_suffix('}').expect("a closing brace"))),
            };
            let suffix = name
                .strip_prefix(&*family)
                .expect("series stand under their family");
            match kinds[&family].as_str() {
                "histogram" => assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{name}"),
                _ => assert_eq!(suffix, ""),
            }
            assert!(value.parse::<f64>().expect("a number").is_finite());
            assert!(
                page.samples
                    .insert((name.to_owned(), labels), value.to_owned())
                    .is_none(),
                "series twice: {line}"
            );
        }
        page.check_histograms();
        page
    }

    /// Buckets are cumulative, and the last is the count.
    fn check_histograms(&self) {
        let mut histograms: BTreeMap<(String, Labels), Vec<(f64, u64)>> = BTreeMap::new();
        for ((name, labels), value) in &self.samples {
            if let Some(name) = name.strip_suffix("_bucket") {
                let mut labels = labels.clone();
                let bound = labels
                    .remove("le")
                    .expect("a bucket has a bound")
                    .replace("+Inf", "inf");
                let bucket = (bound.parse().expect("a bound"), value.parse().expect("a count"));
                histograms
                    .entry((name.to_owned(), labels))
                    .or_default()
                    .push(bucket);
            }
        }
        for ((name, labels), mut buckets) in histograms {
            buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(
                buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1),
                "{name}: {buckets:?}"
            );
            let last = buckets.last().expect("at least one bucket");
            assert_eq!(last.0, f64::INFINITY);
            let count = &self.samples[&(format!("{name}_count"), labels.clone())];
            assert_eq!(last.1.to_string(), *count);
            assert!(self.samples.contains_key(&(format!("{name}_sum"), labels)));
        }
    }

    pub(crate) fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<&str> {
        let labels = labels
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        self.samples.get(&(name.to_owned(), labels)).map(String::as_str)
    }

    pub(crate) fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        self.get(name, labels)
            .map_or(0, |value| value.parse().expect("a whole number"))
    }
}
