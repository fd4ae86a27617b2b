//! The command line: one table of flags, a parser in the manner of pflag, and the help text made from the table.
//!
//! Owns names, types, topics and descriptions of all flags, and the removed ones. Never reads a file and never decides what
//! a setting does.

mod effective;
mod help;
mod parse;
mod removed;
mod table;
pub(crate) mod values;

pub use effective::effective;
pub use help::help;
pub(crate) use help::nearest;
pub(crate) use parse::{Parsed, parse, parse_all};
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

/// The type of a flag's value.
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
    /// `a,b`; a repeated flag adds to the list.
    List,
    /// `key=value,…`; a repeated flag adds to the map.
    Map,
    /// `signal<threshold,…`.
    Thresholds,
    /// `Name:value,…`; a name may be repeated.
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

/// The heading of a flag in the help text.
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
    /// The Go kubelet does not have it.
    Own,
    Global,
}

/// What a flag sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A field of [`crate::KubeletConfiguration`], as dotted wire names; not deprecated.
    Field(&'static str),
    /// The same, but deprecated: the field should be set in the file.
    DeprecatedField(&'static str),
    /// A field of [`crate::NodeFlags`].
    Node(&'static str),
    /// The same, but deprecated.
    DeprecatedNode(&'static str),
    /// Accepted without effect, for command lines that still have it.
    Ignored,
    /// Requests something other than running the kubelet.
    Action,
}

impl Flag {
    /// The configuration field that this flag sets, as dotted wire names.
    #[must_use]
    pub const fn field(&self) -> Option<&'static str> {
        match self.target {
            Target::Field(path) | Target::DeprecatedField(path) => Some(path),
            Target::Node(_) | Target::DeprecatedNode(_) | Target::Ignored | Target::Action => None,
        }
    }

    /// The warning if the flag is deprecated.
    #[must_use]
    pub fn deprecation(&self) -> Option<String> {
        let name = self.name;
        match self.target {
            Target::DeprecatedField(path) => Some(format!(
                "Flag --{name} has been deprecated, set {path} in the file given by --config instead"
            )),
            Target::DeprecatedNode(_) => {
                Some(format!("Flag --{name} has been deprecated, it will be removed in a future release"))
            }
            Target::Ignored => Some(format!("Flag --{name} has been deprecated, it has no effect")),
            Target::Field(_) | Target::Node(_) | Target::Action => None,
        }
    }
}

impl Kind {
    /// The allowed values, for messages with "takes" or "must be".
    #[must_use]
    pub const fn expected(self) -> &'static str {
        match self {
            Self::Bool => "true or false",
            Self::Text => "a string",
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

/// The flag of that name; `_` is read as `-`.
#[must_use]
pub fn find(name: &str) -> Option<&'static Flag> {
    let name = name.replace('_', "-");
    FLAGS.iter().find(|flag| flag.name == name)
}

/// The flag that sets a configuration field.
#[must_use]
pub fn for_field(field: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.field() == Some(field))
}
