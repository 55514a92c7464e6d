//! Compiles the contract with protox, so that no system protoc is needed.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let sources = ["dormouse/files/v1/files.proto", "dormouse/host/v1/host.proto", "dormouse/guest/v1/guest.proto"];
    for source in sources {
        println!("cargo::rerun-if-changed={source}");
    }
    let descriptors = protox::compile(sources, [&root])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
