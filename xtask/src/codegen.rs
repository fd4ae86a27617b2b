//! Turns our protocol definitions into Rust, in process (no protoc) and by hand only: what it writes is checked in, so
//! that a build needs no code generator. It never edits anything but its own output.

use std::path::{Path, PathBuf};

/// Where the CRI definitions and their Rust form live, relative to the workspace.
const PROTO_DIR: &str = "crates/cri-api/proto";
const PROTO_FILE: &str = "runtime/v1/api.proto";
const GENERATED_DIR: &str = "crates/cri-api/src/generated";
const GENERATED_FILE: &str = "runtime.v1.rs";

/// Why nothing was generated. The text names the file.
#[derive(Debug)]
pub(crate) struct CodegenError(String);

impl std::fmt::Display for CodegenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Writes the Rust form of the CRI protocol to where it is checked in; returns the file's path.
pub(crate) fn regenerate() -> Result<PathBuf, CodegenError> {
    let out = workspace().join(GENERATED_DIR);
    generate_into(&out)
}

/// Generates into any directory, so that a test can compare without touching the checked-in file.
fn generate_into(out: &Path) -> Result<PathBuf, CodegenError> {
    let failed =
        |what: &str, error: &dyn std::fmt::Display| CodegenError(format!("{what} {PROTO_FILE}: {error}"));
    let include = workspace().join(PROTO_DIR);
    std::fs::create_dir_all(out).map_err(|e| failed("create output directory for", &e))?;
    let descriptors = protox::compile([PROTO_FILE], [&include]).map_err(|e| failed("parse", &e))?;
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        // A server that lacks a verb answers Unimplemented, as a real runtime of another version does.
        .generate_default_stubs(true)
        // The model keeps labels and annotations sorted; the same type on the wire side spares a copy per container.
        .btree_map(".")
        // A configuration is kilobytes in size, and every layer of futures that a call passes through has room for it.
        .boxed(".runtime.v1.CreateContainerRequest.config")
        .boxed(".runtime.v1.CreateContainerRequest.sandbox_config")
        .boxed(".runtime.v1.RunPodSandboxRequest.config")
        .boxed(".runtime.v1.PullImageRequest.sandbox_config")
        .codec_path("crate::Codec")
        .out_dir(out)
        .compile_fds(descriptors)
        .map_err(|e| failed("generate code for", &e))?;
    Ok(out.join(GENERATED_FILE))
}

fn workspace() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checked_in_protocol_is_what_the_definitions_say() {
        let scratch = std::env::temp_dir().join(format!("xtask-codegen-{}", std::process::id()));
        let fresh = generate_into(&scratch).map(|path| std::fs::read_to_string(path).unwrap());
        std::fs::remove_dir_all(&scratch).unwrap();
        let checked_in =
            std::fs::read_to_string(workspace().join(GENERATED_DIR).join(GENERATED_FILE)).unwrap();
        assert!(
            fresh.unwrap() == checked_in,
            "crates/cri-api/src/generated is not what its .proto says: run `cargo run -p xtask -- codegen`"
        );
    }
}
