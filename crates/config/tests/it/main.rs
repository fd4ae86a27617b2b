//! Resolving the command line and files to one configuration, as the binary does it.

mod credential_providers;
mod defaults;
mod files;
mod flags;
mod rules;
mod support;
