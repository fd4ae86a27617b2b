//! Flags, KubeletConfiguration v1beta1, drop-ins, defaults, validation and feature gates, resolved to one value.
//!
//! [`from_args`] parses the command line (`flags`), reads the file and drop-ins (`load`, `document`), merges them
//! (`resolve`, `tree`), decodes the result ([`KubeletConfiguration`]), resolves feature gates ([`FeatureGates`]) and validates
//! everything (`validate`). The result, [`Resolved`], is complete and never changes.
//!
//! Architecture invariants:
//! - only `load` reads the disk, behind the [`Files`] trait; nothing logs or prints;
//! - errors are collected and returned together, each with the setting, its value and what is allowed;
//! - flags, fields and gates are tables: each name is written once.
#![forbid(unsafe_code)]

mod credential_providers;
mod document;
mod duration;
mod error;
pub mod flags;
pub mod gates;
pub mod inspect;
mod kubeletconfig;
mod load;
mod node;
mod not_yet;
mod resolve;
mod tree;
mod validate;

pub use credential_providers::{
    CredentialProvider, CredentialProviders, ProviderVariable, TokenAttributes, TokenCacheType,
};
pub use duration::{DurationError, GoDuration};
pub use error::{ConfigError, ConfigErrors, Place};
pub use gates::{FeatureGates, Features, GateError, Stage};
pub use kubeletconfig::{
    API_VERSION, KIND, KubeletConfiguration,
    parts::{
        Anonymous, Authentication, Authorization, CrashLoopBackOff, Logging, LoggingOptions,
        MemoryReservation, MemorySwap, OutputOptions, QuantityText, ShutdownGracePeriodByPodPriority, Taint,
        Tracing, UserNamespaces, VModuleRule, WebhookAuthentication, WebhookAuthorization, X509,
    },
};
pub use load::{Disk, Files};
pub use node::NodeFlags;
pub use resolve::{Invocation, KUBERNETES_VERSION, Resolved, from_args, version_line};
pub use validate::{CGROUP_V1_WARNING, MachineFacts};
