//! Passes three options to the linker that make the released program smaller, in the file and in memory, where the linker
//! supports them.
//!
//! Relocations are packed (half a megabyte that every start would read and keep), functions with equal code are kept once,
//! and those that an idle node never runs are placed behind all others (`docs/decisions/0034`). Never changes what the
//! program does.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=cold-code.ld");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let is_release = variable("PROFILE") == "release";
    // On this target Rust links with its own lld.
    let links_with_lld = variable("TARGET") == "x86_64-unknown-linux-gnu";
    if is_release && links_with_lld {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
        println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
        println!("cargo:rustc-link-arg-bins=-Wl,-T,{}/cold-code.ld", variable("CARGO_MANIFEST_DIR"));
    }
}
