//! What an interval looks like: lines of text, for a terminal and for a pipe.

use super::rates::{Interval, Node, Row};
use crate::output::visible;
use clap::ValueEnum;
use std::cmp::Ordering;

/// A column of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Column {
    /// By name
    Name,
    /// Invocations that ended in a second
    Rate,
    /// Of these, those that failed
    Failed,
    /// Median of the whole time
    P50,
    /// 99th percentile of the whole time
    P99,
    /// Share of a core
    Cpu,
    /// Invocations that have a sandbox now
    Running,
    /// Invocations that wait for one now
    Queued,
    /// 99th percentile of the time in the queue
    QueueP99,
    /// Median of the time that the code took
    RunP50,
    /// 99th percentile of that
    RunP99,
    /// Lost cores at the end of a quantum, in a second
    Preempted,
    /// Taken from another core's queue, in a second
    Stolen,
    /// Refused for overload, in a second
    Refused,
}

/// How the tables are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) column: Column,
    /// The other way round: numbers from the smallest, names from Z.
    pub(super) reverse: bool,
}

/// How a line stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Title,
    Heading,
}

/// A line and its style.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) style: Style,
    pub(super) text: String,
}

impl Line {
    pub(super) fn new(style: Style, text: impl Into<String>) -> Self {
        Self {
            style,
            text: text.into(),
        }
    }
}

impl Column {
    /// As the tables have them: what matters most stays where there is little room.
    fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// The next one, or the one before, round and round.
    pub(super) fn step(self, forward: bool) -> Self {
        let all = Self::all();
        let here = all.iter().position(|column| *column == self).unwrap_or_default();
        let by = if forward { 1 } else { all.len() - 1 };
        all[(here + by) % all.len()]
    }

    /// As `--sort` has it.
    pub(super) fn label(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn title(self) -> &'static str {
        match self {
            Self::Name => "NAME",
            Self::Rate => "REQ/S",
            Self::Failed => "FAIL/S",
            Self::P50 => "P50",
            Self::P99 => "P99",
            Self::Cpu => "CPU",
            Self::Running => "RUNNING",
            Self::Queued => "QUEUED",
            Self::QueueP99 => "QUEUE P99",
            Self::RunP50 => "RUN P50",
            Self::RunP99 => "RUN P99",
            Self::Preempted => "PREEMPT/S",
            Self::Stolen => "STEAL/S",
            Self::Refused => "REFUSE/S",
        }
    }

    /// What a row has there; none sorts below all.
    fn number(self, row: &Row) -> Option<f64> {
        match self {
            Self::Name => None,
            Self::Rate => Some(row.rate),
            Self::Failed => Some(row.failed),
            Self::P50 => row.total.p50,
            Self::P99 => row.total.p99,
            Self::Cpu => Some(row.cpu),
            Self::Running => Some(row.running as f64),
            Self::Queued => Some(row.queued as f64),
            Self::QueueP99 => row.queue.p99,
            Self::RunP50 => row.run.p50,
            Self::RunP99 => row.run.p99,
            Self::Preempted => Some(row.preemptions),
            Self::Stolen => Some(row.steals),
            Self::Refused => Some(row.refused),
        }
    }

    fn cell(self, row: &Row) -> String {
        let value = self.number(row);
        match self {
            Self::Name => visible(&row.name),
            Self::P50 | Self::P99 | Self::QueueP99 | Self::RunP50 | Self::RunP99 => {
                value.map_or("-".to_owned(), time)
            }
            Self::Cpu => format!("{:.0}%", row.cpu * 100.0),
            Self::Running => row.running.to_string(),
            Self::Queued => row.queued.to_string(),
            _ => rate(value.unwrap_or_default()),
        }
    }
}

impl Order {
    fn compare(self, a: &Row, b: &Row) -> Ordering {
        let by_name = a.name.cmp(&b.name);
        let order = match self.column {
            Column::Name => by_name,
            column => {
                let key = |row| column.number(row).unwrap_or(-1.0);
                key(b).total_cmp(&key(a))
            }
        };
        let order = if self.reverse { order.reverse() } else { order };
        // Those that are alike stand by name either way.
        order.then(by_name)
    }
}

/// Three digits and a unit.
fn time(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s < 0.000_999_5 => (s * 1e6, "µs"),
        s if s < 0.999_5 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    let digits = match value {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$}{unit}")
}

/// A number of a second.
fn rate(rate: f64) -> String {
    match rate {
        r if r <= 0.0 => "0".to_owned(),
        r if r < 99.95 => format!("{r:.1}"),
        r => format!("{r:.0}"),
    }
}

/// The lines above the tables: the time, and the node if it is shown.
pub(super) fn head(interval: &Interval) -> Vec<Line> {
    let span = if interval.since_start {
        "since the node started".to_owned()
    } else {
        format!("last {}", time(interval.seconds))
    };
    let title = |text: String| Line::new(Style::Title, text);
    let mut lines = vec![title(format!("{}  {span}", visible(&interval.time)))];
    if let Some(node) = &interval.node {
        lines.extend(of_node(node).map(|text| Line::new(Style::Plain, text)));
    }
    lines
}

fn of_node(node: &Node) -> [String; 2] {
    let busy: Vec<String> = node
        .busy
        .iter()
        .map(|busy| format!("{:.0}%", busy * 100.0))
        .collect();
    let memory = node
        .resident
        .map_or(String::new(), |bytes| format!("  memory {} MiB", bytes >> 20));
    let Node {
        sandboxes,
        parked,
        runnable,
        connections,
        ..
    } = node;
    [
        format!(
            "cores busy {}  sandboxes {sandboxes} ({parked} parked)  runnable {runnable}  connections {connections}",
            busy.join(" ")
        ),
        format!(
            "requests {}/s  rejected {}/s  preemptions {}/s  steals {}/s{memory}",
            rate(node.requests),
            rate(node.rejected),
            rate(node.preemptions),
            rate(node.steals)
        ),
    ]
}

/// The tables: tenants, if the node has any, and functions. Columns that do not fit the width are left out.
pub(super) fn tables(interval: &Interval, order: Order, width: Option<usize>) -> Vec<Line> {
    let mut lines = Vec::new();
    for (what, rows) in [("TENANT", &interval.tenants), ("FUNCTION", &interval.functions)] {
        if !rows.is_empty() {
            lines.push(Line::new(Style::Plain, ""));
            lines.extend(table(what, rows, order, width));
        }
    }
    if interval.functions.is_empty() {
        let nothing = "no functions: deploy some with `millpond deploy`";
        lines.extend([Line::new(Style::Plain, ""), Line::new(Style::Plain, nothing)]);
    }
    lines
}

fn table(what: &str, rows: &[Row], order: Order, width: Option<usize>) -> Vec<Line> {
    let mut rows: Vec<&Row> = rows.iter().collect();
    rows.sort_by(|a, b| order.compare(a, b));
    let mut texts = vec![String::new(); rows.len() + 1];
    let mut used = 0;
    for column in Column::all() {
        let title = match column {
            Column::Name => what,
            column => column.title(),
        };
        let mark = match order {
            Order { column: by, reverse } if by == *column => {
                if reverse {
                    "^"
                } else {
                    "*"
                }
            }
            _ => "",
        };
        let mut cells = vec![format!("{mark}{title}")];
        cells.extend(rows.iter().map(|row| column.cell(row)));
        let wide = cells
            .iter()
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default();
        if *column != Column::Name && width.is_some_and(|width| used + 2 + wide > width) {
            break;
        }
        for (text, cell) in texts.iter_mut().zip(cells) {
            match column {
                Column::Name => text.push_str(&format!("{cell:wide$}")),
                _ => text.push_str(&format!("  {cell:>wide$}")),
            }
        }
        used += 2 + wide;
        if *column == Column::Name {
            used = wide;
        }
    }
    let style = |n| if n == 0 { Style::Heading } else { Style::Plain };
    let lines = texts.into_iter().enumerate();
    lines.map(|(n, text)| Line::new(style(n), text)).collect()
}

/// All of it as text.
pub(super) fn plain(interval: &Interval, order: Order) -> String {
    let mut text = String::new();
    for line in head(interval).into_iter().chain(tables(interval, order, None)) {
        text.push_str(line.text.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::top::rates::tests::{counters, function};

    fn order(column: Column) -> Order {
        Order {
            column,
            reverse: false,
        }
    }

    fn interval() -> Interval {
        let one = |n, m| vec![function("shop.resize", n), function("acme/shop.quick", m)];
        Interval::between(Some(&counters(10.0, one(0, 0))), &counters(12.0, one(100, 3000)))
    }

    fn names(order: Order) -> Vec<String> {
        let rows = &interval().functions;
        let table = table("FUNCTION", rows, order, None);
        let first = |line: &Line| line.text.split(' ').next().unwrap_or_default().to_owned();
        table[1..].iter().map(first).collect()
    }

    #[test]
    fn all_of_it_in_plain_text() {
        insta::assert_snapshot!(plain(&interval(), order(Column::Rate)));
    }

    #[test]
    fn numbers_are_short() {
        let times = [
            0.0,
            0.000_001_5,
            0.000_099_96,
            0.000_999_6,
            0.001_234,
            0.999_6,
            12.34,
            100.0,
        ];
        assert_eq!(
            times.map(time),
            [
                "0.00µs", "1.50µs", "100µs", "1.00ms", "1.23ms", "1.00s", "12.3s", "100s"
            ]
        );
        assert_eq!(
            [0.0, 0.04, 3.26, 99.96, 12345.6].map(rate),
            ["0", "0.0", "3.3", "100", "12346"]
        );
    }

    #[test]
    fn tables_are_sorted_by_any_column_either_way() {
        assert_eq!(names(order(Column::Rate)), ["acme/shop.quick", "shop.resize"]);
        let reverse = Order {
            reverse: true,
            ..order(Column::Rate)
        };
        assert_eq!(names(reverse), ["shop.resize", "acme/shop.quick"]);
        // Alike in this: by name, either way.
        for reverse in [false, true] {
            let column = Column::Running;
            assert_eq!(
                names(Order { column, reverse }),
                ["acme/shop.quick", "shop.resize"]
            );
        }
        let mut column = Column::Name;
        for _ in Column::all() {
            assert_eq!(column.step(true).step(false), column);
            names(order(column));
            column = column.step(true);
        }
        assert_eq!(column, Column::Name);
    }

    #[test]
    fn whole_columns_are_left_out_where_there_is_no_room() {
        let interval = interval();
        let full = tables(&interval, order(Column::Rate), None);
        for width in 0..200 {
            let cut = tables(&interval, order(Column::Rate), Some(width));
            assert_eq!(cut.len(), full.len());
            for (cut, full) in cut.iter().zip(&full) {
                assert!(full.text.starts_with(&cut.text));
                let least = "acme/shop.quick".len();
                assert!(
                    cut.text.chars().count() <= width.max(least),
                    "{width}: {}",
                    cut.text
                );
            }
        }
    }

    #[test]
    fn a_terminal_obeys_no_name() {
        let mut interval = interval();
        interval.functions[0].name = "\u{1b}[2J".to_owned();
        interval.time = "\u{7}".to_owned();
        let text = plain(&interval, order(Column::Name));
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    }
}
