//! Reads a file inside a volume without trusting its contents: the kernel resolves the path below the volume only, so a link
//! that a container created leads nowhere else. Binding a part of a volume is in `sub_path`.

use std::fs::File;
use std::path::Path;

use ports::host::{HostError, HostResult};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::{failed, files};

/// How often the path is resolved again when something in it is renamed meanwhile.
const TRIES: u32 = 16;

pub(crate) fn read(volume: &Path, inside: &str, limit: usize) -> HostResult<Vec<u8>> {
    let shown = volume.join(inside);
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = rustix::fs::open(volume, directory, Mode::empty()).map_err(failed("open volume", volume))?;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mut opened = Err(Errno::AGAIN);
    for _ in 0..TRIES {
        opened = rustix::fs::openat2(&top, inside, files::PROMPT_READ, Mode::empty(), beneath);
        if !matches!(opened, Err(Errno::AGAIN)) {
            break;
        }
    }
    let file = match opened {
        Ok(descriptor) => files::regular(File::from(descriptor), &shown)?,
        Err(Errno::XDEV) => {
            return Err(HostError::Invalid(format!("{} leads out of its volume", shown.display())));
        }
        Err(error) => return Err(failed("open", &shown)(error)),
    };
    let content = files::read_at_most(&mut &file, limit.saturating_add(1)).map_err(failed("read", &shown))?;
    if content.len() > limit {
        return Err(HostError::Invalid(format!("{} is longer than {limit} bytes", shown.display())));
    }
    Ok(content)
}
