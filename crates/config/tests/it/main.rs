//! Configuration from command line and files to one resolved value, as the binary sees it.

mod credential_providers;
mod defaults;
mod files;
mod flags;
mod rules;
mod support;
