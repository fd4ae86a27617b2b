//! The signal that ended a container: runtimes report it as an exit code of 128 and its number.

/// The name of the signal; `None` for an exit without one.
#[must_use]
pub const fn signal_of_exit_code(code: i32) -> Option<&'static str> {
    Some(match code.saturating_sub(128) {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_above_128_are_signals() {
        assert_eq!(signal_of_exit_code(137), Some("SIGKILL"));
        assert_eq!(signal_of_exit_code(143), Some("SIGTERM"));
        for code in [0, 1, 9, 127, 128, 255, -1, i32::MIN, i32::MAX] {
            assert_eq!(signal_of_exit_code(code), None, "{code}");
        }
    }
}
