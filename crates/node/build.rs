//! Generates the messages and services of `proto/mez/v1/mez.proto`, and the schema of exported images, without an installed protoc.

use std::env;
use std::error::Error;
use std::fs;
use std::path::PathBuf;

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["mez/v1/mez.proto"], ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // The schema that an exported file contains, in Foxglove's format.
    let image = protox::compile(["foxglove/CompressedImage.proto"], ["proto"])?;
    fs::write(out.join("foxglove.CompressedImage.bin"), image.encode_to_vec())?;
    // Reflection serves the same descriptors, comments included.
    fs::write(out.join("mez.v1.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        // Otherwise the generated function that dials would be called `connect`, like one of our calls.
        .build_transport(false)
        // Payloads are reference-counted, so that a frame of a log is not copied into a message.
        .bytes(".")
        // Boxed, so that moving an event costs as much as its smallest variant, and not as much as the metadata of a frame.
        .boxed(".mez.v1.SubscribeEvent.event.frame")
        .compile_fds(descriptors)?;
    Ok(())
}
