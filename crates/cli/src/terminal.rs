//! What the standard output is, and the terminal behind it.

use std::io::{self, IsTerminal as _};

use rustix::termios::tcgetwinsize;

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

/// Whether colours are of use: on a terminal whose user has not refused them.
pub(crate) fn has_color() -> bool {
    is_terminal() && std::env::var_os("NO_COLOR").is_none()
}
