//! The last-level caches that only some cores of a NUMA node share.

use std::fs;
use std::path::{Path, PathBuf};

/// Caches up to this level belong to cores.
const CORE_LEVEL: u32 = 2;

/// Reads the caches of the cores of one NUMA node, until one cannot be read: guests often have none.
#[derive(Debug)]
pub(super) struct UncoreCaches {
    cpus: PathBuf,
    cores: usize,
    is_readable: bool,
}

impl UncoreCaches {
    pub(super) fn of_node(cpus: &Path, cores: usize) -> Self {
        Self { cpus: cpus.to_owned(), cores, is_readable: true }
    }

    /// The id of the first cache above level 2 that is not shared by exactly the processors of the node.
    pub(super) fn of_core(&mut self, threads: &[u32]) -> Option<u32> {
        if !self.is_readable {
            return None;
        }
        let Some(caches) = threads.first().and_then(|cpu| self.caches(*cpu)) else {
            self.is_readable = false;
            return None;
        };
        let of_node = self.cores * threads.len();
        let mut shared = caches.into_iter().filter(|cache| cache.level > CORE_LEVEL && cache.cpus != of_node);
        shared.next().map(|cache| cache.id)
    }

    /// In the order of their names; `None` if one is incomplete.
    fn caches(&self, cpu: u32) -> Option<Vec<Cache>> {
        let dir = self.cpus.join(format!("cpu{cpu}/cache"));
        let names = fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path());
        let is_cache = |path: &PathBuf| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("index"))
        };
        let mut paths: Vec<PathBuf> = names.filter(is_cache).collect();
        paths.sort_unstable();
        paths.iter().map(|path| Cache::read(path)).collect()
    }
}

#[derive(Debug)]
struct Cache {
    id: u32,
    level: u32,
    /// How many processors share it.
    cpus: usize,
}

impl Cache {
    fn read(dir: &Path) -> Option<Self> {
        let text = |name: &str| fs::read_to_string(dir.join(name)).ok();
        let number = |name: &str| text(name)?.trim().parse().ok();
        text("size")?.trim().strip_suffix('K')?.parse::<u64>().ok()?;
        text("type")?;
        Some(Self { id: number("id")?, level: number("level")?, cpus: count(&text("shared_cpu_map")?)? })
    }
}

/// The bits of a mask like `00000000,00ff00ff`.
fn count(mask: &str) -> Option<usize> {
    let words = mask.trim().split(',').map(|word| u64::from_str_radix(word.trim(), 16).ok());
    words.map(|word| Some(word?.count_ones() as usize)).sum()
}
