//! The command line: one table of flags, a parser in the manner of pflag, and the help text made from the table.
//!
//! Owns names, types, topics and words of all flags, and the ones that are gone. Never reads a file and never decides
//! what a setting does.

mod gone;
mod help;
mod parse;
mod shown;
mod table;
pub(crate) mod values;

pub use help::help;
pub(crate) use parse::{Parsed, parse};
pub use shown::shown;
pub use table::FLAGS;

/// One command line flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag {
    /// Without the dashes; words joined with `-`.
    pub name: &'static str,
    pub kind: Kind,
    pub topic: Topic,
    pub target: Target,
    pub help: &'static str,
}

/// What a flag's value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Bool,
    Text,
    Int32,
    Int64,
    /// A log level, 0 and up.
    Level,
    Duration,
    Ip,
    /// `a,b`; more than once adds.
    List,
    /// `key=value,…`; more than once adds.
    Map,
    /// `signal<threshold,…`.
    Thresholds,
    /// `Name:value,…`, a name may come again.
    Headers,
    /// `Gate=true,…`.
    Gates,
    /// `key=value:Effect,…`.
    Taints,
    /// `node:memory=1Gi,…;node:…`.
    ReservedMemory,
    /// `file=level,…`.
    VModule,
    Quantity,
    /// `--version` or `--version=raw`.
    Version,
}

/// The heading a flag stands under in the help text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    Configuration,
    Node,
    StaticPods,
    Runtime,
    Images,
    Server,
    Cluster,
    Resources,
    Eviction,
    Network,
    Logging,
    Accepted,
    Global,
}

/// Where a flag's value goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A field of [`crate::KubeletConfiguration`], as dotted wire names; not deprecated.
    Field(&'static str),
    /// The same, but deprecated: the field should be set in the file.
    OldField(&'static str),
    /// A field of [`crate::NodeFlags`].
    Node(&'static str),
    /// The same, but deprecated.
    OldNode(&'static str),
    /// Taken without effect, for command lines that still carry it.
    Ignored,
    /// Asks for something other than running.
    Ask,
}

impl Flag {
    /// The configuration field this flag mirrors, as dotted wire names.
    #[must_use]
    pub const fn field(&self) -> Option<&'static str> {
        match self.target {
            Target::Field(path) | Target::OldField(path) => Some(path),
            Target::Node(_) | Target::OldNode(_) | Target::Ignored | Target::Ask => None,
        }
    }

    /// The line shown when a deprecated flag is used.
    #[must_use]
    pub fn deprecation(&self) -> Option<String> {
        let name = self.name;
        match self.target {
            Target::OldField(path) => Some(format!(
                "Flag --{name} has been deprecated, set {path} in the file given by --config instead"
            )),
            Target::OldNode(_) => {
                Some(format!("Flag --{name} has been deprecated, it will be removed in a future release"))
            }
            Target::Ignored => Some(format!("Flag --{name} has been deprecated, it has no effect")),
            Target::Field(_) | Target::Node(_) | Target::Ask => None,
        }
    }
}

impl Kind {
    /// What is allowed, in words that follow "takes" or "must be".
    #[must_use]
    pub const fn expected(self) -> &'static str {
        match self {
            Self::Bool => "true or false",
            Self::Text => "a text",
            Self::Int32 => "a whole number from -2147483648 to 2147483647",
            Self::Int64 => "a whole number",
            Self::Level => "a whole number of 0 or more",
            Self::Duration => "a duration such as 1h30m or 100ms",
            Self::Ip => "an IP address",
            Self::List => "a list such as a,b",
            Self::Map => "pairs such as key=value,key=value",
            Self::Thresholds => "thresholds such as memory.available<100Mi,nodefs.available<10%",
            Self::Headers => "headers such as Name:value,Name:value",
            Self::Gates => "gates such as GateA=true,GateB=false",
            Self::Taints => {
                "taints such as key=value:Effect with the effect NoSchedule, PreferNoSchedule or NoExecute"
            }
            Self::ReservedMemory => "reservations such as 0:memory=1Gi,hugepages-1Gi=2Gi;1:memory=2Gi",
            Self::VModule => "patterns such as file=level,file=level",
            Self::Quantity => "a quantity such as 64Ki",
            Self::Version => "true, false or raw",
        }
    }
}

/// The flag of that name; `_` counts as `-`.
#[must_use]
pub fn find(name: &str) -> Option<&'static Flag> {
    let name = name.replace('_', "-");
    FLAGS.iter().find(|flag| flag.name == name)
}

/// The flag that mirrors a configuration field.
#[must_use]
pub fn mirroring(field: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.field() == Some(field))
}
