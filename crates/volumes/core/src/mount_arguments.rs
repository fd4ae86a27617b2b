//! Which values from pods and PersistentVolumes may become arguments of `mount`, `mkfs`, `fsck` and `blkid`.
//!
//! Those programs run as root in the node's own mount namespace. A value that one of them reads as an option (`-T/tmp/fstab`)
//! lets the author of a pod mount any path of the node, so every value that is not a host name, a path or a mount option is
//! rejected before a program runs. Every value is bounded, too: the kernel accepts one page of mount options.

use std::net::IpAddr;

/// RFC 1035: a host name without its final dot.
const MAX_HOST_NAME: usize = 253;
const MAX_LABEL: usize = 63;
/// `PATH_MAX` of Linux, with the terminating NUL.
const MAX_PATH: usize = 4096;
/// A single mount option.
const MAX_OPTION: usize = 1024;
/// All mount options together, with a comma after each: the kernel copies one page.
const MAX_OPTIONS: usize = 4096;
const MAX_FS_TYPE: usize = 32;
/// So many characters of a rejected value are shown.
const SHOWN: usize = 64;

/// # Errors
/// The server is neither a host name nor an IP address.
pub(super) fn check_server(server: &str) -> Result<(), String> {
    let bare = server.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(server);
    if is_ip(bare) || (bare == server && is_host_name(server)) {
        return Ok(());
    }
    Err(format!("NFS server {} must be a host name or an IP address", shown(server)))
}

/// # Errors
/// The exported path is not an absolute path without control characters.
pub(super) fn check_export(path: &str) -> Result<(), String> {
    let problem = if !path.starts_with('/') {
        "must be an absolute path"
    } else if path.len() >= MAX_PATH {
        "is longer than a path can be"
    } else if path.chars().any(char::is_control) {
        "must not contain control characters"
    } else {
        return Ok(());
    };
    Err(format!("NFS path {} {problem}", shown(path)))
}

/// # Errors
/// One of the options is empty, too long, begins with a dash or holds a control character, or all are too long together.
pub(super) fn check_options(options: &[String]) -> Result<(), String> {
    for option in options {
        // One entry may contain several options.
        let problem = if option.split(',').any(str::is_empty) {
            "must not be empty"
        } else if option.split(',').any(|part| part.starts_with('-')) {
            "must not begin with '-'"
        } else if option.len() > MAX_OPTION {
            "is longer than 1024 bytes"
        } else if option.chars().any(char::is_control) {
            "must not contain control characters"
        } else {
            continue;
        };
        return Err(format!("mount option {} {problem}", shown(option)));
    }
    if options.iter().map(|option| option.len() + 1).sum::<usize>() > MAX_OPTIONS {
        return Err(format!("the mount options together are longer than {MAX_OPTIONS} bytes"));
    }
    Ok(())
}

/// The type is part of the name of the program that makes the filesystem, `mkfs.ext4`: a slash would name another program.
///
/// # Errors
/// The text is not the name of a filesystem type.
pub(super) fn check_fs_type(fs_type: &str) -> Result<(), String> {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let is_name = fs_type.len() <= MAX_FS_TYPE
        && fs_type.starts_with(|first: char| first.is_ascii_alphanumeric())
        && fs_type.bytes().all(is_inner);
    if is_name { Ok(()) } else { Err(format!("{} is not the name of a filesystem type", shown(fs_type))) }
}

/// A device that a FlexVolume driver, or the controller that attached it, named: the kubelet passes it to `blkid`, `mkfs`, `fsck` and
/// `mount`.
///
/// # Errors
/// It is not an absolute path.
pub(super) fn check_device_path(device: &str) -> Result<(), String> {
    let is_path = device.starts_with('/') && device.len() < MAX_PATH && !device.chars().any(char::is_control);
    if is_path { Ok(()) } else { Err(format!("device {} must be an absolute path", shown(device))) }
}

/// An IPv6 address may name the network interface that it belongs to: `fe80::1%eth0`.
fn is_ip(text: &str) -> bool {
    let (address, zone) = text.split_once('%').map_or((text, None), |(address, zone)| (address, Some(zone)));
    let is_zone = |zone: &str| {
        (1..16).contains(&zone.len())
            && zone.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
    };
    match address.parse() {
        Ok(IpAddr::V6(_)) => zone.is_none_or(is_zone),
        Ok(IpAddr::V4(_)) => zone.is_none(),
        Err(_) => false,
    }
}

/// Capitals and underscores occur in the names of real servers.
fn is_host_name(text: &str) -> bool {
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_end = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        let is_inner = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        label.len() <= MAX_LABEL
            && is_end(bytes.first())
            && is_end(bytes.last())
            && bytes.iter().all(is_inner)
    };
    name.len() <= MAX_HOST_NAME && name.split('.').all(is_label)
}

fn shown(text: &str) -> String {
    let cut: String = text.chars().take(SHOWN).collect();
    if cut.len() < text.len() { format!("{cut:?}...") } else { format!("{cut:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_absolute_paths() {
        for device in ["/dev/sdx", "/dev/disk/by-id/a-b"] {
            assert_eq!(check_device_path(device), Ok(()), "{device}");
        }
        let long = format!("/{}", "d".repeat(4096));
        for device in ["", "sdx", "-T/tmp/fstab", "--help", "dev/sdx", "/dev/a\nb", "/dev/a\0b", &long] {
            assert!(check_device_path(device).is_err(), "{device:?}");
        }
        let error = check_device_path("-T/tmp/fstab").unwrap_err();
        assert_eq!(error, "device \"-T/tmp/fstab\" must be an absolute path");
    }

    #[test]
    fn nfs_servers_are_host_names_or_ip_addresses() {
        let good = [
            "nas",
            "NAS-1.example.com",
            "nas_2.example.com.",
            "10.0.0.1",
            "fd00::7",
            "[fd00::7]",
            "fe80::1%eth0",
            "[fe80::1%br-lan.10]",
            "1nas",
        ];
        for server in good {
            assert_eq!(check_server(server), Ok(()), "{server}");
        }
        let long = "a".repeat(64);
        let longer = ["a".repeat(63).as_str(); 5].join(".");
        let bad = [
            "-T/var/lib/kubelet/pods/x/fstab",
            "--x",
            "-obind",
            "-",
            "",
            "a b",
            "nas\n",
            "nas\0",
            "nas,other",
            "nas:/e",
            "/etc",
            "nas/../x",
            ".",
            "..",
            "nas..example",
            "nas-",
            "-nas.example",
            "[nas]",
            "[fd00::7",
            "[-T]",
            "fd00::7%",
            "fd00::7%-x y",
            "10.0.0.1%eth0",
            "LABEL=root",
            &long,
            &longer,
        ];
        for server in bad {
            let error = check_server(server).expect_err(server);
            assert!(error.ends_with("must be a host name or an IP address") && error.len() < 400, "{error}");
        }
        assert_eq!(
            check_server("-T/tmp/fstab"),
            Err("NFS server \"-T/tmp/fstab\" must be a host name or an IP address".to_owned())
        );
    }

    #[test]
    fn nfs_paths_are_absolute_and_without_control_characters() {
        for path in ["/", "/export", "/a b/ü", "/-x"] {
            assert_eq!(check_export(path), Ok(()), "{path}");
        }
        let long = format!("/{}", "a".repeat(4095));
        for path in ["", "-o", "export", "/a\nb", "/a\0", "/\u{7f}", &long] {
            assert!(check_export(path).is_err(), "{path}");
        }
    }

    #[test]
    fn mount_options_are_bounded_and_never_begin_with_a_dash() {
        let of =
            |options: &[&str]| check_options(&options.iter().map(|o| (*o).to_owned()).collect::<Vec<_>>());
        let selinux = "context=\"system_u:object_r:x:s0:c1,c2\"";
        assert_eq!(of(&["ro", "nfsvers=4.2", "hard,timeo=600", selinux]), Ok(()));
        for (option, problem) in [
            ("", "must not be empty"),
            ("a,,b", "must not be empty"),
            ("-o", "must not begin with '-'"),
            ("--bind", "must not begin with '-'"),
            ("ro,-T/x", "must not begin with '-'"),
            ("a\nb", "must not contain control characters"),
            ("a\0", "must not contain control characters"),
        ] {
            assert_eq!(of(&["ro", option]), Err(format!("mount option {option:?} {problem}")));
        }
        assert!(of(&["a".repeat(1024).as_str()]).is_ok());
        assert!(of(&["a".repeat(1025).as_str()]).is_err_and(|error| error.len() < 200));
        assert!(of(&["a".repeat(1000).as_str(); 5]).is_err(), "more than a page together");
        assert!(of(&["ro"; 2000]).is_err());
    }

    #[test]
    fn filesystem_types_are_plain_names() {
        for fs_type in ["ext4", "xfs", "btrfs", "ntfs-3g", "fuse.sshfs", "9p"] {
            assert_eq!(check_fs_type(fs_type), Ok(()), "{fs_type}");
        }
        for fs_type in ["", "-F", "../../bin/sh", "ext4/x", "a b", "ext4\0", &"x".repeat(33)] {
            assert!(check_fs_type(fs_type).is_err(), "{fs_type}");
        }
    }
}
