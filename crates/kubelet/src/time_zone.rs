//! The machine's time zone, as Go finds it: `TZ`, or else `/etc/localtime`, or else UTC.

use std::path::PathBuf;

use jiff::tz::TimeZone;

const LOCAL: &str = "/etc/localtime";
/// The directory of the zones that `TZ` names.
const ZONES: &str = "/usr/share/zoneinfo";
/// Larger files are not read.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The time zone of the names of rotated logs; UTC if it cannot be read.
pub(crate) fn local() -> TimeZone {
    let name = std::env::var_os("TZ").map(|name| name.to_string_lossy().into_owned());
    zone_file(name.as_deref()).and_then(|path| read(&path)).unwrap_or(TimeZone::UTC)
}

fn read(path: &PathBuf) -> Option<TimeZone> {
    let is_small = std::fs::metadata(path).ok()?.len() <= MAX_FILE_BYTES;
    let bytes = is_small.then(|| std::fs::read(path).ok()).flatten()?;
    TimeZone::tzif("local", &bytes).ok()
}

/// The file of the zone; `None` means UTC.
fn zone_file(name: Option<&str>) -> Option<PathBuf> {
    let Some(name) = name else { return Some(PathBuf::from(LOCAL)) };
    let name = name.strip_prefix(':').unwrap_or(name);
    if name.is_empty() || name.split('/').any(|part| part == "..") {
        return None;
    }
    // `join` with an absolute path is that path.
    Some(PathBuf::from(ZONES).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tz_variable_names_a_zone_a_file_or_utc() {
        let found = |name| zone_file(name).map(|path| path.display().to_string());
        assert_eq!(found(None).as_deref(), Some("/etc/localtime"));
        assert_eq!(found(Some("Europe/Berlin")).as_deref(), Some("/usr/share/zoneinfo/Europe/Berlin"));
        assert_eq!(found(Some(":Europe/Berlin")).as_deref(), Some("/usr/share/zoneinfo/Europe/Berlin"));
        assert_eq!(found(Some("/srv/zone")).as_deref(), Some("/srv/zone"));
        assert_eq!(found(Some("")), None);
        assert_eq!(found(Some("../../etc/shadow")), None);
    }

    #[test]
    fn file_that_is_no_time_zone_is_not_used() {
        assert_eq!(read(&PathBuf::from("/etc/hostname")), None);
        assert_eq!(read(&PathBuf::from("/does/not/exist")), None);
    }
}
