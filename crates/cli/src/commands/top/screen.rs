//! A terminal that is drawn on, and given back as it was.

use super::view::{Line, Style};
use crossterm::{
    cursor::{Hide, MoveTo, Show},
    execute, queue,
    style::{Attribute, Print, SetAttribute},
    terminal::{
        self, BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
        LeaveAlternateScreen,
    },
};
use std::{
    io::{self, Write},
    panic,
};

/// The terminal while it is ours. Dropping it gives it back; so does a panic, before it is told.
pub(super) struct Screen(());

impl Screen {
    /// Takes the terminal: keys come at once and are not shown, what was on it comes back afterwards.
    pub(super) fn take() -> io::Result<Self> {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panicked| {
            give_back();
            before(panicked);
        }));
        terminal::enable_raw_mode()?;
        let screen = Self(());
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    /// Columns and rows.
    pub(super) fn size() -> io::Result<(usize, usize)> {
        terminal::size().map(|(columns, rows)| (columns.into(), rows.into()))
    }

    /// Shows these lines and nothing else. What does not fit is not shown.
    pub(super) fn draw(&mut self, lines: &[Line], (columns, rows): (usize, usize)) -> io::Result<()> {
        let mut out = io::stdout().lock();
        queue!(out, BeginSynchronizedUpdate)?;
        for (line, row) in lines.iter().take(rows).zip(0..) {
            let text: String = line.text.chars().take(columns).collect();
            queue!(out, MoveTo(0, row), SetAttribute(Attribute::Reset))?;
            match line.style {
                Style::Plain => queue!(out, Print(text))?,
                Style::Title => queue!(out, SetAttribute(Attribute::Bold), Print(text))?,
                Style::Heading => {
                    queue!(
                        out,
                        SetAttribute(Attribute::Reverse),
                        Print(format!("{text:columns$}"))
                    )?;
                }
            }
            queue!(out, SetAttribute(Attribute::Reset))?;
            // After a full line the cursor still stands on its last character.
            if line.style != Style::Heading && line.text.chars().count() < columns {
                queue!(out, Clear(ClearType::UntilNewLine))?;
            }
        }
        if let Ok(row) = u16::try_from(lines.len())
            && lines.len() < rows
        {
            queue!(out, MoveTo(0, row), Clear(ClearType::FromCursorDown))?;
        }
        queue!(out, EndSynchronizedUpdate)?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Does as much of it as can be done: a terminal that is gone needs none of it.
fn give_back() {
    let _ = execute!(
        io::stdout(),
        SetAttribute(Attribute::Reset),
        Show,
        LeaveAlternateScreen
    );
    let _ = terminal::disable_raw_mode();
}
