//! Flags, KubeletConfiguration v1beta1, drop-ins, defaults, validation and feature gates, resolved to one value.
#![forbid(unsafe_code)]
