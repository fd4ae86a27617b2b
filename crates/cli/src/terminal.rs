//! What the standard output is.

use std::io::IsTerminal as _;

/// Where there is no terminal.
const USUAL_WIDTH: usize = 100;
/// Wider lines are hard to read.
const MAX_WIDTH: usize = 120;

/// The width of the terminal, within reason.
pub(crate) fn width() -> usize {
    let columns = rustix::termios::tcgetwinsize(std::io::stdout()).map(|size| usize::from(size.ws_col));
    columns.ok().filter(|columns| *columns > 0).map_or(USUAL_WIDTH, |columns| columns.min(MAX_WIDTH))
}

/// Whether colours are of use: on a terminal whose user has not refused them.
pub(crate) fn has_color() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}
