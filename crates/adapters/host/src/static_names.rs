//! Name lookups of a program that has the C library in it.
//!
//! The C library would load the modules that `/etc/nsswitch.conf` names (`resolve`, `mymachines`, `sss`), and with them the machine's own
//! version of itself, which need not fit. What is built in needs no module: `/etc/hosts`, and DNS as `/etc/resolv.conf` says.
#![expect(unsafe_code, reason = "a function of the C library that no crate wraps")]

use std::ffi::{CStr, c_char, c_int};

/// The database of host names, and the sources that are asked, in this order.
const HOSTS: &CStr = c"hosts";
const SOURCES: &CStr = c"files dns";

unsafe extern "C" {
    /// Of `<nss.h>`: replaces a line of `/etc/nsswitch.conf` for this process. Returns 0, or -1 for an invalid line.
    fn __nss_configure_lookup(database: *const c_char, line: *const c_char) -> c_int;
}

/// Returns whether the C library took it. To be called before the first thread starts.
pub(crate) fn use_built_in() -> bool {
    // SAFETY: both are constant texts that end in a zero byte, and there is only one thread.
    (unsafe { __nss_configure_lookup(HOSTS.as_ptr(), SOURCES.as_ptr()) }) == 0
}

#[cfg(test)]
mod tests {
    use std::net::ToSocketAddrs as _;

    use super::*;

    #[test]
    fn built_in_lookups_find_names_of_the_hosts_file() {
        assert!(use_built_in());
        assert!(("localhost", 0).to_socket_addrs().unwrap().any(|address| address.ip().is_loopback()));
    }
}
