//! The report in plain words.

use std::fmt;

use super::{ContainerReport, Fate, FileReport, FileUse, PodReport, TakeoverReport, VolumeReport, WrittenBy};

impl fmt::Display for TakeoverReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.written_by)?;
        for note in &self.notes {
            writeln!(f, "Note: {note}")?;
        }
        writeln!(f, "\nPods:{}", if self.pods.is_empty() { " none" } else { "" })?;
        for pod in &self.pods {
            write!(f, "{pod}")?;
        }
        writeln!(f, "\nState files:{}", if self.files.is_empty() { " none" } else { "" })?;
        for file in &self.files {
            writeln!(f, "{file}")?;
        }
        let result = match self.is_harmless {
            true => "Nothing would be restarted, stopped or removed.",
            false => "Something would be restarted, stopped, removed or refused: see above.",
        };
        writeln!(f, "\n{result}")
    }
}

impl fmt::Display for WrittenBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kubelet_rs, self.other) {
            (0, 0) => write!(f, "The root directory has no pods."),
            (own, 0) => write!(f, "The pods were run by this kubelet (kubelet-rs): {own}."),
            (0, other) => write!(f, "The pods were run by another kubelet: {other}."),
            (own, other) => {
                write!(
                    f,
                    "Pods that this kubelet (kubelet-rs) has run: {own}. Pods of another kubelet only: {other}."
                )
            }
        }
    }
}

impl fmt::Display for PodReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, name, uid, source, fate, why, assigned, containers, volumes } = self;
        let source = source.unwrap_or("unknown source");
        let what = match (name.is_empty(), namespace.is_empty()) {
            (true, true) => "directory without a pod".to_owned(),
            _ => format!("{namespace}/{name}"),
        };
        write!(f, "  {what} ({source}, UID {uid}{assigned}): {fate}")?;
        match why.is_empty() {
            true => writeln!(f)?,
            false => writeln!(f, ": {}", why.join("; "))?,
        }
        for container in containers {
            writeln!(f, "    {container}")?;
        }
        for volume in volumes {
            writeln!(f, "    {volume}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kept => "is kept",
            Self::Restarted => "IS RESTARTED",
            Self::Replaced => "IS STOPPED AND MADE AGAIN",
            Self::Stopped => "IS STOPPED",
            Self::Removed => "IS REMOVED",
            Self::Started => "is started",
        })
    }
}

impl fmt::Display for ContainerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, state, restart_count, assigned } = self;
        write!(f, "container {name}: {state}, {restart_count} restarts{assigned}")
    }
}

impl fmt::Display for VolumeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { plugin, name, is_mounted, is_known } = self;
        write!(f, "volume {name} ({plugin})")?;
        if *is_mounted {
            write!(f, ", mounted")?;
        }
        if !is_known {
            write!(f, ", of a type that this kubelet does not have")?;
        }
        Ok(())
    }
}

impl fmt::Display for FileReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usage = match self.usage {
            FileUse::Used => "is used",
            FileUse::Refused => "IS REFUSED, the kubelet would not start",
            FileUse::SetAside => "is damaged, set aside",
            FileUse::Unknown => "is not known, stays as it is",
        };
        write!(f, "  {} {usage}", self.path)?;
        if self.why.is_empty() { Ok(()) } else { write!(f, ": {}", self.why) }
    }
}
