//! A block device that a pod uses as a filesystem: whether it is formatted, checked, or left alone.
//!
//! Existing data takes precedence over the requested filesystem: only a device on which `blkid` found nothing is ever
//! formatted. No program runs here; the output of the node's `blkid` and `fsck` is an argument.

/// Exit code of `blkid` when it found nothing.
const NOTHING_FOUND: i32 = 2;
/// Exit code of `fsck` when errors are left.
const UNCORRECTED: i32 = 4;

/// What was found on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Nothing,
    /// A filesystem, or other content with a signature: part of a volume group, a key store.
    Signed(String),
    /// A partition table.
    Partitions,
}

/// The step before mounting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Run this program with these arguments: it makes the filesystem.
    Format {
        program: String,
        args: Vec<String>,
    },
    /// Check and repair the filesystem.
    Check,
    Nothing,
}

/// What `blkid -p -s TYPE -s PTTYPE -o export` reported about the device.
///
/// # Errors
/// It failed, or the result is ambiguous. The text is complete.
pub fn compute_content(code: Option<i32>, output: &str, stderr: &str) -> Result<Content, String> {
    match code {
        Some(0) => {}
        Some(NOTHING_FOUND) => return Ok(Content::Nothing),
        Some(_) | None => {
            return Err(format!(
                "could not find out what is on the device: blkid ended with {code:?}: {stderr}"
            ));
        }
    }
    let value = |key: &str| {
        let lines = output.lines().filter_map(|line| line.split_once('='));
        lines.filter(|(name, value)| *name == key && !value.is_empty()).map(|(_, value)| value).next()
    };
    Ok(match (value("TYPE"), value("PTTYPE")) {
        // With a filesystem next to a partition table, it is unclear which of them is in use.
        (_, Some(_)) => Content::Partitions,
        (Some(found), None) => Content::Signed(found.to_owned()),
        (None, None) => Content::Nothing,
    })
}

/// What is done to the device before it is mounted as `fs_type`.
///
/// # Errors
/// It cannot be mounted. The text is complete.
pub fn compute_step(content: &Content, fs_type: &str, read_only: bool, device: &str) -> Result<Step, String> {
    match content {
        Content::Nothing if read_only => {
            Err(format!("cannot mount unformatted disk {device} as we are manipulating it in read-only mode"))
        }
        Content::Nothing => {
            let options: &[&str] = match fs_type {
                "ext3" | "ext4" => &["-F", "-m0"],
                "xfs" => &["-f"],
                _ => &[],
            };
            let args = options.iter().copied().chain(["--", device]).map(str::to_owned).collect();
            Ok(Step::Format { program: format!("mkfs.{fs_type}"), args })
        }
        Content::Signed(found) if found == fs_type && !read_only => Ok(Step::Check),
        // Mounting it fails, and the error names what is on the device.
        Content::Signed(_) | Content::Partitions => Ok(Step::Nothing),
    }
}

/// The program, with its arguments, that makes a mounted filesystem as large as its device; `None` if there is none on the device.
///
/// # Errors
/// The filesystem cannot be enlarged. The text is complete.
pub fn compute_resize(
    content: &Content,
    device: &str,
    mount: &str,
) -> Result<Option<(&'static str, Vec<String>)>, String> {
    let args = |list: &[&str]| list.iter().map(|argument| (*argument).to_owned()).collect();
    match content {
        Content::Nothing => Ok(None),
        Content::Signed(found) => match &**found {
            "ext3" | "ext4" => Ok(Some(("resize2fs", args(&[device])))),
            "xfs" => Ok(Some(("xfs_growfs", args(&["-d", mount])))),
            "btrfs" => Ok(Some(("btrfs", args(&["filesystem", "resize", "max", mount])))),
            other => Err(format!(
                "ResizeFS.Resize - resize of format {other} is not supported for device {device} mounted at {mount}"
            )),
        },
        Content::Partitions => Err(format!(
            "ResizeFS.Resize - resize of format unknown data, probably partitions is not supported for device {device} \
             mounted at {mount}"
        )),
    }
}

/// Whether a device that `fsck -a` checked can be mounted. Exit codes for anything but errors on the device are ignored.
///
/// # Errors
/// There are uncorrected errors. The text is complete.
pub fn evaluate_check(code: Option<i32>, output: &str, device: &str) -> Result<(), String> {
    match code {
        Some(UNCORRECTED) => Err(format!(
            "'fsck' found errors on device {device} but could not correct them: {}",
            output.trim()
        )),
        Some(_) | None => Ok(()),
    }
}

/// Why a device could not be mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceError {
    pub message: String,
    /// Something else than the filesystem is on the device.
    pub is_mismatch: bool,
}

/// Why the device could not be mounted, with what is on it if that is the reason.
#[must_use]
pub fn mount_failed(content: &Content, fs_type: &str, why: &str) -> DeviceError {
    let found = match content {
        Content::Signed(found) if found != fs_type => found.as_str(),
        Content::Partitions => "unknown data, probably partitions",
        Content::Signed(_) | Content::Nothing => {
            return DeviceError { message: why.to_owned(), is_mismatch: false };
        }
    };
    let message =
        format!("failed to mount the volume as {fs_type:?}, it already contains {found}. Mount error: {why}");
    DeviceError { message, is_mismatch: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(code: i32, output: &str, fs_type: &str, read_only: bool) -> String {
        match compute_content(Some(code), output, "ambivalent result") {
            Ok(content) => match compute_step(&content, fs_type, read_only, "/dev/x") {
                Ok(Step::Format { program, args }) => format!("{program} {}", args.join(" ")),
                Ok(Step::Check) => "check".to_owned(),
                Ok(Step::Nothing) => mount_failed(&content, fs_type, "wrong fs type").message,
                Err(error) => error,
            },
            Err(error) => error,
        }
    }

    #[test]
    fn only_an_empty_device_is_formatted() {
        let ext4 = "DEVNAME=/dev/x\nTYPE=ext4\n";
        let cases = [
            (2, "", "ext4", false, "mkfs.ext4 -F -m0 -- /dev/x"),
            (2, "", "xfs", false, "mkfs.xfs -f -- /dev/x"),
            (2, "", "btrfs", false, "mkfs.btrfs -- /dev/x"),
            (0, "DEVNAME=/dev/x\n", "ext3", false, "mkfs.ext3 -F -m0 -- /dev/x"),
            (
                2,
                "",
                "ext4",
                true,
                "cannot mount unformatted disk /dev/x as we are manipulating it in read-only mode",
            ),
            (0, ext4, "ext4", false, "check"),
            (0, ext4, "ext4", true, "wrong fs type"),
            (
                0,
                ext4,
                "xfs",
                false,
                "failed to mount the volume as \"xfs\", it already contains ext4. Mount error: wrong fs type",
            ),
            (
                0,
                "TYPE=LVM2_member\n",
                "ext4",
                false,
                "failed to mount the volume as \"ext4\", it already contains LVM2_member. Mount error: wrong fs type",
            ),
            (
                0,
                "PTTYPE=gpt\n",
                "ext4",
                false,
                "failed to mount the volume as \"ext4\", it already contains unknown data, probably partitions. Mount error: wrong fs type",
            ),
            (
                0,
                "PTTYPE=dos\nTYPE=ext4\n",
                "ext4",
                false,
                "failed to mount the volume as \"ext4\", it already contains unknown data, probably partitions. Mount error: wrong fs type",
            ),
            (
                8,
                "",
                "ext4",
                false,
                "could not find out what is on the device: blkid ended with Some(8): ambivalent result",
            ),
        ];
        for (code, output, fs_type, read_only, expected) in cases {
            assert_eq!(outcome(code, output, fs_type, read_only), expected, "{code} {output:?} {fs_type}");
        }
    }

    /// `resizefs_linux.go` of mount-utils.
    #[test]
    fn mounted_filesystem_is_enlarged_by_the_program_of_its_type() {
        for (found, expected) in [
            ("ext4", "resize2fs /dev/x"),
            ("ext3", "resize2fs /dev/x"),
            ("xfs", "xfs_growfs -d /m"),
            ("btrfs", "btrfs filesystem resize max /m"),
        ] {
            let (program, args) =
                compute_resize(&Content::Signed(found.to_owned()), "/dev/x", "/m").unwrap().unwrap();
            assert_eq!(format!("{program} {}", args.join(" ")), expected);
        }
        assert_eq!(compute_resize(&Content::Nothing, "/dev/x", "/m"), Ok(None));
        let swap = compute_resize(&Content::Signed("swap".to_owned()), "/dev/x", "/m").unwrap_err();
        assert_eq!(
            swap,
            "ResizeFS.Resize - resize of format swap is not supported for device /dev/x mounted at /m"
        );
        assert!(compute_resize(&Content::Partitions, "/dev/x", "/m").is_err());
    }

    #[test]
    fn only_uncorrected_fsck_errors_prevent_a_mount() {
        for code in [Some(0), Some(1), Some(8), Some(16), None] {
            assert_eq!(evaluate_check(code, "", "/dev/x"), Ok(()), "{code:?}");
        }
        let error = evaluate_check(Some(4), "UNEXPECTED INCONSISTENCY\n", "/dev/x").unwrap_err();
        assert_eq!(
            error,
            "'fsck' found errors on device /dev/x but could not correct them: UNEXPECTED INCONSISTENCY"
        );
    }
}
