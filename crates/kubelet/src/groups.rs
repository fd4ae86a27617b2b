//! The groups of this machine.

use std::fs::File;
use std::io::Read as _;

pub(crate) const GROUPS: &str = "/etc/group";
pub(crate) const MAX_BYTES: usize = 1 << 20;

/// The number of a group in the text of `/etc/group`.
pub(crate) fn find(groups: &str, name: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_it = fields.next() == Some(name);
        fields.nth(1).filter(|_| is_it)?.parse().ok()
    })
}

/// The number of a group, which may be given as such. At the start, when files are read without a helper process.
pub(crate) fn id(name: &str, flag: &str) -> Result<u32, String> {
    if let Ok(id) = name.parse() {
        return Ok(id);
    }
    let failed = |error: std::io::Error| format!("cannot read {GROUPS}: {error}");
    let mut text = Vec::new();
    File::open(GROUPS).map_err(failed)?.take(MAX_BYTES as u64).read_to_end(&mut text).map_err(failed)?;
    find(&String::from_utf8_lossy(&text), name).ok_or_else(|| missing(name, flag))
}

pub(crate) fn missing(name: &str, flag: &str) -> String {
    format!("the group {name:?} of {flag} is not in {GROUPS}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_is_found_by_its_whole_name() {
        let groups = "root:x:0:\nadmins:x:1001:ann,bob\nadm:x:4:\nbroken\n";
        assert_eq!(["root", "adm", "admins"].map(|name| find(groups, name)), [Some(0), Some(4), Some(1001)]);
        assert_eq!(["ad", "broken", "x"].map(|name| find(groups, name)), [None; 3]);
    }
}
