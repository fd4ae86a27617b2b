//! The Host port on Linux: mounts, cgroups, procfs, inotify, files and process limits.
#![forbid(unsafe_code)]
