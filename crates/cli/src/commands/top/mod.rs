//! `millpond top`: what a node does, as it does it.
//!
//! | module | what |
//! |---|---|
//! | `rates` | from two readings of the node's counters to rates and percentiles |
//! | `view` | from those to lines of text |
//! | `screen` | a terminal that is drawn on, and given back |
//!
//! In a terminal one loop owns the picture; keys, readings and signals come to it as events, so that a node which hangs
//! holds up no key.

mod rates;
mod screen;
mod view;

use crate::{
    client::{Client, Connection},
    failure::Failure,
    output::Output,
    signals,
};
use admin::wire::Counters;
use clap::Args;
use crossterm::event::{self, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rates::Interval;
use screen::Screen;
use std::{
    io::{self, IsTerminal},
    iter,
    ops::ControlFlow,
    sync::mpsc,
    thread,
    time::Duration,
};
use view::{Column, Line, Order, Style};

/// Show what functions and tenants do: rates, times, queues, preemptions, steals
///
/// In a terminal the picture is drawn anew in each interval, until `q`. Otherwise, and with -o json, each interval is printed
/// when it ends. Percentiles are those of the interval alone, by the buckets of the node's histograms.
#[derive(Args, Debug)]
pub(crate) struct Top {
    /// How long an interval is
    #[arg(short, long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// What to sort by
    #[arg(short, long, value_enum, value_name = "COLUMN", default_value = "rate")]
    sort: Column,
    /// Sort the other way round
    #[arg(short, long)]
    reverse: bool,
    /// Print one interval, and end
    #[arg(long)]
    once: bool,
}

/// The shortest interval: a reading of many functions is work, too.
const SHORTEST: Duration = Duration::from_millis(100);
const COUNTERS: &str = "/v1/counters";

fn interval(text: &str) -> Result<Duration, String> {
    let interval = contract::parse_duration(text).map_err(|error| error.to_string())?;
    if interval < SHORTEST {
        let shortest = contract::format_duration(SHORTEST);
        return Err(format!("an interval is {shortest} at least"));
    }
    Ok(interval)
}

impl Top {
    pub(crate) fn run(self, connection: &Connection, output: Output) -> Result<(), Failure> {
        let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
        if is_terminal && !self.once && !output.json() {
            self.draw(connection.client_without_signals()?)
        } else {
            self.print(&connection.client()?, output)
        }
    }

    fn order(&self) -> Order {
        Order {
            column: self.sort,
            reverse: self.reverse,
        }
    }

    fn print(&self, client: &Client, output: Output) -> Result<(), Failure> {
        let mut before: Counters = client.get(COUNTERS)?;
        loop {
            thread::sleep(self.interval);
            let after = client.get(COUNTERS)?;
            let interval = Interval::between(Some(&before), &after);
            let value = serde_json::to_value(&interval)
                .map_err(|error| Failure::local(format!("cannot write an interval: {error}"), ""))?;
            if self.once {
                return output.answer(&value, || view::plain(&interval, self.order()));
            }
            if output.json() {
                output.line(&value.to_string())?;
            } else {
                output.line(&view::plain(&interval, self.order()))?;
            }
            before = after;
        }
    }

    fn draw(&self, client: Client) -> Result<(), Failure> {
        // Before the terminal is taken, so that whoever named no node is told so as usual.
        let first: Counters = client.get(COUNTERS)?;
        let mut picture = Picture {
            interval: Interval::between(None, &first),
            before: first,
            order: self.order(),
            scroll: 0,
            page: 0,
            trouble: None,
        };
        let (events, happened) = mpsc::channel();
        let stop = signals::listen(events.clone(), Event::Signal)?;
        let mut screen = Screen::take().map_err(Failure::Output)?;
        let keys = events.clone();
        thread::spawn(move || send_keys(&keys));
        let every = self.interval;
        thread::spawn(move || send_readings(&client, every, &events));
        loop {
            let size = Screen::size().map_err(Failure::Output)?;
            screen.draw(&picture.lines(size), size).map_err(Failure::Output)?;
            // The senders live as long as this process.
            let Ok(event) = happened.recv() else { return Ok(()) };
            stop.check()?;
            for event in iter::once(event).chain(happened.try_iter()) {
                if let ControlFlow::Break(end) = picture.take(event) {
                    return end;
                }
            }
        }
    }
}

/// What the loop waits for.
enum Event {
    Terminal(event::Event),
    /// The terminal says nothing more.
    Gone(io::Error),
    Reading(Box<Result<Counters, Failure>>),
    /// Only wakes the loop.
    Signal,
}

fn send_keys(events: &mpsc::Sender<Event>) {
    loop {
        let (event, last) = match event::read() {
            Ok(event) => (Event::Terminal(event), false),
            Err(error) => (Event::Gone(error), true),
        };
        if events.send(event).is_err() || last {
            return;
        }
    }
}

fn send_readings(client: &Client, every: Duration, events: &mpsc::Sender<Event>) {
    loop {
        thread::sleep(every);
        if events
            .send(Event::Reading(Box::new(client.get(COUNTERS))))
            .is_err()
        {
            return;
        }
    }
}

/// What is on the screen.
struct Picture {
    before: Counters,
    interval: Interval,
    order: Order,
    /// Lines of the tables above the first that is shown.
    scroll: usize,
    /// Lines of the tables that there is room for.
    page: usize,
    /// Why there is no newer interval.
    trouble: Option<String>,
}

impl Picture {
    /// What follows from an event; the end of it all, if that is it.
    fn take(&mut self, event: Event) -> ControlFlow<Result<(), Failure>> {
        match event {
            Event::Terminal(event::Event::Key(key)) if key.kind != KeyEventKind::Release => {
                return self.press(key);
            }
            // The next picture has the new size. Whether to stop is the loop's to ask.
            Event::Terminal(_) | Event::Signal => {}
            Event::Gone(error) => {
                let failure = Failure::local(
                    format!("cannot read keys from the terminal: {error}"),
                    "print to a pipe, or use --once",
                );
                return ControlFlow::Break(Err(failure));
            }
            Event::Reading(reading) => match *reading {
                Ok(after) => {
                    self.interval = Interval::between(Some(&self.before), &after);
                    self.before = after;
                    self.trouble = None;
                }
                // A node that is started again comes back.
                Err(failure) => self.trouble = Some(failure.to_string()),
            },
        }
        ControlFlow::Continue(())
    }

    fn press(&mut self, key: KeyEvent) -> ControlFlow<Result<(), Failure>> {
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return ControlFlow::Break(Err(Failure::Interrupted(130)));
            }
            KeyCode::Char('q') | KeyCode::Esc => return ControlFlow::Break(Ok(())),
            KeyCode::Right | KeyCode::Char('>') => self.order.column = self.order.column.step(true),
            KeyCode::Left | KeyCode::Char('<') => self.order.column = self.order.column.step(false),
            KeyCode::Char('r') => self.order.reverse = !self.order.reverse,
            KeyCode::Down | KeyCode::Char('j') => self.scroll += 1,
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.scroll += self.page,
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(self.page),
            KeyCode::Home => self.scroll = 0,
            _ => {}
        }
        ControlFlow::Continue(())
    }

    /// The picture in so many columns and rows: the node on top, the keys below, in between what there is room for.
    fn lines(&mut self, (columns, rows): (usize, usize)) -> Vec<Line> {
        let mut lines = view::head(&self.interval);
        if let Some(trouble) = &self.trouble {
            lines.push(Line::new(Style::Title, crate::output::visible(trouble)));
        }
        let tables = view::tables(&self.interval, self.order, Some(columns));
        self.page = rows.saturating_sub(lines.len() + 1);
        self.scroll = self.scroll.min(tables.len().saturating_sub(self.page));
        lines.extend(tables.into_iter().skip(self.scroll).take(self.page));
        lines.resize(rows.saturating_sub(1).max(1), Line::new(Style::Plain, ""));
        let keys = format!(
            "q quit  ←→ sort by {}  r reverse  ↑↓ scroll",
            self.order.column.label()
        );
        lines.push(Line::new(Style::Plain, keys));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::{rates::tests::*, *};

    fn picture(functions: usize) -> Picture {
        let names = (0..functions).map(|n| function(&format!("app.f{n:03}"), 10));
        let counters = counters(10.0, names.collect());
        Picture {
            interval: Interval::between(None, &counters),
            before: counters,
            order: Order {
                column: Column::Name,
                reverse: false,
            },
            scroll: 0,
            page: 0,
            trouble: None,
        }
    }

    fn key(picture: &mut Picture, code: KeyCode) -> ControlFlow<Result<(), Failure>> {
        picture.take(Event::Terminal(event::Event::Key(code.into())))
    }

    fn shows(picture: &mut Picture, size: (usize, usize), what: &str) -> bool {
        picture.lines(size).iter().any(|line| line.text.contains(what))
    }

    #[test]
    fn keys_end_sort_and_scroll() {
        let mut picture = picture(100);
        let size = (120, 24);
        assert_eq!(picture.lines(size).len(), 24);
        assert!(shows(&mut picture, size, "app.f000") && !shows(&mut picture, size, "app.f050"));
        for (code, shown) in [
            (KeyCode::PageDown, "app.f030"),
            (KeyCode::Home, "app.f000"),
            (KeyCode::Char('r'), "app.f099"),
            (KeyCode::Right, "sort by rate"),
            (KeyCode::Left, "sort by name"),
        ] {
            assert!(key(&mut picture, code).is_continue());
            assert!(shows(&mut picture, size, shown), "{code:?}");
        }
        // However far down, the last page is full.
        for _ in 0..50 {
            assert!(key(&mut picture, KeyCode::PageDown).is_continue());
        }
        assert!(shows(&mut picture, size, "app.f000"));
        assert!(key(&mut picture, KeyCode::Up).is_continue() && picture.scroll > 0);
        for code in [KeyCode::Char('q'), KeyCode::Esc] {
            assert!(matches!(key(&mut picture, code), ControlFlow::Break(Ok(()))));
        }
        let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        let end = picture.take(Event::Terminal(event::Event::Key(control)));
        assert!(matches!(end, ControlFlow::Break(Err(Failure::Interrupted(130)))));
    }

    #[test]
    fn a_node_that_does_not_answer_is_told_until_it_does() {
        let mut picture = picture(1);
        let gone = Failure::local("nobody is \u{7}there", "");
        assert!(picture.take(Event::Reading(Box::new(Err(gone)))).is_continue());
        assert!(shows(&mut picture, (80, 24), "nobody is \\u{7}there"));
        let back = counters(11.0, vec![function("app.f000", 20)]);
        assert!(picture.take(Event::Reading(Box::new(Ok(back)))).is_continue());
        assert!(!shows(&mut picture, (80, 24), "nobody"));
        assert_eq!(picture.interval.functions[0].rate, 10.0);
    }

    #[test]
    fn no_size_is_too_small() {
        let mut picture = picture(10);
        for columns in 0..40 {
            for rows in 0..12 {
                picture.lines((columns, rows));
            }
        }
    }
}
