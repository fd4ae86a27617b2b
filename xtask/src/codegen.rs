//! Turns our protocol definitions into Rust, in process (no protoc) and by hand only: what it writes is checked in, so
//! that a build needs no code generator. It never edits anything but its own output.

use std::path::{Path, PathBuf};

/// Definitions, and where their Rust form is checked in, relative to the workspace.
#[derive(Debug)]
struct Protocol {
    crate_name: &'static str,
    /// Below `proto`.
    file: &'static str,
    /// Below `src/generated`.
    generated: &'static str,
    /// The type that encodes and decodes.
    codec: &'static str,
}

const PROTOCOLS: &[Protocol] = &[
    Protocol {
        crate_name: "crates/cri-api",
        file: "runtime/v1/api.proto",
        generated: "runtime.v1.rs",
        codec: "crate::Codec",
    },
    Protocol {
        crate_name: "crates/grpc-api",
        file: "podresources/v1/api.proto",
        generated: "v1.rs",
        codec: "tonic_prost::ProstCodec",
    },
    Protocol {
        crate_name: "crates/grpc-api",
        file: "podresources/v1alpha1/api.proto",
        generated: "v1alpha1.rs",
        codec: "tonic_prost::ProstCodec",
    },
    Protocol {
        crate_name: "crates/grpc-api",
        file: "deviceplugin/v1beta1/api.proto",
        generated: "v1beta1.rs",
        codec: "tonic_prost::ProstCodec",
    },
    Protocol {
        crate_name: "crates/grpc-api",
        file: "otlp/trace.proto",
        generated: "opentelemetry.proto.collector.trace.v1.rs",
        codec: "tonic_prost::ProstCodec",
    },
];

impl Protocol {
    fn checked_in(&self) -> PathBuf {
        workspace().join(self.crate_name).join("src/generated")
    }
}

/// Why nothing was generated. The text names the file.
#[derive(Debug)]
pub(crate) struct CodegenError(String);

impl std::fmt::Display for CodegenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Writes the Rust form of each protocol to where it is checked in; returns the last file's path.
pub(crate) fn regenerate() -> Result<PathBuf, CodegenError> {
    let mut written = PathBuf::new();
    for protocol in PROTOCOLS {
        written = generate_into(protocol, &protocol.checked_in())?;
    }
    Ok(written)
}

/// Generates into any directory, so that a test can compare without touching the checked-in file.
fn generate_into(protocol: &Protocol, out: &Path) -> Result<PathBuf, CodegenError> {
    let file = protocol.file;
    let failed = |what: &str, error: &dyn std::fmt::Display| CodegenError(format!("{what} {file}: {error}"));
    let include = workspace().join(protocol.crate_name).join("proto");
    std::fs::create_dir_all(out).map_err(|e| failed("create output directory for", &e))?;
    let descriptors = protox::compile([file], [&include]).map_err(|e| failed("parse", &e))?;
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
        .codec_path(protocol.codec)
        .out_dir(out)
        .compile_fds(descriptors)
        .map_err(|e| failed("generate code for", &e))?;
    Ok(out.join(protocol.generated))
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
        for protocol in PROTOCOLS {
            let scratch = std::env::temp_dir().join(format!("xtask-codegen-{}", std::process::id()));
            let fresh = generate_into(protocol, &scratch).map(|path| std::fs::read_to_string(path).unwrap());
            std::fs::remove_dir_all(&scratch).unwrap();
            let checked_in = protocol.checked_in().join(protocol.generated);
            assert!(
                fresh.unwrap() == std::fs::read_to_string(&checked_in).unwrap(),
                "{} is not what its .proto says: run `cargo run -p xtask -- codegen`",
                checked_in.display()
            );
        }
    }
}
