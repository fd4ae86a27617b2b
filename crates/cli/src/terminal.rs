//! What the standard output is, and the terminal behind it.

use std::io::{self, IsTerminal as _};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Where there is no terminal.
const USUAL_WIDTH: usize = 100;
/// Wider lines are hard to read.
const MAX_WIDTH: usize = 120;

/// The width of the terminal, within reason.
pub(crate) fn width() -> usize {
    size().map_or(USUAL_WIDTH, |(columns, _)| usize::from(columns).min(MAX_WIDTH))
}

/// Columns and rows of the terminal; `None` if there is none.
pub(crate) fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// The terminal passes on each key as it is, until this is dropped.
#[derive(Debug)]
pub(crate) struct RawMode {
    before: Termios,
}

impl RawMode {
    pub(crate) fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // Without the terminal there is nothing to restore.
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.before);
    }
}

/// Whether colours are of use: on a terminal whose user has not refused them.
pub(crate) fn has_color() -> bool {
    is_terminal() && std::env::var_os("NO_COLOR").is_none()
}
