//! Generates Rust code from the protocol definitions, in process (without protoc). It is run manually and its output is checked
//! in, so that a build needs no code generator. It writes only its own output.

use std::path::{Path, PathBuf};

/// Definitions, and the path of their generated code, relative to the workspace.
#[derive(Debug)]
struct Protocol {
    crate_name: &'static str,
    /// Below `proto`.
    file: &'static str,
    /// Below `src/generated`.
    generated: &'static str,
    /// The codec type.
    codec: &'static str,
}

const PROTOCOLS: &[Protocol] = &[
    Protocol {
        crate_name: "crates/proto/cri-api",
        file: "runtime/v1/api.proto",
        generated: "runtime.v1.rs",
        codec: "crate::Codec",
    },
    Protocol {
        crate_name: "crates/proto/grpc-api",
        file: "podresources/v1/api.proto",
        generated: "v1.rs",
        codec: "tonic_prost::ProstCodec",
    },
    Protocol {
        crate_name: "crates/proto/grpc-api",
        file: "podresources/v1alpha1/api.proto",
        generated: "v1alpha1.rs",
        codec: "tonic_prost::ProstCodec",
    },
    Protocol {
        crate_name: "crates/proto/grpc-api",
        file: "deviceplugin/v1beta1/api.proto",
        generated: "v1beta1.rs",
        codec: "tonic_prost::ProstCodec",
    },
    Protocol {
        crate_name: "crates/proto/grpc-api",
        file: "pluginregistration/v1/api.proto",
        generated: "pluginregistration.rs",
        codec: "tonic_prost::ProstCodec",
    },
    Protocol {
        crate_name: "crates/proto/grpc-api",
        file: "csi/csi.proto",
        generated: "csi.v1.rs",
        codec: "tonic_prost::ProstCodec",
    },
    Protocol {
        crate_name: "crates/proto/grpc-api",
        file: "dra/v1/api.proto",
        generated: "k8s.io.kubelet.pkg.apis.dra.v1.rs",
        codec: "tonic_prost::ProstCodec",
    },
    Protocol {
        crate_name: "crates/proto/grpc-api",
        file: "dra/v1beta1/api.proto",
        generated: "k8s.io.kubelet.pkg.apis.dra.v1beta1.rs",
        codec: "tonic_prost::ProstCodec",
    },
    Protocol {
        crate_name: "crates/proto/grpc-api",
        file: "drahealth/v1alpha1/api.proto",
        // Its package has the name of another one.
        generated: "drahealth/v1alpha1.rs",
        codec: "tonic_prost::ProstCodec",
    },
    Protocol {
        crate_name: "crates/proto/grpc-api",
        file: "pods/v1alpha1/api.proto",
        // As above.
        generated: "pods/v1alpha1.rs",
        codec: "tonic_prost::ProstCodec",
    },
    Protocol {
        crate_name: "crates/proto/grpc-api",
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

/// Why the generation failed. The text has the file.
#[derive(Debug)]
pub(crate) struct CodegenError(String);

impl std::fmt::Display for CodegenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Generates the code of each protocol; returns the path of the last file.
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
    let generated = out.join(protocol.generated);
    let dir = generated.parent().unwrap_or(out);
    std::fs::create_dir_all(dir).map_err(|e| failed("create output directory for", &e))?;
    let descriptors = protox::compile([file], [&include]).map_err(|e| failed("parse", &e))?;
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        // A server without a method responds Unimplemented, as a real runtime of another version does.
        .generate_default_stubs(true)
        // `model` keeps labels and annotations sorted; the same type in messages saves a copy for each container.
        .btree_map(".")
        // A configuration has kilobytes, and would be stored in every nested future of a call.
        .boxed(".runtime.v1.CreateContainerRequest.config")
        .boxed(".runtime.v1.CreateContainerRequest.sandbox_config")
        .boxed(".runtime.v1.RunPodSandboxRequest.config")
        .boxed(".runtime.v1.PullImageRequest.sandbox_config")
        .codec_path(protocol.codec)
        .out_dir(dir)
        .compile_fds(descriptors)
        .map_err(|e| failed("generate code for", &e))?;
    Ok(generated)
}

fn workspace() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checked_in_protocol_code_is_up_to_date() {
        for protocol in PROTOCOLS {
            let scratch = std::env::temp_dir().join(format!("xtask-codegen-{}", std::process::id()));
            let fresh = generate_into(protocol, &scratch).map(|path| std::fs::read_to_string(path).unwrap());
            std::fs::remove_dir_all(&scratch).unwrap();
            let checked_in = protocol.checked_in().join(protocol.generated);
            assert!(
                fresh.unwrap() == std::fs::read_to_string(&checked_in).unwrap(),
                "{} is out of date: run `cargo run -p xtask -- codegen`",
                checked_in.display()
            );
        }
    }
}
