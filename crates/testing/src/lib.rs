//! Fakes and fixtures for tests: a runtime that behaves, a fake CRI server, pods in a line.
#![forbid(unsafe_code)]
