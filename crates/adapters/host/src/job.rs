//! Jobs inside a volume, in a form that can be passed to a helper process.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use model::stats::{FilesystemSpace, TreeUsage};
use ports::host::{GroupPolicy, HostError, HostPathKind, HostResult};

use crate::measure::{self, Measurement};
use crate::ownership::Ownership;
use crate::{bind, host_path, in_volume, sub_path, unmount, walk};

/// The deadline for a filesystem to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// The deadline for measurements, which delay no pod.
const MEASURED: Duration = Duration::from_secs(5);

/// One job in a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    HostPath {
        path: PathBuf,
        kind: HostPathKind,
    },
    SubPath {
        volume: PathBuf,
        sub_path: String,
        target: PathBuf,
    },
    Read {
        volume: PathBuf,
        inside: String,
        limit: usize,
    },
    /// `options`: separated by commas.
    Bind {
        source: PathBuf,
        target: PathBuf,
        options: String,
    },
    Group {
        path: PathBuf,
        gid: u32,
        policy: GroupPolicy,
    },
    Usage {
        path: PathBuf,
    },
    Space {
        path: PathBuf,
    },
    Unmount {
        path: PathBuf,
    },
}

const KINDS: [HostPathKind; 8] = [
    HostPathKind::Unset,
    HostPathKind::DirectoryOrCreate,
    HostPathKind::Directory,
    HostPathKind::FileOrCreate,
    HostPathKind::File,
    HostPathKind::Socket,
    HostPathKind::CharDevice,
    HostPathKind::BlockDevice,
];

impl Job {
    /// The path whose filesystem must answer.
    pub(crate) fn accessed_path(&self) -> &Path {
        match self {
            Self::HostPath { path, .. }
            | Self::Group { path, .. }
            | Self::Usage { path }
            | Self::Space { path }
            | Self::Unmount { path } => path,
            Self::SubPath { volume, .. } | Self::Read { volume, .. } => volume,
            Self::Bind { source, .. } => source,
        }
    }

    /// `None`: no deadline.
    pub(crate) const fn deadline(&self) -> Option<Duration> {
        match self {
            Self::Group { .. } => None,
            Self::Usage { .. } | Self::Space { .. } | Self::Unmount { .. } => Some(MEASURED),
            Self::HostPath { .. } | Self::SubPath { .. } | Self::Read { .. } | Self::Bind { .. } => {
                Some(ANSWER)
            }
        }
    }

    pub(crate) fn run(&self) -> HostResult<Vec<u8>> {
        match self {
            Self::HostPath { path, kind } => host_path::ensure_host_path(path, *kind).map(nothing),
            Self::SubPath { volume, sub_path, target } => {
                sub_path::bind_sub_path(volume, sub_path, target).map(nothing)
            }
            Self::Read { volume, inside, limit } => in_volume::read(volume, inside, *limit),
            Self::Bind { source, target, options } => bind::bind_volume(source, target, options).map(nothing),
            Self::Group { path, gid, policy } => {
                walk::complete(Ownership::new(path.clone(), *gid, *policy)).map(nothing)
            }
            Self::Usage { path } => walk::complete(Measurement::of_tree(path.clone())).map(written_usage),
            Self::Space { path } => measure::filesystem_space(path).map(|space| {
                numbers(&[
                    space.device,
                    space.capacity_bytes,
                    space.available_bytes,
                    space.used_bytes,
                    space.inodes,
                    space.inodes_free,
                ])
            }),
            Self::Unmount { path } => unmount::unmount_or_report(path).map(nothing),
        }
    }

    /// Writes the job for a helper process.
    pub(crate) fn to_args(&self) -> Vec<OsString> {
        let text = |text: &str| OsString::from(text);
        let path = |path: &Path| path.as_os_str().to_owned();
        match self {
            Self::HostPath { path: at, kind } => {
                let kind = KINDS.iter().position(|known| known == kind).unwrap_or_default();
                vec![text("host-path"), path(at), text(&kind.to_string())]
            }
            Self::SubPath { volume, sub_path, target } => {
                vec![text("sub-path"), path(volume), text(sub_path), path(target)]
            }
            Self::Read { volume, inside, limit } => {
                vec![text("read"), path(volume), text(inside), text(&limit.to_string())]
            }
            Self::Bind { source, target, options } => {
                vec![text("bind"), path(source), path(target), text(options)]
            }
            Self::Group { path: at, gid, policy } => {
                let policy = match policy {
                    GroupPolicy::Always => "always",
                    GroupPolicy::OnRootMismatch => "on-root-mismatch",
                };
                vec![text("group"), path(at), text(&gid.to_string()), text(policy)]
            }
            Self::Usage { path: at } => vec![text("usage"), path(at)],
            Self::Space { path: at } => vec![text("space"), path(at)],
            Self::Unmount { path: at } => vec![text("unmount"), path(at)],
        }
    }

    /// `None`: the text is not a job.
    pub(crate) fn from_args(args: Vec<OsString>) -> Option<Self> {
        let mut args = args.into_iter();
        let verb = args.next()?;
        let path = PathBuf::from(args.next()?);
        let mut next = move || args.next();
        Some(match verb.to_str()? {
            "host-path" => Self::HostPath { path, kind: *KINDS.get(number::<usize>(&next()?)?)? },
            "sub-path" => {
                Self::SubPath { volume: path, sub_path: next()?.into_string().ok()?, target: next()?.into() }
            }
            "read" => {
                Self::Read { volume: path, inside: next()?.into_string().ok()?, limit: number(&next()?)? }
            }
            "bind" => {
                let (target, options) = (next()?.into(), next()?.into_string().ok()?);
                Self::Bind { source: path, target, options }
            }
            "group" => {
                let gid = number(&next()?)?;
                let policy = match next()?.to_str()? {
                    "always" => GroupPolicy::Always,
                    "on-root-mismatch" => GroupPolicy::OnRootMismatch,
                    _ => return None,
                };
                Self::Group { path, gid, policy }
            }
            "usage" => Self::Usage { path },
            "space" => Self::Space { path },
            "unmount" => Self::Unmount { path },
            _ => return None,
        })
    }
}

fn number<N: std::str::FromStr>(text: &OsStr) -> Option<N> {
    text.to_str()?.parse().ok()
}

fn nothing((): ()) -> Vec<u8> {
    Vec::new()
}

/// What [`usage`] reads.
pub(crate) fn written_usage(usage: TreeUsage) -> Vec<u8> {
    numbers(&[usage.bytes, usage.inodes])
}

fn numbers(numbers: &[u64]) -> Vec<u8> {
    let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
    words.join(" ").into_bytes()
}

fn read_numbers<const N: usize>(output: &[u8], of: &Path) -> HostResult<[u64; N]> {
    let text = String::from_utf8_lossy(output);
    let numbers: Option<Vec<u64>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
    let numbers = numbers.and_then(|numbers| numbers.try_into().ok());
    numbers.ok_or_else(|| HostError::Invalid(format!("{}: measured as {text:?}", of.display())))
}

pub(crate) fn usage(output: &[u8], of: &Path) -> HostResult<TreeUsage> {
    read_numbers(output, of).map(|[bytes, inodes]| TreeUsage { bytes, inodes })
}

pub(crate) fn space(output: &[u8], of: &Path) -> HostResult<FilesystemSpace> {
    let [device, capacity_bytes, available_bytes, used_bytes, inodes, inodes_free] =
        read_numbers(output, of)?;
    Ok(FilesystemSpace { device, capacity_bytes, available_bytes, used_bytes, inodes, inodes_free })
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};

    use super::*;

    #[test]
    fn volume_helper_job_survives_encoding() {
        let odd = PathBuf::from(OsString::from_vec(b"/a b\n\xff".to_vec()));
        let mut jobs: Vec<Job> =
            KINDS.iter().map(|kind| Job::HostPath { path: odd.clone(), kind: *kind }).collect();
        jobs.extend([
            Job::SubPath { volume: odd.clone(), sub_path: "a/ b".to_owned(), target: "/t".into() },
            Job::Read { volume: odd.clone(), inside: "x".to_owned(), limit: 7 },
            Job::Bind { source: odd.clone(), target: "/t".into(), options: "ro,noexec".to_owned() },
            Job::Bind { source: odd.clone(), target: "/t".into(), options: String::new() },
            Job::Group { path: odd.clone(), gid: 5, policy: GroupPolicy::Always },
            Job::Group { path: odd.clone(), gid: 5, policy: GroupPolicy::OnRootMismatch },
            Job::Usage { path: odd.clone() },
            Job::Space { path: odd.clone() },
            Job::Unmount { path: odd.clone() },
        ]);
        for job in jobs {
            assert_eq!(Job::from_args(job.to_args()), Some(job));
        }
        assert_eq!(Job::from_args(vec!["dance".into(), "/".into()]), None);
        assert_eq!(Job::from_args(Vec::new()), None);
        assert_eq!(odd.as_os_str().as_bytes().len(), 6);
    }

    #[test]
    fn measurements_survive_encoding() {
        let space = FilesystemSpace {
            device: 10,
            capacity_bytes: 9,
            available_bytes: 8,
            used_bytes: 7,
            inodes: 6,
            inodes_free: 5,
        };
        let output = numbers(&[10, 9, 8, 7, 6, 5]);
        assert_eq!(super::space(&output, Path::new("/")).unwrap(), space);
        assert!(usage(&output, Path::new("/")).is_err());
    }
}
